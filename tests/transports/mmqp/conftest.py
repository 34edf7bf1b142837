"""A broker in memory, a queue of it, and the address of a listener for MMQP."""

from __future__ import annotations

import pytest

from embedq import Broker
from embedq_transports.mmqp import MMQP


@pytest.fixture
def broker():
    with Broker(":memory:") as broker:
        yield broker


@pytest.fixture
def orders(broker):
    queue = broker.queue("orders")
    queue.stats()  # so that it is there
    return queue


@pytest.fixture
def address(broker):
    return broker.listen("mmqp://127.0.0.1:0", transport=MMQP).address
