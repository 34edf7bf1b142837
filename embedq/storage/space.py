"""Watch the free space of the disk, and keep some aside for the acknowledgements.

Knows: free bytes, the watermark below which puts are refused, the ballast file.
Does not know: messages, SQL, who calls it and how often.

On a full disk SQLite cannot even delete: an ack needs room in the write-ahead log. So puts are
refused while there is still some room, and when there is none the ballast makes some.
"""

import errno
import os
import stat
import threading
from collections.abc import Callable
from typing import Final

from embedq.errors import InvalidOption, StoreFull
from embedq.storage.placement import PRIVATE, Placement, os_failure

_MIB: Final = 1024 * 1024
_CHUNK: Final = 64 * 1024

#: What opening needs for a new log and the shared memory beside it.
_OPENING: Final = 256 * 1024

#: Watermarks of free space from which on a disk counts as roomy.
_ROOMY: Final = 4
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_ALLOCATION: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})


class DiskSpace:
    """The free space where a database is, and whether puts are refused because of it.

    `low`, `roomy` and `free` are plain attributes, so that every put may look at `low` for
    nothing; they change in `refresh` and `drop_ballast` only. All sizes are bytes. Safe to share
    between threads.
    """

    def __init__(
        self,
        placement: Placement,
        watermark_bytes: int,
        ballast_bytes: int,
        statvfs: Callable[[str], os.statvfs_result] | None = None,
    ) -> None:
        """Touch nothing yet: the first `refresh` looks at the disk.

        `ballast_bytes=0` does without the file. `statvfs` replaces the one of the system.
        Raises InvalidOption for a negative size.
        """
        for name, value in (("watermark", watermark_bytes), ("ballast", ballast_bytes)):
            if value < 0:
                raise InvalidOption(f"{name}_bytes={value} is negative", argument=f"{name}_bytes")
        self.low = False
        #: Whether the log may grow for a while: such a disk does not fill up within a second.
        self.roomy = False
        self.free = 0
        self._path = placement.path
        self._ballast_path = placement.ballast_path
        self._watermark = watermark_bytes
        self._ballast = ballast_bytes
        self._statvfs = statvfs or os.statvfs
        self._lock = threading.Lock()
        # The disk was truly full. What statvfs says is no proof then that there is room again
        # (it knows no quotas): only a new ballast is.
        self._exhausted = False

    @property
    def resume_bytes(self) -> int:
        """The free space at which refused puts are taken again."""
        if self._exhausted:
            return 2 * self._watermark + self._ballast + 1
        # A quarter more than where they stopped, or they would start and stop with every ack.
        return self._watermark + self._watermark // 4

    def refresh(self) -> None:
        """Measure the free space, decide about `low`, and put the ballast back when there is room.

        Takes microseconds, and milliseconds when it makes the ballast. Raises StoreFailed when
        the operating system cannot answer.
        """
        with self._lock:
            try:
                found = self._statvfs(os.fspath(self._path.parent))
                # What is left for ordinary users, not the reserve of root.
                self.free = found.f_bavail * found.f_frsize
                if self.free > 2 * self._watermark + self._ballast and self._keep_ballast():
                    self._exhausted = False
            except OSError as error:
                raise os_failure(self._path, "watch the disk", error) from error
            self.roomy = self.free > _ROOMY * self._watermark + self._ballast
            if self._exhausted or self.free < self._watermark:
                self.low = True
            elif self.free >= self.resume_bytes:
                self.low = False

    def check(self) -> None:
        """Raise StoreFull while puts are refused, with the sizes of the last `refresh`."""
        if not self.low:
            return
        state = "was full" if self._exhausted else f"has {_mib(self.free)} free"
        raise StoreFull(
            f"database {self._path}: its disk {state}, and {_mib(self._watermark)} are kept for "
            "acks: puts are refused, acks still pass",
            hint=f"free disk space: puts are taken again by themselves at "
            f"{_mib(self.resume_bytes)}; or lower disk_watermark_bytes",
            free_bytes=self.free,
            watermark_bytes=self._watermark,
            resume_bytes=self.resume_bytes,
        )

    def drop_ballast(self) -> bool:
        """Give the ballast to the disk after SQLite found it full; False when none was left.

        Puts are refused from now on, until a `refresh` could make the ballast again. Raises
        StoreFailed when the file cannot be deleted.
        """
        with self._lock:
            self.low = self._exhausted = True
            self.roomy = False
            try:
                self._ballast_path.unlink()
            except FileNotFoundError:
                return False
            except OSError as error:
                raise os_failure(self._path, "delete the ballast file", error) from error
            return True

    def _keep_ballast(self) -> bool:
        """Make the ballast if it is not there in its full size; False when there is no room."""
        if self._ballast == 0 or self._has_ballast():
            return True
        self._ballast_path.unlink(missing_ok=True)
        try:
            self._make_ballast()
        except OSError as error:
            self._ballast_path.unlink(missing_ok=True)
            if error.errno in _NO_ROOM:
                return False
            raise
        return True

    def _make_ballast(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = os.open(self._ballast_path, flags, PRIVATE)
        try:
            os.fchmod(fd, PRIVATE)
            _allocate(fd, self._ballast)
            os.fsync(fd)
        finally:
            os.close(fd)

    def _has_ballast(self) -> bool:
        # The size is enough to know it whole: both ways of allocation reach it at the end only.
        try:
            found = self._ballast_path.stat(follow_symlinks=False)
        except FileNotFoundError:
            return False
        return stat.S_ISREG(found.st_mode) and found.st_size == self._ballast


def make_room(placement: Placement) -> None:
    """Delete the ballast where a database could not even be opened for lack of room.

    Raises StoreFailed when the operating system refuses.
    """
    path = placement.path
    try:
        found = os.statvfs(path.parent)
        if found.f_bavail * found.f_frsize < _OPENING:
            placement.ballast_path.unlink(missing_ok=True)
    except OSError as error:
        raise os_failure(path, "make room on the disk", error) from error


def _allocate(fd: int, size: int) -> None:
    """Occupy `size` bytes of the disk: not a hole, and nothing that compression makes vanish."""
    if hasattr(os, "posix_fallocate"):  # not on macOS
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError as error:
            if error.errno not in _NO_ALLOCATION:
                raise
        else:
            # Where the file system cannot do it the C library writes zeros, which some store as
            # nothing: then the blocks are missing.
            os.fsync(fd)
            if os.fstat(fd).st_blocks * 512 >= size:
                return
            os.ftruncate(fd, 0)
    for start in range(0, size, _CHUNK):
        chunk = os.urandom(min(_CHUNK, size - start))
        if os.pwrite(fd, chunk, start) != len(chunk):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _mib(size: int) -> str:
    return f"{size / _MIB:.1f} MiB"
