"""Read the pages of an SQLite file one by one, believing nothing that is written in them.

Knows: the documented format: b-tree pages, cells, overflow chains, free pages, pointer map.
Does not know: which tables there are, how a row is encoded, how a log is applied.

SQLite stops at the first page that contradicts another. A salvage must go on, so every number
read here is checked before it is used, and whatever does not fit is left out and counted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from mmap import mmap
from typing import Final, NamedTuple

from embedq.storage.records import Malformed, signed, varint

MAGIC: Final = b"SQLite format 3\0"
PAGE_SIZES: Final = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)

INDEX_INTERIOR: Final = 2
TABLE_INTERIOR: Final = 5
INDEX_LEAF: Final = 10
TABLE_LEAF: Final = 13
_INTERIOR: Final = frozenset({INDEX_INTERIOR, TABLE_INTERIOR})
_BTREE: Final = frozenset({INDEX_INTERIOR, TABLE_INTERIOR, INDEX_LEAF, TABLE_LEAF})
_TABLE: Final = frozenset({TABLE_INTERIOR, TABLE_LEAF})

# What the pointer map says a page is used for; only the first two have no parent.
_ROOT, _FREE, _CHILD = 1, 2, 5

_FILE_HEADER: Final = 100
_PENDING_BYTE: Final = 0x4000_0000
_CELL_MIN: Final = 4
_NO_CONTENT: Final = 65536  # what a 0 means where a place in a page of that size is stored


class Cell(NamedTuple):
    """An entry of a b-tree page. `rowid` is None in an index; `whole` says the chain held."""

    rowid: int | None
    payload: bytes
    whole: bool
    pages: tuple[int, ...]


class Child(NamedTuple):
    """A subtree: its page (0: not known) and the keys it holds, after `low` up to `high`."""

    page: int
    low: int | None
    high: int | None


@dataclass(slots=True)
class Walk:
    """What a walk from a root found: pages in key order with their bounds, and dead ends."""

    leaves: list[Child] = field(default_factory=list)
    interior: list[int] = field(default_factory=list)
    holes: list[Child] = field(default_factory=list)

    @property
    def pages(self) -> set[int]:
        """Every page that was reached."""
        return {leaf.page for leaf in self.leaves} | set(self.interior)


class Pages:
    """The pages of one file image. Pages are numbered from 1; what lies outside reads as zeros."""

    def __init__(self, data: bytes | mmap, page_size: int) -> None:
        self._data = memoryview(data)
        self.size = page_size
        self.count = -(-len(self._data) // page_size)

    def close(self) -> None:
        """Let go of the data, so that a mapped file can be closed."""
        self._data.release()

    def page(self, number: int) -> bytes:
        """Return the bytes of a page; a last page that is cut off is filled up with zeros."""
        start = (number - 1) * self.size
        if number < 1:
            return bytes(self.size)
        return bytes(self._data[start : start + self.size]).ljust(self.size, b"\0")

    def kind(self, number: int) -> int | None:
        """Return the kind of b-tree page, None for any other page."""
        header = _header_of(self.page(number), number)
        return None if header is None else header.kind

    def cells(self, number: int, data: bytes = b"") -> tuple[list[Cell], int]:
        """Return the entries of a page that can be read, in order, and how many cannot.

        The count is at least 1 when the space of the page does not add up: then its head may
        hide entries. Of interior pages only those of an index have entries. `data` stands for
        the page where the image does not have it; overflow chains are followed in the image.
        """
        data = data or self.page(number)
        header = _header_of(data, number)
        if header is None or header.kind == TABLE_INTERIOR:
            return [], 0
        found: list[Cell] = []
        bad = used = 0
        for offset in header.pointers(data):
            try:
                cell, end = self._cell(data, offset, header.kind, number)
            except Malformed:
                bad += 1
                continue
            found.append(cell)
            used += max(end - offset, _CELL_MIN)
        return found, bad or int(used != header.allocated(data))

    def _cell(self, data: bytes, offset: int, kind: int, number: int) -> tuple[Cell, int]:
        """Return the entry at an offset and where its bytes on this page end."""
        at = offset + 4 if kind == INDEX_INTERIOR else offset
        length, at = varint(data, at)
        rowid = None
        if kind == TABLE_LEAF:
            value, at = varint(data, at)
            rowid = signed(value)
        local = _local_bytes(length, self.size, table=kind == TABLE_LEAF)
        end = at + local
        if not 0 < length <= self.count * self.size or end > len(data):
            raise Malformed
        cell = Cell(rowid, data[at:end], whole=local == length, pages=(number,))
        if cell.whole:
            return cell, end
        if end + 4 > len(data):
            raise Malformed
        return self._chain(cell, length, int.from_bytes(data[end : end + 4], "big")), end + 4

    def _chain(self, cell: Cell, length: int, following: int) -> Cell:
        """Add what a chain of overflow pages holds, as far as it leads."""
        parts, pages = [cell.payload], list(cell.pages)
        missing = length - len(cell.payload)
        seen: set[int] = set()
        while missing > 0 and 1 < following <= self.count and following not in seen:
            seen.add(following)
            pages.append(following)
            data = self.page(following)
            parts.append(data[4 : 4 + missing])
            missing -= len(parts[-1])
            following = int.from_bytes(data[:4], "big")
        return Cell(cell.rowid, b"".join(parts), whole=missing <= 0, pages=tuple(pages))

    # ------------------------------------------------------------------------- trees

    def walk(self, root: int) -> Walk:
        """Go through a tree from its root, in key order, around what cannot be read."""
        found = Walk()
        seen: set[int] = set()
        family = _TABLE if self.kind(root) in _TABLE else _BTREE - _TABLE
        stack = [Child(root, None, None)]
        while stack:
            child = stack.pop()
            header = None
            if 0 < child.page <= self.count and child.page not in seen:
                header = _header_of(self.page(child.page), child.page)
            if header is None or header.kind not in family:
                found.holes.append(child)
                continue
            seen.add(child.page)
            if header.kind in _INTERIOR:
                found.interior.append(child.page)
                stack.extend(reversed(list(self._children(header, child))))
            else:
                found.leaves.append(child)
        return found

    def _children(self, header: _Header, parent: Child) -> Iterator[Child]:
        data = self.page(parent.page)
        low = parent.low
        lost = False
        for offset in header.pointers(data):
            found = header.child_at(data, offset, low, parent.high)
            if found is None:
                lost = True
                continue
            page, key = found
            if lost:
                # Somewhere between the last good key and this one there was another subtree.
                yield Child(0, low, key)
                lost = False
            yield Child(page, low, key)
            low = key
        if lost:
            yield Child(0, low, parent.high)
        yield Child(header.right, low, parent.high)

    # ------------------------------------------------------------------- what is free

    def free(self) -> tuple[set[int], bool]:
        """Return the pages that the list of free pages names, and whether it is whole."""
        header = self.page(1)
        trunk, left = struct.unpack_from(">II", header, 32)
        if not header.startswith(MAGIC):
            return set(), False
        found: set[int] = set()
        while 1 < trunk <= self.count and trunk not in found and left > 0:
            data = self.page(trunk)
            following, count = struct.unpack_from(">II", data)
            if count > self.size // 4 - 2:
                break
            leaves = struct.unpack_from(f">{count}I", data, 8)
            if not all(1 < page <= self.count for page in leaves):
                break
            found.add(trunk)
            found.update(leaves)
            left -= 1 + count
            trunk = following
        return found, not trunk and not left

    def is_map(self, number: int) -> bool:
        """Whether a page of this number belongs to the pointer map, if the file has one."""
        return number > 1 and self._map_of(number) == number

    def _map_of(self, number: int) -> int:
        group = self.size // 5 + 1
        page = (number - 2) // group * group + 2
        if page == _PENDING_BYTE // self.size + 1:
            page += 1  # SQLite's locks live there, so it holds nothing
        return page

    def mapped_free(self) -> tuple[set[int], set[int]]:
        """Return the pages that the pointer map calls free, and those it can be asked about.

        A map page with one impossible entry is not believed at all.
        """
        free: set[int] = set()
        known: set[int] = set()
        number = 2
        while number <= self.count:
            data, group = self.page(number), self.size // 5
            covered = range(number + 1, min(number + group, self.count) + 1)
            entries = [struct.unpack_from(">BI", data, 5 * place) for place in range(len(covered))]
            lock_page = _PENDING_BYTE // self.size + 1
            possible = (self._possible(*entry) for entry in entries)
            if all(
                fits or page == lock_page for page, fits in zip(covered, possible, strict=True)
            ):
                known.update(covered)
                free.update(
                    page for page, (kind, _) in zip(covered, entries, strict=True) if kind == _FREE
                )
            number = self._map_of(number + group + 1)
        return free, known

    def _possible(self, kind: int, parent: int) -> bool:
        if kind in {_ROOT, _FREE}:
            return parent == 0
        return _FREE < kind <= _CHILD and 0 < parent <= self.count


class _Header(NamedTuple):
    """The head of a b-tree page."""

    kind: int
    start: int
    cells: int
    right: int

    def pointers(self, data: bytes) -> Iterator[int]:
        """Return where the cells are; what points outside the page is returned as the end."""
        for place in range(self.cells):
            offset = int.from_bytes(
                data[self.start + 2 * place : self.start + 2 * place + 2], "big"
            )
            first = self.start + 2 * self.cells
            yield offset if first <= offset < len(data) else len(data)

    def child_at(
        self, data: bytes, offset: int, low: int | None, high: int | None
    ) -> tuple[int, int | None] | None:
        """Return page and last key of the subtree at an offset, None if they cannot be right."""
        if offset + 4 > len(data):
            return None
        page = int.from_bytes(data[offset : offset + 4], "big")
        if self.kind == INDEX_INTERIOR:
            return page, None
        try:
            key = signed(varint(data, offset + 4)[0])
        except Malformed:
            return None
        if (low is not None and key <= low) or (high is not None and key > high):
            return None
        return page, key

    def allocated(self, data: bytes) -> int:
        """Return how many bytes of the page belong to cells; -1 when its list is broken."""
        at = _FILE_HEADER if self.start - (12 if self.kind in _INTERIOR else 8) else 0
        block, _, content, fragments = struct.unpack_from(">HHHB", data, at + 1)
        left: int = len(data) - (content or _NO_CONTENT) - fragments
        least = 0
        while block:
            if block <= least or block + 4 > len(data):
                return -1
            least = block
            block, size = struct.unpack_from(">HH", data, block)
            left -= size
        return left


def _header_of(data: bytes, number: int) -> _Header | None:
    at = _FILE_HEADER if number == 1 else 0
    kind = data[at]
    if kind not in _BTREE:
        return None
    count = int.from_bytes(data[at + 3 : at + 5], "big")
    start = at + (12 if kind in _INTERIOR else 8)
    right = int.from_bytes(data[at + 8 : at + 12], "big") if kind in _INTERIOR else 0
    # A cell takes at least 4 bytes and a pointer 2.
    if start + 6 * count > len(data):
        return None
    return _Header(kind, start, count, right)


def _local_bytes(length: int, usable: int, *, table: bool) -> int:
    """How much of a payload of this length is in the cell itself."""
    most = usable - 35 if table else (usable - 12) * 64 // 255 - 23
    if length <= most:
        return length
    least = (usable - 12) * 32 // 255 - 23
    local = least + (length - least) % (usable - 4)
    return local if local <= most else least
