"""How much memory a process has.

Knows: /proc, and what there is where it is missing.
Does not know: why anybody asks.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path


def resident(pid: int | None) -> int:
    """Return the resident set of a process in bytes, 0 where that cannot be told.

    Without /proc it is the largest that this very process has had. With it, that figure is of no
    use: what the process was before it became Python's, a copy of its parent, counts in it.
    """
    if pid is None:
        return 0
    if sys.platform != "linux":
        if pid != os.getpid():
            return 0
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
