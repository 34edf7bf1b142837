"""A thousand messages that fail together do not come back together."""

import random
import threading
from collections import Counter
from itertools import pairwise

import pytest

from embedq.broker.host import open_engine
from embedq.clock import VirtualClock
from embedq.policy import RetryPolicy
from embedq.workers.crews import ConsumerRunner
from embedq.workers.spec import make_spec

COUNT = 1000


class Storm:
    """Consumers of a service that is down at first, and when each message was tried."""

    def __init__(self, policy: RetryPolicy, kind: str) -> None:
        self.clock = VirtualClock()
        self.start = self.clock.monotonic()
        self.tried: list[tuple[int, float]] = []
        self.is_down = True
        self.desk = open_engine(":memory:", clock=self.clock, upkeep=False)
        self.queue = self.desk.queue("orders")
        self.group = self.desk.group(self.queue)
        spec = make_spec(
            self.ahandle if kind == "async" else self.handle,
            queue="orders",
            retry=policy,
            concurrency=4,
        )
        self.runner = ConsumerRunner(self.desk, [spec], rng=random.Random(11))

    def handle(self, order: int) -> None:
        self.tried.append((order, self.clock.monotonic() - self.start))
        if self.is_down:
            raise ConnectionError("the service is down")

    async def ahandle(self, order: int) -> None:
        self.handle(order)

    def settle(self) -> None:
        """Wait until all that is due has been tried and settled."""
        pause = threading.Event()
        for _ in range(8000):
            self.desk.upkeep.wake_due()
            if self.is_quiet():
                return
            pause.wait(0.005)
        raise AssertionError("it does not settle")

    def is_quiet(self) -> bool:
        index = self.group.index
        with self.desk.writer.lock:
            waits = index.has_ready or index.hungry(1, self.desk.now_ms()) is not None
            return bool(self.group.waiters) and not (waits or self.group.leases)

    def close(self) -> None:
        self.runner.stop()
        self.desk.close()


def spread(policy: RetryPolicy, kind: str = "thread") -> Counter[int]:
    """Let all fail at once, then count in which second each of them comes again."""
    storm = Storm(policy, kind)
    try:
        storm.desk.put_many(storm.queue, [b"%d" % n for n in range(COUNT)], 2)
        storm.runner.start()
        storm.settle()
        assert len(storm.tried) == COUNT
        storm.is_down = False
        for _ in range(100):
            storm.clock.advance(0.2)
            storm.settle()
        again = storm.tried[COUNT:]
        assert sorted(order for order, _ in again) == list(range(COUNT))
        assert not storm.queue.stored
        assert all(one <= other for (_, one), (_, other) in pairwise(again))
        return Counter(int(at) for _, at in again)
    finally:
        storm.close()


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_retries_of_a_thousand_failures_are_spread_over_the_whole_delay(kind):
    seconds = spread(RetryPolicy(base="10s"), kind)
    # Uniform over ten seconds: a hundred in each, give or take four standard deviations.
    assert set(seconds) <= set(range(11))
    assert all(60 <= seconds[second] <= 140 for second in range(1, 10))
    assert sum(seconds.values()) == COUNT


def test_without_jitter_they_would_all_come_at_once():
    seconds = spread(RetryPolicy(base="10s", jitter="none"))
    assert max(seconds.values()) == COUNT
