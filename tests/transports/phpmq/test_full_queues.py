"""A publish that waits for room holds back nothing of its own client that would make room."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from embedq import Broker
from embedq_transports.phpmq import PHPMQ
from tests.conformance.transport_suite import eventually
from tests.interop.phpmq_client import PhpmqClient

URL = "phpmq://127.0.0.1:0"


@pytest.fixture
def broker():
    with Broker(":memory:") as broker:
        yield broker


@pytest.fixture
def queue(broker):
    """A queue that two messages fill."""
    queue = broker.queue("Q", bytes, max_length=2)
    queue.put_many([b"1", b"2"])
    return queue


@pytest.fixture
def connect(broker):
    listener = broker.listen(URL, transport=PHPMQ)
    with ExitStack() as stack:

        def connect() -> PhpmqClient:
            made = PhpmqClient(listener.address)
            stack.callback(made.close)
            return made

        yield connect


def got(client: PhpmqClient, count: int) -> list[bytes]:
    return [client.receive().content for _ in range(count)]


def requeue(client: PhpmqClient, id: bytes) -> bytes:
    return client.message(5, (1, b"Q"), (3, id), (5, b"0"))


@pytest.mark.parametrize("kind", [4, 6])
def test_what_makes_room_is_done_behind_a_requeue(queue, connect, kind):
    client = connect()
    client.consume(b"Q", 5)
    first, second = client.receive(), client.receive()
    client.socket.sendall(
        client.publishing(b"Q", b"3")
        + requeue(client, first.id)
        + client.message(kind, (1, b"Q"), (3, second.id))
    )
    client.speaks_ttl = True
    assert got(client, 2) == [b"1", b"3"]
    assert queue.stats().length == 2


def test_what_makes_room_is_done_behind_a_new_window(queue, connect):
    client = connect()
    client.consume(b"Q", 5)
    first, second = client.receive(), client.receive()
    client.socket.sendall(
        client.publishing(b"Q", b"3")
        + requeue(client, first.id)
        + client.message(2, (1, b"Q"), (4, b"5"))
        + client.message(4, (1, b"Q"), (3, second.id))
    )
    client.speaks_ttl = True
    eventually(lambda: queue.stats().put == 3)
    assert queue.stats().length == 2


def test_another_gets_what_is_requeued_behind_a_publish_and_makes_room(queue, connect):
    client, other = connect(), connect()
    client.consume(b"Q", 2)
    first, _ = client.receive(), client.receive()
    other.consume(b"Q", 3)
    client.socket.sendall(
        client.publishing(b"Q", b"3")
        + requeue(client, first.id)
        + client.message(2, (1, b"Q"), (4, b"0"))
    )
    came = []
    for _ in range(3):
        message = other.receive()
        came.append(message.content)
        other.ack(b"Q", message.id)
    assert sorted(came) == [b"1", b"2", b"3"]


def test_a_publish_that_waits_for_room_elsewhere_holds_back_no_requeue(broker, queue, connect):
    full = broker.queue("R", bytes, max_length=1)
    full.put(b"it is full")
    client = connect()
    client.consume(b"Q", 5)
    first, _ = client.receive(), client.receive()
    client.socket.sendall(client.publishing(b"R", b"x") * 3 + requeue(client, first.id))
    client.speaks_ttl = True
    assert got(client, 1) == [b"1"]


def test_a_requeue_is_behind_a_publish_for_which_there_is_room(broker, connect):
    queue = broker.queue("Q", bytes, max_length=100)
    queue.put_many([b"1", b"2"])
    client = connect()
    client.consume(b"Q", 100)
    first, second = client.receive(), client.receive()
    client.speaks_ttl = True
    for number in range(20):
        client.socket.sendall(
            client.publishing(b"Q", b"a%d" % number)
            + requeue(client, first.id)
            + client.publishing(b"Q", b"b%d" % number)
            + requeue(client, second.id)
        )
        came = [client.receive() for _ in range(4)]
        assert [each.content[:1] for each in came] == [b"a", b"1", b"b", b"2"]
        first, second = came[1], came[3]
        for each in (came[0], came[2]):
            client.ack(b"Q", each.id)
