"""Verify a database in small steps while its store is serving.

Knows: every table and index as a tree to walk, what two trees must agree on, checksums.
Does not know: what to do about damage, when a step is due, how SQLite lays out pages.

After an unclean end on an earlier boot nobody knows what the disk kept. `PRAGMA quick_check`
would answer, but as one snapshot that pins the write-ahead log for as long as it reads the whole
file. So each step reads one stretch of one tree in a snapshot of its own. Within a stretch every
row must be found again by a search from the root, through each index it belongs to, and every
index entry must lead to its row. That misses only what no search passes: the list of free pages
and the pointer map, which `embedq.storage.inspect.check` sees.
"""

from __future__ import annotations

import re
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from embedq.clock import Clock, SystemClock
from embedq.errors import StoreCorrupt
from embedq.storage import schema

T = TypeVar("T")
Key = tuple[object, ...]

ROWS: Final = 10_000
BUDGET_S: Final = 0.05
_FIRST_ROWS: Final = 1_000
_FEWEST_ROWS: Final = 10
_BYTES: Final = 8 * 1024 * 1024  # of bodies in one stretch: time alone is no bound for memory
_WITH_BODIES: Final = frozenset({"msg", "dead"})
# SQLITE_ERROR: a column or table that our statements name is gone, so the schema is damaged.
_DAMAGED_CODES: Final = frozenset(
    {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
)

#: What `is_sound` wants of a row of msg or dead. The casts let Python fetch what is no text.
SOUND_COLUMNS: Final = (
    "crc, CAST(headers AS BLOB), CAST(body AS BLOB), "
    "typeof(body) = 'blob' AND typeof(headers) IN ('blob', 'null')"
)


def is_sound(crc: object, headers: bytes | None, body: bytes | None, typed: object) -> bool:
    """Whether SOUND_COLUMNS of a row are what was put: the checksum over headers, then body."""
    return bool(typed) and body is not None and crc == zlib.crc32(body, zlib.crc32(headers or b""))


class Readable(Protocol):
    """What the verifier needs of a store."""

    def read(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """Run `question` on one short snapshot."""
        ...


@dataclass(frozen=True, slots=True)
class _Tree:
    """A b-tree and how to walk it: its columns in order are `prefix`, then `key`.

    SQLite seeks by prefix and then by key, but not by both at once where the key is a row
    number, which takes no part in comparisons of several columns. Tables have no prefix.
    """

    table: str
    index: str | None
    prefix: tuple[str, ...]
    key: tuple[str, ...]
    where: str
    hint: str

    @property
    def name(self) -> str:
        return f"table {self.table}" if self.index is None else f"index {self.index}"

    @property
    def columns(self) -> str:
        return ", ".join((*self.prefix, *self.key))

    def beyond(self, after: Key) -> str:
        """Return the condition for what follows `after`: nothing, a prefix, or a whole entry."""
        if not after:
            return "1"
        if not self.prefix:
            return _compare(self.key, ">")
        if len(after) == len(self.prefix):
            return _compare(self.prefix, ">")
        equal = [f"{column} = ?" for column in self.prefix]
        return " AND ".join([*equal, _compare(self.key, ">")])


def _compare(columns: tuple[str, ...], operator: str) -> str:
    return f"({', '.join(columns)}) {operator} ({', '.join('?' * len(columns))})"


def _trees_of(connection: sqlite3.Connection, table: str) -> Iterator[_Tree]:
    """Describe a table, then its indexes, as the file's own schema has them."""
    info = connection.execute(f"PRAGMA table_info({table})").fetchall()
    ranks = sorted((rank, name) for _, name, _, _, _, rank in info if rank)
    key = tuple(name for _, name in ranks)
    if not key:
        raise sqlite3.DatabaseError(f"there is no table {table}")
    indexes = connection.execute(f"PRAGMA index_list({table})").fetchall()
    # Without row numbers the table is the index of its key. It must be named: SQLite may else
    # read a smaller index instead, and so find what the table does not have.
    itself = [name for _, name, _, origin, _ in indexes if origin == "pk"]
    row_numbers = not itself
    hint = "NOT INDEXED" if row_numbers else f'INDEXED BY "{itself[0]}"'
    yield _Tree(table, None, (), key, "1", hint)
    for _, index, _, origin, partial in indexes:
        if origin == "pk":
            continue
        found = connection.execute(f'PRAGMA index_xinfo("{index}")').fetchall()
        # The row number has no name there, and may be an indexed column as well.
        names = tuple(dict.fromkeys(key[0] if row[2] is None else str(row[2]) for row in found))
        prefix = names[: -len(key)] if row_numbers else ()
        where = _condition(connection, index) if partial else "1"
        yield _Tree(table, index, prefix, names[len(prefix) :], where, f'INDEXED BY "{index}"')


def _condition(connection: sqlite3.Connection, index: str) -> str:
    sql: str = connection.execute(
        "SELECT sql FROM sqlite_schema WHERE type = 'index' AND name = ?", (index,)
    ).fetchone()[0]
    return re.split(r"\bWHERE\b", sql, maxsplit=1, flags=re.IGNORECASE)[1].strip()


class Verifier:
    """Checks every table and index of a store once, from the first row to the last.

    Call `step` until it returns True. `damaged_messages` grows by the seqs of messages, and
    `damaged_letters` by the ids of dead letters, whose content does not have its checksum (those
    that are dead for that very reason are not listed again). Rows that come or go meanwhile are
    no damage. Use it from one thread at a time.
    """

    def __init__(
        self,
        store: Readable,
        *,
        rows: int = ROWS,
        budget_s: float = BUDGET_S,
        clock: Clock | None = None,
    ) -> None:
        self.damaged_messages: list[int] = []
        self.damaged_letters: list[int] = []
        #: Rows and index entries looked at.
        self.checked = 0
        self._store = store
        self._most = rows
        self._rows = min(rows, _FIRST_ROWS)
        self._budget = budget_s
        self._clock = clock or SystemClock()
        self._path = "the database"
        self._trees: list[_Tree] = []
        self._indexes: dict[str, list[_Tree]] = {}
        self._at = -1
        self._after: Key = ()

    def step(self) -> bool:
        """Check the next stretch; return whether everything has been checked.

        A stretch is at most `rows` rows, and fewer where they take longer than `budget_s`
        seconds. Raises StoreCorrupt when tables and indexes contradict each other or cannot be
        read; other errors are those of the store's `read`.
        """
        started = self._clock.monotonic()
        done = self._store.read(self._step)
        took = self._clock.monotonic() - started
        if took > self._budget:
            self._rows = max(_FEWEST_ROWS, self._rows // 2)
        elif took < self._budget / 2:
            self._rows = min(self._most, self._rows * 2)
        return done

    def _step(self, connection: sqlite3.Connection) -> bool:
        try:
            if self._at < 0:
                self._plan(connection)
            if self._at == len(self._trees):
                return True
            tree = self._trees[self._at]
            walk = self._walk_table if tree.index is None else self._walk_index
            after = walk(connection, tree)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if not _is_damage(error):
                raise
            where = self._trees[self._at].name if self._trees else "the schema"
            raise self._damage(f"{where}: {error}") from error
        self._at += after is None
        self._after = after or ()
        return self._at == len(self._trees)

    def _plan(self, connection: sqlite3.Connection) -> None:
        files = connection.execute("PRAGMA database_list").fetchall()
        self._path = next((file for _, name, file in files if name == "main"), "") or self._path
        for table in schema.TABLES:
            itself, *indexes = _trees_of(connection, table)
            self._trees += [itself, *indexes]
            self._indexes[table] = indexes
        # No tree of ours, but the store needs it: the last ids of groups and dead letters.
        connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall()
        self._at = 0

    def _walk_table(self, connection: sqlite3.Connection, tree: _Tree) -> Key | None:
        """Check a stretch of a table; return where it ends, None at the end of the table."""
        if tree.table in _WITH_BODIES:
            end = self._read_bodies(connection, tree)
        else:
            end = self._last_of_stretch(connection, tree)
            self._read_all(connection, tree)
        window = f"{tree.beyond(self._after)} AND {_compare(tree.key, '<=') if end else '1'}"
        for other in (tree, *self._indexes[tree.table]):
            self._search(connection, tree, window, other, (*self._after, *(end or ())))
        return end

    def _stretch(self, tree: _Tree, columns: str, *, limit: str = "") -> str:
        """Return the query for the next stretch of a tree."""
        return (
            f"SELECT {columns} FROM {tree.table} {tree.hint} "
            f"WHERE ({tree.where}) AND {tree.beyond(self._after)} "
            f"ORDER BY {tree.columns} LIMIT {limit or self._rows}"
        )

    def _last_of_stretch(self, connection: sqlite3.Connection, tree: _Tree) -> Key | None:
        """Return the last row of a stretch, None when it is shorter than a stretch can be."""
        # One row, not all: each row that is fetched gives the GIL up once.
        query = self._stretch(tree, tree.columns, limit=f"1 OFFSET {self._rows - 1}")
        end: Key | None = connection.execute(query, self._after).fetchone()
        return end

    def _read_all(self, connection: sqlite3.Connection, tree: _Tree) -> None:
        """Read every value of a stretch to its last byte; damaged pages make SQLite fail."""
        info = connection.execute(f"PRAGMA table_info({tree.table})").fetchall()
        columns = [row[1] for row in info]
        lengths = ", ".join(f"sum(length(CAST({column} AS TEXT)))" for column in columns)
        rows = self._stretch(tree, "*")
        connection.execute(f"SELECT {lengths} FROM ({rows})", self._after).fetchall()

    def _read_bodies(self, connection: sqlite3.Connection, tree: _Tree) -> Key | None:
        """Check order and checksums of a stretch, which ends early when it takes too long."""
        damaged = self.damaged_letters if tree.table == "dead" else self.damaged_messages
        known = "reason = 'corrupt'" if tree.table == "dead" else "0"
        columns = f"{tree.columns}, {known}, {SOUND_COLUMNS}"
        limit = self._clock.monotonic() + self._budget / 2
        last = self._after[0] if self._after else None
        count = size = 0
        with closing(connection.cursor()) as cursor:
            cursor.execute(self._stretch(tree, columns), self._after)
            for number, expected, *content in cursor:
                if last is not None and number <= last:
                    raise self._damage(f"{tree.name}: row {number} follows row {last}")
                last = number
                count += 1
                size += len(content[2] or b"")
                if not expected and not is_sound(*content):
                    damaged.append(number)
                if size > _BYTES or self._clock.monotonic() > limit:
                    return (last,)
        return (last,) if count == self._rows else None

    def _search(
        self,
        connection: sqlite3.Connection,
        tree: _Tree,
        window: str,
        other: _Tree,
        values: Key,
    ) -> None:
        """Search for each row of a stretch in `other`: its table again, or one of its indexes."""
        same = " AND ".join(f"i.{name} = t.{name}" for name in (*other.prefix, *other.key))
        looked, lost = connection.execute(
            f"SELECT count(*), sum(NOT EXISTS (SELECT 1 FROM {tree.table} i {other.hint} "
            f"WHERE {same} AND ({other.where}))) "
            f"FROM {tree.table} t {tree.hint} WHERE {window} AND ({other.where})",
            values,
        ).fetchone()
        if lost:
            raise self._damage(f"{other.name}: {lost} rows of {tree.name} are not found there")
        if other is tree:
            self.checked += looked

    def _walk_index(self, connection: sqlite3.Connection, tree: _Tree) -> Key | None:
        """Check that a stretch of an index leads to rows; return where it ends, or None."""
        row = self._table_of(tree)
        same = " AND ".join(f"r.{name} = e.{name}" for name in row.key)
        differs = " OR ".join(f"r.{name} IS NOT e.{name}" for name in (*tree.prefix, *tree.key))
        looked, lost = connection.execute(
            f"SELECT count(*), sum({differs}) FROM ({self._stretch(tree, tree.columns)}) e "
            f"LEFT JOIN {tree.table} r {row.hint} ON {same}",
            self._after,
        ).fetchone()
        if lost:
            raise self._damage(f"{tree.name}: {lost} entries lead to no such row")
        self.checked += looked
        end = self._last_of_stretch(connection, tree)
        width = len(tree.prefix)
        if end is None and 0 < width < len(self._after):
            return self._after[:width]  # the rest of this prefix was short; others may follow
        return end

    def _table_of(self, tree: _Tree) -> _Tree:
        return next(one for one in self._trees if one.table == tree.table and one.index is None)

    def _damage(self, what: str) -> StoreCorrupt:
        return StoreCorrupt(f"{self._path} is damaged, in {what}")


def _is_damage(error: sqlite3.DatabaseError | UnicodeDecodeError) -> bool:
    if isinstance(error, UnicodeDecodeError):
        return True  # SQLite quotes a damaged name, and Python cannot make a text of it
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        # Not from SQLite: a text that is no UTF-8, or (ours) a table that is not there.
        return type(error) in {sqlite3.OperationalError, sqlite3.DatabaseError}
    return code & 0xFF in _DAMAGED_CODES
