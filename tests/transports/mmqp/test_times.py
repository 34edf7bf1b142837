"""How long an MMQP client may take: for its first byte, and for the rest of a request."""

from __future__ import annotations

import socket
import time

import pytest

from embedq import Broker
from embedq.clock import VirtualClock
from embedq.net import NetLimits
from embedq_transports.mmqp import MMQP
from tests.interop.mmqp_client import Mack, Poller

LIMITS = NetLimits(login_s=10, frame_s=60)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def broker(clock):
    with Broker(":memory:", clock=clock) as broker:
        broker.queue("orders").stats()  # so that it is there
        yield broker


@pytest.fixture
def listener(broker):
    # A pause does not end a request here.
    return broker.listen("mmqp://127.0.0.1:0", transport=MMQP, limits=LIMITS, quiet="9h")


@pytest.fixture
def client(listener):
    with socket.create_connection(listener.address, 60) as sock:
        until(lambda: listener.stats.connections == 1)
        yield sock


def until(condition) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)


def send(listener, client, data: bytes) -> None:
    """Send bytes, and wait until they are read."""
    read = listener.stats.bytes_in
    client.sendall(data)
    until(lambda: listener.stats.bytes_in == read + len(data))


def pass_by(listener, clock, seconds: float) -> None:
    clock.advance(seconds)
    listener.look()


def is_cut(listener, client, cause: str) -> bool:
    """Whether it is reset: nothing else may look like success."""
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    until(lambda: listener.stats.closed == {cause: 1})
    return True


def test_who_sends_nothing_is_cut(listener, client, clock):
    pass_by(listener, clock, 9.9)
    assert listener.stats.connections == 1
    pass_by(listener, clock, 0.2)
    assert is_cut(listener, client, "login_timeout")


def test_who_has_sent_a_byte_has_the_time_of_a_request(listener, client, clock):
    pass_by(listener, clock, 9)
    send(listener, client, b"M")
    pass_by(listener, clock, 59)
    assert listener.stats.connections == 1
    pass_by(listener, clock, 2)
    assert is_cut(listener, client, "frame_timeout")


def test_who_has_sent_something_in_time_may_go_on_later(listener, client, clock, broker):
    request = Mack(listener.address).request("orders", "hello")
    send(listener, client, request * 2)
    for count in (2, 3):
        until(lambda n=count: broker.queue("orders").stats().length == n)
        pass_by(listener, clock, 100)
        assert listener.stats.connections == 1
        send(listener, client, request)
    client.shutdown(socket.SHUT_WR)
    assert client.recv(1) == b""
    assert broker.queue("orders").stats().length == 4


def test_who_never_stops_sending_what_is_ignored_is_cut(listener, client, clock, broker):
    send(listener, client, Poller(listener.address).head(b"P", "orders") + b"\x02\n")
    for _ in range(6):
        pass_by(listener, clock, 9)
        assert listener.stats.connections == 1
        send(listener, client, b"\n" * 9_999)
    pass_by(listener, clock, 9)
    assert is_cut(listener, client, "frame_timeout")


def test_who_does_not_say_who_it_is_is_cut_where_that_is_asked(broker, clock):
    listener = broker.listen(
        "mmqp://127.0.0.1:0", transport=MMQP, limits=LIMITS, auth=lambda _credentials: None
    )
    with socket.create_connection(listener.address, 60) as client:
        send(listener, client, b"MMQP")
        pass_by(listener, clock, 10)
        assert is_cut(listener, client, "login_timeout")
