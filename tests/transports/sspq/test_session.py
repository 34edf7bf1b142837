"""SSPQ sessions on real sockets: messages, retries, the tail, and every kind of end."""

from __future__ import annotations

import os
import socket

import pytest

from tests.interop.sspq_client import (
    DEAD_RECEIVE,
    RECEIVE,
    SEND,
    ServerState,
    packet,
)
from tests.transports.sspq.ends import every_end, gets_nothing, until
from tests.transports.sspq.vectors import BY_NAME

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
    with orders.get(timeout=60) as delivery:
        assert (delivery.body, delivery.attempt) == (b"x", 1)
