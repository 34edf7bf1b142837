"""Where the sockets of a database live: a private folder whose paths are short enough.

Knows: how long a socket's path may be, which folder is safe, what dead hosts and clients leave.
Does not know: sockets, frames, who is the host (it asks the lock file).
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from embedq.errors import InsecurePermissions, InvalidOption, StoreFailed
from embedq.ipc.keys import ClientKeys
from embedq.ipc.marks import SUFFIX as MARKS, is_alive
from embedq.storage.owners import owner_of
from embedq.storage.placement import os_failure

#: Bytes of a socket's path that the system takes: one less than the field in its address.
LONGEST: Final = 103 if sys.platform == "darwin" else 107

_FOLDER: Final = ".ipc"
_SOCKET: Final = ".sock"
_SCHEME: Final = "ipc://"
_PRIVATE: Final = 0o700
_TOKEN: Final = re.compile("[0-9a-f]{32}")
_EPOCH_DIGITS: Final = 12  # the path must still fit after many epochs


class Found(NamedTuple):
    """The host of a database, as its lock file tells. `pid` is None in another container.

    `keys`: what a host on another machine asks for.
    """

    pid: int | None
    epoch: int
    endpoint: str
    keys: ClientKeys | None = None


def folder_of(path: str | os.PathLike[str], env: Mapping[str, str] | None = None) -> Path:
    """Return where the sockets of a database belong; nothing is made.

    Beside the database where that is short enough, else under a hash of its path below
    `$XDG_RUNTIME_DIR` or the temporary folder: the same for every process of this user. Raises
    InvalidOption for the root of the file system, StoreFailed where every path is too long.
    """
    env = os.environ if env is None else env
    real = Path(os.path.realpath(path))
    if not real.name:
        raise InvalidOption(
            f"database path {os.fspath(path)!r}: it is a folder",
            hint="choose a path where a plain file can be",
            argument="path",
        )
    beside = real.with_name(real.name + _FOLDER)
    if _fits(beside):
        return beside
    digest = hashlib.blake2b(os.fsencode(real), digest_size=10).hexdigest()
    for parent in _short_folders(env):
        if _fits(found := Path(parent) / f"embedq-{os.getuid()}" / digest):
            return found
    raise StoreFailed(
        f"database {real}: no folder for its socket has a path of {LONGEST} bytes or less",
        hint="set XDG_RUNTIME_DIR or TMPDIR to a folder with a short path",
    )


def _short_folders(env: Mapping[str, str]) -> Iterator[str]:
    runtime = env.get("XDG_RUNTIME_DIR")
    if runtime:
        yield runtime
    with suppress(FileNotFoundError):  # in a container, of which nothing can be written
        yield tempfile.gettempdir()
    yield "/tmp"  # noqa: S108  # 0700, owner checked


def _fits(folder: Path) -> bool:
    longest = len(os.fsencode(folder)) + 1 + _EPOCH_DIGITS + len(_SOCKET)
    return longest <= LONGEST


def make_folder(folder: Path) -> Path:
    """Make a folder that only this user can enter, or make sure that it is one. Returns it.

    Raises InsecurePermissions for a link, or what belongs to somebody else or lets others in;
    StoreFailed when the operating system refuses.
    """
    if folder.parent.name == f"embedq-{os.getuid()}":
        _make_private(folder.parent)
    _make_private(folder)
    return folder


def _make_private(folder: Path) -> None:
    try:
        with suppress(FileExistsError):
            folder.mkdir(_PRIVATE)
        found = folder.stat(follow_symlinks=False)
        if not stat.S_ISDIR(found.st_mode):
            raise _insecure(folder, "is a link or no folder")
        if found.st_uid != os.geteuid():
            raise _insecure(folder, f"belongs to user {found.st_uid}")
        if stat.S_IMODE(found.st_mode) != _PRIVATE:
            folder.chmod(_PRIVATE)  # ours alone: closed to others, as the database itself is
    except OSError as error:
        raise StoreFailed(
            f"the folder {folder} for sockets cannot be made: {error.strerror}",
            hint="see who may write to the folder above it, or set XDG_RUNTIME_DIR to another one",
        ) from error


def _insecure(folder: Path, why: str) -> InsecurePermissions:
    return InsecurePermissions(
        f"the folder {folder} for sockets {why}",
        hint="remove it, or set XDG_RUNTIME_DIR to a folder that only you can write to",
    )


def socket_path(folder: Path, epoch: int) -> Path:
    """Return the path of the socket that the host of this epoch binds."""
    return folder / f"{epoch}{_SOCKET}"


def endpoint_of(path: Path) -> str:
    """Return the address of a socket, as ZeroMQ wants it."""
    return f"{_SCHEME}{path}"


def find_host(path: str | os.PathLike[str]) -> Found | None:
    """Return the live host of a database and where it listens; None if there is none (yet).

    None, too, for a host that has not bound its socket yet, or never will. Raises StoreFailed
    when the lock file cannot be read.
    """
    owner = owner_of(path)
    if owner is None or not owner.alive or not owner.socket or owner.epoch is None:
        return None
    return Found(owner.pid, owner.epoch, owner.socket)


def sessions_left(path: str | os.PathLike[str]) -> set[bytes]:
    """Return the tokens of the sessions that an earlier host of a database has left, dead or not.

    Those are the ones with marks; the next host settles what they hold. Read it before `tidy`.
    Raises StoreFailed when the operating system refuses, as in a folder of somebody else.
    """
    folder = folder_of(path)
    try:
        names = [entry.stem for entry in folder.glob(f"*{MARKS}")] if folder.is_dir() else []
    except OSError as error:
        raise os_failure(Path(path), "look for sessions of its last host", error) from error
    return {bytes.fromhex(name) for name in names if _TOKEN.fullmatch(name)}


def marks_path(folder: Path, token: bytes) -> Path:
    """Return where the marks of a session are."""
    return folder / f"{token.hex()}{MARKS}"


def tidy(folder: Path, epoch: int) -> list[Path]:
    """Remove what dead processes left: sockets of earlier hosts, marks that nobody holds.

    Called by the host of `epoch`, which owns the database: no other host can be alive. Marks of
    sessions that may come back are kept by the processes that hold them. Returns what went.
    """
    gone = []
    for entry in sorted(folder.iterdir()):
        name = entry.name
        stale = name.endswith(_SOCKET) and name != f"{epoch}{_SOCKET}"
        if stale or (name.endswith(MARKS) and not is_alive(entry)):
            remove(entry)
            gone.append(entry)
    return gone


def remove(path: Path) -> None:
    """Remove a file that may be gone already. Raises StoreFailed when the system refuses."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        if error.errno == errno.ENOTDIR:
            return
        raise StoreFailed(f"{path} cannot be removed: {error.strerror}") from error
