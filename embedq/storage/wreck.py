"""Find the rows in the image of a damaged database, with or without its trees.

Knows: what rows of our tables look like, which pages are in use, what was not found where.
Does not know: which rows to believe, where they go, SQL.

Whatever page a row is on, its shape says which table it belongs to. So a row is found as long as
the bytes of its own page are good: no root, interior page, schema or index has to be.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from embedq.storage import schema
from embedq.storage.pages import TABLE_INTERIOR, Cell, Child, Pages, Walk
from embedq.storage.records import BadText, Malformed, Value, record

#: Indexes that repeat what may be lost with the few pages of a small table.
QUEUE_NAMES: Final = "sqlite_autoindex_queue_1"
GROUP_NAMES: Final = "sqlite_autoindex_consumer_group_1"
#: SQLite's own table of the highest row number that a table ever had.
NUMBERS: Final = "sqlite_sequence"
_SMALL: Final = {QUEUE_NAMES: (str, int), GROUP_NAMES: (int, str, int), NUMBERS: (str, int)}
_SCHEMA_COLUMNS: Final = 5

_TYPES: Final[dict[str, type]] = {"INTEGER": int, "TEXT": str, "BLOB": bytes}


class Row(NamedTuple):
    """A row that was found.

    `whole` is False when only the beginning of the last value was there. `used`: the page is
    known to be in use, and not left over from something deleted long ago. `doubt` says why its
    number cannot be trusted, else it is empty. `outside`: the page above claims that such a
    number is not on this page; one of the two pages is wrong.
    """

    table: str
    values: tuple[Value, ...]
    whole: bool = True
    used: bool = True
    doubt: str = ""
    outside: bool = False


class Range(NamedTuple):
    """Row numbers from `first` to `last`, both included; None is without bound."""

    first: int | None
    last: int | None


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of a table: their types, which may be NULL, and whether rows are numbered."""

    table: str
    columns: tuple[str, ...]
    types: tuple[type | None, ...]
    required: tuple[bool, ...]
    numbered: bool

    def fit(self, values: list[Value]) -> tuple[Value, ...] | None:
        """Return the values if they can be a row of this table, else None."""
        if len(values) != len(self.columns):
            return None
        fitted: list[Value] = []
        for value, kind, required in zip(values, self.types, self.required, strict=True):
            if kind is bytes and isinstance(value, str | BadText):
                # One flipped bit makes a text of a blob; the bytes are the same.
                fitted.append(value.encode() if isinstance(value, str) else bytes(value))
                continue
            if value is None:
                if required:
                    return None
            elif isinstance(value, BadText) or (kind is not None and type(value) is not kind):
                return None
            fitted.append(value)
        return tuple(fitted)


def shapes_of(connection: sqlite3.Connection) -> dict[str, Shape]:
    """Return the shapes of our tables as they are in an open, sound database."""
    shapes: dict[str, Shape] = {}
    for table in schema.TABLES:
        info = connection.execute(f"PRAGMA table_info({table})").fetchall()
        if not info:
            continue  # it came with a later version
        indexes = connection.execute(f"PRAGMA index_list({table})").fetchall()
        shapes[table] = Shape(
            table,
            tuple(row[1] for row in info),
            tuple(_TYPES.get(row[2]) for row in info),
            tuple(bool(row[3] or row[5]) for row in info),
            numbered=all(row[3] != "pk" for row in indexes),
        )
    return shapes


def roots_of(pages: Pages) -> dict[str, int]:
    """Return {table or index: root page} as far as the schema of the image can be read."""
    found: dict[str, int] = {}
    for leaf in pages.walk(1).leaves:
        for cell in pages.cells(leaf.page)[0]:
            values = _decode(cell)
            if values is None or len(values) != _SCHEMA_COLUMNS:
                continue
            _, name, _, root, _ = values
            if isinstance(name, str) and isinstance(root, int) and 1 < root <= pages.count:
                found[name] = root
    return found


