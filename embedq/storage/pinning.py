"""Who keeps the write-ahead log from being rewound: the processes that read the database.

Knows: that SQLite's readers hold POSIX locks on the `-shm` file, and where Linux lists locks.
Does not know: what to do about them.
"""

from __future__ import annotations

import os
from pathlib import Path

_LOCKS = Path("/proc/locks")

#: Fields of a line of /proc/locks: number, POSIX, ADVISORY, READ, pid, maj:min:inode, start, end.
_FIELDS = 8


def readers_of(path: str, locks: Path = _LOCKS) -> list[int]:
    """Return the pids of other processes that read the database now, as far as can be told.

    Empty where the system lists no locks (macOS), which proves nothing.
    """
    try:
        inode = Path(f"{path}-shm").stat().st_ino
        lines = locks.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
    found = set()
    for line in lines:
        fields = line.split()
        if len(fields) < _FIELDS or fields[1] != "POSIX" or fields[3] != "READ":
            continue
        # Compared by inode alone: device numbers are written differently by some file systems.
        if fields[5].rpartition(":")[2] == str(inode) and fields[4].isdigit():
            found.add(int(fields[4]))
    return sorted(found - {os.getpid()})
