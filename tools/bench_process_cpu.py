"""The CPU that processes have used: others than this one, to the nanosecond where Linux says it.

Knows: /proc.
Does not know: which processes there are and why. Where there is no /proc, nothing is said: NaN.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path

_PROC = Path("/proc")
_NS = 1e9


def cpu_of(pid: int) -> float:
    """Return the seconds of CPU that a process has used; 0.0 for one that is gone."""
    if not _PROC.is_dir():
        return math.nan
    used = 0
    try:
        for task in (_PROC / str(pid) / "task").iterdir():
            used += int((task / "schedstat").read_text("ascii").split()[0])
    except (FileNotFoundError, ProcessLookupError):
        pass
    return used / _NS


def group_of(pid: int) -> list[int]:
    """Return the processes of a process group."""
    found = []
    for entry in _PROC.iterdir() if _PROC.is_dir() else ():
        if entry.name.isdigit():
            try:
                if os.getpgid(int(entry.name)) == pid:
                    found.append(int(entry.name))
            except ProcessLookupError:
                continue
    return found


def cpu_of_group(pid: int) -> float:
    """Return the CPU of all processes of a group."""
    return cpu_of_all(group_of(pid)) if _PROC.is_dir() else math.nan


def cpu_of_all(pids: Iterable[int]) -> float:
    """Return the CPU of some processes together."""
    return sum(map(cpu_of, pids))
