"""What programs of tests begin with that use up their file descriptors."""

from __future__ import annotations

from typing import Final

#: A piece of a program: `brim()` takes all that are left, of 128, and returns them.
BRIM: Final = """
import os, resource

def brim():
    taken = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return taken

resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
"""
