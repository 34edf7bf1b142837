"""SSPQ sessions on real sockets: retries, the tail, dead letters, and every kind of end."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from embedq import Broker
from embedq.app.listeners import BrokerListener
from embedq.errors import InvalidOption
from embedq.net import NetLimits
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
from tests.transports.sspq.vectors import BY_NAME

URL = "sspq://127.0.0.1:0?queue=orders"
QUIET_S = 0.2  # in which a client would have got what it must not get


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


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)


def reset(client: Sspq) -> None:
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    os.close(client.socket.detach())


def shut_down(client: Sspq) -> None:
    client.socket.shutdown(socket.SHUT_WR)


def break_protocol(client: Sspq) -> None:
    client.socket.sendall(BY_NAME["S22"].data)


ENDS: dict[str, Callable[[Any], object]] = {
    "close": Sspq.close,
    "reset": reset,
    "end of file": shut_down,
    "wrong magic": break_protocol,
}
every_end = pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)


def gets_nothing(client: Sspq) -> bool:
    client.socket.settimeout(QUIET_S)
    try:
        client.socket.recv(1)
    except TimeoutError:
        return True
    finally:
        client.socket.settimeout(30)
    return False


# ------------------------------------------------------------------------------- messages


def test_a_message_arrives_with_the_tries_that_are_left_after_this_one(connect):
    sender, receiver = connect(), connect()
    sender.send(b"hello", 3)
    assert receiver.receive() == b"hello"
    assert receiver.retries == 3


@pytest.mark.parametrize(("retries", "first"), [(0, 0), (1, 1), (254, 254), (255, 255)])
def test_the_byte_is_that_of_the_sender(connect, retries, first):
    client = connect()
    client.send(b"", retries)
    assert (client.receive(), client.retries) == (b"", first)


def test_a_message_of_python_has_the_tries_that_it_was_given(orders, connect):
    orders.put(b"five", max_attempts=5)
    client = connect()
    assert (client.receive(), client.retries) == (b"five", 4)


def test_an_endless_message_of_python_has_255(orders, connect):
    orders.put(b"ever", max_attempts=None)
    client = connect()
    assert (client.receive(), client.retries) == (b"ever", 255)


def test_what_is_in_one_segment_is_done_in_order(connect):
    client = connect()
    client.socket.sendall(BY_NAME["S18"].data)
    assert client.answer() == b"a"
    assert client.confirm_and_receive() == b"b"


def test_confirm_and_receive_in_one_segment_go_on_to_the_next(orders, connect):
    client = connect()
    for body in (b"1", b"2", b"3"):
        client.send(body)
    assert client.receive() == b"1"
    assert [client.confirm_and_receive() for _ in range(2)] == [b"2", b"3"]
    client.confirm()
    until(lambda: orders.stats().stored == 0)


def test_the_first_to_ask_is_the_first_to_get(connect):
    first, second, sender = connect(), connect(), connect()
    second.ask()
    assert gets_nothing(second)
    first.ask()
    assert gets_nothing(first)
    sender.send(b"a")
    assert second.answer() == b"a"
    sender.send(b"b")
    assert first.answer() == b"b"
    second.confirm()
    second.ask()
    assert gets_nothing(second)
    first.confirm()
    first.ask()
    assert gets_nothing(first)
    sender.send(b"c")
    assert second.answer() == b"c"


def test_a_message_is_written_in_one_piece(connect):
    """The original reads "up to n bytes": what comes in two pieces is taken for a shorter one."""
    client = connect()
    body = os.urandom(60_000)
    client.send(body)
    client.ask()
    until(lambda: len(client.socket.recv(100_000, socket.MSG_PEEK)) > 0)
    assert len(client.socket.recv(100_000, socket.MSG_PEEK)) == 8 + len(body)


# ------------------------------------------------------------------------------- requests


@pytest.mark.parametrize("second", [RECEIVE, DEAD_RECEIVE])
def test_a_second_request_is_ignored_while_one_waits(connect, orders, listener, second):
    client = connect()
    client.ask()
    client.socket.sendall(packet(second))
    until(lambda: sum(v for k, v in listener.stats.counts.items() if k.startswith("ignored")))
    orders.put(b"one")
    orders.put(b"two")
    assert client.answer() == b"one"
    assert gets_nothing(client)


def test_a_request_is_ignored_while_a_message_is_held(connect, orders):
    orders.put(b"one")
    orders.put(b"two")
    client = connect()
    assert client.receive() == b"one"
    client.socket.sendall(packet(RECEIVE) * 3)
    assert gets_nothing(client)
    client.confirm()
    assert client.receive() == b"two"


def test_a_confirm_without_a_message_does_nothing(connect, orders):
    client = connect()
    client.confirm()
    client.send(b"x")
    assert client.receive() == b"x"
    client.socket.sendall(BY_NAME["S32"].data)
    until(lambda: orders.stats().stored == 0)


def test_the_library_that_timed_out_confirms_and_asks_again(connect, orders):
    client = connect()
    client.ask()
    assert gets_nothing(client)
    with pytest.raises(ServerState):
        client.ask()
    client.confirm()
    client.ask()
    orders.put(b"late")
    assert client.answer() == b"late"


@pytest.mark.parametrize("name", ["S15", "S16", "S25", "S26"])
def test_payloads_and_types_that_mean_nothing_are_passed_over(connect, name):
    client = connect()
    client.send(b"x")
    client.socket.sendall(BY_NAME[name].data)
    if name != "S15":
        client.ask()
    assert client.answer() == b"x"


# ------------------------------------------------------------------------ what was not confirmed


@every_end
def test_what_was_not_confirmed_goes_to_the_tail_with_one_try_less(connect, end):
    sender, receiver, next_one = connect(), connect(), connect()
    for body in (b"a", b"b", b"c"):
        sender.send(body, 2)
    assert receiver.receive() == b"a"
    end(receiver)
    got = []
    for _ in range(3):
        got.append((next_one.receive(), next_one.retries))
        next_one.confirm()
    assert got == [(b"b", 2), (b"c", 2), (b"a", 1)]


def test_a_message_is_dead_after_its_last_try_and_the_letter_tells_who_had_it(connect, orders):
    sender = connect()
    sender.send(b"rt", 2)
    peers = []
    for left in (2, 1, 0):
        receiver = connect()
        assert (receiver.receive(), receiver.retries) == (b"rt", left)
        host, port = receiver.socket.getsockname()
        peers.append(f"{host}:{port}")
        receiver.close()
    until(lambda: len(orders.dead.list()) == 1)
    (letter,) = orders.dead.list()
    assert letter.reason == "max_attempts"
    assert [each.error.type for each in letter.attempts] == ["sspq"] * 3
    assert [each.error.message.split(": ")[0] for each in letter.attempts] == peers
    assert "without a CONFIRM" in letter.attempts[-1].error.message
    client = connect()
    assert (client.receive(dead=True), client.retries) == (b"rt", 0)
    client.confirm()
    until(lambda: not orders.dead.list())


def test_an_endless_message_comes_back_for_ever(connect, orders):
    connect().send(b"inf", 255)
    for _ in range(6):
        receiver = connect()
        assert (receiver.receive(), receiver.retries) == (b"inf", 255)
        receiver.close()
    assert orders.dead.list() == []


def test_a_confirm_that_was_sent_before_the_close_counts(connect, orders):
    connect().send(b"x")
    receiver = connect()
    assert receiver.receive() == b"x"
    receiver.confirm()
    receiver.close()
    until(lambda: orders.stats().stored == 0)


@every_end
def test_no_message_is_spent_on_a_request_whose_client_is_gone(listener, connect, orders, end):
    waiting = connect()
    waiting.ask()
    assert gets_nothing(waiting)
    end(waiting)
    until(lambda: listener.stats.connections == 0)
    orders.put(b"x", max_attempts=3)
    client = connect()
    assert (client.receive(), client.retries) == (b"x", 2)


def test_everything_that_is_complete_at_the_end_counts(connect, orders):
    client = connect()
    client.socket.sendall(packet(SEND, 3, b"whole") + packet(SEND, 3, b"part")[:-1])
    client.close()
    until(lambda: orders.stats().stored == 1)
    assert [each.body for each in orders.peek(9)] == [b"whole"]


def test_a_listener_that_stops_gives_messages_back_for_nothing(broker, orders, connect, listener):
    orders.put(b"x", max_attempts=2)
    holding, waiting = connect(), connect()
    assert holding.receive() == b"x"
    waiting.ask()
    assert gets_nothing(waiting)
    listener.close()
    with pytest.raises(ServerState, match="0e"):
        waiting.answer()
    with orders.get(timeout=10) as delivery:
        assert (delivery.body, delivery.attempt) == (b"x", 1)


# ---------------------------------------------------------------------------- dead letters


def bury(orders, *bodies: bytes) -> None:
    for body in bodies:
        orders.put(body)
        orders.get(timeout=5).reject("no")


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


def test_who_holds_a_message_too_long_is_cut(broker, orders, connect):
    listener = broker.listen(f"{URL}&hold=100ms")
    client = connect(listener)
    client.send(b"x", 1)
    assert (client.receive(), client.retries) == (b"x", 1)
    assert _is_cut(client)
    with orders.get(timeout=10) as delivery:
        assert delivery.attempt == 2


def _is_cut(client: Sspq) -> bool:
    try:
        return client.socket.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("name", ["S29", "S30", "S34"])
def test_a_size_above_the_limit_closes_before_anything_is_read(broker, orders, name, connect):
    listener = broker.listen(URL, limits=NetLimits(message_bytes=1_000))
    client = connect(listener)
    client.socket.sendall(BY_NAME[name].data)
    assert _is_cut(client)
    assert listener.stats.faults == {"size": 1}
    assert orders.stats().stored == 0


def test_a_body_at_the_limit_passes(broker, connect):
    client = connect(broker.listen(URL, limits=NetLimits(message_bytes=1_000)))
    client.send(b"x" * 1_000)
    assert client.receive() == b"x" * 1_000
    client.close()


def test_a_full_queue_slows_its_senders_and_loses_nothing(broker, connect):
    orders = broker.queue("orders", bytes, max_length=2)
    client = connect(broker.listen(URL))
    for number in range(5):
        client.send(b"%d" % number)
    client.close()
    got = []
    for _ in range(5):
        with orders.get(timeout=10) as delivery:
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
    until(lambda: listener.stats.connections == 0)
    bodies = [each.body for each in orders.peek(1_000)]
    assert set(bodies) <= {b"ab", b"c"}
    if end is Sspq.close:  # a reset may overtake what was sent
        assert bodies.count(b"c") == 1
    orders.purge()
    client = connect(listener)
    client.send(b"healthy")
    assert client.receive() == b"healthy"
    client.close()
