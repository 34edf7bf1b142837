"""Feeds: messages, history or dead letters in their order, read in bulk for those who compute.

Knows: how thousands of rows come out of SQLite as a few long values, what else readers ask.
Does not know: who reads, which connection it is, offsets, Arrow.

A part of a feed is one row of SQLite: each column of numbers as a list in text, and each column of
bytes as one long value beside the list of its lengths. That costs half of what a Python object for
each value does, gives the GIL up once instead of thousands of times, and travels as it is
(docs/decisions/0028, 0033). Every function answers from the snapshot of its connection.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

import msgspec

from embedq.errors import MessagesGone, StoreCorrupt
from embedq.storage.joined import NUMBERS, SOURCES, TEXTS, Feed, heading, statement, unwritten

__all__ = ["NUMBERS", "TEXTS", "Feed", "heading"]

#: The largest value SQLite may build for a part; what needs more is read again with fewer rows.
PART_BYTES: Final = 32 << 20
#: The most a single row may need: nothing larger can be in a file.
_ROW_BYTES: Final = 1_000_000_000
#: How many seqs one statement may look at, where few of them belong to the queues asked for.
_SPAN: Final = 200_000
#: Where the numbers of an epoch begin in the order of closing (embedq.storage.sqlite).
_CLOSING_SHIFT: Final = 40
_OF_ITS_OWN: Final = (
    "give each query an option `group` of its own; failOnDataLoss=false goes on with what there is"
)


class Wanted(msgspec.Struct, frozen=True):
    """Rows of a feed with a position in (after, through], at most about `rows` of them.

    `of`: whose, by number: queues; of the history, one group. `states`: outcomes by number, or
    reasons of dead letters; none means all. `varying`: the columns that are listed without a look
    whether all rows have one value; None: all are.
    """

    feed: Feed
    of: tuple[int, ...]
    after: int
    through: int
    columns: tuple[str, ...]
    rows: int = 8192
    states: tuple[int | str, ...] = ()
    varying: tuple[str, ...] | None = None

    def going_on(self, part: Part) -> Wanted:
        """Return what is left of the range after a part of it."""
        return msgspec.structs.replace(self, after=part.reached, varying=part.written)


class Part(msgspec.Struct, frozen=True):
    """All wanted rows with a position up to `reached`, in order; there may be none.

    `numbers`: for each name of `heading()` a line for each row, empty where there is NULL.
    `texts`: the values of a column one after another; their lengths are among the numbers.
    `written`: the columns that have a list; None: all. `same`: the value that each other column
    has in all rows, of texts NULL; none is told of a column that says what the position says.
    """

    reached: int
    rows: int
    numbers: dict[str, bytes]
    texts: dict[str, bytes]
    written: tuple[str, ...] | None = None
    same: dict[str, int | None] = {}


class Extent(msgspec.Struct, frozen=True):
    """How far a feed goes: the positions of its first and its last row, both 0 if it is empty.

    `ceiling`: no position above it was ever given; who has read further has read another file.
    """

    first: int
    head: int
    ceiling: int


class Member(msgspec.Struct, frozen=True):
    """A group: the number of its queue, its name, and up to where its messages may be gone."""

    queue: int
    name: str
    floor: int


class Survey(msgspec.Struct, frozen=True):
    """What a reader of a feed must know of the file, from one snapshot.

    `queues`: names by number. `retained`: the numbers of queues with retain=. `key`: what ids are
    made with.
    """

    queues: dict[int, str]
    retained: tuple[int, ...]
    groups: dict[int, Member]
    extent: Extent
    key: bytes


def read(connection: sqlite3.Connection, wanted: Wanted, part_bytes: int | None = None) -> Part:
    """Return the next part of a feed. Call again with `after=part.reached` until `through`.

    No value in it has more than `part_bytes` (PART_BYTES), unless a single row has.
    """
    rows = wanted.rows
    most = part_bytes or PART_BYTES
    while True:
        size = most if rows > 1 else _ROW_BYTES
        before = connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, size)
        try:
            return _read(connection, wanted, rows)
        except sqlite3.DataError as error:  # SQLITE_TOOBIG: large bodies
            if rows == 1 or error.sqlite_errorcode != sqlite3.SQLITE_TOOBIG:
                raise
            rows = max(rows // 8, 1)
        finally:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, before)


def _read(connection: sqlite3.Connection, wanted: Wanted, rows: int) -> Part:
    end = _end(connection, wanted, rows)
    # The end of a part of the history was chosen by the number of rows, whole commits.
    most = -1 if wanted.feed == "history" else rows
    values = (*wanted.of, wanted.after, end, *wanted.states, most)
    blobs = joins_blobs(connection)
    written = wanted.varying
    while True:
        form = (wanted.feed, wanted.columns, written, len(wanted.of), len(wanted.states))
        found = connection.execute(statement(*form, blobs=blobs), values).fetchone()
        same, varying = _alike(unwritten(wanted.feed, wanted.columns, written), found)
        if not varying:
            break
        # Looked for in vain: it is written from here on, and in this part.
        written = (*(written or ()), *varying)
    count, last, *lists = found
    if count == most:
        end = last
    names = heading(wanted.feed, wanted.columns, written)
    numbers = {name: str(one or "").encode() for name, one in zip(names, lists, strict=False)}
    joined = iter(lists[len(names) :])
    texts = {
        name: b"" if name in same else _bytes(next(joined), blobs=blobs)
        for name in wanted.columns
        if name in TEXTS[wanted.feed]
    }
    return Part(end, count, numbers, texts, written, same)


def _alike(
    names: Sequence[str], found: Sequence[object]
) -> tuple[dict[str, int | None], list[str]]:
    """Return the value of each column that has only one, and which have several.

    The last values of a row tell how many are not NULL, and the smallest and the largest of them.
    """
    rows, ends = found[0], found[len(found) - 3 * len(names) :]
    same: dict[str, int | None] = {}
    varying = []
    for place, name in enumerate(names):
        filled, low, high = ends[3 * place : 3 * place + 3]
        if filled == 0:
            same[name] = None
        elif filled == rows and low == high and isinstance(low, int):
            same[name] = low
        else:
            varying.append(name)
    return same, varying


def _bytes(joined: bytes | str | None, *, blobs: bool) -> bytes:
    if isinstance(joined, str) and not blobs:
        return bytes.fromhex(joined)
    return joined if isinstance(joined, bytes) else b""


def _end(connection: sqlite3.Connection, wanted: Wanted, rows: int) -> int:
    """Return how far one statement may look."""
    if wanted.feed == "messages":
        # Where few of the messages are wanted, the limit alone would not bound the look.
        return min(wanted.through, wanted.after + _SPAN)
    if wanted.feed == "dead":
        return wanted.through
    # Deliveries that were closed in one commit have one position: all of them, or none.
    sql = (
        "SELECT closed FROM delivery WHERE grp=? AND closed IS NOT NULL AND closed>? "
        "AND closed<=? ORDER BY closed LIMIT 1 OFFSET ?"
    )
    window = (*wanted.of, wanted.after, wanted.through, rows - 1)
    found = connection.execute(sql, window).fetchone()
    return wanted.through if found is None else int(found[0])


_joining: list[bool] = []


def joins_blobs(connection: sqlite3.Connection) -> bool:
    """Whether this SQLite joins bytes with zeros among them; an old one stops at the first."""
    if not _joining:
        sql = "SELECT length(CAST(group_concat(x'610062', '') AS BLOB))"
        _joining.append(connection.execute(sql).fetchone()[0] == len(b"a\0b"))
    return _joining[0]


def extent(connection: sqlite3.Connection, feed: Feed) -> Extent:
    """Return how far a feed goes, over all queues.

    Positions are given in the order of the commits: whoever has read up to the head has missed
    nothing, and nothing will be added below it.
    """
    if feed == "dead":
        first, head = _numbers(connection, "SELECT min(id), max(id) FROM dead")
        (ceiling,) = _numbers(connection, "SELECT seq FROM sqlite_sequence WHERE name='dead'")
    elif feed == "history":
        ends = "SELECT min(closed), max(closed) FROM delivery WHERE grp=? AND closed IS NOT NULL"
        groups = connection.execute("SELECT id FROM consumer_group").fetchall()
        found = [_numbers(connection, ends, group[0]) for group in groups]
        known = [ends for ends in found if ends[-1]]
        first = min((ends[0] for ends in known), default=0)
        head = max((ends[-1] for ends in known), default=0)
        ceiling = (_meta(connection, "epoch") + 1) << _CLOSING_SHIFT
    else:
        (first,) = _numbers(connection, "SELECT min(seq) FROM msg")
        (head,) = _numbers(connection, "SELECT max(seq) FROM msg")
        ceiling = _meta(connection, "seq_reserved")
    return Extent(first, head, max(head, ceiling))


def survey(connection: sqlite3.Connection, feed: Feed) -> Survey:
    """Return what a reader must know before it chooses what to read. Raises StoreCorrupt."""
    queues = connection.execute("SELECT id, name, retained FROM queue").fetchall()
    groups = connection.execute("SELECT id, queue, name, floor FROM consumer_group").fetchall()
    return Survey(
        {number: name for number, name, _ in queues},
        tuple(number for number, _, retained in queues if retained),
        {number: Member(*values) for number, *values in groups},
        extent(connection, feed),
        store_key(connection),
    )


def check_held(connection: sqlite3.Connection, groups: Sequence[int], after: int) -> None:
    """See that these groups, by number, still hold all messages after a position.

    In the snapshot in which they are read: what that shows of them was not gone then. Raises
    MessagesGone.
    """
    sql = (
        "SELECT g.floor, g.name, q.name FROM consumer_group g JOIN queue q ON q.id=g.queue "
        "WHERE g.id=?"
    )
    for number in groups:
        row = connection.execute(sql, (number,)).fetchone()
        if row is None:
            text = f"group number {number} was removed, and what it held may be gone"
            raise MessagesGone(text, hint=_OF_ITS_OWN)
        floor, group, queue = row
        if floor > after:
            raise MessagesGone(
                f"queue {queue!r}: messages up to {floor} were let go for group {group!r}, and "
                f"reading was to go on after {after}",
                hint=_OF_ITS_OWN,
            )


def first_since(
    connection: sqlite3.Connection, feed: Feed, of: tuple[int, ...], since_ms: int
) -> int | None:
    """Return the position of the first row put, closed or died at a time or later; None: none."""
    position, rows, owner = SOURCES[feed]
    when = {"messages": "m.put_at", "history": "d.ended", "dead": "x.died"}[feed]
    sql = (
        f"SELECT {position} FROM {rows} WHERE {owner} IN ({','.join('?' * len(of))}) "
        f"AND {position} IS NOT NULL AND {when}>=? ORDER BY {position} LIMIT 1"
    )
    found = connection.execute(sql, (*of, since_ms)).fetchone()
    return None if found is None else int(found[0])


def nth_after(
    connection: sqlite3.Connection, feed: Feed, of: tuple[int, ...], after: int, rows: int
) -> int | None:
    """Return the position of the row that is `rows` further in a sparse feed; None: not so many.

    For the history and dead letters, whose positions have gaps; of one owner or several.
    """
    position, _, owner = SOURCES[feed]
    table = {"messages": "msg m", "history": "delivery d", "dead": "dead x"}[feed]
    sql = (
        f"SELECT {position} FROM {table} WHERE {owner} IN ({','.join('?' * len(of))}) "
        f"AND {position}>? ORDER BY {position} LIMIT 1 OFFSET ?"
    )
    found = connection.execute(sql, (*of, after, rows - 1)).fetchone()
    return None if found is None else int(found[0])


def _numbers(connection: sqlite3.Connection, sql: str, *values: object) -> tuple[int, ...]:
    found = connection.execute(sql, values).fetchone() or (0,)
    return tuple(value if isinstance(value, int) else 0 for value in found)


def _meta(connection: sqlite3.Connection, key: str) -> int:
    return _numbers(connection, "SELECT value FROM meta WHERE key=?", key)[0]


def store_key(connection: sqlite3.Connection) -> bytes:
    """Return the key by which the ids of the file are made. Raises StoreCorrupt."""
    found = connection.execute("SELECT value FROM meta WHERE key='store_key'").fetchone()
    if found is None or not isinstance(found[0], bytes):
        raise StoreCorrupt("the store key is missing")
    return found[0]
