"""SSPQ listeners: dead letters on the wire, options and limits, whole sessions of the original."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from embedq.errors import InvalidOption, StoreBusy
from embedq.net import NetLimits
from embedq.net.puts import Puts
from tests.interop.sspq_client import (
    CONFIRM,
    DEAD_RECEIVE,
    NO_RECEIVE,
    RECEIVE,
    SEND,
    ServerState,
    Sspq,
    packet,
)
from tests.transports.sspq.ends import URL, every_end, gets_nothing, is_cut, reset, until
from tests.transports.sspq.vectors import BY_NAME

# ---------------------------------------------------------------------------- dead letters


def bury(orders, *bodies: bytes) -> None:
    for body in bodies:
        orders.put(body)
        orders.get(timeout=60).reject("no")


def test_dead_letters_come_one_at_a_time_the_oldest_first(connect, orders):
    bury(orders, b"1", b"2")
    one, two, three = connect(), connect(), connect()
    assert (one.receive(dead=True), one.retries) == (b"1", 0)
    assert two.receive(dead=True) == b"2"
    three.ask(dead=True)
    assert gets_nothing(three)
    one.confirm()
    until(lambda: [letter.body for letter in orders.dead.list()] == [b"2"])


@every_end
def test_a_dead_letter_that_was_not_confirmed_goes_behind_the_others(connect, orders, end):
    bury(orders, b"1", b"2")
    holding = connect()
    assert holding.receive(dead=True) == b"1"
    end(holding)
    client = connect()
    got = [client.receive(dead=True)]
    bury(orders, b"3")
    for _ in range(2):
        client.confirm()
        got.append(client.receive(dead=True))
    assert sorted(got) == [b"1", b"2", b"3"]
    assert got[0] == b"2"
    client.confirm()
    until(lambda: orders.dead.list() == [])


def test_a_letter_comes_to_who_waits_for_one(connect, orders):
    client = connect()
    client.ask(dead=True)
    assert gets_nothing(client)
    bury(orders, b"late")
    assert client.answer() == b"late"


def test_a_letter_that_somebody_else_has_removed_is_passed_over(connect, orders):
    bury(orders, b"1", b"2", b"3")
    holding = connect()
    assert holding.receive(dead=True) == b"1"
    first, second, _ = orders.dead.list()
    orders.dead.redrive(first.id)
    orders.dead.purge(second.id)
    holding.close()
    client = connect()
    assert client.receive(dead=True) == b"3"
    client.confirm()
    client.ask(dead=True)
    assert gets_nothing(client)


def test_without_dead_letters_each_request_for_one_is_refused_at_once(broker, orders, connect):
    listener = broker.listen(f"{URL}&dead=0")
    client = connect(listener)
    client.ask()
    client.socket.sendall(packet(DEAD_RECEIVE) * 2)
    assert client.socket.recv(16, socket.MSG_WAITALL) == packet(NO_RECEIVE) * 2
    orders.put(b"one")
    assert client.answer() == b"one"  # the RECEIVE has waited on
    client.socket.sendall(packet(DEAD_RECEIVE))  # while it holds one
    assert gets_nothing(client)
    assert listener.stats.counts == {"ignored dead_receive": 1}


def test_dead_letters_can_be_forbidden(broker, orders, connect):
    bury(orders, b"1")
    client = connect(broker.listen(f"{URL}&dead=0"))
    client.ask(dead=True)
    with pytest.raises(ServerState, match=f"{NO_RECEIVE:02x}"):
        client.answer()
    client.confirm()
    client.send(b"x")
    assert client.receive() == b"x"
    client.close()


# -------------------------------------------------------------------------------- options


def test_a_listener_needs_its_queue(broker):
    with pytest.raises(InvalidOption, match="queue="):
        broker.listen("sspq://127.0.0.1:0")


def test_a_listener_may_replace_the_retry_byte(broker, connect):
    client = connect(broker.listen(f"{URL}&retries=1"))
    client.send(b"f", 9)
    assert (client.receive(), client.retries) == (b"f", 1)


@pytest.mark.parametrize("retries", [-1, 256, "many"])
def test_a_retry_byte_is_0_to_255(broker, retries):
    with pytest.raises(InvalidOption):
        broker.listen(f"{URL}&retries={retries}")


def test_two_listeners_serve_two_queues(broker, connect):
    one = connect(broker.listen("sspq://127.0.0.1:0?queue=one"))
    two = connect(broker.listen("sspq://127.0.0.1:0?queue=two"))
    one.send(b"1")
    two.send(b"2")
    assert (two.receive(), one.receive()) == (b"2", b"1")
    one.close()
    two.close()


def test_who_holds_a_message_too_longis_cut(broker, orders, connect):
    listener = broker.listen(f"{URL}&hold=100ms")
    client = connect(listener)
    client.send(b"x", 1)
    assert (client.receive(), client.retries) == (b"x", 1)
    assert is_cut(client)
    with orders.get(timeout=60) as delivery:
        assert delivery.attempt == 2


@pytest.mark.parametrize("name", ["S29", "S30", "S34"])
def test_a_size_above_the_limit_closes_before_anything_is_read(broker, orders, name, connect):
    listener = broker.listen(URL, limits=NetLimits(message_bytes=1_000))
    client = connect(listener)
    client.socket.sendall(BY_NAME[name].data)
    assert is_cut(client)
    assert listener.stats.faults == {"size": 1}
    assert orders.stats().stored == 0


def test_a_body_at_the_limit_passes(broker, connect):
    client = connect(broker.listen(URL, limits=NetLimits(message_bytes=1_000)))
    client.send(b"x" * 1_000)
    assert client.receive() == b"x" * 1_000
    client.close()


def test_what_cannot_be_stored_now_is_stored_later_also_after_an_orderly_end(
    broker, orders, connect, monkeypatch
):
    """The disk is full, say: the client cannot be told, so it waits."""
    client = connect()
    client.send(b"first")
    until(lambda: orders.stats().stored == 1)
    real, failures = Puts._answer, iter(range(3))

    async def fail_thrice(*asked):
        if next(failures, None) is None:
            return await real(*asked)
        return StoreBusy("not now")

    monkeypatch.setattr(Puts, "_answer", fail_thrice)
    client.send(b"second")
    client.close()
    until(lambda: [each.body for each in orders.peek(9)] == [b"first", b"second"])


def test_a_full_queue_slows_its_senders_and_loses_nothing(broker, connect):
    orders = broker.queue("orders", bytes, max_length=2)
    client = connect(broker.listen(URL))
    for number in range(5):
        client.send(b"%d" % number)
    client.close()
    got = []
    for _ in range(5):
        with orders.get(timeout=60) as delivery:
            got.append(delivery.body)
    assert got == [b"0", b"1", b"2", b"3", b"4"]


# ----------------------------------------------------------------------------- transcripts

TRANSCRIPTS: dict[str, list[tuple[str, bytes]]] = {
    "client.py -s -m hello": [(">", BY_NAME["S01"].data)],
    "a message and its confirmation": [
        (">", BY_NAME["S01"].data),
        (">", BY_NAME["S09"].data),
        ("<", packet(SEND, 3, b"hello")),
        (">", BY_NAME["S10"].data),
    ],
    "three lost receivers, then the dead letter": [
        (">", packet(SEND, 2, b"rt") + packet(RECEIVE)),
        ("<", BY_NAME["session 3"].data),
        ("new", b""),
        (">", packet(RECEIVE)),
        ("<", packet(SEND, 1, b"rt")),
        ("new", b""),
        (">", packet(RECEIVE)),
        ("<", packet(SEND, 0, b"rt")),
        ("new", b""),
        (">", packet(DEAD_RECEIVE)),
        ("<", BY_NAME["session 3 dead"].data),
        (">", packet(CONFIRM)),
    ],
}


def play(
    address, transcript: list[tuple[str, bytes]], cut: Callable[[bytes], list[bytes]]
) -> None:
    sock = socket.create_connection(address, 30)
    for who, data in transcript:
        if who == "new":
            sock.close()
            sock = socket.create_connection(address, 30)
        elif who == ">":
            for part in cut(data):
                sock.sendall(part)
        else:
            came = b""
            while len(came) < len(data):
                part = sock.recv(len(data) - len(came))
                assert part, "the connection ended"
                came += part
            assert came == data
    sock.close()


@pytest.mark.parametrize("pieces", ["whole", "bytes"])
@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_a_session_of_the_original_goes_the_same_way(listener, orders, name, pieces):
    def cut(data: bytes) -> list[bytes]:
        return [data] if pieces == "whole" else [data[at : at + 1] for at in range(len(data))]

    play(listener.address, TRANSCRIPTS[name], cut)
    left = 1 if name.startswith("client") else 0
    until(lambda: orders.stats().stored == left and not orders.dead.list())


@pytest.mark.parametrize("end", [Sspq.close, reset], ids=["close", "reset"])
def test_a_session_that_is_cut_at_any_byte_loses_nothing(listener, orders, end, connect):
    """SEND, RECEIVE, CONFIRM, SEND, cut after each byte: what was complete counts."""
    session = (
        packet(SEND, 255, b"ab") + packet(RECEIVE) + packet(CONFIRM) + packet(SEND, 255, b"c")
    )
    for cut in range(len(session) + 1):
        client = connect(listener)
        client.socket.sendall(session[:cut])
        end(client)
    if end is Sspq.close:  # one that is reset may be gone before it is accepted
        until(lambda: listener.stats.accepted == len(session) + 1)
    until(lambda: listener.stats.connections == 0)
    bodies = [each.body for each in orders.peek(1_000)]
    assert set(bodies) <= {b"ab", b"c"}
    if end is Sspq.close:  # a reset may overtake what was sent
        assert bodies.count(b"c") == 1
    orders.purge()
    client = connect(listener)
    client.send(b"healthy")
    while client.receive() != b"healthy":  # what was sent before a reset may be read late
        client.confirm()
    client.close()
