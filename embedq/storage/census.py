"""Count what is in a database, from outside: messages, leases, dead letters, ages.

Knows: which numbers the file notes, which must be counted, and when they belong to one moment.
Does not know: what the memory of a host knows (deliveries since it opened, who waits).
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from embedq.policy import QueuePolicy
from embedq.storage import reads, statements as sql
from embedq.storage.onlooker import Onlooker
from embedq.storage.rows import GroupRow, QueueRow

#: Messages counted in one snapshot: a quarter of a second at most, so that no log is pinned.
SPAN: Final = 200_000

_OPEN: Final = (
    "SELECT grp,epoch=?,count(*),min(started) FROM delivery WHERE ended IS NULL GROUP BY 1,2"
)
#: Uses msg_due and delivery_due.
_DELAYED: Final = (
    "SELECT g.id,count(*) FROM consumer_group g JOIN msg ON msg.queue=g.queue "
    "WHERE msg.due IS NOT NULL AND msg.due>?1 AND msg.seq>g.floor "
    "AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.seq=msg.seq AND d.grp=g.id) GROUP BY g.id"
)
_RETRIES: Final = (
    "SELECT g.id,count(*) FROM consumer_group g JOIN delivery d ON d.grp=g.id "
    "WHERE d.due IS NOT NULL AND d.due>? GROUP BY g.id"
)
_OLDEST: Final = (
    "SELECT put_at FROM msg NOT INDEXED WHERE queue=?1 AND seq>?2 AND seq<=?3 "
    "AND NOT EXISTS (SELECT 1 FROM delivery d "
    "WHERE d.seq=msg.seq AND d.grp=?4 AND d.outcome>=10) ORDER BY seq LIMIT 1"
)
_OLDEST_STORED: Final = "SELECT put_at FROM msg NOT INDEXED WHERE queue=? ORDER BY seq LIMIT 1"
#: The first messages of a queue, and whether anybody has ever had them delivered.
_FIRST: Final = (
    "SELECT EXISTS (SELECT 1 FROM delivery d WHERE d.seq=msg.seq) FROM msg NOT INDEXED "
    "WHERE queue=? AND seq<=? ORDER BY seq LIMIT ?"
)
#: Stranded messages are counted up to here: whoever has so many needs no exact number.
STRANDED_MAX: Final = 10_000
_LAST: Final = "SELECT max(seq) FROM msg"


@dataclass(slots=True)
class GroupCount:
    """One group. `waiting` includes `delayed` and `interrupted`.

    `leased`: deliveries of a live host, the oldest begun at `leased_at`; `interrupted`: those
    that a dead host left open. Times are milliseconds of wall clock; None: there is nothing.
    """

    name: str
    waiting: int = 0
    delayed: int = 0
    leased: int = 0
    interrupted: int = 0
    leased_at: int | None = None
    oldest_at: int | None = None


@dataclass(slots=True)
class QueueCount:
    """One queue. `length`: messages that some group is not done with; `stored`: all of them.

    `stranded`: messages that no group gets, because they were put before the first one, which
    began at the end; STRANDED_MAX stands for that many or more.
    """

    name: str
    paused: bool
    policy: QueuePolicy
    stored: int
    length: int
    dead: int
    oldest_at: int | None = None
    stranded: int = 0
    groups: list[GroupCount] = field(default_factory=list)


@dataclass(slots=True)
class Census:
    """All queues at `at_ms`.

    `exact`: all numbers are of one moment; else messages were counted in several steps while a
    host went on. `noted`: they are the notes of a clean close.
    """

    at_ms: int
    exact: bool
    noted: bool
    queues: list[QueueCount]


class _Moment(NamedTuple):
    """What one snapshot says."""

    queues: list[QueueRow]
    groups: list[GroupRow]
    noted: bool
    dead: dict[int, int]
    open: dict[tuple[int, bool], tuple[int, int]]
    delayed: dict[int, int]
    last: int
    stored: dict[int, int]
    settled: dict[int, int]
    upto: int


def take(onlooker: Onlooker, *, alive: bool) -> Census:
    """Count everything. `alive`: a host owns the file, so that its open deliveries are leases."""
    now = onlooker.now_ms()
    before = onlooker.signature()
    moment = onlooker.read(lambda db: _first(db, now))
    whole = moment.noted or _add_rest(onlooker, moment)
    queues = []
    for row in moment.queues:
        groups = [group for group in moment.groups if group.queue == row.id]
        queues.append(_queue(onlooker, moment, row, groups, alive=alive))
    exact = whole or onlooker.signature() == before
    return Census(now, exact, moment.noted, queues)


def _first(db: sqlite3.Connection, now: int) -> _Moment:
    meta = dict(db.execute("SELECT key, value FROM meta WHERE typeof(value)='integer'").fetchall())
    queues, groups = reads.catalogue(db, 0, QueuePolicy.decode)
    noted = bool(meta.get("clean"))
    last = db.execute(_LAST).fetchone()[0] or 0
    if noted:
        stored = {row.id: row.stored for row in queues}
        settled = {row.id: row.settled for row in groups}
        dead = {row.id: row.dead for row in queues}
        upto = last
    else:
        tally = reads.tally(db, groups, 0, SPAN)
        stored, settled, upto = dict(tally.stored), dict(tally.settled), tally.upto
        dead = dict(db.execute(sql.DEAD_COUNTS).fetchall())
    opened = db.execute(_OPEN, (meta.get("epoch"),)).fetchall()
    delayed: dict[int, int] = {}
    for statement in (_DELAYED, _RETRIES):
        for group, count in db.execute(statement, (now,)):
            delayed[group] = delayed.get(group, 0) + count
    return _Moment(
        queues,
        groups,
        noted,
        dead,
        {(group, bool(mine)): (count, first) for group, mine, count, first in opened},
        delayed,
        last,
        stored,
        settled,
        upto,
    )


def _add_rest(onlooker: Onlooker, moment: _Moment) -> bool:
    """Count what comes after the first stretch, up to the end as it was. True: nothing did."""
    after, whole = moment.upto, True
    while after < moment.last:
        whole = False
        tally = onlooker.read(
            lambda db, after=after: reads.tally(db, moment.groups, after, SPAN)  # type: ignore[misc]
        )
        if tally.upto == after:
            break
        after = tally.upto
        for total, part in ((moment.stored, tally.stored), (moment.settled, tally.settled)):
            for number, count in part.items():
                total[number] = total.get(number, 0) + count
    return whole


def _queue(
    onlooker: Onlooker, moment: _Moment, row: QueueRow, groups: list[GroupRow], *, alive: bool
) -> QueueCount:
    stored = moment.stored.get(row.id, 0)
    settled = [moment.settled.get(group.id, 0) for group in groups]
    kept = row.policy.retain_ms is not None and bool(groups)
    found = QueueCount(
        row.name,
        row.paused,
        row.policy,
        stored,
        stored - min(settled) if kept else stored,
        moment.dead.get(row.id, 0),
    )
    for group, done in zip(groups, settled, strict=True):
        leased, since = moment.open.get((group.id, True), (0, None)) if alive else (0, None)
        left = sum(
            count
            for (number, mine), (count, _) in moment.open.items()
            if number == group.id and not (alive and mine)
        )
        count = GroupCount(
            group.name,
            max(0, stored - done - leased),
            moment.delayed.get(group.id, 0),
            leased,
            left,
            since,
        )
        if stored > done:
            count.oldest_at = _oldest(onlooker, group, moment.last)
        found.groups.append(count)
    if groups and min(settled) > 0:
        lowest: int = min(each.floor for each in groups)
        found.stranded = _stranded(onlooker, row.id, lowest)
    if groups:
        ages = [group.oldest_at for group in found.groups if group.oldest_at is not None]
        found.oldest_at = min(ages, default=None)
    elif stored:
        first = onlooker.read(lambda db: db.execute(_OLDEST_STORED, (row.id,)).fetchone())
        found.oldest_at = first[0] if first else None
    return found


def _stranded(onlooker: Onlooker, queue: int, floor: int) -> int:
    """Count the messages at the beginning that are below every group and were never delivered."""
    if not floor:
        return 0
    window = (queue, floor, STRANDED_MAX)
    rows = onlooker.read(lambda db: db.execute(_FIRST, window).fetchall())
    had = [number for number, (delivered,) in enumerate(rows) if delivered]
    return had[0] if had else len(rows)


def _oldest(onlooker: Onlooker, group: GroupRow, last: int) -> int | None:
    after = group.floor
    while after < last:
        window = (group.queue, after, after + SPAN, group.id)
        row = onlooker.read(lambda db, window=window: db.execute(_OLDEST, window).fetchone())  # type: ignore[misc]
        if row is not None:
            oldest: int = row[0]
            return oldest
        after += SPAN
    return None
