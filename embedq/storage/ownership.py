"""Make one process at a time the owner of a database file.

Knows: the record lock on the lock file, what the last owner left in it, boots and forks.
Does not know: SQL, sockets, what an owner does with its database.

POSIX drops a record lock when its process closes *any* descriptor of the file. So nothing in a
process that may own the lock opens the lock file a second time, and two owners inside one process
are told apart by a table: to the kernel they would be one.
"""

import errno
import json
import os
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec

import embedq
from embedq.clock import Clock, to_ms
from embedq.errors import ForkedBroker, InvalidOption, StoreClosed, StoreFailed, StoreInUse
from embedq.storage import fork
from embedq.storage.folders import leads_to
from embedq.storage.placement import PRIVATE, Placement, check_still_there, os_failure

if sys.platform != "win32":  # there placement.prepare says clearly that it cannot work
    import fcntl

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_RECORD_BYTES: Final = 4096  # more than any record: a socket path has at most 107 bytes
_TRIES: Final = 10
_LATEST_MS: Final = 253_402_300_799_999  # the end of the year 9999, the last datetime can show
# struct flock, with native alignment, and where its type and its pid are.
_FLOCK, _TYPE, _PID = ("qqihh", 3, 2) if sys.platform == "darwin" else ("hhqqi", 0, 4)

_Identity = tuple[int, int]


class _Record(msgspec.Struct, frozen=True):
    """The content of the lock file: one line of JSON."""

    pid: Annotated[int, msgspec.Meta(ge=1)]
    started_ms: Annotated[int, msgspec.Meta(ge=0, le=_LATEST_MS)]
    clean: bool
    epoch: int | None = None
    boot_id: str | None = None
    version: str = ""
    socket: str | None = None
    words: str = ""


class Previous(NamedTuple):
    """What the last owner left behind.

    `clean`: it finished its work and said so. `same_boot`: the machine has not restarted since;
    None when that cannot be told, as on macOS. `epoch` and `pid` are None when unknown. `words`:
    what it said about its own end, see `OwnerLock.mark`.
    """

    clean: bool
    same_boot: bool | None
    epoch: int | None
    pid: int | None
    words: str = ""


UNKNOWN: Final = Previous(clean=False, same_boot=None, epoch=None, pid=None)


