"""Copy the database of a running store into one whole file, while puts and acks go on.

Knows: SQLite's backup in steps, how the writer's lock is lent between them, the finished file.
Does not know: what the messages mean, who holds the lock meanwhile, how long copies are kept.

The steps run on the writing connection: what it commits between two steps SQLite carries into
the copy by itself, so a backup ends however busy the store is. A second connection would have to
start again after each commit.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
import time
from _thread import get_ident
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote

from embedq.clock import Clock, SystemClock
from embedq.errors import (
    InvalidOption,
    StorageError,
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreFailed,
    StoreFull,
)
from embedq.storage.connection import meaning
from embedq.storage.folders import leads_to, sync_folder
from embedq.storage.placement import PRIVATE
from embedq.storage.reentry import borrowers

if sys.platform != "win32":  # a store cannot be opened there, so there is none to back up
    import fcntl

# A lock released and taken again at once mostly stays with the same thread; this long a waiting
# put needs to get in. At 200 pages a step it costs 0.6 s in a gigabyte.
_TURN_S: Final = 0.0005
_RETRY_S: Final = 0.01


class Lock(Protocol):
    """The writer's lock: whoever holds it may use the writing connection."""

    def acquire(self) -> bool:
        """Wait for the lock."""
        ...

    def release(self) -> None:
        """Let the next one have it."""
        ...


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What was copied: the file, its pages, the messages in it, and the seconds it took."""

    path: Path
    pages: int
    messages: int
    seconds: float


def backup(
    connection: sqlite3.Connection,
    lock: Lock,
    target: str | os.PathLike[str],
    *,
    pages: int = 200,
    overwrite: bool = False,
    progress: Callable[[int, int], object] | None = None,
    settle: Callable[[], object] | None = None,
    clock: Clock | None = None,
) -> BackupReport:
    """Copy the database into `target`, checked, synced and with mode 0600.

    The copy holds everything committed before the last step, hence everything confirmed before
    the call. `lock` is taken for each step of `pages` pages and is free in between. `progress`
    gets (pages done, pages in all) without the lock. `settle` undoes what an interrupted commit
    left open on the connection (SqliteStore.settle_interrupted). Until it is whole the copy is
    named `<target>.part`; on any error that file is removed and `target` stays as it was, unless
    the very last step failed, which makes the name of the finished copy durable.

    Raises:
        InvalidOption: `target` exists and `overwrite` is not set, or it cannot be a copy.
        StoreFull: no space for the copy; the store itself is not affected.
        StoreBusy: another backup writes the same target, or a transaction is open.
        StoreCorrupt: the database is damaged; `target` was not replaced.
        StoreFailed, StoreClosed: reading or writing failed, or the store was closed meanwhile.
    """
    if pages < 1:
        raise InvalidOption(f"pages={pages} is not 1 or more", argument="pages")
    clock = clock or SystemClock()
    started = clock.monotonic()
    path = Path(target).absolute()
    part = path.with_name(f"{path.name}.part")
    turn = _Turn(connection, lock, settle, progress)
    with _named_errors(turn, path), turn.ending():
        source = turn.find_source()
        _check_target(path, source, overwrite=overwrite)
        with _part_file(part) as fd:
            _copy(turn, part, pages)
            copied, messages = _inspect(part, source)
            os.fsync(fd)
            _check_target(path, source, overwrite=overwrite)
            part.replace(path)
        _sync_folder(path)
    return BackupReport(path, copied, messages, clock.monotonic() - started)


class _Turn:
    """Called between two steps: lends the lock to whoever waits for it."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        lock: Lock,
        settle: Callable[[], object] | None,
        progress: Callable[[int, int], object] | None,
    ) -> None:
        self.connection = connection
        self.lock = lock
        self._settle = settle
        self._progress = progress
        self.me = get_ident()
        self.source = ""
        self.interrupted: BaseException | None = None

    def take(self) -> None:
        """Wait for the lock."""
        borrowers.add(self.me)
        self.lock.acquire()

    @contextmanager
    def ending(self) -> Iterator[None]:
        """See to it that the thread is no borrower afterwards, whatever has interrupted it."""
        try:
            yield
        finally:
            borrowers.discard(self.me)

    def find_source(self) -> str:
        """Return the path of the database; empty for one in memory."""
        self.take()
        try:
            rows = self.connection.execute("PRAGMA database_list").fetchall()
        finally:
            self.lock.release()
            borrowers.discard(self.me)
        self.source = next((file for _, name, file in rows if name == "main"), "")
        return self.source

    def __call__(self, _status: int, remaining: int, total: int) -> None:
        self.lock.release()
        try:
            borrowers.discard(self.me)
            if self._progress is not None:
                self._progress(total - remaining, total)
            time.sleep(_TURN_S)
        except BaseException as error:  # noqa: BLE001 - raised below, with the lock held
            self.interrupted = error
        while True:
            try:
                self.take()
                break
            except BaseException as error:  # noqa: BLE001 - likewise: Ctrl-C while waiting
                self.interrupted = error
        if self.interrupted is not None:
            raise self.interrupted
        self.require_no_transaction()

    def require_no_transaction(self) -> None:
        """Settle an open transaction: its pages would be copied although not committed."""
        if self.connection.in_transaction and self._settle is not None:
            self._settle()
        if self.connection.in_transaction:
            raise StoreBusy(
                "a transaction was left open on the writing connection; a copy would contain it",
                hint="back up again once the store has settled it",
            )


