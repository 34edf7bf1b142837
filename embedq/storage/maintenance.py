"""The maintenance half of the SQLite store: checkpoints, free pages, a look around, backup.

Knows: what an error means while nobody waits for an answer, and when the store must stop.
Does not know: when a chore is due (broker.upkeep), operations, questions.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from embedq.clock import Clock
from embedq.errors import StorageError, StoreBusy, StoreFull
from embedq.storage.backup import BackupReport, Lock, backup
from embedq.storage.connection import ERRORS, meaning
from embedq.storage.lastwords import ELSEWHERE, KEPT, LastWords
from embedq.storage.ops import Op
from embedq.storage.ownership import OwnerLock
from embedq.storage.pinning import readers_of
from embedq.storage.placement import Placement, check_still_there
from embedq.storage.questions import Questions
from embedq.storage.space import DiskSpace
from embedq.storage.wal import WalHealth, WriteAheadLog

_log = logging.getLogger("embedq.storage")

#: Pages in the log between two checkpoints while the disk is nearly full.
_TIGHT_PAGES: Final = 32


class Maintenance(Questions):
    """What the host does with the file beside committing and answering."""

    placement: Placement
    space: DiskSpace
    _clock: Clock
    _owner: OwnerLock
    _wal: WriteAheadLog
    _words: LastWords
    _log_files: dict[Path, tuple[int, int]]
    _wal_limit: int
    _page_bytes: int

    def _fail(self, error: Exception, batch: Sequence[Op]) -> None:
        """Sort out an error and raise what it means."""
        raise NotImplementedError

    def after_commit(self) -> None:
        """Checkpoint when enough has been written. See the port."""
        # With little room left the log is kept short: it then has room of its own for acks.
        tight = self.space.low and self._wal.written >= _TIGHT_PAGES
        if tight or self._wal.is_due(roomy=self.space.roomy):
            self.checkpoint()

    def checkpoint(self) -> bool:
        """Move the log into the database file. Needs the lock. Returns whether all of it went."""
        if self._stopped is not None:
            return False
        try:
            return self._wal.checkpoint()
        except ERRORS as error:
            what = meaning(error, self.path)
            if isinstance(what, StoreFull):
                # No `refresh` before: it could make a new ballast each time, and this never end.
                return self.space.drop_ballast() and self.checkpoint()
            if not isinstance(what, StoreBusy):
                self.stop(what)
            return False

    def rest(self, pages: int) -> None:
        """See the port."""
        if self._stopped is not None:
            return
        if self._wal.written:
            self.checkpoint()
        try:
            free: int = self.connection.execute("PRAGMA freelist_count").fetchone()[0]
            if free:
                # execute() would free one page: the module steps such a statement only once.
                self.connection.executescript(f"PRAGMA incremental_vacuum({pages})")
                self._wal.written += min(free, pages)
        except ERRORS as error:
            self._fail(error, ())

    @property
    def wal(self) -> WalHealth:
        """What is known of the write-ahead log."""
        return self._wal.health

    def look_around(self) -> None:
        """See the port: stop if the file, or the lock file, was removed or replaced."""
        if self._stopped is not None:
            return
        self.space.refresh()
        self._look_at_log()
        try:
            check_still_there(self.placement, self._log_files)
            self._owner.confirm()
            if self._words.is_lost and self._owner.words == KEPT:
                self._owner.mark(words=ELSEWHERE)
        except StorageError as error:
            self.stop(error)

    def _look_at_log(self) -> None:
        """Name who keeps the log from being rewound, once it has passed its limit."""
        health = self._wal.health
        oversize = health.blocked > 0 and health.pages * self._page_bytes > self._wal_limit
        if oversize:
            self._readers.drop_idle()
            health.readers = readers_of(self.path)
            if not health.oversize:
                _log.warning(
                    "%s-wal has %d MiB and cannot be rewound: a reader keeps an old state open"
                    " (other processes reading: %s); end it, or its transaction",
                    self.path,
                    health.pages * self._page_bytes >> 20,
                    ", ".join(map(str, health.readers)) or "none found",
                )
        health.oversize = oversize

    def backup(
        self,
        lock: Lock,
        target: str | os.PathLike[str],
        *,
        settle: Callable[[], object],
        overwrite: bool = False,
        progress: Callable[[int, int], object] | None = None,
    ) -> BackupReport:
        """See the port."""
        if self._stopped is not None:
            raise self._stopped
        return backup(
            *(self.connection, lock, target),
            overwrite=overwrite,
            progress=progress,
            settle=settle,
            clock=self._clock,
        )
