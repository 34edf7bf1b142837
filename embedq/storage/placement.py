"""Decide whether a path is a safe place for a database, and prepare the file.

Knows: links, modes and owners of files, mount tables, the files that stand beside a database.
Does not know: SQL, what is in the file, which process may use it.

The database is never opened here once it exists: POSIX drops every lock a process has on a file
when it closes any descriptor of it, and SQLite's locks are of that kind. stat and chmod by path
are harmless.
"""

import errno
import os
import re
import stat
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from embedq.errors import (
    InsecurePermissions,
    InvalidOption,
    NetworkFilesystem,
    StorageError,
    StoreFailed,
    StoreFull,
    UnsupportedPlatform,
)
from embedq.storage.folders import sync_folder

PRIVATE: Final = 0o600
_LOCK: Final = ".lock"
_BALLAST: Final = ".ballast"
_WORDS: Final = ".fatal"
_LOG: Final = ("-wal", "-shm")
_BESIDE: Final = ("-journal", *_LOG, _LOCK, _BALLAST, _WORDS)
_LONGEST_SUFFIX: Final = max(map(len, _BESIDE))
_NAME_MAX: Final = 255
# SQLite refuses longer paths with no better words than "unable to open database file"; the
# suffix of its journal counts (504 bytes open, 505 do not: 3.40.1).
_PATH_MAX: Final = 512
_MOUNTINFO: Final = Path("/proc/self/mountinfo")

# File systems shared between kernels: their locks are missing, only local or only advisory in a
# way SQLite cannot trust, and the -shm file is not the same memory everywhere. Unknown names are
# accepted, since new local file systems appear more often than new network ones. Accepted on
# purpose: virtiofs, whose locks and mapped memory agree within one guest.
_NETWORK: Final = frozenset(
    """
    9p acfs afs beegfs ceph cifs coda davfs drvfs fhgfs gfs gfs2 glusterfs gpfs lustre ncpfs nfs
    nfs3 nfs4 ocfs2 orangefs osxfs panfs prl_fs pvfs2 smb2 smb3 smbfs vboxsf vmhgfs webdav
    afpfs ceph-fuse curlftpfs davfs2 gcsfuse geesefs goofys grpcfuse gvfsd-fuse hdfs
    fuse_dfs juicefs lizardfs mfs moosefs mount-s3 mountpoint-s3 rclone s3fs seaweedfs sshfs
    vmhgfs-fuse
    """.split()
)


class Mount(NamedTuple):
    """One line of the mount table."""

    point: str
    filesystem: str


@dataclass(frozen=True, slots=True)
class Placement:
    """A database file that was found safe, and the names of what stands beside it.

    `path` has no symbolic link left in it. `device` and `inode` identify the file whatever its
    name. `created` says that `prepare` made it. `filesystem` is None where there is no mount
    table to ask.
    """

    path: Path
    device: int
    inode: int
    created: bool
    filesystem: str | None

    @property
    def lock_path(self) -> Path:
        """The file whose record lock means ownership."""
        return _beside(self.path, _LOCK)

    @property
    def ballast_path(self) -> Path:
        """The file that is deleted when the disk is full."""
        return _beside(self.path, _BALLAST)

    @property
    def words_path(self) -> Path:
        """The file that Python writes to while it crashes."""
        return _beside(self.path, _WORDS)


def prepare(path: str | os.PathLike[str], *, mounts: Iterable[Mount] | None = None) -> Placement:
    """Return where the database is, having created it (empty, mode 0600) if it did not exist.

    A file that others may read is closed to them. `mounts` replaces the mount table of the
    system. Raises UnsupportedPlatform on Windows, InvalidOption when the path cannot name a
    database, NetworkFilesystem, InsecurePermissions when other users could write or replace the
    file, StoreFull or StoreFailed when the operating system refuses.
    """
    check_platform()
    real = _resolve(path)
    try:
        folder = _stat(real.parent)
        if folder is None:
            raise _unusable(real, f"its folder {real.parent} does not exist", "mkdir -p it first")
        if not stat.S_ISDIR(folder.st_mode):
            raise _unusable(real, f"{real.parent} is not a folder", "correct the path")
        # After the stat: it is what makes an automounter mount, and the table show, the truth.
        filesystem = _check_mount(real, read_mounts() if mounts is None else mounts)
        _check_folder(real.parent, folder)
        found, created = _find_or_create(real)
        for suffix in _BESIDE:
            neighbour = _beside(real, suffix)
            _check_file(neighbour, _stat(neighbour, follow=False))
    except OSError as error:
        raise os_failure(real, "prepare the file", error) from error
    return Placement(real, found.st_dev, found.st_ino, created, filesystem)


