"""File descriptors: whether this process can still have some.

Knows: that those a process may have are counted, and how many a moment's look costs: none.
Does not know: what they are needed for, what else has become of an error.

SQLite only says that it "cannot open" a file. libzmq ends the whole process where it gets none.
"""

from __future__ import annotations

import errno
import os
from typing import Final

_NONE_LEFT: Final = (errno.EMFILE, errno.ENFILE)
#: What a program can do about it.
HINT: Final = "close files and connections, or raise the limit (ulimit -n, LimitNOFILE=)"


def are_free(count: int) -> bool:
    """Whether this process could open so many files now. Nothing stays open."""
    taken: list[int] = []
    try:
        while len(taken) < count:
            taken.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in _NONE_LEFT
    finally:
        for each in taken:
            os.close(each)
    return True


def check(count: int) -> None:
    """Raise OSError if they are not."""
    if not are_free(count):
        raise OSError(errno.EMFILE, f"fewer than {count} file descriptors are free")
