"""A part of a feed as one row of SQLite: which columns there are, the statement that joins them.

Knows: the columns of each feed, how the values of each become one long value.
Does not know: ranges, snapshots, who reads, what becomes of it.

Most columns of most queues have one value in thousands of rows: one queue, one kind, no key. What
is believed to be so is not listed: its smallest and largest value tell whether it is.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal

Feed = Literal["messages", "history", "dead"]

#: Forms of statements that are kept: a client of the host may ask for any columns.
_FORMS: Final = 256
#: What parts the lines of a list; char(10) would be called for each row.
_LINE: Final = "'\n'"

#: What each feed is ordered by, its rows, and whose they are.
SOURCES: Final[dict[Feed, tuple[str, str, str]]] = {
    "messages": ("m.seq", "msg m NOT INDEXED", "m.queue"),
    "history": (
        "d.closed",
        "delivery d LEFT JOIN session s ON s.id=d.session LEFT JOIN msg m ON m.seq=d.seq",
        "d.grp",
    ),
    "dead": ("x.id", "dead x", "x.queue"),
}
#: Columns that are integers, by the names that readers use.
NUMBERS: Final[dict[Feed, dict[str, str]]] = {
    "messages": {
        "seq": "m.seq",
        "queue": "m.queue",
        "kind": "m.kind",
        "priority": "m.priority",
        "put_at": "m.put_at",
        "due_at": "m.due",
        "expires_at": "m.expires",
    },
    "history": {
        "closed": "d.closed",
        "seq": "d.seq",
        "group": "d.grp",
        "attempt": "d.attempt",
        "started_at": "d.started",
        "ended_at": "d.ended",
        "outcome": "d.outcome",
        "crashes": "d.crashes",
        "put_at": "m.put_at",
    },
    "dead": {
        "number": "x.id",
        "seq": "x.seq",
        "queue": "x.queue",
        "group": "x.grp",
        "died_at": "x.died",
        "put_at": "x.put_at",
        "kind": "x.kind",
        "priority": "x.priority",
    },
}
#: Columns that are texts or bytes.
TEXTS: Final[dict[Feed, dict[str, str]]] = {
    "messages": {"key": "m.okey", "headers": "m.headers", "body": "m.body"},
    "history": {"worker": "s.name", "error": "d.error"},
    "dead": {
        "reason": "x.reason",
        "detail": "x.detail",
        "moved_by": "x.moved_by",
        "attempts": "x.attempts",
        "key": "x.okey",
        "headers": "x.headers",
        "body": "x.body",
    },
}
#: By which column each feed can be filtered: numbers of outcomes, reasons of dead letters.
STATES: Final[dict[Feed, str]] = {"history": "d.outcome", "dead": "x.reason"}
#: Columns that say what the position says; they are never written beside it.
_POSITIONS: Final[dict[Feed, tuple[str, ...]]] = {
    "messages": ("seq",),
    "history": ("closed",),
    "dead": ("number",),
}


def heading(
    feed: Feed, columns: tuple[str, ...], written: tuple[str, ...] | None = None
) -> tuple[str, ...]:
    """Return the lists of a part: of positions, of numbers, of lengths of texts.

    `written`: the columns that are written; None: all.
    """
    if written is not None:
        columns = tuple(name for name in columns if name in written)
    numbers = [name for name in columns if name in NUMBERS[feed]]
    texts = [name for name in columns if name in TEXTS[feed]]
    return ("position", *numbers, *texts)


def unwritten(
    feed: Feed, columns: tuple[str, ...], written: tuple[str, ...] | None
) -> tuple[str, ...]:
    """Return the columns whose single value the statement asks for, in its order."""
    if written is None:
        return ()
    here = (*written, *_POSITIONS[feed])
    known = (*NUMBERS[feed], *TEXTS[feed])  # a client of the host may ask for anything
    return tuple(name for name in columns if name in known and name not in here)


@lru_cache(_FORMS)
def statement(
    feed: Feed,
    columns: tuple[str, ...],
    written: tuple[str, ...] | None,
    owners: int,
    states: int,
    *,
    blobs: bool,
) -> str:
    """Build the statement of a part. Its values: owners, after, through, states, rows.

    Its columns: how many rows, the last position; a list of numbers for each of `heading`; the
    joined texts that are written; then of each column of `unwritten` how many values are not NULL,
    the smallest and the largest. Of texts only the first is told.
    """
    position, rows, owner = SOURCES[feed]
    names = [name for name in columns if name in NUMBERS[feed] or name in TEXTS[feed]]
    asked = unwritten(feed, columns, written)
    place = {name: f"c{number}" for number, name in enumerate(names)}
    known = {**NUMBERS[feed], **TEXTS[feed]}
    inner = ", ".join([f"{position} AS p", *[f"{known[name]} AS {place[name]}" for name in names]])
    lists = [f"group_concat(p, {_LINE})"]
    joined = []
    for name in heading(feed, columns, written)[1:]:
        number = f"CAST({place[name]} AS INTEGER)"
        if name in TEXTS[feed]:
            number = f"length(CAST({place[name]} AS BLOB))"
            joined.append(_join(place[name], blobs=blobs))
        lists.append(f"group_concat(ifnull({number}, ''), {_LINE})")
    ends = [_ends(place[name], feed, name) for name in asked]
    whose = f"{owner} IN ({','.join('?' * owners)})"
    filtered = f" AND {STATES[feed]} IN ({','.join('?' * states)})" if states else ""
    wanted = ", ".join(["count(*), max(p)", *lists, *joined, *ends])
    return (
        f"SELECT {wanted} FROM (SELECT {inner} FROM {rows} "
        f"WHERE {whose} AND {position}>? AND {position}<=?{filtered} ORDER BY {position} LIMIT ?)"
    )


def _ends(column: str, feed: Feed, name: str) -> str:
    ends = f"min({column}), max({column})" if name in NUMBERS[feed] else "NULL, NULL"
    return f"count({column}), {ends}"


def _join(column: str, *, blobs: bool) -> str:
    if blobs:
        return f"CAST(group_concat(CAST({column} AS BLOB), '') AS BLOB)"
    return f"group_concat(hex({column}), '')"
