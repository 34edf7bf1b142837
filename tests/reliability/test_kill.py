"""Kill -9 at random moments: nothing confirmed is lost, nothing acked comes back (P1 to P5)."""

import os
import sys

import pytest

from tests.reliability.invariants_events import Closed, Opened
from tests.reliability.killing import Chain, Report, chain, worker
from tests.reliability.worker import Job

pytestmark = pytest.mark.reliability

#: Three chains a mode, so that they run beside each other; 39 deaths in each mode. With
#: EMBEDQ_TEST_LONG=1 eight, and 104.
CHAINS, DEATHS = 8 if os.environ.get("EMBEDQ_TEST_LONG") else 3, 13

#: Runs the worker program in a process that has no turn between a fork and the end of its child.
LATE = """
import os
fork = os.fork
def late():
    pid = fork()
    if pid:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid
os.fork = late
from tests.reliability.worker import main
main()
"""


@pytest.mark.parametrize("number", range(CHAINS))
@pytest.mark.parametrize("durability", ["full", "normal"])
def test_a_killed_host_loses_nothing_and_repeats_nothing(tmp_path, durability, number):
    with worker() as program:
        report = chain(
            *(program, tmp_path / "q.db"),
            deaths=DEATHS,
            seed=f"{durability}-{number}",
            durability=durability,
        )
    assert report.problems == []
    assert report.deaths == DEATHS
    assert report.confirmed >= DEATHS
    assert report.settled > 0


def test_a_put_that_is_confirmed_before_its_commit_is_noticed(tmp_path):
    with worker() as program:
        for number in range(20):
            report: Report = chain(
                *(program, tmp_path / f"{number}.db"),
                deaths=3,
                seed=f"early-{number}",
                planted="early",
            )
            if any("is lost: its put was confirmed" in problem for problem in report.problems):
                return
    raise AssertionError("20 chains confirmed early, and nothing was missed")


def test_a_host_that_closes_gives_back_what_was_leased(tmp_path):
    one = Chain(tmp_path / "q.db")
    with worker() as program:
        for number in range(3):
            job = Job(
                path=str(one.path),
                kind="mix",
                seed=f"closing-{number}",
                threads=3,
                steps=150,
                first=one.first(),
            )
            events, status = program.run(job)
            assert status == 0
            one.feed(events)
            assert one.deaths == 0
            assert one.check(drain=number == 2) == []


def test_what_a_host_says_is_heard_though_its_parent_has_no_turn(tmp_path):
    with worker(sys.executable, "-c", LATE) as program:
        events, status = program.run(Job(path=str(tmp_path / "q.db"), kind="script"))
    assert status == 0
    assert isinstance(events[0], Opened)
    assert isinstance(events[-1], Closed)
