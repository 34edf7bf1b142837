"""The questions of the store port, answered with SQL.

Knows: the statements and how their rows become records.
Does not know: the writing connection's transactions, locks, pools of connections.

Each function takes a connection and answers from one snapshot of it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat

from embedq.limits import LIMITS
from embedq.storage import statements as sql
from embedq.storage.port import Load, LoadDue, Tally
from embedq.storage.rows import (
    Chunk,
    DeadRow,
    DeliveryRow,
    DueChunk,
    GroupRow,
    QueueRow,
    Stored,
    Touched,
    Waiting,
)

#: How many seqs one snapshot may look at; about 50 ms for a queue with few rows among many.
SPAN = 200_000

#: A limit that no table reaches.
EVERYTHING = 1 << 62

_FINAL = 10
_CRASHED = 3

Latest = dict[int, Touched]

_new_tuple: Callable[[type[Stored], Iterable[object]], Stored] = tuple.__new__


def _latest(rows: Iterable[tuple[int, ...]]) -> tuple[Latest, set[int]]:
    """Return the latest delivery of each message, and the messages that are settled."""
    latest: Latest = {}
    settled: set[int] = set()
    for seq, attempt, crashes, epoch, counter, ended, outcome, due in rows:
        if (outcome or 0) >= _FINAL:
            settled.add(seq)
        crashed = outcome == _CRASHED
        latest[seq] = Touched(seq, attempt, crashes, epoch, counter, ended is None, due, crashed)
    return latest, settled


def _touched_in(
    connection: sqlite3.Connection, group: int, seqs: list[int]
) -> tuple[Latest, set[int]]:
    latest: Latest = {}
    settled: set[int] = set()
    for size, part in sql.in_chunks(seqs):
        some, done = _latest(connection.execute(sql.touched_in(size), [group, *part]))
        latest.update(some)
        settled |= done
    return latest, settled


def load(connection: sqlite3.Connection, request: Load, queue: int, floor: int) -> Chunk:
    """Answer `Store.load` for one snapshot of at most SPAN seqs; the caller goes on from there."""
    group, priority, after, upto, limit = request
    after = max(after, floor)
    end = min(upto, after + SPAN)
    if priority == 0:
        window = (after, end, queue, limit)
        found = connection.execute(sql.LOAD_PLAIN, window).fetchall()
    else:
        end = upto  # an index leads straight to the rows
        found = connection.execute(
            sql.LOAD_PRIORITY, (after, end, queue, priority, limit)
        ).fetchall()
    if len(found) == limit:
        end = found[-1][0]
    if not found:
        return Chunk([], [], end)
    if priority == 0:
        rows = connection.execute(sql.TOUCHED_BETWEEN, (found[0][0], found[-1][0], group))
        latest, settled = _latest(rows)
    else:
        latest, settled = _touched_in(connection, group, [seq for seq, _ in found])
    fresh: list[int] = []
    others: list[Waiting] = []
    for seq, key in found:
        touched = latest.get(seq)
        if touched is None and key is None:
            fresh.append(seq)
        elif seq in settled:
            continue
        elif touched is None or touched.open or touched.due is None or key is not None:
            others.append(_waiting(connection, seq, touched))
    return Chunk(fresh, others, end)


def _waiting(connection: sqlite3.Connection, seq: int, touched: Touched | None) -> Waiting:
    row = connection.execute(sql.WAITING, (seq,)).fetchone()
    _, priority, key, due, max_attempts = row
    if touched is not None:
        due = touched.due
    return _sound(seq, priority, key, due, max_attempts, touched)


def _sound(
    seq: int,
    priority: object,
    key: str | None,
    due: object,
    max_attempts: object,
    touched: Touched | None,
) -> Waiting:
    """Make a record in which damaged values do not get into the way of other messages."""
    level = priority if type(priority) is int and 0 <= priority <= LIMITS.priority_max else 0
    bound = max_attempts if type(max_attempts) is int else None
    return Waiting(seq, level, key, due if type(due) is int else None, bound, touched)


def load_due(connection: sqlite3.Connection, request: LoadDue, queue: int, floor: int) -> DueChunk:
    """Answer `Store.load_due`."""
    group, retries, (after_due, after_seq), limit, tails = request
    if retries:
        statement = sql.LOAD_TAIL if tails else sql.LOAD_RETRIES
        found = connection.execute(statement, (group, after_due, after_seq, limit)).fetchall()
        rows = [
            _sound(
                seq,
                priority,
                None,
                due,
                most,
                Touched(seq, attempt, crashes, epoch, counter, False, due, outcome == _CRASHED),
            )
            for seq, priority, due, most, key, attempt, crashes, epoch, counter, outcome in found
            if key is None and seq > floor
        ]
    else:
        found = connection.execute(
            sql.LOAD_DELAYED, (queue, after_due, after_seq, limit)
        ).fetchall()
        latest, settled = _touched_in(connection, group, [row[0] for row in found])
        rows = []
        for seq, priority, due, most, key in found:
            touched = latest.get(seq)
            if key is not None or seq in settled or seq <= floor:
                continue
            if touched is not None and not touched.open and touched.due is not None:
                continue  # its retry time counts, see LOAD_RETRIES
            rows.append(_sound(seq, priority, None, due, most, touched))
    last = (after_due, after_seq)
    if found:
        # What is damaged into another kind of value comes after all numbers.
        due = found[-1][2]
        last = (due if type(due) is int else EVERYTHING, found[-1][0])
    return DueChunk(rows, last, len(found) < limit)


def next_of_key(
    connection: sqlite3.Connection, group: int, queue: int, key: str, after: int
) -> Waiting | None:
    """Answer `Store.next_of_key`; `after` is at least the group's floor."""
    row = connection.execute(sql.LOAD_KEY, (queue, key, after, group)).fetchone()
    if row is None:
        return None
    seq, priority, due, max_attempts = row
    latest, _ = _touched_in(connection, group, [seq])
    touched = latest.get(seq)
    if touched is not None:
        due = touched.due
    return _sound(seq, priority, key, due, max_attempts, touched)


