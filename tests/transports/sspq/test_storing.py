"""A SEND has no answer: what cannot be stored now is stored later, in its order, or counted."""

from __future__ import annotations

import pytest

from embedq.errors import QueueFull
from embedq.net import connection
from embedq.net.port import Identity
from embedq.net.puts import Puts
from embedq_transports.sspq import storing
from tests.interop.sspq_client import (
    DEAD_RECEIVE,
    NO_RECEIVE,
    RECEIVE,
    SEND,
    ServerState,
    packet,
)
from tests.transports.sspq.ends import URL, reset, until


def sends(count: int) -> bytes:
    return b"".join(packet(SEND, 3, b"%d" % number) for number in range(count))


def test_a_message_that_was_refused_is_not_overtaken_by_those_behind_it(
    broker, connect, monkeypatch
):
    orders = broker.queue("orders", bytes, max_length=100, when_full="reject")
    real, failures = Puts._answer, iter(range(3))

    async def refuse(puts, queue, part, timeout):
        # Somebody takes a message just behind it: the next one finds room.
        if part[0][0].body != b"1" or next(failures, None) is None:
            return await real(puts, queue, part, timeout)
        return QueueFull("full")

    monkeypatch.setattr(Puts, "_answer", refuse)
    client = connect(broker.listen(URL))
    client.socket.sendall(sends(9))
    client.close()
    until(lambda: orders.stats().stored == 9)
    assert [each.body for each in orders.peek(9)] == [b"%d" % number for number in range(9)]


def test_a_queue_that_refuses_slows_its_senders_and_loses_nothing(broker, connect):
    orders = broker.queue("orders", bytes, max_length=1, when_full="reject")
    client = connect(broker.listen(URL))
    client.socket.sendall(sends(9))
    got = []
    for _ in range(9):
        with orders.get(timeout=60) as delivery:
            got.append(delivery.body)
    assert got == [b"%d" % number for number in range(9)]


def test_what_waits_for_a_queue_that_refuses_is_stored_though_its_client_was_reset(
    broker, connect
):
    orders = broker.queue("orders", bytes, max_length=1, when_full="reject")
    client = connect(broker.listen(URL))
    client.socket.sendall(sends(9))
    until(lambda: orders.stats().stored == 1)
    reset(client)
    got = []
    for _ in range(9):
        with orders.get(timeout=60) as delivery:
            got.append(delivery.body)
    assert got == [b"%d" % number for number in range(9)]


def test_messages_of_a_reset_client_that_had_no_room_are_counted(broker, connect):
    orders = broker.queue("orders", bytes, max_length=1)
    listener = broker.listen(URL)
    client = connect(listener)
    client.socket.sendall(sends(9))
    (one,) = connections(listener)
    until(lambda: orders.stats().stored == 1 and one.broker.pending_puts == 8)
    reset(client)
    until(lambda: listener.stats.connections == 0)
    until(lambda: listener.stats.counts.get("put_failed gone") == 8)
    assert orders.stats().stored == 1


def test_messages_that_a_queue_refused_until_the_listener_stopped_are_counted(
    broker, connect, monkeypatch
):
    monkeypatch.setattr(storing, "_AGAIN_S", (3_600.0, 3_600.0))
    broker.queue("orders", bytes, max_length=1, when_full="reject")
    listener = broker.listen(URL)
    connect(listener).socket.sendall(sends(9))
    counts = listener.inner._site.counts
    until(lambda: counts["put_failed", "queue_full"] == 1)
    listener.close()
    assert counts["put_failed", "gone"] == 8


def connections(listener):
    until(lambda: listener.inner._site.connections)
    return listener.inner._site.connections


def test_who_may_not_consume_is_told_so_and_who_may_not_put_is_closed(
    broker, connect, monkeypatch
):
    orders = broker.queue("orders", bytes)
    orders.put(b"x")
    listener = broker.listen(URL)
    monkeypatch.setattr(connection, "ANYBODY", Identity("", rights=frozenset({"put"})))
    client = connect(listener)
    client.socket.sendall(packet(RECEIVE) + packet(DEAD_RECEIVE))
    for _ in range(2):
        with pytest.raises(ServerState, match=f"{NO_RECEIVE:02x}"):
            client.answer()
    client.send(b"y")
    until(lambda: orders.stats().stored == 2)
    monkeypatch.setattr(connection, "ANYBODY", Identity("", rights=frozenset({"consume"})))
    client = connect(listener)
    client.send(b"z")
    assert client.socket.recv(1) == b""
    assert [each.body for each in orders.peek(9)] == [b"x", b"y"]
    assert listener.stats.counts["put_failed not_allowed"] == 1