class _Owned:
    """The files this process owns, by identity of the database and of the lock file."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.identities: dict[_Identity, OwnerLock] = {}

    def forked_in_child(self) -> None:
        self.lock = threading.Lock()
        self.identities = {}


_owned = _Owned()


class OwnerLock:
    """The right to be the host of one database, held from `acquire` to `release`.

    It ends with the process at the latest, however that ends. A child made by fork does not have
    it. Dropping the object without `release` keeps the lock: another Broker in the same process
    must not slip in beside connections that may still be open.
    """

    def __init__(self, placement: Placement, clock: Clock) -> None:
        self._placement = placement
        self._clock = clock
        self._fd = -1
        self._pid = 0
        self._record = _Record(pid=1, started_ms=0, clean=False)
        self.previous = UNKNOWN

    @property
    def held(self) -> bool:
        """True between `acquire` and `release`, in the process that acquired it."""
        return self._fd >= 0 and self._pid == os.getpid()

    @property
    def words(self) -> str:
        """What `mark` noted about the end of this owner."""
        return self._record.words

    def acquire(self) -> Previous:
        """Become the owner, before the database is opened, and return what the last one left.

        Does not wait. That this owner has not finished is on disk when it returns. Raises
        StoreInUse with the pid of a live owner, in whatever process; InvalidOption when the
        database has further names (hard links); StoreFull or StoreFailed when the lock file
        cannot be written.
        """
        fork.on_fork(_owned)
        with _owned.lock, self._failures("take the lock"):
            self._refuse_own()
            check_still_there(self._placement)
            self._refuse_hard_links()
            fd = self._open_locked()
            try:
                self._record, self.previous = self._take_over(fd)
                identities = (self._identity, _identity(os.fstat(fd)))
            except BaseException:
                os.close(fd)
                raise
            self._fd, self._pid = fd, os.getpid()
            _owned.identities.update(dict.fromkeys(identities, self))
            fork.on_fork(self)
        return self.previous

    def mark(
        self, *, epoch: int | None = None, socket: str | None = None, words: str | None = None
    ) -> None:
        """Note in the lock file what is not None; whoever finds the file in use reads it there.

        `words`: where the next owner finds out how this one ended, should it not end well.

        Raises ForkedBroker in a forked child, StoreClosed when not held, StoreFull, StoreFailed.
        """
        with _owned.lock, self._failures("write the lock file"):
            self._require()
            changes = {"epoch": epoch, "socket": socket, "words": words}
            self._rewrite({name: value for name, value in changes.items() if value is not None})

    def confirm(self) -> None:
        """Make sure that the lock still keeps others out; meant for about once a second.

        Raises StoreFailed when the lock file was deleted or replaced, or when the lock was lost
        and another process has taken it; ForkedBroker and StoreClosed like `mark`.
        """
        with _owned.lock, self._failures("check the lock"):
            self._require()
            if not leads_to(self._placement.lock_path, self._fd):
                why = "was deleted or replaced"
            elif not _try_lock(self._fd):
                # Some other code of this process opened and closed the lock file (a copy of the
                # folder does that) and dropped our lock. Where nobody was faster, the try has
                # just repaired it.
                why = "was taken over by another process"
            else:
                return
            raise StoreFailed(
                f"database {self._placement.path}: its lock file {self._placement.lock_path} "
                f"{why} while the store was open",
                hint="never delete, copy over or open the .lock file of a running store; restart",
            )

    def release(self, *, clean: bool = True) -> None:
        """Stop being the owner. Comes last, when every connection of the store is closed.

        With `clean` the next owner is told that nothing was left undone. Does nothing when not
        held, and nothing in a forked child. The lock is free afterwards even when this raises
        StoreFull or StoreFailed because the file could not be written.
        """
        with _owned.lock, self._failures("write the lock file"):
            if not self.held:
                return
            try:
                if clean:
                    self._rewrite({"clean": True, "socket": None})
            finally:
                fd, self._fd = self._fd, -1
                for identity in [key for key, own in _owned.identities.items() if own is self]:
                    del _owned.identities[identity]
                os.close(fd)

    def forked_in_child(self) -> None:
        """Let go of the parent's descriptor; its lock is not the child's and stays.

        Left open, it would drop the child's own lock on the day it was closed, should the child
        become the owner after the parent's death.
        """
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    @property
    def _identity(self) -> _Identity:
        return (self._placement.device, self._placement.inode)

    @contextmanager
    def _failures(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise os_failure(self._placement.path, doing, error) from error

    def _require(self) -> None:
        if self._pid not in {0, os.getpid()}:
            raise ForkedBroker(
                f"database {self._placement.path} is owned by process {self._pid}, of which this "
                f"process {os.getpid()} is a forked child"
            )
        if not self.held:
            raise StoreClosed(f"database {self._placement.path} is not owned by this process")

    def _refuse_own(self) -> None:
        identities = [self._identity]
        # Also by the lock file: a replaced database has a new identity but the old lock file,
        # and opening and closing that once more would free it for the whole machine.
        if self._placement.lock_path.exists():
            identities.append(_identity(self._placement.lock_path.stat()))
        for identity in identities:
            owner = _owned.identities.get(identity)
            if owner is not None:
                raise self._in_use(os.getpid(), owner._record)  # noqa: SLF001 - one of us

    def _refuse_hard_links(self) -> None:
        names = self._placement.path.stat().st_nlink
        if names > 1:
            # Lock file and -wal stand beside one name; opened through another name the same
            # database would have neither.
            raise InvalidOption(
                f"database {self._placement.path} has {names} names (hard links)",
                hint=f"keep one: find them with `find -samefile {self._placement.path}`",
                argument="path",
            )

    def _open_locked(self) -> int:
        path = self._placement.lock_path
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        for _ in range(_TRIES):
            fd = os.open(path, flags, PRIVATE)
            try:
                if self._has_won(fd):
                    os.fchmod(fd, PRIVATE)  # a umask can take bits of ours away
                    return fd
            except BaseException:
                os.close(fd)
                raise
            # It became free, or another file took its name, between two calls: once more.
            os.close(fd)
        raise StoreInUse(f"database {self._placement.path}: its lock changes hands all the time")

    def _has_won(self, fd: int) -> bool:
        if _try_lock(fd):
            return leads_to(self._placement.lock_path, fd)
        holder = _holder(fd)
        if holder is not None:
            raise self._in_use(holder, _read(fd))
        return False

    def _take_over(self, fd: int) -> tuple[_Record, Previous]:
        left, boot = _read(fd), _boot_id()
        previous = UNKNOWN
        if left is not None:
            known = left.boot_id is not None and boot is not None
            same = left.boot_id == boot if known else None
            previous = Previous(left.clean, same, left.epoch, left.pid, left.words)
        record = _Record(
            pid=os.getpid(),
            started_ms=to_ms(self._clock.time()),
            clean=False,
            epoch=previous.epoch,  # stays known should we die before we have one
            boot_id=boot,
            version=embedq.__version__,
            words=previous.words,  # likewise
        )
        _write(fd, record)
        # Before the database changes: after a power loss an old "clean" would hide the damage.
        os.fsync(fd)
        return record, previous

    def _rewrite(self, changes: dict[str, object]) -> None:
        record = msgspec.structs.replace(self._record, **changes)
        _write(self._fd, record)
        self._record = record

    def _in_use(self, pid: int, record: _Record | None) -> StoreInUse:
        who, hint = f"process {pid}", None
        if pid == 0:
            # Its own word about its pid counts where it lives, which is not here: two containers
            # both have a process 1.
            who = "a process of another container"
        elif pid == os.getpid():
            who, hint = "this process already", "share one Broker, or close the first one"
        # A record with another pid is the previous owner's: the new one has not written yet.
        mine = record if record is not None and pid in {0, record.pid} else None
        when = ""
        if mine is not None:
            started = datetime.fromtimestamp(mine.started_ms / 1000, UTC)
            when = f", since {started:%Y-%m-%d %H:%M:%S} UTC"
        return StoreInUse(
            f"database {self._placement.path} is in use by {who}{when}",
            pid=pid or None,
            hint=hint,
            started_ms=mine.started_ms if mine else None,
            epoch=mine.epoch if mine else None,
            socket=mine.socket if mine else None,
        )


def _identity(found: os.stat_result) -> _Identity:
    return (found.st_dev, found.st_ino)


def _try_lock(fd: int) -> bool:
    # Not flock: that one belongs to the open file, which a forked child keeps open.
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in {errno.EACCES, errno.EAGAIN}:
            return False
        raise
    return True


def _holder(fd: int) -> int | None:
    """Return the pid that the kernel names: 0 when it is invisible here, None when it is free.

    The content of the file names the previous owner until the new one has written.
    """
    question = struct.pack(_FLOCK, *(fcntl.F_WRLCK if at == _TYPE else 0 for at in range(5)))
    answer = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, question))
    return None if answer[_TYPE] == fcntl.F_UNLCK else max(0, answer[_PID])


def _boot_id() -> str | None:
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except FileNotFoundError:  # not Linux: then every unclean end counts as one of another boot
        return None


def _read(fd: int) -> _Record | None:
    # The first line only: between the write and the truncation of a shorter record the file ends
    # in the rest of the longer one.
    line = os.pread(fd, _RECORD_BYTES, 0).partition(b"\n")[0]
    try:
        return msgspec.convert(json.loads(line), type=_Record)
    except (ValueError, RecursionError):  # empty, torn, or not ours: as good as nothing
        return None


def _write(fd: int, record: _Record) -> None:
    # json, not msgspec: a socket path may contain bytes that are not UTF-8.
    line = json.dumps(msgspec.to_builtins(record)).encode("ascii") + b"\n"
    # In place and in one call, never through a new file: the lock belongs to this inode. Within
    # a block the disk gave long ago, a full disk does not matter either.
    if os.pwrite(fd, line, 0) != len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.ftruncate(fd, len(line))
