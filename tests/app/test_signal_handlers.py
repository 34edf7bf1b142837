"""A signal handler that uses the broker in the midst of a call of its thread is told, not kept."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from embedq import Broker, Queue
from embedq.broker.desk import Desk
from embedq.errors import EmbedqError, Empty, QueueFull, UsageError

OUTER: dict[str, Callable[[Broker], object]] = {
    "put": lambda broker: broker.queue("q").put(b"outer"),
    "put with a header": lambda broker: broker.queue("q").put(b"outer", headers={"a": "b"}),
}
INNER: dict[str, Callable[[Broker], object]] = {
    "put": lambda broker: broker.queue("q").put(b"inner"),
    "put_many": lambda broker: broker.queue("q").put_many([b"inner"]),
    "get": lambda broker: broker.queue("q").get(timeout=0),
    "stop": lambda broker: broker.stop(),
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path / "q.db")
    broker.queue("q").put(b"first")
    yield broker
    broker.stop()


@pytest.fixture
def during(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Call something in a signal handler while the main thread is in a commit."""
    before = signal.getsignal(signal.SIGUSR1)

    def set_up(call: Callable[[Broker], object]) -> None:
        signal.signal(signal.SIGUSR1, lambda *_: call(broker))
        store: Any = broker.desk.store  # type: ignore[attr-defined]
        for name in ("put", "commit"):
            monkeypatch.setattr(store, name, strike(getattr(store, name)))

    def strike(real: Callable[..., object]) -> Callable[..., object]:
        def struck(*arguments: object) -> object:
            done = real(*arguments)
            monkeypatch.undo()
            signal.raise_signal(signal.SIGUSR1)
            return done

        return struck

    yield set_up
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("outer", OUTER)
def test_a_handler_that_would_wait_for_its_own_thread_is_refused(broker, during, outer, inner):
    during(INNER[inner])
    with pytest.raises(UsageError, match="a signal handler called the broker"):
        OUTER[outer](broker)
    bodies = [delivery.body for delivery in broker.queue("q").get_many(10)]
    assert bodies == [b"first", b"outer"]  # it was stored when the signal came


class Striking:
    """A lock; a signal comes when the main thread has got it so many times."""

    def __init__(self, lock: Any, times: int) -> None:
        self.lock = lock
        self.left = times
        self.locked = lock.locked
        self.release = lock.release

    def __enter__(self) -> None:
        self.acquire()

    def acquire(self) -> None:
        self.lock.acquire()
        if threading.current_thread() is threading.main_thread():
            self.left -= 1
            if not self.left:
                signal.raise_signal(signal.SIGUSR1)

    def __exit__(self, *_: object) -> None:
        self.lock.release()


def get_none(queue: Queue[bytes]) -> None:
    with suppress(Empty):
        queue.get(timeout=0.001)


def get_all(queue: Queue[bytes]) -> None:
    queue.get(timeout=0).ack()
    get_none(queue)


def back_up(queue: Queue[bytes]) -> None:
    desk = cast("Desk", queue.broker.desk)
    desk.backup(f"{desk.path}.copy", overwrite=True)


def put_into_full(queue: Queue[bytes]) -> None:
    full = queue.broker.queue(f"{queue.name}-full", bytes, max_length=1)
    full.put(b"first")
    with suppress(QueueFull):
        full.put(b"second", timeout=0.001)


def get_and_extend(queue: Queue[bytes]) -> None:
    delivery = queue.get(timeout=0)
    queue.broker.desk.extend(delivery.lease, 100)
    delivery.ack()


#: Called with a new queue in which is one message, and one that is delayed.
ANYWHERE: dict[str, Callable[[Queue[bytes]], object]] = {
    "put": lambda queue: queue.put(b"outer"),
    "get": get_and_extend,
    "get nothing": get_all,
    "put into a full queue": put_into_full,
    "purge": lambda queue: queue.purge(),
    "stats": lambda queue: queue.broker.desk.office.queue_stats(queue.name),
    "upkeep": lambda queue: cast("Desk", queue.broker.desk).upkeep.round(),
    "backup": back_up,
    "count": lambda queue: cast("Desk", queue.broker.desk).upkeep.count(),
}


@pytest.fixture
def handling() -> Iterator[Callable[[Callable[[], object]], list[object]]]:
    """Let a handler call something; returns what has come of it, each time."""
    before = signal.getsignal(signal.SIGUSR1)

    def set_up(call: Callable[[], object]) -> list[object]:
        told: list[object] = []

        def handler(*_: object) -> None:
            try:
                told.append(call())
            except EmbedqError as error:
                told.append(error)

        signal.signal(signal.SIGUSR1, handler)
        return told

    yield set_up
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("outer", ANYWHERE)
def test_a_handler_is_refused_wherever_its_thread_has_the_lock(broker, handling, outer, inner):
    """None of these calls waits for ever, and what they interrupt is done all the same."""
    told = handling(lambda: INNER[inner](broker))
    writer = broker.desk.writer
    lock = writer.lock
    for number in range(1, 200):
        queue = broker.queue(f"{outer} {number}", bytes)
        queue.put(b"body")
        queue.put(b"late", delay="1h")
        broker.desk.group(broker.desk.queues[queue.name])
        writer.lock = Striking(lock, number)
        ANYWHERE[outer](queue)
        left, writer.lock = writer.lock.left, lock
        if left > 0:
            break
    assert left > 0
    assert len(told) == number - 1
    assert {type(each) for each in told} == {UsageError}


@pytest.mark.parametrize("delay", [None, "1h"])
def test_a_handler_is_refused_what_its_thread_is_just_loading(broker, handling, delay):
    queue = broker.queue("loaded", bytes)
    queue.put(b"body", delay=delay)
    told = handling(lambda: queue.get(timeout=0))
    group = broker.desk.group(broker.desk.queues["loaded"])
    group.loading = Striking(group.loading, 1)
    if delay is None:
        queue.get(timeout=0).ack()
    else:
        get_none(queue)
    assert [type(each) for each in told] == [UsageError]
    assert not group.loading.locked()


def test_a_handler_may_use_the_broker_while_its_thread_only_waits(broker):
    queue = broker.queue("q")
    queue.get(timeout=0).ack()
    before = signal.signal(signal.SIGALRM, lambda *_: queue.put(b"from a handler"))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert queue.get(timeout=60).body == b"from a handler"
    finally:
        signal.signal(signal.SIGALRM, before)