def latest(
    connection: sqlite3.Connection, group: int, seq: int, queue: int, floor: int
) -> DeliveryRow | None:
    """Answer `Store.latest`."""
    present = connection.execute(sql.PRESENT, (seq, queue)).fetchone()
    if present is None or seq <= floor:
        return None
    rows = connection.execute(sql.DELIVERIES_OF, (seq, group)).fetchall()
    deliveries = [DeliveryRow._make(row) for row in rows]
    if not deliveries or any((row.outcome or 0) >= _FINAL for row in deliveries):
        return None
    return deliveries[-1]


def open_among(
    connection: sqlite3.Connection, group: int, epoch: int, seqs: list[int]
) -> dict[int, int]:
    """Answer `Store.open_deliveries`."""
    latest, _ = _touched_in(connection, group, seqs)
    return {
        seq: touched.counter
        for seq, touched in latest.items()
        if touched.open and touched.epoch == epoch
    }


def messages(connection: sqlite3.Connection, seqs: Sequence[int]) -> list[Stored]:
    """Answer `Store.messages`."""
    wanted = list(seqs)
    if sql.is_run(wanted):
        ends = (wanted[0], wanted[-1])
        return _stored(connection.execute(sql.SELECT_MESSAGES_BETWEEN, ends).fetchall())
    found: list[Stored] = []
    for size, part in sql.in_chunks(wanted):
        found += _stored(connection.execute(sql.select_messages(size), part).fetchall())
    return found


def _stored(rows: list[tuple[object, ...]]) -> list[Stored]:
    # Not `_make`: that is a Python function, called for each message.
    return list(map(_new_tuple, repeat(Stored), rows))


def message_range(
    connection: sqlite3.Connection, queue: int, after: int, limit: int
) -> list[Stored]:
    """Answer `Store.range`."""
    return [Stored._make(row) for row in connection.execute(sql.RANGE, (queue, after, limit))]


def deliveries(connection: sqlite3.Connection, seq: int) -> list[DeliveryRow]:
    """Answer `Store.deliveries`."""
    return [DeliveryRow._make(row) for row in connection.execute(sql.DELIVERIES, (seq,))]


def dead(connection: sqlite3.Connection, queue: int, after: int, limit: int) -> list[DeadRow]:
    """Answer `Store.dead`."""
    return [DeadRow._make(row) for row in connection.execute(sql.DEAD_LIST, (queue, after, limit))]


def dead_letter(connection: sqlite3.Connection, seq: int, group: int) -> DeadRow | None:
    """Answer `Store.dead_letter`."""
    row = connection.execute(sql.DEAD_ONE, (seq, group)).fetchone()
    return None if row is None else DeadRow._make(row)


def tally(
    connection: sqlite3.Connection, groups: Iterable[GroupRow], after: int, limit: int
) -> Tally:
    """Count one stretch of messages: what is stored, and settled by each of `groups`."""
    upto: int | None = connection.execute(sql.STRETCH, (after, limit)).fetchone()[0]
    if upto is None:
        return Tally({}, {}, {}, after, {})
    stored: dict[int, int] = {}
    last: dict[int, int] = {}
    for queue, count, highest in connection.execute(sql.TALLY_QUEUES, (after, upto)):
        stored[queue] = count
        last[queue] = highest
    settled: dict[int, int] = dict(connection.execute(sql.TALLY_SETTLED, (after, upto)).fetchall())
    for group in groups:
        if group.floor > after and group.queue in stored:
            below = connection.execute(
                sql.TALLY_FLOOR, (after, min(upto, group.floor), group.queue)
            ).fetchone()[0]
            if below:
                settled[group.id] = settled.get(group.id, 0) + below
    return Tally(stored, last, settled, upto, {})


def catalogue(
    connection: sqlite3.Connection, bound: int, decode: Callable[[str], object]
) -> tuple[list[QueueRow], list[GroupRow]]:
    """Answer `Store.catalogue`; `bound` stands in for a highest seq that is not known."""
    queues = []
    for id_, name, policy, paused, stored, dead_count, last in connection.execute(sql.QUEUES):
        bounded = bound if last is None else last
        row = QueueRow(id_, name, decode(policy), bool(paused), stored, dead_count, bounded)  # type: ignore[arg-type]
        queues.append(row)
    groups = [GroupRow(*row) for row in connection.execute(sql.GROUPS)]
    return queues, groups


def session_names(connection: sqlite3.Connection, ids: Iterable[int]) -> dict[int, str]:
    """Answer `Store.session_names`."""
    names: dict[int, str] = {}
    for id_ in ids:
        row = connection.execute(sql.SESSION_NAME, (id_,)).fetchone()
        if row is not None:
            names[id_] = row[1]
    return names


def find_sessions(connection: sqlite3.Connection, tokens: Iterable[bytes]) -> dict[bytes, int]:
    """Answer `Store.find_sessions`."""
    found: dict[bytes, int] = {}
    for token in tokens:
        row = connection.execute(sql.SESSION_FIND, (token,)).fetchone()
        if row is not None:
            found[token] = row[0]
    return found
