"""What the doctor thinks of the place: SQLite, permissions, file system, disk, owner, log.

Knows: which of these can endanger a promise, and what to do about it.
Does not know: what is in the database.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from embedq.cli.showing import number, size
from embedq.errors import NetworkFilesystem
from embedq.limits import LIMITS
from embedq.storage.inspect import Finding, Severity
from embedq.storage.lastwords import read
from embedq.storage.onlooker import sqlite_version
from embedq.storage.owners import Owner
from embedq.storage.pinning import readers_of
from embedq.storage.placement import PRIVATE, filesystem_of

Facts = list[tuple[str, str]]

#: From here on two connections of different processes may write and checkpoint at once.
_SAFE_SQLITE: Final = (3, 51, 3)
_BESIDE: Final = ("", "-wal", "-shm", ".lock", ".ballast", ".fatal")
_NEARLY: Final = 2


def examine(path: str, owner: Owner | None, facts: Facts) -> Iterator[Finding]:
    """Go through the findings about what is around the file; add the facts."""
    real = Path(os.path.realpath(path))
    facts.append(("database", f"{real}, {size(real.stat().st_size)}"))
    yield from _sqlite(facts)
    yield from _permissions(real, facts)
    yield from _filesystem(real, facts)
    yield from _disk(real, facts)
    yield from _owner(real, owner, facts)
    yield from _log(real, owner, facts)


def _sqlite(facts: Facts) -> Iterator[Finding]:
    version = sqlite_version()
    text = ".".join(map(str, version))
    facts.append(("SQLite", text))
    if version < _SAFE_SQLITE:
        yield Finding(
            Severity.NOTE,
            f"SQLite {text} can damage a log when two programs write and checkpoint at the same "
            "instant (mended in 3.51.3)",
            "embedq has one writer, so it is not affected: let no other program write the file",
        )


def _permissions(path: Path, facts: Facts) -> Iterator[Finding]:
    user = os.geteuid()
    for suffix in _BESIDE:
        file = path.with_name(path.name + suffix)
        try:
            found = file.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        mode = stat.S_IMODE(found.st_mode)
        if not suffix:
            facts.append(("permissions", f"{mode:04o}, user {found.st_uid}"))
        if found.st_uid != user:
            yield Finding(
                Severity.WARNING,
                f"{file} belongs to user {found.st_uid}, this is user {user}",
                "only its owner can be the host",
            )
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            yield Finding(
                Severity.WARNING,
                f"{file} has mode {mode:04o}: others can write it, so no host will open it",
                f"chmod 600 {file}",
            )
        elif not mode & stat.S_IWUSR:
            yield Finding(
                Severity.WARNING,
                f"{file} has mode {mode:04o}: no host can write it",
                f"chmod 600 {file}",
            )
        elif mode & ~PRIVATE:
            yield Finding(
                Severity.WARNING,
                f"{file} has mode {mode:04o}: others can read the messages",
                f"chmod 600 {file}; the next host does so by itself",
            )
    if not os.access(path.parent, os.W_OK | os.X_OK):
        yield Finding(
            Severity.WARNING,
            f"user {user} cannot write the folder {path.parent}: no host can open the file",
            "looking works; to be the host, let the user write the folder",
        )
    folder = path.parent.stat().st_mode
    if folder & stat.S_IWOTH and not folder & stat.S_ISVTX:
        yield Finding(
            Severity.WARNING,
            f"everybody can write the folder {path.parent}, and so replace the file",
            f"chmod o-w {path.parent}",
        )


def _filesystem(path: Path, facts: Facts) -> Iterator[Finding]:
    try:
        kind = filesystem_of(path)
    except NetworkFilesystem as error:
        facts.append(("file system", str(error.details.get("filesystem"))))
        yield Finding(Severity.WARNING, error.message, error.hint or "")
    else:
        facts.append(("file system", kind or "not known on this system"))


def _disk(path: Path, facts: Facts) -> Iterator[Finding]:
    found = os.statvfs(path.parent)
    free, watermark = found.f_bavail * found.f_frsize, _watermark()
    facts.append(("disk", f"{size(free)} free, puts are refused below {size(watermark)}"))
    if free < watermark:
        yield Finding(
            Severity.WARNING,
            f"the disk has {size(free)} free: puts are refused, acks still pass",
            "free space; puts are accepted again within a second",
        )
    elif free < _NEARLY * watermark:
        yield Finding(
            Severity.WARNING,
            f"the disk has {size(free)} free; below {size(watermark)} puts are refused",
            "free space soon",
        )


def _owner(path: Path, owner: Owner | None, facts: Facts) -> Iterator[Finding]:
    if owner is None or owner.alive:
        return
    facts.append(("last host", "ended cleanly" if owner.clean else "did not end cleanly"))
    if owner.clean:
        return
    words = read(path.with_name(f"{path.name}.fatal"))
    crash = ""
    if words is not None and words.fatal and words.epoch == owner.epoch:
        crash = f" of a crash ({words.fatal})"
    if owner.same_boot:
        yield Finding(
            Severity.NOTE,
            f"the last host (process {owner.pid}) died{crash}; the machine has not restarted "
            "since",
            "nothing to do: the next host recovers, and delivers again what was in delivery",
        )
    else:
        yield Finding(
            Severity.NOTE,
            f"the last host died{crash} and the machine may have restarted since",
            "the next host verifies the whole file while it serves; `embedq check` does it now",
        )


def _log(path: Path, owner: Owner | None, facts: Facts) -> Iterator[Finding]:
    try:
        length = path.with_name(f"{path.name}-wal").stat().st_size
    except FileNotFoundError:
        length = 0
    host = owner.pid if owner is not None and owner.alive else None
    readers = [pid for pid in readers_of(str(path)) if pid != host]
    others = ", ".join(map(str, readers))
    facts.append(("log", f"{size(length)}" + (f", read by processes {others}" if others else "")))
    if length > LIMITS.wal_limit_bytes:
        yield Finding(
            Severity.WARNING,
            f"the log has {size(length)}, more than {size(LIMITS.wal_limit_bytes)}: somebody "
            f"keeps an old state open ({f'processes {others}' if others else 'nobody was found'})",
            "end that reader or its transaction; the host then uses the log from its beginning",
        )
    elif length and host is None and (owner is None or not owner.alive):
        yield Finding(
            Severity.NOTE,
            f"the log of {number(length)} bytes holds changes that are not in the file yet",
            "keep both files together; the next host merges them",
        )


def _watermark() -> int:
    return LIMITS.disk_watermark_bytes
