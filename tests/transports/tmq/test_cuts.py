"""A TMQ session that is cut at any byte: what was complete counts, and nothing else."""

from __future__ import annotations

import socket

import pytest

from embedq import Queue
from tests.interop.speakers import until
from tests.interop.tmq_client import PREAMBLE, Frame, TmqClient

NOT_FOUND = 404

HELLO = Frame(0x10, 101, b"h", b"", b"", b"CONNECT /\r\nClient-Id: c1\r\n", first=True)
SAID = [
    Frame(0x10, 601, b"j", b"c1", b"orders", wants_response=True),
    Frame(0x11, 1, b"m1", b"c1", b"orders", b"first"),
    Frame(0x12, 5, b"p", b"c1", b"c1", b"to itself"),
    Frame(0x11, 1, b"m2", b"c1", b"orders", b"s" * 300, urgent=True),
]


def session(order: str) -> bytes:
    return PREAMBLE + b"".join(frame.bytes(order) for frame in (HELLO, *SAID))


def holds(queue: Queue[bytes], count: int) -> None:
    until(lambda: queue.stats().stored == count)


@pytest.mark.parametrize("order", ["little", "big"])
def test_a_session_cut_at_any_byte_stores_what_was_complete(orders, listen, order):
    data, listener = session(order), listen()
    ends = []
    at = len(PREAMBLE) + len(HELLO.bytes())
    for frame in SAID:
        at += len(frame.bytes())
        if frame.kind == 0x11:
            ends.append(at)
    expected = 0
    # Inside long bodies one byte is like the other.
    for cut in [*range(ends[0] + 60), *range(ends[1] - 3, ends[1] + 1)]:
        with socket.create_connection(listener.address, 30) as sock:
            sock.sendall(data[:cut])
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65_536):
                pass
        expected += sum(end <= cut for end in ends)
    until(lambda: orders.stats().put == expected)
    until(lambda: listener.stats.connections == 0)
    client = TmqClient(listener.address, "healthy")
    assert client.command(602, "nothing") == NOT_FOUND
    client.close()
    assert orders.stats().put == expected


def test_an_acknowledgement_cut_at_any_byte_is_none_until_it_is_complete(orders, connect, listen):
    listener = listen(acknowledge=True)
    orders.put(b"x")
    ack = Frame(0x13, 1, b"", b"c", b"orders")
    size = len(ack.bytes()) + 32
    for cut in range(size + 1):
        client = connect("c", acknowledge=True)
        client.join("orders")
        message = client.message()
        assert message.body == b"x"
        done = Frame(0x13, 1, message.id, b"c", b"orders").bytes()
        assert len(done) == size
        client.socket.sendall(done[:cut])
        client.socket.close()
        until(lambda: listener.stats.connections == 0)
        # An acknowledgement that should be none is noticed by the next client, which waits.
        holds(orders, 1 if cut < size else 0)
