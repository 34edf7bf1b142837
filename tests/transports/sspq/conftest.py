"""A broker with one SSPQ listener, and clients of it that are closed at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from embedq import Broker
from embedq.app.listeners import BrokerListener
from tests.interop.sspq_client import Sspq
from tests.transports.sspq.ends import URL


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(":memory:") as broker:
        yield broker


@pytest.fixture
def orders(broker):
    return broker.queue("orders", bytes)


@pytest.fixture
def listener(broker) -> BrokerListener:
    return broker.listen(URL)


@pytest.fixture
def connect(request):
    """Connect clients to a listener, or the usual one; they are closed at the end."""
    clients: list[Sspq] = []

    def connect(to: BrokerListener | None = None) -> Sspq:
        address = (to or request.getfixturevalue("listener")).address
        assert isinstance(address, tuple)
        clients.append(Sspq(address))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()
