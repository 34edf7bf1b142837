"""A random worker is killed every 200 ms under four producers: nothing is lost or done again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.reliability.chaos import chaos

pytestmark = [
    pytest.mark.reliability,
    pytest.mark.skipif(sys.platform != "linux", reason="only on Linux is there a /proc"),
]

LONG = bool(os.environ.get("EMBEDQ_TEST_LONG"))


def test_workers_that_are_killed_all_the_time_lose_nothing(tmp_path: Path) -> None:
    found = chaos(tmp_path, 1_200, 12 if LONG else 6)
    assert found.problems == []
    assert found.confirmed == 1_200
    assert found.kills >= 3


#: Of what is only thought to be done, any kill shows some; of what is done and not yet told, few.
PLANTED = {"forgetful": (1_200, 8), "hasty": (400, 3)}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_seen(tmp_path: Path, fault: str) -> None:
    count, kills = PLANTED[fault]
    for attempt in range(8):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        if chaos(folder, count, kills, str(attempt), fault).problems:
            return
    pytest.fail(f"the fault {fault} stayed unseen")
