"""How TMQ connections end: what they held, what they had sent, what still comes to them."""

from __future__ import annotations

import os
import socket
import struct

import pytest

from tests.interop.speakers import until
from tests.interop.tmq_client import Died, Frame, TmqClient

NOT_FOUND = 404


# --- ends ---------------------------------------------------------------------------------------


def reset(client: TmqClient) -> None:
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    os.close(client.socket.detach())


ENDS = {
    "terminate": lambda client: client.send(Frame(0x08)),
    "close": lambda client: client.socket.close(),
    "reset": reset,
    "end of file": lambda client: client.socket.shutdown(socket.SHUT_WR),
    "foreign source": lambda client: client.send(Frame(0x11, 1, b"", b"x", b"orders")),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_whatever_ends_a_client_what_it_did_not_acknowledge_goes_to_the_next(orders, connect, end):
    first = connect("c1", acknowledge=True)
    first.join("orders")
    orders.put(b"x")
    assert first.message().wants_delivery
    end(first)
    second = connect("c2", acknowledge=True)
    second.join("orders")
    again = second.message()
    assert (again.body, again.first) == (b"x", False)  # another has had it
    second.ack(again)
    until(lambda: orders.stats().stored == 0)


def test_what_was_sent_before_a_terminate_is_stored(orders, connect):
    client = connect("p")
    frames = [client.pushing("orders", 1, b"%d" % number) for number in range(200)]
    client.socket.sendall(b"".join(frame.bytes() for frame in frames) + Frame(0x08).bytes())
    assert client.is_closed()
    until(lambda: orders.stats().length == 200)
    assert [each.body for each in orders.get_many(200)] == [b"%d" % n for n in range(200)]


def nobody_is(asking: TmqClient, name: str) -> bool:
    id = asking.tell(name, 1, b"?")
    asking.leave("nowhere")
    return any((frame.id, frame.content) == (id, NOT_FOUND) for frame in asking.inbox)


@pytest.mark.parametrize("end", ["terminate", "end of file"])
def test_who_has_ended_gets_nothing_more_while_what_it_sent_is_stored(
    broker, orders, connect, end
):
    full = broker.queue("full/1", bytes, max_length=1)
    full.put(b"a")
    going, next_one = connect("c1"), connect("c2")
    going.join("orders")
    going.push("full", 1, b"b")
    ENDS[end](going)
    until(lambda: nobody_is(next_one, "c1"))
    orders.put(b"x")
    next_one.join("orders")
    assert next_one.message().body == b"x"
    with full.get(timeout=60):
        pass
    until(lambda: not going.socket.recv(65_536))  # the end, which comes once it is stored
    assert full.get(timeout=60).body == b"b"


@pytest.mark.parametrize("end", ["terminate", "end of file"])
def test_a_pull_right_in_front_of_an_end_takes_nothing(broker, connect, end):
    client = connect("c1")
    client.create("jobs", 1, queue_status="pull")
    client.join("jobs")
    client.put("jobs", 1, b"x")
    frames = client.pushing("jobs", 1, b"", wants_response=True).bytes()
    if end == "terminate":
        frames += Frame(0x08).bytes()
    client.socket.sendall(frames)
    if end == "end of file":
        client.socket.shutdown(socket.SHUT_WR)
    assert client.is_closed()
    assert broker.queue("jobs/1", bytes).get(timeout=60).attempt == 1


def test_clients_are_told_when_a_listener_stops(orders, connect, listen):
    client = connect("c", acknowledge=True)
    client.join("orders")
    orders.put(b"x")
    client.message()
    listen(acknowledge=True).close()
    with pytest.raises(Died, match="terminated"):
        client.receive()
    assert orders.stats().length == 1
    assert orders.get(timeout=60).attempt == 1
