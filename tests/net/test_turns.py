"""One turn of the loop: how much of it one client gets, so that the others have theirs."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from itertools import pairwise
from typing import Any, cast

import pytest

from embedq.net.above import Above
from embedq.net.channel import READ_MOST, Channel
from tests.net.client import Client
from tests.net.lines import LinesSession

#: Frames that a connection may bring in its first turn, and in each later one.
FIRST, LATER = 512, 130


class Transport:
    """Stands for a connected socket, and notes what is done to it."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.family = socket.AF_INET

    def get_extra_info(self, name: str) -> object:
        return self if name == "socket" else ("127.0.0.1", 4711)

    def setsockopt(self, level: int, name: int, value: int) -> None:
        assert (level, name, value) == (socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        self.done.append("acknowledged")

    def write(self, data: bytes) -> None:
        self.done.append("written")

    def write_eof(self) -> None:
        raise OSError(errno.ENOTCONN, "not connected")

    def abort(self) -> None:
        self.done.append("aborted")

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int) -> None:
        """Nothing waits here."""

    def is_closing(self) -> bool:
        return False


class Reader:
    """Whoever uses a channel; `answer` is written for all that comes, at once or `later`."""

    def __init__(self, answer: bytes = b"", *, later: bool = False) -> None:
        self.answer = answer
        self.later = later
        self.transport = Transport()
        self.soon: list[Any] = []
        room = memoryview(bytearray(READ_MOST))
        self.channel = Channel(
            cast("Above", self), now=lambda: 0.0, soon=self.soon.append, context=None, room=room
        )
        self.channel.connection_made(cast("Any", self.transport))

    def arrived(self) -> bool:
        return True

    def opened(self, name: str | None) -> None:
        """It begins."""

    def gone(self, error: Exception | None) -> None:
        """It ends."""

    def came(self, data: bytes) -> bool:
        if self.answer and not self.later:
            self.channel.write(self.answer)
        return self.later

    def reads(self, frames: int = 0) -> int:
        """Read as much as there is room for; return how much that is."""
        size = len(self.channel.get_buffer(-1))
        self.channel.buffer_updated(size)
        self.channel.paced(frames)
        return size


def test_a_client_with_many_small_requests_brings_a_few_in_each_turn(listen, broker, monkeypatch):
    brought: list[int] = []
    received = LinesSession.received

    def noting(session: LinesSession, data: bytes) -> None:
        before = session.frames
        received(session, data)
        brought.append(session.frames - before)

    monkeypatch.setattr(LinesSession, "received", noting)
    client = Client(listen())
    client.socket.sendall(b"PUT q x\n" * 4_000)
    assert all(client.line().startswith("STORED ") for _ in range(4_000))
    client.close()
    assert broker.queue("q").stats().stored == sum(brought) == 4_000
    assert max(brought) <= FIRST
    # What a first turn shows, the next ones know.
    assert max(brought[2:]) <= LATER


def test_a_client_with_few_large_requests_is_read_in_large_pieces():
    reader = Reader()
    sizes = [reader.reads() for _ in range(10)]
    assert sizes == sorted(sizes)
    assert sizes[-1] == READ_MOST


def test_who_begins_to_send_small_requests_is_read_less_at_once_from_then_on():
    reader = Reader()
    for _ in range(10):
        reader.reads()
    assert reader.reads(frames=READ_MOST // 8) == READ_MOST
    assert reader.reads() <= 8 * LATER


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux can be told so")
def test_what_has_no_answer_yet_is_acknowledged_to_the_client_at_once():
    silent, answering, putting = Reader(), Reader(b"yes"), Reader(b"yes", later=True)
    for reader in (silent, answering, putting):
        reader.channel.get_buffer(-1)
        reader.channel.buffer_updated(10)
        for flush in reader.soon:
            flush()
    assert silent.transport.done == ["acknowledged"]
    assert answering.transport.done == ["written"]  # which acknowledges it, too
    assert putting.transport.done == []
    putting.channel.write(putting.answer)
    putting.channel.flush()
    assert putting.transport.done == ["written"]


def test_a_call_that_fails_keeps_none_of_its_turn_from_being_made(listen):
    network = listen().inner._network
    told: list[dict[str, Any]] = []
    made: list[str] = []

    async def call() -> None:
        network.loop.set_exception_handler(lambda _, context: told.append(context))
        for name in ("one", "two"):
            network.soon(lambda: 1 // 0)
            network.soon(lambda name=name: made.append(name))
        assert made == []
        await asyncio.sleep(0)

    network.run(call())
    assert made == ["one", "two"]
    assert [type(context["exception"]) for context in told] == [ZeroDivisionError] * 2


def test_a_client_that_was_gone_before_its_answer_was_over_is_no_defect():
    reader = Reader()
    reader.channel.shut()
    assert reader.transport.done == ["aborted"]


def test_a_crowd_waits_to_be_accepted_and_each_turn_takes_in_few(listen):
    listener = listen()
    network, free = listener.inner._network, threading.Event()
    turns = [0]

    def count() -> None:
        turns.append(listener.stats.accepted)
        if turns[-1] < 200:
            network.loop.call_soon(count)

    network.post(lambda: free.wait(60))
    network.post(count)
    clients = []
    try:
        # More than a hundred, which is what asyncio lets wait: the rest would be ignored.
        for _ in range(200):
            clients.append(socket.create_connection(listener.address, 30))  # noqa: PERF401
    finally:
        free.set()
    clients[-1].sendall(b"PUT q x\n")
    assert clients[-1].recv(100).startswith(b"STORED ")
    assert listener.stats.accepted == 200
    assert max(later - turn for turn, later in pairwise(turns)) <= 4
    for client in clients:
        client.close()


def test_what_a_channel_hears_after_its_end_concerns_nobody():
    reader = Reader()
    reader.channel.connection_lost(None)
    reader.channel.data_received(b"late")
    assert not reader.channel.eof_received()
    reader.channel.resume_writing()
    reader.channel.close()
    assert reader.transport.done == []
