"""Sixteen threads that do everything at once: nothing is lost, nothing counted twice."""

import sys
import threading

import pytest

from embedq.broker.host import open_engine
from tests.reliability.invariants import Checker
from tests.reliability.invariants_events import Closed
from tests.reliability.invariants_file import read
from tests.reliability.worker_calls import Calls, count_problems
from tests.reliability.worker_mixes import MAX_ATTEMPTS, mix

pytestmark = pytest.mark.reliability

THREADS, CALLS = 16, 3000


@pytest.fixture
def hurried():
    """Threads change places a thousand times more often than usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Journal:
    """A history that many threads write. Its lock makes the order that of the notes."""

    def __init__(self):
        self._lock = threading.Lock()
        self.events = []

    def note(self, event):
        with self._lock:
            self.events.append(event)


def run(engine, seed, calls=CALLS):
    journal = Journal()
    steps = iter(range(calls))
    lock = threading.Lock()

    def going():
        with lock:
            return next(steps, None) is not None

    mix(Calls(engine, journal.note), seed, THREADS, going)
    return journal.events


def problems_of(path, engine, events):
    checker = Checker(MAX_ATTEMPTS)
    for event in events:
        checker.feed(event)
    held = read(path)
    return [*checker.problems(held), *count_problems(engine, held)], checker


@pytest.mark.parametrize("durability", ["full", "normal"])
def test_many_threads_conserve_every_message(tmp_path, hurried, durability):
    path = tmp_path / "q.db"
    with open_engine(path, durability=durability) as engine:
        events = run(engine, durability)
        problems, checker = problems_of(path, engine, events)
        assert problems == []
        assert checker.confirmed > CALLS / 10
        assert checker.settled > CALLS / 10
    checker.feed(Closed())
    assert checker.problems(read(path)) == []


def test_a_count_that_forgets_is_noticed(tmp_path, hurried):
    path = tmp_path / "q.db"
    with open_engine(path, upkeep=False) as engine:
        queue = engine.queue("sole")
        forgotten = iter(range(10))
        applied = type(queue).put_applied

        def forgets(self, op):
            applied(self, op)
            if next(forgotten, None) == 5:
                self.stored -= 1

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(queue), "put_applied", forgets)
            events = run(engine, "forgets", 200)
        problems, _ = problems_of(path, engine, events)
    assert any("the engine counts" in problem for problem in problems)
