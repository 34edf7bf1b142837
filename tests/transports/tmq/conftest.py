"""A broker whose clock stands still, TMQ listeners, and clients that are closed at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from embedq import Broker
from embedq.app.listeners import BrokerListener
from embedq.clock import VirtualClock
from embedq_transports.tmq import TMQ
from tests.interop.tmq_client import TmqClient


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def broker(clock) -> Iterator[Broker]:
    with Broker(":memory:", clock=clock) as broker:
        yield broker


@pytest.fixture
def orders(broker):
    """The queue of content type 1 in the channel `orders`."""
    return broker.queue("orders/1", bytes)


@pytest.fixture
def listen(broker):
    """Return the listener with some options; the same ones are the same listener."""
    listeners: dict[str, BrokerListener] = {}

    def listen(**options: object) -> BrokerListener:
        key = repr(sorted(options.items()))
        if key not in listeners:
            listeners[key] = broker.listen("tmq://127.0.0.1:0", transport=TMQ, **options)
        return listeners[key]

    return listen


@pytest.fixture
def connect(listen):
    """Connect clients, through their login: `connect("c1", acknowledge=True)`."""
    with ExitStack() as stack:

        def connect(id: str = "", client: dict | None = None, **options: object) -> TmqClient:
            made = TmqClient(listen(**options).address, id, **(client or {}))
            stack.callback(made.close)
            made.accepted()
            return made

        yield connect
