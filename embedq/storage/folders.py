"""Names in folders: whether one still leads to an open file, and how to make one durable.

Knows: that a name and the file behind it are two things, each to be synced by itself.
Does not know: what the files are, nor what a failure means to whom.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path


def leads_to(path: Path, fd: int) -> bool:
    """Tell whether a name is that of an open file: not replaced, not a link, not gone."""
    try:
        return os.path.samestat(path.stat(follow_symlinks=False), os.fstat(fd))
    except FileNotFoundError:
        return False


def sync_file(path: Path) -> None:
    """Make the content of a file durable, not its name. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable: a synced file without a name is lost all the same.

    Does nothing where the file system has no such sync. Raises OSError.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        # EINVAL: there is no such sync, so nothing failed that could have worked.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(fd)
