"""Real file systems for tests, mounted for as long as a block runs.

Knows: mount and umount, and when a test has to do without.
Does not know: what a test does there.
"""

import os
import subprocess
from contextlib import contextmanager

import pytest


@contextmanager
def mounted(point, *arguments):
    """Mount something at `point`. Without root the test is skipped; in CI root must be able to."""
    if os.geteuid() != 0:
        pytest.skip("only on a machine where the tests run as root: they mount a file system")
    done = subprocess.run(
        ["mount", *arguments, point], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"this root may not mount: {done.stderr.strip()}")
    try:
        yield point
    finally:
        subprocess.run(["umount", point], timeout=60, check=True)


@contextmanager
def tmpfs(point, size):
    """Mount a private tmpfs of `size` ("2m") at `point`, which is created."""
    point.mkdir()
    with mounted(point, "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs"):
        yield point