def filesystem_of(path: str | os.PathLike[str]) -> str | None:
    """Return the kind of file system a path is on, None where there is no mount table to ask.

    Raises InvalidOption for what cannot name a database, and NetworkFilesystem.
    """
    mounts = read_mounts()
    return None if mounts is None else _check_mount(_resolve(path), mounts)


def log_files(placement: Placement) -> dict[Path, tuple[int, int]]:
    """Identify the log and its shared memory, which SQLite has open while the database is used.

    Raises StoreFailed when the operating system cannot answer.
    """
    found = {}
    for suffix in _LOG:
        path = _beside(placement.path, suffix)
        identity = _identity(path)
        if identity is not None:
            found[path] = identity
    return found


def check_still_there(
    placement: Placement, log: Mapping[Path, tuple[int, int]] | None = None
) -> None:
    """Raise StoreFailed when a path no longer leads to the file that was prepared.

    Someone deleted, moved or replaced it, or one of the `log_files`. SQLite would go on writing
    into the nameless old file without any error, and all of that would be gone at the end of the
    process.
    """
    path = placement.path
    _check_same(path, (placement.device, placement.inode), f"database {path}: the file")
    for beside, identity in (log or {}).items():
        _check_same(beside, identity, f"database {path}: its file {beside.name}")


def _check_same(path: Path, identity: tuple[int, int], what: str) -> None:
    now = _identity(path)
    if now == identity:
        return
    happened = "was deleted or moved" if now is None else "was replaced by another file"
    raise StoreFailed(
        f"{what} {happened} while it was in use",
        hint="put the original file back, if it still exists, with its -wal file; then restart",
    )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = _stat(path, follow=False)
    except OSError as error:
        raise os_failure(path, "look at the file", error) from error
    return None if found is None else (found.st_dev, found.st_ino)


def check_platform(platform: str = sys.platform) -> None:
    """Raise UnsupportedPlatform on Windows: it has neither record locks nor 0600."""
    if platform in {"win32", "cygwin"}:
        raise UnsupportedPlatform(f"embedq cannot keep its promises on {platform}")


