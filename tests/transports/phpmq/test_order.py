"""What a PHPMQ client writes counts in the order in which it was written, whatever follows."""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import ExitStack

import pytest

from embedq import Broker
from embedq.broker.office import Office
from embedq.errors import StoreFull
from embedq.net import NetLimits
from embedq_transports.phpmq import PHPMQ
from tests.interop.phpmq_client import PhpmqClient

URL = "phpmq://127.0.0.1:0"


@pytest.fixture
def broker():
    with Broker(":memory:") as broker:
        yield broker


@pytest.fixture
def queue(broker):
    return broker.queue("Q", bytes)


@pytest.fixture
def connect(broker):
    with ExitStack() as stack:

        def connect(**options: object) -> PhpmqClient:
            listener = broker.listen(URL, transport=PHPMQ, **options)
            made = PhpmqClient(listener.address)
            stack.callback(made.close)
            return made

        yield connect


def until(condition) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)


def got(client: PhpmqClient, count: int) -> list[bytes]:
    return [client.receive().content for _ in range(count)]


@pytest.fixture
def slow_settlements(monkeypatch):
    """Let nobody settle what no client holds before `.set()`."""
    may, settle = threading.Event(), Office.settle_by_id

    def settle_slowly(*arguments) -> None:
        assert may.wait(60)
        settle(*arguments)

    monkeypatch.setattr(Office, "settle_by_id", settle_slowly)
    yield may
    may.set()


# --- a new window comes behind what was asked for before it --------------------------------------


@pytest.mark.parametrize("how", ["ack", "bury"])
def test_what_was_settled_before_a_new_window_does_not_come_again(
    queue, connect, slow_settlements, how
):
    first = queue.put(b"a")
    queue.put(b"b")
    client = connect(ttl="never")
    getattr(client, how)(b"Q", first.id.encode())
    client.consume(b"Q", 2)
    client.publish(b"Q", b"c")
    assert client.hears_nothing()
    slow_settlements.set()
    assert got(client, 2) == [b"b", b"c"]


@pytest.mark.parametrize("ttl", [0, 100])
def test_what_was_requeued_before_a_new_window_is_behind_the_others(queue, connect, ttl):
    queue.put_many([b"a", b"b", b"c"])
    client = connect()
    client.consume(b"Q", 1)
    first = client.receive()
    client.socket.sendall(
        client.message(5, (1, b"Q"), (3, first.id), (5, b"%d" % ttl))
        + client.message(2, (1, b"Q"), (4, b"3"))
    )
    client.speaks_ttl = True
    assert got(client, 3) == [b"b", b"c", b"a"]


@pytest.mark.parametrize("ttls", [(0, 0), (100, 0), (0, 100), (100, 200)])
def test_what_follows_a_requeue_is_behind_it(queue, connect, ttls):
    queue.put_many([b"a", b"b", b"c"])
    client = connect(ttl="never")
    client.consume(b"Q", 3)
    first, second, third = (client.receive() for _ in range(3))
    client.socket.sendall(
        client.message(5, (1, b"Q"), (3, first.id), (5, b"%d" % ttls[0]))
        + client.publishing(b"Q", b"d")
        + client.message(5, (1, b"Q"), (3, second.id), (5, b"%d" % ttls[1]))
        + client.publishing(b"Q", b"e")
        + client.message(4, (1, b"Q"), (3, third.id))
    )
    assert got(client, 3) == [b"a", b"d", b"b"]


@pytest.mark.parametrize("how", ["close", "reset"])
def test_what_follows_a_requeue_is_stored_when_the_client_leaves(queue, connect, how):
    queue.put(b"a")
    client = connect()
    client.consume(b"Q", 1)
    first = client.receive()
    client.socket.sendall(
        client.message(5, (1, b"Q"), (3, first.id), (5, b"100"))
        + client.publishing(b"Q", b"b") * 100
    )
    if how == "reset":
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.socket.close()
    client.close()
    until(lambda: queue.stats().put == 101)
    assert [each.body for each in queue.get_many(2)] == [b"a", b"b"]


