"""Look into a database that somebody else may have open, without changing anything.

Knows: when a file can be read as it lies there and when only through SQLite's locks.
Does not know: who owns the file (owners.py), what is asked (reads.py, census.py).

Every answer comes from one snapshot. A file without a log is read without leaving anything
beside it, and read again if somebody began to write meanwhile.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypeVar

from embedq.clock import Clock, SystemClock
from embedq.errors import InvalidOption, NotAnEmbedqFile, StoreCorrupt
from embedq.ids import MessageIds
from embedq.policy import QueuePolicy
from embedq.storage import reads, schema
from embedq.storage.backup import BackupReport, backup
from embedq.storage.connection import meaning, open_reader
from embedq.storage.image import open_still
from embedq.storage.rows import DeadRow, GroupRow, QueueRow, Stored

T = TypeVar("T")

_STILL_TRIES: Final = 3
_Signature = tuple[int, ...]


class Onlooker:
    """A database seen from outside. Any number of them may look at once; none is in the way.

    Not for the process that is the host: closing a file read without locks drops its locks.

    Raises InvalidOption when there is no such file; reading raises NotAnEmbedqFile, SchemaTooNew,
    StoreCorrupt, StoreBusy or StoreFailed.
    """

    def __init__(self, path: str | os.PathLike[str], clock: Clock | None = None) -> None:
        real = Path(os.path.realpath(path))
        if not real.is_file():
            raise InvalidOption(
                f"there is no database file {real}",
                hint="correct the path, or put a message: that creates the file",
                argument="path",
            )
        self.path = str(real)
        self._file = real
        self._log = real.with_name(f"{real.name}-wal")
        self._clock = clock or SystemClock()
        self.meta: dict[str, Any] = self.read(self._identify)
        key = self.meta.get("store_key")
        if not isinstance(key, bytes):
            raise StoreCorrupt(f"{self.path}: the store key is missing")
        self.ids = MessageIds(key)

    def _identify(self, connection: sqlite3.Connection) -> dict[str, Any]:
        if schema.version_of(connection, self.path) == 0:
            raise NotAnEmbedqFile(
                f"{self.path} is empty: it has not been opened as a store yet",
                hint="put a message into it first",
            )
        return dict(connection.execute("SELECT key, value FROM meta").fetchall())

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds."""
        return int(self._clock.time() * 1000)

    # --------------------------------------------------------------------------- reading

    def read(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """Return what `question` answers from one snapshot; keep it short beside a live host."""
        try:
            return self._read(question)
        except sqlite3.Error as error:
            raise self._meaning(error) from error
        except UnicodeDecodeError as error:
            raise StoreCorrupt(f"{self.path}: a text in it is not UTF-8") from error

    def _read(self, question: Callable[[sqlite3.Connection], T]) -> T:
        for _ in range(_STILL_TRIES):
            before = self._signature()
            if before[0]:
                break
            with closing(open_still(self._file)) as connection:
                answer = question(connection)
            # Whoever writes needs a log first: no log before and after, and nothing was written.
            if self._signature() == before:
                return answer
        return self._read_beside_log(question)

    def _read_beside_log(self, question: Callable[[sqlite3.Connection], T]) -> T:
        with closing(open_reader(self.path)) as connection:
            connection.execute("BEGIN")
            return question(connection)

    def _signature(self) -> _Signature:
        """Return what changes when somebody writes; the first number is the size of the log."""
        try:
            log = self._log.stat().st_size
        except FileNotFoundError:
            log = 0
        found = self._file.stat()
        return (log, found.st_ino, found.st_size, found.st_mtime_ns)

    def signature(self) -> _Signature:
        """Return a value that is another one once somebody has written."""
        try:
            log = self._log.stat().st_mtime_ns
        except FileNotFoundError:
            log = 0
        return (*self._signature(), log)

    def _meaning(self, error: sqlite3.Error) -> Exception:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_NOTADB:
            return NotAnEmbedqFile(
                f"{self.path} is not an SQLite database, or its first page is damaged",
                hint="choose another path; if it was embedq's, salvage it into a new file",
            )
        return meaning(error, self.path)

    # ------------------------------------------------------------------------- questions

    def catalogue(self) -> tuple[list[QueueRow], list[GroupRow]]:
        """Return the queues and groups. Counts and bounds in them are those of the last close."""
        return self.read(lambda db: reads.catalogue(db, 0, QueuePolicy.decode))

    def range(self, queue: int, after: int, limit: int) -> list[Stored]:
        """Return messages of a queue in seq order, whatever their state."""
        return self.read(lambda db: reads.message_range(db, queue, after, limit))

    def dead(self, queue: int, after: int, limit: int) -> list[DeadRow]:
        """Return dead letters of a queue in the order of dying, with id > after."""
        return self.read(lambda db: reads.dead(db, queue, after, limit))

    def dead_letter(self, seq: int, group: int) -> DeadRow | None:
        """Return one dead letter."""
        return self.read(lambda db: reads.dead_letter(db, seq, group))

    def quick_check(self, most: int = 10) -> list[str]:
        """Return what SQLite's quick check finds, an empty list if nothing."""
        sql = f"PRAGMA quick_check({int(most)})"
        found = self.read(lambda db: [row[0] for row in db.execute(sql)])
        return [] if found == ["ok"] else found

    # ---------------------------------------------------------------------------- backup

    def backup(
        self,
        target: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        progress: Callable[[int, int], object] | None = None,
    ) -> BackupReport:
        """Copy the database as it is now into a new file, while a host may go on writing.

        The log of that host is not rewound meanwhile. Raises what storage.backup.backup raises.
        """
        try:
            with closing(self._open_for_backup()) as connection:
                # A statement that is not at its end keeps its snapshot, so that the copy does not
                # begin anew with each commit of the host.
                held = connection.execute("SELECT key FROM meta")
                held.fetchone()
                with closing(held):
                    return backup(
                        *(connection, _NoLock(), target),
                        overwrite=overwrite,
                        progress=progress,
                        clock=self._clock,
                    )
        except sqlite3.Error as error:
            raise self._meaning(error) from error

    def _open_for_backup(self) -> sqlite3.Connection:
        # SQLite makes files beside one that has a log. Where it may not, there is no host either.
        if self._signature()[0] == 0 and not os.access(self._file.parent, os.W_OK):
            return open_still(self._file)
        return open_reader(self.path)


class _NoLock:
    """Nobody else uses the onlooker's connection."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        return


def sqlite_version() -> tuple[int, ...]:
    """Return the version of the SQLite library that this Python uses."""
    return sqlite3.sqlite_version_info
