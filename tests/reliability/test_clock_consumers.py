"""The wall clock jumps while consumers work: only what is a time of day moves with it.

Knows: what a running broker measures, and with which clock.
Does not know: engines without consumers (test_clock.py).
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from embedq import Batch, Broker, Delivery, Empty, Queue, RetryPolicy
from embedq.clock import SystemClock

pytestmark = pytest.mark.reliability

DAY = 86_400.0
PATIENCE_S = 30.0

jumps = pytest.mark.parametrize("jump", [DAY, -DAY], ids=["a day on", "a day back"])


class JumpingClock(SystemClock):
    """The clocks of the system; the wall clock can be put on and back."""

    __slots__ = ("ahead",)

    def __init__(self) -> None:
        self.ahead = 0.0

    def time(self) -> float:
        """Wall clock: seconds since 1970."""
        return time.time() + self.ahead


class World:
    """A broker whose clock jumps, and what its handlers saw."""

    def __init__(self, path) -> None:
        self.clock = JumpingClock()
        self.broker = Broker(path, clock=self.clock)
        self.seen: list[tuple[str, int]] = []
        self.go = threading.Event()
        self.patience_s = PATIENCE_S

    def queue(self, name: str = "orders", **options) -> Queue[str]:
        retry = options.pop("retry", RetryPolicy(base=0, cap=0))
        return self.broker.queue(name, str, retry=retry, **options)

    def hold(self, body: str, delivery: Delivery[str]) -> None:
        self.seen.append((body, delivery.attempt))
        self.go.wait(PATIENCE_S)

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + self.patience_s
        while not condition():
            assert time.monotonic() < end, f"it never happened; seen: {self.seen}"
            threading.Event().wait(0.005)

    def done(self, name: str = "orders") -> bool:
        group = self.queue(name).stats().groups[0]
        return not group.waiting and not group.leased


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path / "q.db")
    yield made
    made.go.set()
    made.broker.stop()


def check_a_running_handler(world: World, jump: float) -> None:
    orders = world.queue(lease="200ms")
    orders.consumer(concurrency=2, timeout="1h")(world.hold)
    orders.put("a")
    world.broker.start()
    world.until(lambda: world.seen)
    world.clock.ahead += jump
    desk: Any = world.broker.desk
    (lease,) = desk.queues["orders"].groups[0].leases.values()
    first = lease.deadline
    # Renewed, not once but again and again, by the time that really passes.
    world.until(lambda: lease.deadline > first + 0.4 or len(world.seen) > 1)
    assert lease.deadline < first + DAY / 2
    world.go.set()
    world.until(world.done)
    assert world.seen == [("a", 1)]
    assert orders.stats().dead == 0


@jumps
def test_a_running_handler_keeps_its_message_and_its_timeout(world, jump):
    check_a_running_handler(world, jump)


@jumps
def test_the_harness_notices_leases_on_the_wall_clock(world, jump, monkeypatch):
    monkeypatch.setattr(JumpingClock, "monotonic", JumpingClock.time)
    world.patience_s = 2.0
    with pytest.raises(AssertionError):
        check_a_running_handler(world, jump)


@jumps
def test_waiting_lasts_as_long_as_was_said(world, jump):
    orders = world.queue()
    orders.put("later", delay="10d")
    timer = threading.Timer(0.1, lambda: setattr(world.clock, "ahead", jump))
    began = time.monotonic()
    timer.start()
    with pytest.raises(Empty):
        orders.get(timeout=0.3)
    timer.join()
    assert 0.25 < time.monotonic() - began < PATIENCE_S


@jumps
def test_a_batch_lingers_as_long_as_was_said(world, jump):
    orders = world.queue()

    @orders.consumer(batch=100, linger="300ms")
    def load(batch: Batch[str]) -> None:
        world.seen.append((",".join(batch), len(batch)))

    world.broker.start()
    orders.put("a")
    world.clock.ahead += jump
    orders.put("b")
    world.until(world.done)
    assert ",".join(bodies for bodies, _ in world.seen) == "a,b"


@jumps
def test_a_grace_lasts_as_long_as_was_said(world, jump):
    orders = world.queue()

    @orders.consumer
    def hold(body: str, delivery: Delivery[str]) -> None:
        world.seen.append((body, delivery.attempt))
        if delivery.cancelled.wait(PATIENCE_S):
            raise RuntimeError("not done")

    orders.put("a")
    world.broker.start()
    world.until(lambda: world.seen)
    world.clock.ahead += jump
    report = world.broker.stop(grace=0.2)
    assert report is not None
    assert (report.released, report.stuck) == (1, 0)
    assert 0.15 < report.seconds < PATIENCE_S


def test_a_retry_moves_with_the_clock(world):
    orders = world.queue(retry=RetryPolicy(base="10h", cap="10h", jitter="none"))

    @orders.consumer
    def work(body: str, delivery: Delivery[str]) -> None:
        world.seen.append((body, delivery.attempt))
        if delivery.attempt == 1:
            raise ValueError

    orders.put("a")
    world.broker.start()
    world.until(lambda: world.broker.desk.events.count("retried"))
    world.clock.ahead += DAY
    world.until(world.done)
    assert world.seen == [("a", 1), ("a", 2)]


def test_a_message_that_is_too_old_by_a_jump_is_not_handled(world):
    orders = world.queue()
    orders.consumer(world.hold)
    orders.pause()
    orders.put("a", ttl="1h")
    world.broker.start()
    world.clock.ahead += DAY
    orders.resume()
    world.until(lambda: orders.stats().dead)
    assert world.seen == []
    assert [letter.reason for letter in orders.dead.list()] == ["expired"]


@pytest.mark.parametrize(
    ("jump", "reason"), [(DAY, "age"), (-DAY, "max_attempts")], ids=["a day on", "a day back"]
)
def test_an_age_is_that_of_the_wall_clock_and_never_negative(world, jump, reason):
    orders = world.queue(retry=RetryPolicy(max_attempts=3, base=0, cap=0, max_age="1h"))
    ages = []

    @orders.consumer
    def work(body: str, delivery: Delivery[str]) -> None:
        world.seen.append((body, delivery.attempt))
        ages.append(delivery.age_s)
        raise ValueError

    orders.put("a")
    world.clock.ahead += jump
    world.broker.start()
    world.until(lambda: orders.stats().dead)
    assert [letter.reason for letter in orders.dead.list()] == [reason]
    assert min(ages) >= 0
    assert len(world.seen) == (1 if jump > 0 else 3)
