"""A random worker is killed every 200 ms under four producers: nothing is lost or done again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.reliability.chaos import chaos

pytestmark = [
    pytest.mark.reliability,
    pytest.mark.skipif(sys.platform != "linux", reason="only on Linux is there a /proc"),
]


def test_workers_that_are_killed_all_the_time_lose_nothing(tmp_path: Path) -> None:
    found = chaos(tmp_path, 1_200, 12)
    assert found.problems == []
    assert found.confirmed == 1_200
    assert found.kills >= 3


@pytest.mark.parametrize("fault", ["forgetful", "hasty"])
def test_a_planted_fault_is_seen(tmp_path: Path, fault: str) -> None:
    for attempt in range(4):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        if chaos(folder, 1_200, 8, str(attempt), fault).problems:
            return
    pytest.fail(f"the fault {fault} stayed unseen")
