"""How messages die under clients of listeners: the letter names protocol, peer and cause.

Each protocol and each way: rejected, attempts used up by connections that ended, expired while it
waited or while somebody held it. Where a protocol has no such way, the message does not die.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from embedq import Broker, DeadLetter, Empty, Queue
from embedq.app.listeners import BrokerListener
from embedq.clock import VirtualClock
from embedq.net import NetLimits
from tests.interop.mmqp_client import Poller
from tests.interop.phpmq_client import PhpmqClient
from tests.interop.speakers import CHANNEL, PATIENCE_S, QUEUE, SPEAKERS, until
from tests.interop.sspq_client import SEND, Whole, packet
from tests.interop.tmq_client import TmqClient

NAME = QUEUE.encode()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def broker(clock: VirtualClock) -> Iterator[Broker]:
    with Broker(":memory:", clock=clock) as broker:
        yield broker


@pytest.fixture
def queue(broker: Broker) -> Queue[bytes]:
    queue = broker.queue(QUEUE, bytes)
    queue.stats()
    return queue


@pytest.fixture
def listen(broker: Broker) -> Callable[..., BrokerListener]:
    def listen(name: str, options: str = "", **limits: float) -> BrokerListener:
        made = NetLimits(**limits) if limits else None  # type: ignore[arg-type]
        return broker.listen(f"{SPEAKERS[name].url}{options}", limits=made)

    return listen


def letter_of(queue: Queue[bytes]) -> DeadLetter:
    """Return the only dead letter, once it is there. Whoever looks finds what has expired."""

    def is_dead() -> bool:
        with suppress(Empty):
            queue.get(timeout=0).release()
        return queue.stats().dead == 1

    until(is_dead)
    return queue.dead.show(queue.dead.list()[0].id)


def address_of(sock: socket.socket) -> str:
    host, port = sock.getsockname()
    return f"{host}:{port}"


# ----------------------------------------------------------------- attempts used up, by SSPQ


def reset(client: Whole) -> None:
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    os.close(client.socket.detach())


#: How a client that holds a message ends, and what the letter says of it.
ENDS: dict[str, tuple[Callable[[Whole], object], str]] = {
    "close": (Whole.close, "end"),
    "end of file": (lambda client: client.socket.shutdown(socket.SHUT_WR), "end"),
    "reset": (reset, "reset"),
    "bytes of another protocol": (
        lambda client: client.socket.sendall(b"GET / HTTP/1.1\r\n"),
        "protocol",
    ),
    "a frame without an end": (
        lambda client: client.socket.sendall(packet(SEND, 0, b"cut off")[:-1]),
        "frame_timeout",
    ),
    "held too long": (lambda _: None, "held_too_long"),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_letter_names_each_connection_that_ended_with_it_and_how(queue, listen, clock, end):
    ending, cause = ENDS[end]
    listener = listen("SSPQ", "&hold=5s" if cause == "held_too_long" else "", frame_s=7)

    def is_gone() -> bool:
        clock.advance(1)
        listener.look()
        return not listener.stats.connections

    queue.put(b"x", max_attempts=2)
    peers = []
    for _ in range(2):
        client = Whole(listener.address, PATIENCE_S)
        assert client.receive() == b"x"
        peers.append(address_of(client.socket))
        ending(client)
        until(is_gone)
        client.close()
    letter = letter_of(queue)
    assert (letter.reason, letter.detail) == ("max_attempts", "attempt 2 of 2 failed")
    told = [each.error for each in letter.attempts if each.error is not None]
    assert [each.type for each in told] == ["sspq", "sspq"]
    assert [each.message for each in told] == [
        f"{peer}: the connection ended without a CONFIRM ({cause})" for peer in peers
    ]


# ----------------------------------------------------- disconnects that cost nothing elsewhere


def test_who_ends_with_a_message_of_phpmq_uses_no_attempt(queue, listen):
    listener = listen("PHPMQ")
    queue.put(b"x", max_attempts=1)
    for _ in range(4):
        client = PhpmqClient(listener.address)
        client.consume(NAME, 1)
        assert client.receive().content == b"x"
        client.close()
    until(lambda: not listener.stats.connections)
    with queue.get(timeout=PATIENCE_S) as delivery:
        assert delivery.attempt == 1
    assert queue.dead.list() == []


def test_who_ends_before_a_delivery_of_tmq_was_due_uses_no_attempt(queue, listen):
    listener = listen("TMQ")
    queue.put(b"x", max_attempts=1)
    for _ in range(4):
        client = TmqClient(listener.address)
        assert client.join(CHANNEL) == 200
        assert client.message().body == b"x"
        client.close()
    until(lambda: not listener.stats.connections)
    with queue.get(timeout=PATIENCE_S) as delivery:
        assert delivery.attempt == 1
    assert queue.dead.list() == []


def test_a_poll_of_mmqp_whose_answer_never_left_uses_no_attempt(queue, listen):
    body = b"b" * 15_000_000  # more than any kernel takes for a client that reads nothing
    listener = listen("MMQP", unsent_most_bytes=1 << 25)
    queue.put(body, max_attempts=1)
    for _ in range(2):
        poller = Poller(listener.address)
        with socket.create_connection(listener.address, PATIENCE_S) as sock:
            sock.sendall(poller.head(b"P", QUEUE) + bytes([9]))
            assert sock.recv(1) == b"M"  # it is being answered
        until(lambda: not listener.stats.connections)
    with queue.get(timeout=PATIENCE_S) as delivery:
        assert delivery.attempt == 1
        assert len(delivery.body) == len(body)
    assert queue.dead.list() == []


# --------------------------------------------------------------------------------- rejected


@pytest.mark.parametrize("held", [True, False])
def test_a_rejection_by_phpmq_is_the_reason_with_who_did_it(queue, listen, held):
    listener = listen("PHPMQ")
    id = queue.put(b"x").id.encode()
    client = PhpmqClient(listener.address)
    if held:
        client.consume(NAME, 1)
        assert client.receive().id == id
    client.bury(NAME, id)
    letter = letter_of(queue) if held else buried(queue)
    assert letter.reason == "rejected"
    assert letter.detail == f"phpmq {address_of(client.socket)}: dead letter (006)"
    client.close()


def test_what_nobody_of_tmq_acknowledges_in_time_names_all_who_could_have(queue, listen, clock):
    listener = listen("TMQ")
    clients = [TmqClient(listener.address, name) for name in ("c1", "c2")]
    for client in clients:
        assert client.join(CHANNEL) == 200
    queue.put(b"x")
    for client in clients:
        assert client.message().body == b"x"
    clock.advance(16)
    listener.look()
    letter = buried(queue)
    peers = [address_of(client.socket) for client in clients]
    assert letter.reason == "rejected"
    assert letter.detail == (
        f"tmq {peers[0]} (c1), {peers[1]} (c2): no Delivery within 15 seconds"
    )
    for client in clients:
        client.close()


def buried(queue: Queue[bytes]) -> DeadLetter:
    until(lambda: queue.stats().dead == 1)
    return queue.dead.list()[0]


# ---------------------------------------------------------------------------------- expired


def take(name: str, address: Any) -> str:
    """Return the next text. The clock stands still, and so would a poll that a pause ends."""
    if name == "MMQP":
        (found,) = Poller(address).poll(QUEUE, 9)
        return found.body
    speaker = SPEAKERS[name](None, address)  # type: ignore[arg-type]
    body = speaker.take().body
    speaker.close()
    return body.decode()


@pytest.mark.parametrize("name", ["SSPQ", "PHPMQ", "MMQP", "TMQ"])
def test_what_expires_while_it_waits_is_not_delivered_and_says_so(queue, listen, clock, name):
    queue.put(b"late", ttl="10s")
    queue.put(b"in time")
    clock.advance(20)
    assert take(name, listen(name).address) == "in time"
    letter = buried(queue)
    assert (letter.body, letter.reason) == (b"late", "expired")
    assert letter.detail == "its time to live is over"


def test_what_a_program_of_phpmq_gave_a_time_to_live_dies_of_it(queue, listen, clock):
    client = PhpmqClient(listen("PHPMQ").address, speaks_ttl=True)
    client.publish(NAME, b"late", 10)
    until(lambda: queue.stats().stored == 1)
    clock.advance(20)
    assert letter_of(queue).reason == "expired"
    client.close()


@pytest.mark.parametrize("name", ["SSPQ", "PHPMQ", "TMQ"])
def test_what_expires_while_a_client_holds_it_is_its_until_it_ends(queue, listen, clock, name):
    listener = listen(name)
    queue.put(b"x", ttl="10s")
    speaker = SPEAKERS[name](None, listener.address)  # type: ignore[arg-type]
    assert speaker.take().body == b"x"
    clock.advance(20)
    assert queue.dead.list() == []
    peer = address_of(speaker.client.socket)  # type: ignore[attr-defined]
    speaker.close()
    letter = letter_of(queue)
    assert (letter.reason, letter.detail) == ("expired", "its time to live is over")
    told = [each.error for each in letter.attempts if each.error is not None]
    expected = [f"{peer}: the connection ended without a CONFIRM (end)"]
    assert [each.message for each in told] == (expected if name == "SSPQ" else [])


@pytest.mark.parametrize("name", ["SSPQ", "PHPMQ", "TMQ"])
def test_what_expired_while_it_was_held_can_still_be_settled(queue, listen, clock, name):
    queue.put(b"x", ttl="10s")
    speaker = SPEAKERS[name](None, listen(name).address)  # type: ignore[arg-type]
    assert speaker.take().body == b"x"
    clock.advance(20)
    speaker.done()
    until(lambda: queue.stats().stored == 0)
    assert queue.dead.list() == []
    speaker.close()
