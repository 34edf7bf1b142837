"""How much may wait in either direction, on both sides of each limit; how long a farewell is."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from embedq.net import Connection, NetLimits, Session, Site
from tests.conformance.transport_suite import dial, eventually, is_cut
from tests.net.client import Client
from tests.net.lines import LinesSession, LinesTransport


class Talker(LinesSession):
    """Also writes so many pieces at once, or says goodbye."""

    def request(self, line: bytes) -> None:
        match line.split():
            case [b"SEND", *sizes]:
                for size in sizes:
                    self.connection.write(b"x" * int(size), self.left)
            case [b"BYE"]:
                self.say("BYE")
                self.connection.finish("bye", linger=True)
            case _:
                super().request(line)

    def left(self, gone: bool) -> None:  # noqa: FBT001  # what Left says
        self.connection.site.count("left", str(gone))


class Talkers(LinesTransport):
    def open(self, site: Site) -> Callable[[Connection], Session]:
        site.options.flag("create", default=True)
        return lambda connection: Talker(connection, create=True)


@pytest.fixture
def talk(broker):
    def talk(**limits: float):
        return broker.listen(
            "lines://127.0.0.1:0",
            transport=Talkers(),
            limits=NetLimits(**limits),  # type: ignore[arg-type]
        )

    return talk


@pytest.mark.parametrize(
    "limits",
    [
        {"pending_puts": 3},
        # Two bodies of ten bytes, each with 64 for what is around it, are below it; three are not.
        {"pending_bytes": 3 * 74},
    ],
    ids=str,
)
def test_with_so_many_puts_under_way_a_socket_is_not_read_until_one_is_stored(
    broker, listen, limits
):
    full = broker.queue("full", bytes, max_length=1)
    full.put(b"in the way")
    listener = listen(**limits)
    client, other = Client(listener), Client(listener)
    client.socket.sendall(b"PUT full 123456789a\n" * 2)
    assert client.say("PUT q read").startswith("STORED")
    client.socket.sendall(b"PUT full 123456789b\n")
    read = len(b"PUT full 123456789a\n" * 3 + b"PUT q read\n")
    eventually(lambda: listener.stats.bytes_in == read)
    client.socket.sendall(b"PUT q later\n")
    for number in range(1, 6):  # turns of the loop, which reads whom it may
        assert other.say("PUT q x").startswith("STORED")
        assert listener.stats.bytes_in == read + number * len(b"PUT q x\n")
    with full.get(0):
        pass
    assert client.line().startswith("STORED")  # the first that waited, and with it a place is free
    eventually(lambda: broker.queue("q").stats().stored == 7)
    for each in (client, other):
        each.close()


def test_a_body_that_alone_is_more_than_may_be_pending_is_stored(listen):
    client = Client(listen(pending_bytes=1))
    for _ in range(3):
        assert client.say("PUT q " + "x" * 1_000).startswith("STORED")
    client.close()


def test_who_has_so_many_bytes_unsent_may_have_one_message_more_and_is_cut_at_the_next(talk):
    listener = talk(unsent_most_bytes=1_000)
    client, other = Client(listener), Client(listener)
    client.socket.sendall(b"SEND 1000 50\n")
    got = b""
    while len(got) < 1_050:
        got += client.socket.recv(2_000)
    other.socket.sendall(b"SEND 1000 1 1\n")
    assert is_cut(other.socket)
    eventually(lambda: listener.stats.connections == 1)
    assert listener.stats.closed == {"too_slow": 1}
    assert listener.stats.counts["left False"] >= 1
    assert client.say("PUT q x").startswith("STORED")
    client.close()
    other.close()


def test_deliveries_wait_while_so_many_bytes_are_unsent(broker, listen):
    body = b"b" * 8_000_000  # more than any kernel takes for a client that reads nothing
    for each in (body, b"next"):
        broker.queue("large").put(each)
    listener = listen(unsent_pause_bytes=2_000, unsent_most_bytes=1 << 30)
    client, other = Client(listener), Client(listener)
    client.socket.sendall(b"GET large\nGET large\n")
    assert client.socket.recv(1) == b"M"
    assert other.say("PUT q x").startswith("STORED")
    # The second message is ready, and was asked for; it goes to who reads.
    other.socket.sendall(b"GET large\n")
    assert other.line().endswith(" next")
    rest = len(body)
    while rest > 0:
        rest -= len(client.socket.recv(1 << 20))
    client.close()
    other.close()


def test_who_is_said_goodbye_to_has_so_long_to_hang_up(talk, clock):
    listener = talk(linger_s=2)
    polite, silent = Client(listener), Client(listener)
    for each in (polite, silent):
        assert each.say("BYE") == "BYE"
        assert is_cut(each.socket)  # our side is shut, what it still sends is read
        each.socket.sendall(b"PUT q too late\n")
    polite.close()
    eventually(lambda: listener.stats.connections == 1)
    clock.advance(1.9)
    listener.look()
    assert listener.stats.connections == 1
    clock.advance(0.2)
    listener.look()
    eventually(lambda: listener.stats.connections == 0)
    assert listener.stats.closed == {"bye": 2}
    silent.close()


def test_who_hangs_up_first_is_not_lingered_for(talk):
    listener = talk(linger_s=3_600)
    with dial(listener) as client:
        client.sendall(b"BYE\n")
        client.shutdown(socket.SHUT_WR)
        assert is_cut(client)
    eventually(lambda: listener.stats.connections == 0)
