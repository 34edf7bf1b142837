"""The processes of a benchmark of Spark: this one, its JVM, the Python workers of that.

Knows: what Linux says of a process and of those that have ended.
Does not know: what they do.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

_TICK: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
#: Where /proc/PID/stat has them, counted from the state of the process on.
_PARENT, _CPU, _BEGUN, _PAGES = 1, slice(11, 15), 19, 21


class Meter:
    """The CPU of this process and of all below it, those that have ended, too.

    The kernel adds that of an ended process to its parent's, unless the parent ignores SIGCHLD,
    as PySpark's daemon does. What such children had when they were last seen is remembered.
    """

    def __init__(self) -> None:
        self._lost: dict[tuple[int, str], float] = {}

    def seconds(self) -> float:
        """Return what all have used until now."""
        processes = _processes()
        total, alive = 0.0, set()
        for pid, parent in _tree(processes):
            used = sum(map(int, processes[pid][_CPU])) / _TICK
            total += used
            if _ignores_children(parent):
                known = (pid, processes[pid][_BEGUN])
                alive.add(known)
                self._lost[known] = used
        return total + sum(used for known, used in self._lost.items() if known not in alive)


def memory_of_tree() -> int:
    """Return the bytes of memory that this process and all below it have.

    What several of them share is counted for each.
    """
    processes = _processes()
    return sum(int(processes[pid][_PAGES]) for pid, _ in _tree(processes)) * _PAGE


def _tree(processes: Mapping[int, list[str]]) -> Iterator[tuple[int, int]]:
    """Go through this process and all below it, each with its parent."""
    children: dict[int, list[int]] = {}
    for pid, found in processes.items():
        children.setdefault(int(found[_PARENT]), []).append(pid)
    below = [(os.getpid(), os.getppid())]
    while below:
        one, parent = below.pop()
        yield one, parent
        below += [(child, one) for child in children.get(one, [])]


def _processes() -> dict[int, list[str]]:
    """Return what /proc/PID/stat has of each process, from its state on."""
    found: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text("ascii", "replace").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found[int(entry.name)] = fields
    return found


def _ignores_children(pid: int) -> bool:
    try:
        lines = Path(f"/proc/{pid}/status").read_text("ascii", "replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return False
    masks = [line.split()[1] for line in lines if line.startswith("SigIgn:")]
    return bool(masks) and bool(int(masks[0], 16) >> (signal.SIGCHLD - 1) & 1)