def read_mounts() -> tuple[Mount, ...] | None:
    """Return the mount table of this process, or None where there is none (macOS).

    There the only guard is SQLite's own: write-ahead logging needs shared memory, and opening
    must check that the journal mode it answers is "wal".
    """
    try:
        text = _MOUNTINFO.read_text("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None
    return parse_mounts(text)


def parse_mounts(mountinfo: str) -> tuple[Mount, ...]:
    """Read the text of /proc/self/mountinfo; lines that do not look like it are left out."""
    mounts: list[Mount] = []
    # Only at newlines: splitlines() would also cut at characters a mount point may contain.
    for line in mountinfo.split("\n"):
        left, separator, right = line.partition(" - ")
        fields = left.split(" ")
        if separator and len(fields) > 4:  # noqa: PLR2004 - the fifth field is the mount point
            mounts.append(Mount(_unescape(fields[4]), _unescape(right.split(" ")[0])))
    return tuple(mounts)


def os_failure(path: Path, doing: str, error: OSError) -> StorageError:
    """Return the StorageError that an error of the operating system means for `path`."""
    text = f"database {path}: cannot {doing}: {error.strerror or error}"
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return StoreFull(text)
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        user = os.geteuid()
        return StoreFailed(text, hint=f"let user {user} write the file and its folder, or move it")
    return StoreFailed(text)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _unusable(path: object, why: str, hint: str) -> InvalidOption:
    return InvalidOption(f"database path {str(path)!r}: {why}", hint=hint, argument="path")


def _resolve(path: str | os.PathLike[str]) -> Path:
    try:
        text = os.fsdecode(path)
    except TypeError:
        raise _unusable(path, "it is not a path", 'pass a str or a Path: "var/shop.db"') from None
    if not text:
        raise _unusable(text, "it is empty", 'name a file: "var/shop.db"')
    if "\0" in text:
        raise _unusable(text, "it contains a NUL character", "correct the path")
    if text.startswith(":memory:"):
        raise _unusable(text, "a durable queue needs a file", "name a file, in tests a temporary")
    if text.startswith("file:"):
        raise _unusable(text, "SQLite URIs are not taken", "pass the plain path")
    if text.endswith(os.sep):
        raise _unusable(text, "it names a folder", "add a file name")
    real = Path(os.path.realpath(text))
    name = os.fsencode(real.name)
    too_long = len(name) + _LONGEST_SUFFIX > _NAME_MAX
    if too_long or len(os.fsencode(real)) + _LONGEST_SUFFIX > _PATH_MAX:
        raise _unusable(real, "it is too long for SQLite", "choose a shorter path")
    if real.name.endswith(_BESIDE):
        raise _unusable(real, "names of this form belong to a neighbour", "choose another name")
    return real


def _stat(path: Path, *, follow: bool = True) -> os.stat_result | None:
    try:
        return path.stat(follow_symlinks=follow)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _check_mount(path: Path, mounts: Iterable[Mount] | None) -> str | None:
    if mounts is None:
        return None
    best: Mount | None = None
    for mount in mounts:
        # ">=": of several mounts at one point the last one is on top.
        if _contains(mount.point, str(path)) and (
            best is None or len(mount.point) >= len(best.point)
        ):
            best = mount
    if best is None:
        return None
    if _is_network(best):
        raise NetworkFilesystem(
            f"database {path} is on {best.filesystem}, mounted at {best.point}: its locks do not "
            "keep other machines out",
            filesystem=best.filesystem,
            mount=best.point,
        )
    if best.point == str(path):
        # The lock and the -wal would stand beside this name only: a container that sees the file
        # under another name would see neither.
        raise _unusable(path, "the file itself is a mount point", "mount its folder instead")
    return best.filesystem


def _contains(point: str, path: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def _is_network(mount: Mount) -> bool:
    kind = mount.filesystem.lower()
    if kind == "9p" and mount.point == "/":
        # The root of a sandboxed container, which no second machine sees. Elsewhere 9p is a
        # folder of the machine outside (Windows drives in WSL), whose programs our locks miss.
        return False
    return kind.removeprefix("fuse.") in _NETWORK


def _check_folder(folder: Path, found: os.stat_result) -> None:
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise InsecurePermissions(
            f"folder {folder} is writable by everybody: anyone could replace the database",
            hint=f"chmod o-w {folder}",
        )


def _find_or_create(path: Path) -> tuple[os.stat_result, bool]:
    found = _stat(path, follow=False)
    if found is not None:
        _check_file(path, found)
        return found, False
    try:
        # O_EXCL: never through a link, never an existing file. SQLite gives -wal and -shm the
        # mode of this file, so that all of them are private from their first byte.
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
    except FileExistsError:
        # Another process was faster; the file is as good as one that had been there.
        found = path.stat(follow_symlinks=False)
        _check_file(path, found)
        return found, False
    try:
        os.fchmod(fd, PRIVATE)  # a umask can take bits of ours away
        found = os.fstat(fd)
    finally:
        os.close(fd)  # no SQLite handle can exist yet: the file is a moment old
    sync_folder(path.parent)
    return found, True


def _check_file(path: Path, found: os.stat_result | None) -> None:
    """Refuse what others control; close to others what they could only read."""
    if found is None:
        return
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "not a regular file"
        raise _unusable(path, f"it is {kind}", "choose a path where a plain file can be")
    if found.st_uid != os.geteuid():
        raise InsecurePermissions(
            f"file {path} belongs to user {found.st_uid}, this process is user {os.geteuid()}",
            hint=f"run as user {found.st_uid}, or chown the database and the files beside it",
        )
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InsecurePermissions(
            f"file {path} has mode {mode:04o}: other users can write it",
            hint=f"chmod 600 {path}",
        )
    if not mode & stat.S_IWUSR:
        # Somebody's decision, and not overruled like a mode that is only too open.
        raise StoreFailed(
            f"file {path} has mode {mode:04o}: it is read-only", hint=f"chmod 600 {path}"
        )
    if mode != PRIVATE:
        path.chmod(PRIVATE)


def _unescape(field: str) -> str:
    # Space, tab, newline and backslash are written as a backslash and three octal digits.
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
