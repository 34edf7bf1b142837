"""Kill -9 at the first, second, third … write and sync, until the program gets through."""

import os
import shutil
import signal

import pytest

from tests.reliability.killing import Chain, memory_folder, worker
from tests.reliability.nth import at_call, needs_strace
from tests.reliability.worker import Job

pytestmark = [pytest.mark.reliability, needs_strace]

#: With EMBEDQ_TEST_LONG=1 each call of a kind is the last one once, else every sixth or so.
LONG = bool(os.environ.get("EMBEDQ_TEST_LONG"))

#: More calls of one kind than the script makes.
MOST = 400


@pytest.fixture
def folder(tmp_path):
    with memory_folder(tmp_path) as folder:
        yield folder


def deaths_at_every_call(parent, call, **options):
    """Run the script on a new file for each call number; return how many runs were killed."""
    stride, start = options.pop("stride", 1), options.pop("start", 1)
    with worker(*at_call(call, "signal=KILL", MOST)) as program:
        for number in range(start, MOST, stride):
            folder = parent / "case"
            folder.mkdir(mode=0o700)
            one = Chain(folder / "q.db")
            job = Job(
                path=str(one.path),
                kind="script",
                first=one.first(),
                call=call,
                pad=MOST - number,
                **options,
            )
            events, status = program.run(job)
            one.feed(events)
            assert one.check(drain=True) == [], f"killed at {call} number {number}"
            shutil.rmtree(folder)
            if status != -signal.SIGKILL:
                assert status == 0
                return number // stride
    raise AssertionError(f"the script makes more than {MOST} calls of {call}")


@pytest.mark.parametrize("start", [1, 2, 3] if LONG else [1])
def test_a_kill_at_any_write_loses_nothing(folder, start):
    stride = 3 if LONG else 7  # no divisor of what a commit writes: all of its pages have a turn
    assert deaths_at_every_call(folder, "pwrite64", start=start, stride=stride) > 150 // stride


@pytest.mark.parametrize("start", [1, 2] if LONG else [2])
def test_a_kill_at_the_writing_thread_loses_nothing(folder, start):
    stride = 5 if LONG else 9
    deaths = deaths_at_every_call(folder, "pwrite64", start=start, stride=stride, crowd=True)
    assert deaths > 100 // stride


@pytest.mark.parametrize("crowd", [False, True])
def test_a_kill_at_any_sync_loses_nothing(folder, crowd):
    # Those of the writing thread are the same ones, made by another thread: the others' turn.
    stride, start = (1, 1) if LONG else (2, 1 + crowd)
    deaths = deaths_at_every_call(folder, "fdatasync", crowd=crowd, stride=stride, start=start)
    assert deaths > 15 // stride - 1


def test_a_kill_at_any_write_loses_nothing_without_syncs(folder):
    stride = 6 if LONG else 12
    deaths = deaths_at_every_call(folder, "pwrite64", stride=stride, durability="normal")
    assert deaths > 120 // stride
