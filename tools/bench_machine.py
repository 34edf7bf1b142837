"""What a benchmark says about the machine it ran on: its disk, its load, its versions.

Knows: how to time a sync, where temporary databases may lie.
Does not know: what is measured. Names of hosts, users and folders are never printed.
"""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from bench_figures import percentile

_BLOCK = 4096
_BLOCKS = 64


def sync_ms(folder: Path, times: int) -> float:
    """Return the median time of writing over 4 KB of a file and syncing it, in milliseconds."""
    path = folder / "sync"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    block = os.urandom(_BLOCK)
    # macOS has no fdatasync; what SQLite would use there (fullfsync) is slower still.
    sync = getattr(os, "fdatasync", os.fsync)
    taken = []
    try:
        os.write(descriptor, bytes(_BLOCK * _BLOCKS))
        os.fsync(descriptor)
        for turn in range(times):
            begun = perf_counter()
            os.pwrite(descriptor, block, _BLOCK * (turn % _BLOCKS))
            sync(descriptor)
            taken.append(perf_counter() - begun)
    finally:
        os.close(descriptor)
        path.unlink()
    return percentile(taken, 0.5) * 1000


def load() -> str:
    """Return the load average over one and five minutes, as text."""
    one, five, _ = os.getloadavg()
    return f"{one:.1f} {five:.1f}"


def facts() -> dict[str, str]:
    """Say what the figures depend on."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count()),
    }


@contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """Give a folder for databases, on the disk of `parent`; it is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=".bench-", dir=parent))
    try:
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def flush(path: Path) -> None:
    """Write a file's pages to the disk, so that it does not happen while something is timed."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def forget(path: Path) -> bool:
    """Drop a file's pages from the system's cache; return whether the system can."""
    if not hasattr(os, "posix_fadvise"):
        return False
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    return True
