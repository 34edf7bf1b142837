"""A push that waits for room holds back nothing of its own client that would make room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from embedq import Broker
from embedq_transports.tmq.frames import Content
from tests.conformance.transport_suite import eventually
from tests.interop.tmq_client import SERVER, Frame
from tests.transports.tmq.test_queues import OK


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A broker whose clock goes, other than that of the other tests."""
    with Broker(":memory:") as broker:
        yield broker


@pytest.fixture
def queue(broker):
    """A queue that one message fills."""
    return broker.queue("mine/1", bytes, max_length=1)


def command(client, content: int, body: bytes = b"") -> bytes:
    """Send a command; return its id."""
    id = client.new_id()
    client.send(Frame(SERVER, content, id, client.source, b"mine", body, wants_response=True))
    return id


@pytest.mark.parametrize(
    ("content", "body"),
    [(Content.JOIN, b""), (Content.CREATE_QUEUE, b"\x02\x00")],
    ids=["join", "create"],
)
def test_what_makes_room_is_done_behind_a_command(queue, connect, content, body):
    client = connect("c", create=True, acknowledge=True)
    assert client.join("mine") == OK
    client.push("mine", 1, b"a")
    got = client.message()
    client.push("mine", 1, b"b")
    id = command(client, content, body)
    client.ack(got)
    assert client.message().body == b"b"
    assert client.answer(id).content == OK
    assert queue.stats().put == 2


def test_a_join_that_lets_come_what_makes_room_does_not_wait_for_it(queue, connect):
    client = connect("c", create=True)
    queue.put(b"a")
    client.push("mine", 1, b"b")
    id = command(client, Content.JOIN)
    assert [client.message().body for _ in range(2)] == [b"a", b"b"]
    assert client.answer(id).content == OK


def test_a_pull_makes_room_for_the_push_before_it(queue, connect):
    client = connect("c", status="pull")
    queue.put(b"a")
    assert client.join("mine") == OK
    client.push("mine", 1, b"b")
    assert client.pull("mine", 1).body == b"a"
    eventually(lambda: client.pull("mine", 1).body == b"b")  # a moment later there is room


def test_a_pull_is_behind_a_push_for_which_there_is_room(broker, connect):
    broker.queue("mine/2", bytes, max_length=100)
    client = connect("c", status="pull")
    assert client.join("mine") == OK
    for number in range(20):
        client.push("mine", 2, b"%d" % number)
        assert client.pull("mine", 2).body == b"%d" % number