class Wreck:
    """The image of a damaged database. `rows` finds what is there; then the rest is known.

    `holes`: numbers of a table's rows that were on parts of its tree that cannot be read.
    `spans`: numbers between which nothing is missing. `unreadable`: pages the trees lead to that
    are no b-tree pages any more.
    """

    def __init__(
        self,
        pages: Pages,
        roots: dict[str, int],
        shapes: dict[str, Shape],
        *,
        mixed: bool = False,
    ) -> None:
        """`mixed`: pages of different times stand side by side, as after a damaged log."""
        self._mixed = mixed
        self._pages = pages
        self._roots = roots
        self._shapes = shapes
        self.holes: dict[str, list[Range]] = {}
        self.spans: dict[str, list[Range]] = {}
        self.unreadable: list[int] = []

    def rows(self) -> Iterator[Row]:
        """Yield every row, those of trees that still stand first, in the order of the tables."""
        pages = self._pages
        reached: set[int] = set()
        for name in (*schema.TABLES, *_SMALL):
            if name not in self._roots:
                continue
            walk = pages.walk(self._roots[name])
            self._note_holes(name, walk)
            reached |= walk.pages
            yield from self._of_tree(name, walk)
        for name in self._roots.keys() - set(schema.TABLES) - set(_SMALL):
            reached |= pages.walk(self._roots[name]).pages
        mapped, known = pages.mapped_free()
        listed, whole = pages.free()
        # Each record alone is believed, for the other one may be damaged; but when one of them
        # may be old, only what both say.
        free = (listed & mapped if self._mixed else listed | mapped) - reached
        for number in range(2, pages.count + 1):
            if number in reached or number in free or pages.is_map(number):
                continue
            used = whole or number in known
            yield from self._of_page(Child(number, None, None), "", used=used)

    def stray_rows(self, strays: Iterable[bytes]) -> Iterator[Row]:
        """Yield the rows of pages that are not part of the image: those of a damaged log."""
        for stray in strays:
            yield from self._of_page(Child(0, None, None), "", stray=stray)

    def _note_holes(self, name: str, walk: Walk) -> None:
        for hole in walk.holes:
            if hole.page:
                self.unreadable.append(hole.page)
            self._hole(name, hole)

    def _hole(self, name: str, place: Child) -> None:
        first = None if place.low is None else place.low + 1
        self.holes.setdefault(name, []).append(Range(first, place.high))

    def _of_tree(self, name: str, walk: Walk) -> Iterator[Row]:
        for leaf in walk.leaves:
            yield from self._of_page(leaf, name)
        for number in walk.interior:
            if self._pages.kind(number) != TABLE_INTERIOR:
                yield from self._of_page(Child(number, None, None), name)

    def _of_page(
        self, place: Child, name: str, *, used: bool = True, stray: bytes = b""
    ) -> Iterator[Row]:
        """Yield the rows of one page; `name` is the tree it belongs to, if that is known."""
        cells, bad = self._pages.cells(place.page, stray)
        rows: list[Row] = []
        for cell in cells:
            row = self._row(cell, name, used=used)
            if row is None:
                bad += 1
            else:
                rows.append(row)
        numbered = [row for row in rows if self._is_numbered(row.table)]
        if not numbered or stray:
            yield from rows
            if bad and name in self._shapes:
                self._hole(name, place)
            return
        chosen = _rising([_number(row) for row in numbered])
        numbers = [_number(row) for row, sure in zip(numbered, chosen, strict=True) if sure]
        table = numbered[0].table
        if bad or len(numbers) < len(numbered):
            self._hole(table, place)
            self.spans.setdefault(table, []).extend(Range(number, number) for number in numbers)
        else:
            self.spans.setdefault(table, []).append(Range(numbers[0], numbers[-1]))
        for row, sure in zip(numbered, chosen, strict=True):
            doubt = "" if sure else "it is out of order on its page"
            yield row._replace(doubt=doubt, outside=not _inside(place, _number(row)))

    def _row(self, cell: Cell, name: str, *, used: bool) -> Row | None:
        values = _decode(cell)
        if values is None:
            return None
        if name in _SMALL:
            wanted = _SMALL[name]
            fits = len(values) == len(wanted) and all(map(isinstance, values, wanted))
            return Row(name, tuple(values)) if fits else None
        if cell.rowid is not None:
            if not values or values[0] is not None:
                return None
            values[0] = cell.rowid
        for shape in self._shapes.values():
            if shape.numbered is (cell.rowid is None) or (shape.table == "meta" != name):
                continue
            fitted = shape.fit(values)
            if fitted is not None and not _is_index_entry(shape.table, fitted):
                return Row(shape.table, fitted, cell.whole, used)
        return None

    def _is_numbered(self, table: str) -> bool:
        shape = self._shapes.get(table)
        return shape is not None and shape.numbered


def _decode(cell: Cell) -> list[Value] | None:
    try:
        return record(cell.payload, whole=cell.whole)
    except Malformed:
        return None


def _is_index_entry(table: str, values: tuple[Value, ...]) -> bool:
    # An entry of msg_key (queue, key, seq, and seq as the row number) looks like a dedup key,
    # whose last value is a time.
    return table == "dedup" and values[2] == values[3]


def _number(row: Row) -> int:
    number = row.values[0]
    return number if isinstance(number, int) else 0


def _inside(place: Child, number: int) -> bool:
    low, high = place.low, place.high
    return (low is None or number > low) and (high is None or number <= high)


def _rising(numbers: list[int]) -> list[bool]:
    """Say which numbers belong to the longest rising series."""
    tails: list[int] = []
    where: list[int] = []
    before: list[int] = []
    for at, number in enumerate(numbers):
        rank = bisect_left(tails, number)
        before.append(where[rank - 1] if rank else -1)
        tails[rank : rank + 1] = [number]
        where[rank : rank + 1] = [at]
    chosen = [False] * len(numbers)
    at = where[-1] if where else -1
    while at >= 0:
        chosen[at] = True
        at = before[at]
    return chosen


def gaps(holes: Iterable[Range], spans: Iterable[Range], end: int) -> list[Range]:
    """Return the parts of the holes that no span covers, up to `end`, in order."""
    covered = sorted((span.first or 0, span.last or 0) for span in spans)
    found: list[Range] = []
    reached = 0
    at = 0
    for hole in sorted(
        (hole.first or 1, end if hole.last is None else hole.last) for hole in holes
    ):
        first, last = max(hole[0], reached + 1), min(hole[1], end)
        while at < len(covered) and covered[at][1] < first:
            at += 1
        look = at
        while first <= last:
            if look == len(covered) or covered[look][0] > last:
                found.append(Range(first, last))
                break
            start, stop = covered[look]
            if start > first:
                found.append(Range(first, start - 1))
            first = max(first, stop + 1)
            look += 1
        reached = max(reached, last)
    return found
