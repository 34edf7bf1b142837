"""Consumers on a store in memory, ended with the test."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.broker.state import GroupState, QueueState
from embedq.ipc.remote import RemoteDesk
from embedq.ipc.server import Server
from embedq.ipc.verbs import served
from embedq.message import AttemptRecord
from embedq.policy import RetryPolicy
from embedq.storage.rows import DeadRow
from embedq.workers.crews import ConsumerRunner
from embedq.workers.spec import make_spec

#: Seconds after which a test has failed that waits for something.
PATIENCE = 20.0
AT_ONCE = RetryPolicy(base=0, cap=0)


class Bench:
    """A queue "orders" and what a test does with it.

    `desk`: the host's. `at`: the desk that consumers work at, that of a client if `path` is given.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.desk: Desk = open_engine(":memory:" if path is None else path)
        self.at: Desk | RemoteDesk = self.desk
        self.server: Server | None = None
        if path is not None:
            self.server = Server(self.desk, path, verbs=served(self.desk.office))
            self.server.start()
            self.at = RemoteDesk(path)
            self.at.open(PATIENCE)
        self.queue: QueueState = self.desk.queue("orders")
        self.group: GroupState = self.desk.group(self.queue)
        self.runners: list[ConsumerRunner] = []
        self.seen: list[object] = []

    def consume(self, function: Callable[..., object], **options) -> ConsumerRunner:
        """Start a consumer; failures are retried at once unless `retry` says otherwise."""
        options.setdefault("retry", AT_ONCE)
        spec = make_spec(function, queue="orders", **options)
        self.desk.queue("orders")
        runner = ConsumerRunner(self.at, [spec])
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
        """How often it happened: at the host, and in the process of the consumers."""
        hubs = {self.desk.events, self.at.events}
        return sum(hub.count(event) for hub in hubs)

    def close(self) -> None:
        for runner in self.runners:
            runner.stop()
        if self.at is not self.desk:
            self.at.close()
        if self.server is not None:
            self.server.stop()
        self.desk.close()


@pytest.fixture(params=["host", "client"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(None if request.param == "host" else tmp_path / "bench.db")
    try:
        yield made
    finally:
        made.close()