def _copy(turn: _Turn, part: Path, pages: int) -> None:
    # nolock: nobody else knows the part file, and a target on a network share may have no locks.
    address = f"file:{quote(os.fsencode(part))}?nolock=1"
    with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as copy:
        # The last step commits with the writer's lock held. It must not wait for the disk there:
        # the file is synced at the end, and before that nobody takes it for a backup.
        copy.execute("PRAGMA synchronous=OFF")
        copy.execute("PRAGMA journal_mode=OFF")
        turn.take()
        try:
            turn.require_no_transaction()
            turn.connection.backup(copy, pages=pages, progress=turn, sleep=_RETRY_S)
        finally:
            turn.lock.release()
            borrowers.discard(turn.me)


def _inspect(part: Path, source: str) -> tuple[int, int]:
    """Return the pages and messages of the finished copy; StoreCorrupt if it is not sound."""
    address = f"file:{quote(os.fsencode(part))}?mode=ro&immutable=1"
    with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as copy:
        found: str = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise StoreCorrupt(f"{source} is damaged, and so would be its backup: {found}")
        pages: int = copy.execute("PRAGMA page_count").fetchone()[0]
        messages: int = copy.execute("SELECT count(*) FROM msg").fetchone()[0]
    return pages, messages


@contextmanager
def _part_file(part: Path) -> Iterator[int]:
    """Hold an empty part file, new or left by a killed backup; it is gone at the end."""
    fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE)
    try:
        _claim(part, fd)
        try:
            os.fchmod(fd, PRIVATE)  # a umask can take bits of ours away
            os.ftruncate(fd, 0)
            yield fd
        finally:
            if leads_to(part, fd):  # else it has become the target
                part.unlink()
    finally:
        os.close(fd)


def _claim(part: Path, fd: int) -> None:
    try:
        # flock and not a record lock: two threads of one process must not share it.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mine = leads_to(part, fd)  # else that backup ended just now, and the file is its target
    except BlockingIOError:
        mine = False
    if not mine:
        raise StoreBusy(
            f"another backup is writing {part}", hint="wait for it, or choose another target"
        )


def _check_target(path: Path, source: str, *, overwrite: bool) -> None:
    if not path.parent.is_dir():
        raise _unusable(path, f"its folder {path.parent} does not exist", "mkdir -p it first")
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise _unusable(path, "it is not a plain file", "name a file")
    if not path.exists():
        return
    if source and path.samefile(source):
        raise _unusable(path, "it is the database itself", "choose another name")
    if not overwrite:
        raise _unusable(path, "it exists", "choose another name, or ask to overwrite it")
    for suffix in ("-wal", "-journal"):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            # SQLite would replay that log into the new file, and so destroy it.
            why = f"{beside.name} beside it shows that it is a database in use"
            raise _unusable(path, why, "choose another name")


def _unusable(path: Path, why: str, hint: str) -> InvalidOption:
    return InvalidOption(f"backup target {path}: {why}", hint=hint, argument="target")


@contextmanager
def _named_errors(turn: _Turn, path: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if error is turn.interrupted:  # the caller's own, from `progress`
            raise
        what = _meaning(error, f"{turn.source} to {path}")
        if what is None:
            raise
        hint = "the store itself goes on; nothing was left at the target"
        if isinstance(what, StoreFull):
            hint = f"free space in {path.parent}, or choose another disk; the store itself goes on"
        elif isinstance(what, StoreCorrupt):
            hint = "check the store; the backups made before are untouched"
        raise type(what)(f"backup of {what.message}", hint=hint) from error


def _meaning(error: Exception, what: str) -> StorageError | None:
    if isinstance(error, sqlite3.ProgrammingError):
        # Nothing else here could be misused: the connection was closed.
        return StoreClosed(f"{what}: the store was closed meanwhile")
    if isinstance(error, sqlite3.Error):
        return meaning(error, what)
    if isinstance(error, OSError):
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        return (StoreFull if full else StoreFailed)(f"{what}: {error.strerror or error}")
    return None


def _sync_folder(path: Path) -> None:
    """Make the new name of a whole copy durable. Raises StoreFailed; the copy is there then."""
    try:
        sync_folder(path.parent)
    except OSError as error:
        raise StoreFailed(
            f"backup {path}: syncing its folder failed: {error.strerror}",
            hint="the copy is whole, but a power loss may take its name: check the disk",
        ) from error