def test_what_follows_a_window_that_waits_is_kept_when_the_client_leaves(
    queue, connect, slow_settlements
):
    first = queue.put(b"a")
    client = connect()
    client.socket.sendall(
        client.message(4, (1, b"Q"), (3, first.id.encode()))
        + client.message(2, (1, b"Q"), (4, b"3"))
        + client.publishing(b"Q", b"b")
    )
    client.close()
    slow_settlements.set()
    until(lambda: queue.stats().put == 2)
    assert queue.get(timeout=60).body == b"b"


def test_places_that_become_free_before_a_new_window_are_not_filled(queue, connect):
    queue.put_many([b"a", b"b", b"c", b"d"])
    client = connect()
    client.consume(b"Q", 2)
    first, _ = client.receive(), client.receive()
    client.socket.sendall(
        client.message(4, (1, b"Q"), (3, first.id)) + client.message(2, (1, b"Q"), (4, b"3"))
    )
    assert got(client, 3) == [b"b", b"c", b"d"]
    assert client.hears_nothing()


def test_any_number_of_unknown_acks_before_a_new_window_is_nothing(queue, connect):
    queue.put(b"a")
    client = connect()
    client.socket.sendall(client.message(4, (1, b"Q"), (3, b"nope")) * 5_000)
    client.consume(b"Q", 1)
    assert got(client, 1) == [b"a"]


# --- what came before a fault counts ------------------------------------------------------------


@pytest.mark.parametrize("bound", [{}, {"max_length": 1_000}])
def test_what_was_published_before_a_fault_is_stored(broker, connect, bound):
    queue = broker.queue("bound", bytes, **bound)
    client = connect()
    data = b"".join(client.publishing(b"bound", b"%d" % number) for number in range(300))
    client.socket.sendall(data + b"GET / HTTP/1.1\r\n\r\n")
    assert client.is_closed()
    until(lambda: queue.stats().length == 300)
    assert [each.body for each in queue.get_many(300)] == [b"%d" % n for n in range(300)]


def test_what_was_requeued_before_a_fault_is_behind_the_others(queue, connect):
    queue.put_many([b"a", b"b"])
    client = connect()
    client.consume(b"Q", 1)
    first = client.receive()
    requeue = client.message(5, (1, b"Q"), (3, first.id), (5, b"100"))
    client.socket.sendall(requeue + b"garbage")
    assert client.is_closed()
    other = connect()
    other.consume(b"Q", 2)
    assert got(other, 2) == [b"b", b"a"]


def test_a_fault_is_told_once_with_what_had_arrived_of_the_part_at_fault(broker, connect):
    told = []
    broker.on("connection_faulty", lambda notice: told.append(notice.fields))
    client = connect()
    client.socket.sendall(client.publishing(b"Q", b"x") + b"H0100102GET / HTTP/1.1")
    assert client.is_closed()
    until(lambda: told)
    (fields,) = told
    assert fields["reason"] == "package"
    assert b"GET / HTTP/1.1".hex(" ") in fields["detail"]


def test_of_many_refused_publishes_one_is_told(broker, connect):
    told = []
    broker.on("connection_faulty", lambda notice: told.append(notice.fields["reason"]))
    broker.queue("full", max_length=1, when_full="reject")
    client = connect()
    client.socket.sendall(client.publishing(b"full", b"x") * 20)
    assert client.is_closed()
    until(lambda: told)
    assert told == ["queue_full"]


# --- what cannot be done ends the connection ----------------------------------------------------


@pytest.mark.parametrize("how", ["ack", "bury"])
def test_a_settlement_that_fails_ends_the_connection(queue, connect, monkeypatch, how):
    def fail(*_arguments) -> None:
        raise StoreFull("no room on the disk")

    first = queue.put(b"a")
    monkeypatch.setattr(Office, "settle_by_id", fail)
    client = connect()
    getattr(client, how)(b"Q", first.id.encode())
    assert client.is_closed()


def test_a_body_beyond_what_clients_may_send_reaches_them(queue, connect):
    queue.put(b"x" * 2_000)
    client = connect(limits=NetLimits(message_bytes=1_000))
    client.consume(b"Q", 1)
    assert got(client, 1) == [b"x" * 2_000]
