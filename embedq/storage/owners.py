"""See who owns a database file, or keep owners out for a while, without becoming one.

Knows: the lock file and what stands in it.
Does not know: what an owner does; how to become one (ownership.py).

Nothing is written. A process that owns the file itself is told so without the lock file being
opened: closing it again would drop the lock.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from embedq.errors import StoreInUse
from embedq.storage.ownership import (
    _boot_id,
    _holder,
    _identity,
    _owned,
    _read,
    _Record,
    _try_lock,
)
from embedq.storage.placement import os_failure


class Owner(NamedTuple):
    """What the lock file of a database tells.

    `alive`: a process owns the file now; `pid` is None when it is in another container. Else the
    rest is about the last owner: `clean` says that it finished its work, `same_boot` that the
    machine has not restarted since (None: cannot be told). `started_ms` and `epoch` are None when
    unknown. `socket`: where a live owner serves other processes.
    """

    alive: bool
    pid: int | None
    started_ms: int | None
    epoch: int | None
    version: str
    clean: bool
    same_boot: bool | None
    socket: str | None = None


def owner_of(path: str | os.PathLike[str]) -> Owner | None:
    """Return who owns a database now, or did last; None if nobody ever did under this name.

    Raises StoreFailed when the lock file cannot be read.
    """
    lock = _lock_path(path)
    try:
        with _owned.lock:
            own = _owned.identities.get(_identity(lock.stat()))
            if own is not None:
                return _told(own._record, os.getpid())  # noqa: SLF001 - one of the room
            fd = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                return _told(_read(fd), _holder(fd))
            finally:
                os.close(fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise os_failure(Path(path), "read the lock file", error) from error


@contextmanager
def owners_kept_out(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let no process become the owner inside the block; what the lock file says stays as it is.

    Where there is no lock file nobody is kept out. Raises StoreInUse when there is an owner.
    """
    found = owner_of(path)
    if found is None:
        yield
        return
    if found.alive:
        raise _in_use(path, found)
    try:
        fd = os.open(_lock_path(path), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise os_failure(Path(path), "take the lock", error) from error
    try:
        if not _try_lock(fd):
            raise _in_use(path, owner_of(path))
        yield
    finally:
        os.close(fd)


def _lock_path(path: str | os.PathLike[str]) -> Path:
    real = Path(os.path.realpath(path))
    return real.with_name(f"{real.name}.lock")


def _told(record: _Record | None, holder: int | None) -> Owner:
    # A record with another pid is the previous owner's: the new one has not written yet.
    known = record if record is not None and holder in {None, 0, record.pid} else None
    boot = _boot_id()
    same = None
    if known is not None and known.boot_id is not None and boot is not None:
        same = known.boot_id == boot
    pid = holder if holder is not None else (known.pid if known is not None else None)
    return Owner(
        alive=holder is not None,
        pid=pid or None,
        started_ms=known.started_ms if known is not None else None,
        epoch=known.epoch if known is not None else None,
        version=known.version if known is not None else "",
        clean=known is not None and known.clean,
        same_boot=same,
        socket=known.socket if known is not None and holder is not None else None,
    )


def _in_use(path: str | os.PathLike[str], owner: Owner | None) -> StoreInUse:
    pid = owner.pid if owner is not None else None
    who = "another process" if pid is None else f"process {pid}"
    return StoreInUse(f"database {os.fspath(path)} is in use by {who}", pid=pid)
