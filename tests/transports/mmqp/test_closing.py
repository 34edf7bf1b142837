"""When an MMQP connection is closed: an orderly end says that all that was sent is stored.

A pause that never ends shows who waits for one.
"""

from __future__ import annotations

import socket
import time

import pytest

from embedq.net import NetLimits
from embedq_transports.mmqp import MMQP
from embedq_transports.mmqp.requests import Poll, Send, encode_request
from tests.interop.mmqp_client import Mack, messages

#: bytes: what the first turn of the loop reads of a connection.
FIRST_READ = 4_096
NEVER = "1h"


@pytest.fixture(params=["tcp", "unix"])
def url(request, tmp_path):
    return "mmqp://127.0.0.1:0" if request.param == "tcp" else f"mmqp+unix://{tmp_path}/s"


def connect(listener) -> socket.socket:
    address = listener.address
    if isinstance(address, str):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(60)
        sock.connect(address)
        return sock
    return socket.create_connection(address, 60)


def until(condition) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)


def aligned() -> bytes:
    """A request that ends exactly where a read of the server does, however many went before."""
    empty = encode_request(Send("orders", b"x", "mg1"))
    data = encode_request(Send("orders", b"x" * (64 - len(empty) + 1), "mg1"))
    assert FIRST_READ % len(data) == 0
    return data


@pytest.mark.parametrize("shuts", [True, False])
def test_what_is_written_at_once_is_stored_to_its_last_message(orders, broker, url, shuts):
    # The server reads what it may hold, stores it, and has then no request begun: the rest of
    # what the client has written waits in the kernel.
    count, held = 600, FIRST_READ // 64
    limits = NetLimits(pending_puts=held)
    listener = broker.listen(url, transport=MMQP, limits=limits)
    with connect(listener) as sock:
        sock.sendall(aligned() * count)
        if shuts:
            sock.shutdown(socket.SHUT_WR)
        assert sock.recv(100) == b""
    assert orders.stats().length == count


def test_who_has_sent_two_requests_has_a_pause_to_send_a_third(orders, broker, url):
    listener = broker.listen(url, transport=MMQP, quiet=NEVER)
    request = Mack(("", 0)).request("orders", "hello", "main")
    with connect(listener) as sock:
        sock.sendall(2 * request)
        until(lambda: orders.stats().length == 2)
        sock.sendall(request)
        until(lambda: orders.stats().length == 3)
        sock.sendall(encode_request(Poll("orders", 9)))
        sock.shutdown(socket.SHUT_WR)  # who shuts its side need not wait for the pause
        answer = b""
        while part := sock.recv(4_096):
            answer += part
    assert [each.body for each in messages(answer)] == ["hello"] * 3


def test_who_pipelines_is_closed_after_a_pause(orders, broker, url):
    listener = broker.listen(url, transport=MMQP)
    with connect(listener) as sock:
        sock.sendall(9 * Mack(("", 0)).request("orders", "hello"))
        assert sock.recv(1) == b""
    assert orders.stats().length == 9


def test_one_request_is_closed_without_a_pause(orders, broker, url):
    listener = broker.listen(url, transport=MMQP, quiet=NEVER)
    with connect(listener) as sock:
        sock.sendall(Mack(("", 0)).request("orders", "hello"))
        assert sock.recv(1) == b""
    assert orders.stats().length == 1


def test_what_comes_after_the_close_is_not_begun_and_counted(orders, broker, url):
    listener = broker.listen(url, transport=MMQP)
    request = Mack(("", 0)).request("orders", "hello")
    with connect(listener) as sock:
        sock.sendall(request)
        assert sock.recv(1) == b""
        sock.sendall(request)
        until(lambda: listener.stats.counts.get("late") == 1)
        sock.sendall(request)
    until(lambda: listener.stats.connections == 0)
    assert listener.stats.counts["late"] == 1, "it is counted once for each connection"
    assert orders.stats().length == 1


def test_a_stop_in_the_pause_is_an_orderly_end_because_all_is_stored(orders, broker):
    listener = broker.listen("mmqp://127.0.0.1:0", transport=MMQP, quiet=NEVER)
    with connect(listener) as sock:
        sock.sendall(2 * Mack(("", 0)).request("orders", "hello"))
        until(lambda: orders.stats().length == 2)
        listener.close()
        assert sock.recv(1) == b""


def test_a_stop_before_a_request_is_no_orderly_end(broker):
    listener = broker.listen("mmqp://127.0.0.1:0", transport=MMQP)
    with connect(listener) as sock:
        until(lambda: listener.stats.connections == 1)
        listener.close()
        with pytest.raises(ConnectionResetError):
            sock.recv(1)
