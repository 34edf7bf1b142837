"""Clients that make up names of queues are stopped at a limit, in the words of their protocol."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from embedq import Broker
from embedq.net import NetLimits
from tests.interop.mmqp_client import Mack
from tests.interop.phpmq_client import PhpmqClient
from tests.interop.speakers import until
from tests.interop.tmq_client import TmqClient

LIMITS = NetLimits(created_queues=1)
OK, LIMIT = 200, 482


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(":memory:") as broker:
        yield broker


def names(broker: Broker) -> set[str]:
    return {each.name for each in broker.stats().queues}


def test_phpmq_has_no_word_for_it_and_ends_the_connection(broker: Broker) -> None:
    listener = broker.listen("phpmq://127.0.0.1:0", limits=LIMITS)
    client = PhpmqClient(listener.address)
    client.publish(b"first", b"x")
    client.publish(b"first", b"y")
    until(lambda: names(broker) == {"first"})
    client.publish(b"second", b"z")
    assert client.is_closed()
    assert listener.stats.faults == {"limit_exceeded": 1}
    assert names(broker) == {"first"}
    client.close()


def test_mmqp_answers_as_where_names_make_no_queue(broker: Broker) -> None:
    address = broker.listen("mmqp://127.0.0.1:0?create=1", limits=LIMITS).address
    assert isinstance(address, tuple)
    client = Mack(address)
    assert client.send("first", "x") == ""
    assert client.send("second", "y") == "MMQP|0.1|R|QUEUE_NOT_FOUND|second|0"
    assert client.send("first", "z") == ""
    assert names(broker) == {"first"}


def test_tmq_answers_with_its_status_of_limits(broker: Broker) -> None:
    client = TmqClient(broker.listen("tmq://127.0.0.1:0", limits=LIMITS).address, "c")
    client.accepted()
    assert client.create("orders", 1) == OK
    assert client.create("orders", 2) == LIMIT
    assert client.update("orders", 1, message_limit=9) == OK
    assert "orders/2" not in names(broker)
    client.close()
