"""Who takes the broker's lock says so first: a signal handler must not wait for its own thread."""

from __future__ import annotations

import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "embedq"
TAKEN = re.compile(r"with .*\bwriter\.lock\b.*:")
WELL = re.compile(r"with (\S+\bwriter|writer)\.entry, \1\.lock:")


def test_the_lock_is_taken_behind_its_entry() -> None:
    taken = {
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in PACKAGE.rglob("*.py")
        for line in path.read_text().splitlines()
        if TAKEN.search(line)
    }
    assert taken
    assert {each for each in taken if not WELL.search(each)} == set()
