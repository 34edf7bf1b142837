"""Consumers on a store in memory, ended with the test."""

import threading
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest

from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.broker.state import GroupState, QueueState
from embedq.message import AttemptRecord
from embedq.policy import RetryPolicy
from embedq.storage.rows import DeadRow
from embedq.workers.crews import ConsumerRunner
from embedq.workers.spec import make_spec

#: Seconds after which a test has failed that waits for something.
PATIENCE = 20.0
AT_ONCE = RetryPolicy(base=0, cap=0)


class Bench:
    """A queue "orders" and what a test does with it."""

    def __init__(self) -> None:
        self.desk: Desk = open_engine(":memory:")
        self.queue: QueueState = self.desk.queue("orders")
        self.group: GroupState = self.desk.group(self.queue)
        self.runners: list[ConsumerRunner] = []
        self.seen: list[object] = []

    def consume(self, function: Callable[..., object], **options) -> ConsumerRunner:
        """Start a consumer; failures are retried at once unless `retry` says otherwise."""
        options.setdefault("retry", AT_ONCE)
        spec = make_spec(function, queue="orders", **options)
        self.desk.queue("orders")
        runner = ConsumerRunner(self.desk, [spec])
        self.runners.append(runner)
        runner.start()
        return runner

    def put(self, *bodies: bytes, kind: int = 2) -> None:
        self.desk.put_many(self.queue, bodies, kind)

    def until(self, condition: Callable[[], object], what: str = "") -> None:
        """Wait for a condition; the test fails if it does not come true."""
        end = time.monotonic() + PATIENCE
        nap = threading.Event()
        while not condition():
            assert time.monotonic() < end, f"it never happened: {what or condition}"
            nap.wait(0.003)

    def drained(self) -> bool:
        """Whether nothing waits and nothing is leased."""
        return not self.group.waiting and not self.group.leases

    def dead(self) -> list[DeadRow]:
        return self.desk.store.dead(self.queue.id, 0, 1000)

    def attempts(self) -> list[AttemptRecord]:
        """The attempts of the only dead letter."""
        (letter,) = self.dead()
        return msgspec.msgpack.decode(letter.attempts or b"", type=list[AttemptRecord])

    def count(self, event: str) -> int:
        return self.desk.events.count(event)

    def close(self) -> None:
        for runner in self.runners:
            runner.stop()
        self.desk.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    try:
        yield made
    finally:
        made.close()
