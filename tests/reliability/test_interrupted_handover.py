"""An exception from outside, at every point of a put that hands over: nobody waits for ever.

Knows: what must hold after such a put, or its consumer, was interrupted anywhere.
Does not know: how the exception gets there (interrupting.py), how the writer recovers.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable
from functools import partial

import pytest

from embedq.broker.direct import Handing, leave
from embedq.broker.host import open_engine
from embedq.broker.moves import Claim
from embedq.broker.waiting import Waiter, Waiters
from embedq.clock import VirtualClock
from embedq.errors import EmbedqError
from embedq.message import draft
from tests.reliability.interrupting import strikes

pytestmark = [
    pytest.mark.reliability,
    # An exception that strikes a generator at its end is printed by the interpreter, no more.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

LEASE_S = 10.0
_LAPS = 400

#: Set for a run of minutes instead of one of seconds.
EVERY_POINT = bool(os.environ.get("EMBEDQ_TEST_EVERY_POINT") or os.environ.get("EMBEDQ_TEST_LONG"))


class Counter:
    """One empty queue and those who wait for its messages."""

    def __init__(self, path) -> None:
        self.clock = VirtualClock()
        self.desk = open_engine(path, durability="normal", clock=self.clock, upkeep=False)
        self.queue = self.desk.queue("orders")
        self.other = self.desk.queue("others")
        self.group = self.desk.group(self.queue)
        self.waiters: list[Waiter] = []

    def wait(self, *mosts: int) -> None:
        """Let consumers wait; their threads are what `go_on` does."""
        desk = self.desk
        assert desk.claim(self.group) == []
        self.waiters = [Waiter() for _ in mosts]
        for waiter, most in zip(self.waiters, mosts, strict=True):
            task = Claim(desk, self.group, most, LEASE_S, desk.session, waiter=waiter)
            desk.writer.run(task)
            assert task.waits

    def check_locks(self) -> None:
        lock = self.desk.writer.lock
        assert lock.acquire(timeout=60), "a lock is still held"
        lock.release()

    def go_on(self) -> list[int]:
        """Let everybody take what came, who was woken; return the messages, with attempt 1."""
        desk, group, came = self.desk, self.group, []
        for waiter in self.waiters:
            woken, leases = waiter.wait(0), waiter.handed()
            if not woken:
                assert not leases, "it was handed something, and not woken"
                assert waiter in group.waiters._queue, "nobody will ever wake it"
                continue
            while leases or (leases := desk.claim(group, 9, LEASE_S)):
                assert [lease.attempt for lease in leases] == [1] * len(leases)
                came += [lease.seq for lease in leases]
                desk.ack(*leases)
                leases = []
        return came

    def check(self) -> None:
        """Whatever is stored comes to somebody, at once, and nobody else holds anything."""
        stored = [message.seq for message in self.desk.peek(self.queue, 99)]
        came = self.go_on()
        assert sorted(came) == stored, f"{came} came at once, of {stored}"
        self.check_empty()

    def check_empty(self) -> None:
        desk, queue, group = self.desk, self.queue, self.group
        if not desk.counts_exact:
            desk.upkeep.count()
        assert (queue.stored, group.settled, group.leases) == (0, 0, {})
        rows = desk.store.connection.execute("SELECT * FROM delivery")  # type: ignore[attr-defined]
        assert rows.fetchall() == []
        for waiter in self.waiters:
            leave(desk, group.waiters, waiter)
        assert not group.waiters

    def quiet(self) -> None:
        """Wait until the writing thread has nothing to do."""
        pause = threading.Event()
        for _ in range(_LAPS):
            if self.desk.writer._tasks.empty():
                break
            pause.wait(0.005)
        self.check_locks()


PUTS: dict[str, Callable[[Counter], object]] = {
    "put": lambda c: c.desk.put(c.queue, b"one"),
    "put_many(5)": lambda c: c.desk.put_many(c.queue, [b"many"] * 5),
    "put_drafts": lambda c: c.desk.put_drafts(
        c.queue, [draft(b"a", priority=3), draft(b"b", ordering_key="k")]
    ),
    "put that only wakes": lambda c: c.desk.put(c.queue, b"one"),
}

#: Who enters next, and therefore has to tidy up.
NEXT: tuple[Callable[[Counter], object], ...] = (
    lambda c: c.desk.put(c.other, b"next"),
    lambda c: c.desk.upkeep.wake_due(),
    lambda c: c.desk.put_many(c.other, [b"next"] * 5),
    lambda c: c.desk.upkeep.round(),
)


def interrupt_everywhere(counter: Counter, name: str, *, crowded: bool, step: int) -> int:
    """Interrupt a put at each point in turn; return how many there were."""
    followers = itertools.cycle(NEXT)
    for strike in strikes(1 + crowded % step, step):
        counter.wait(1, 9)
        if "wakes" in name:
            for waiter in counter.waiters:
                waiter.terms = None
        counter.desk.writer._crowded = crowded
        try:
            struck = strike.during(lambda: PUTS[name](counter))
            counter.quiet()
            next(followers)(counter)
            counter.check()
        except BaseException as error:
            error.add_note(f"interrupted at point {strike.number}: {strike.where}")
            raise
        if not struck:
            return strike.points
    raise AssertionError("never reached")


@pytest.fixture(autouse=True)
def silence():
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def counter(tmp_path):
    one = Counter(tmp_path / "q.db")
    yield one
    one.desk.close()


@pytest.mark.parametrize("crowded", [False, True], ids=["alone", "in a crowd"])
@pytest.mark.parametrize("name", PUTS)
def test_an_interrupted_put_leaves_nobody_waiting_for_ever(counter, name, crowded):
    step = 1 if EVERY_POINT else 3 if name == "put" else 7
    assert interrupt_everywhere(counter, name, crowded=crowded, step=step) > 10


class Served(Waiter):
    """Somebody to whom the message comes as soon as it waits, from its own thread."""

    def __init__(self, counter: Counter) -> None:
        super().__init__()
        self._counter = counter

    def wait(self, timeout: float | None = None) -> bool:
        PUTS["put"](self._counter)
        return super().wait(0)


def test_an_interrupted_consumer_loses_nothing(counter):
    desk, group = counter.desk, counter.group
    for strike in strikes(1, 1 if EVERY_POINT else 3):
        waiter = Served(counter)
        struck = strike.during(partial(desk.exchange, group, timeout=5.0, waiter=waiter))
        counter.quiet()
        desk.put(counter.other, b"next")
        # What was about to be returned was lost on the way: its lease ends.
        counter.clock.advance(LEASE_S + desk.queue("orders").policy.lease_ms)
        desk.end_leases()
        stored = [message.seq for message in desk.peek(counter.queue, 99)]
        leases = desk.claim(group, 9)
        assert [lease.seq for lease in leases] == stored, strike.where
        desk.ack(*leases)
        counter.check_empty()
        if not struck:
            return


def _enter_first(handing, message_at):
    handed = [waiter for waiter, _ in handing._shares]
    HAND_OVER(handing, message_at)
    for waiter in handed:
        leases, waiter.got = waiter.got, ()
        len(leases)  # a point where an exception may come
        waiter.got = leases


def _pop_first(waiters, count=1):
    for _ in range(min(count, len(waiters._queue))):
        waiter = waiters._queue.popleft()
        waiter.woken = True
        waiter.signal()


HAND_OVER = Handing.hand_over
MISTAKES = {
    "who was taken out is not put back": (Handing, "undo", lambda handing: None, "put"),
    "leases come before their holders know": (Handing, "hand_over", _enter_first, "put"),
    "who is woken is taken out first": (Waiters, "wake", _pop_first, "put that only wakes"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_harness_notices(tmp_path, monkeypatch, mistake):
    where, name, wrong, put = MISTAKES[mistake]
    monkeypatch.setattr(where, name, wrong)
    counter = Counter(tmp_path / "q.db")
    with pytest.raises((AssertionError, EmbedqError)):
        interrupt_everywhere(counter, put, crowded=False, step=1)
    counter.desk.writer.close()
    counter.desk.store.close(clean=False)
