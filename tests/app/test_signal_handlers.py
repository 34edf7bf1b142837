"""A signal handler that uses the broker in the midst of a call of its thread is told, not kept."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from embedq import Broker
from embedq.errors import UsageError

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


def test_a_handler_may_use_the_broker_while_its_thread_only_waits(broker):
    queue = broker.queue("q")
    queue.get(timeout=0).ack()
    before = signal.signal(signal.SIGALRM, lambda *_: queue.put(b"from a handler"))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert queue.get(timeout=60).body == b"from a handler"
    finally:
        signal.signal(signal.SIGALRM, before)
