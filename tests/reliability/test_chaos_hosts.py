"""Hosts and workers are killed again and again under four producers: nothing is lost or repeated.

`EMBEDQ_TEST_LONG=1` plants every fault; `python tools/killloop.py --chaos` goes by the clock.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from embedq import Broker
from embedq.ipc.marks import Marks
from embedq.ipc.place import folder_of, make_folder, sessions_left
from tests.reliability.chaos_faults import FAULTS
from tests.reliability.chaos_hosts import Pace, chaos_of_hosts
from tests.reliability.chaos_judge import marks_left

pytestmark = [
    pytest.mark.reliability,
    pytest.mark.skipif(sys.platform != "linux", reason="only on Linux is there a /proc"),
]

LONG = bool(os.environ.get("EMBEDQ_TEST_LONG"))
PLANTED = sorted(FAULTS) if LONG else ["early"]
#: How often a fault is looked for that only shows if somebody dies at the right moment.
ATTEMPTS = 6


def test_hosts_and_workers_that_are_killed_again_and_again_lose_and_repeat_nothing(
    tmp_path: Path,
) -> None:
    pace = Pace(worker_numbers=80, host_numbers=110)
    found = chaos_of_hosts(tmp_path, 400, "short", applications=2, workers=1, pace=pace)
    assert found.problems == []
    assert found.confirmed == 400
    assert found.host_kills >= 2
    assert found.kills >= 2


def test_marks_of_one_that_ended_without_a_host_are_taken_in_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with Broker(path) as broker:
        broker.queue("numbers").put(1)
    marks = Marks.create(make_folder(folder_of(path)), bytes(16))
    marks.close(remove=False)
    assert len(sessions_left(path)) == 1
    assert list(marks_left(path)) == []


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_of_a_host_is_seen(tmp_path: Path, fault: str) -> None:
    pace = Pace(worker_numbers=1_000, host_numbers=60, together=1)
    for attempt in range(ATTEMPTS):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        found = chaos_of_hosts(
            *(folder, 200, str(attempt), fault), applications=2, workers=1, pace=pace
        )
        if any("started again" in problem for problem in found.problems):
            return
    pytest.fail(f"the fault {fault} stayed unseen")
