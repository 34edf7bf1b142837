"""What every transport keeps, whatever its bytes are: a suite that the tests of each one run.

A transport's tests say how a client of its protocol puts, gets and settles (`Dialect`, `Caller`),
subclass `TransportSuite` and give it a fixture `dialect`; nothing else is needed:

    class TestConformance(TransportSuite):
        @pytest.fixture
        def dialect(self):
            return MyDialect()
"""

from __future__ import annotations

import gc
import os
import socket
import struct
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pytest

from embedq import Broker, InvalidOption
from embedq.app.listeners import BrokerListener
from embedq.net import Connection, NetLimits, Session, Site
from tests.transports.wire_checks import no_collector

PATIENCE_S = 30.0
_SHORT, _MUCH = 1_000, 8_000_000  # bytes; no kernel keeps so much for who reads nothing


class Caller(Protocol):
    """A client of the protocol, connected. Calls wait for the answer, at most PATIENCE_S."""

    socket: socket.socket

    def put(self, body: bytes) -> None:
        """Put into the queue of the suite; return when it is confirmed, or sent."""
        ...

    def get(self) -> bytes:
        """Ask for one message, wait for it, hold it unsettled if the protocol can."""
        ...

    def settle(self) -> None:
        """Ack what `get` returned last; nothing where the protocol has no ack."""
        ...

    def ask(self) -> None:
        """Ask for one message, without waiting for it."""
        ...

    def close(self) -> None:
        """Close in the way that clients of the protocol do."""
        ...


class Dialect:
    """How the suite speaks a protocol."""

    #: A listener's address, with port 0.
    url: str
    #: Arguments of `listen` beside the URL: the transport, if no entry point names it.
    options: ClassVar[dict[str, object]] = {}
    #: The queue of the suite, as the broker knows it.
    queue = "q"
    #: The client acks (or not: then messages are settled when their bytes have left).
    acks = True
    #: A put has an answer.
    confirms = True
    #: Bytes that no client of the protocol would begin with: its connection ends.
    garbage: bytes | None = b"\x00\xff\x00\xff" * 64
    #: The beginning of a frame, and no more of it.
    fragment: bytes | None = None
    #: An orderly end in the middle of a frame may be the end of a shorter one.
    end_completes = False
    #: Bodies that come back byte for byte.
    bodies: tuple[bytes, ...] = (b"", b"x", b"\x00\xff\r\n|:", "Grüße".encode(), b"b" * 100_000)

    def connect(self, listener: BrokerListener) -> Caller:
        """Connect a client, through its handshake."""
        raise NotImplementedError


def eventually(what: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Wait until something is true."""
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it did not become true in time"
        time.sleep(0.01)


def dial(listener: BrokerListener) -> socket.socket:
    """Open a connection to a listener, whatever its protocol."""
    address = listener.address
    if isinstance(address, str):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(PATIENCE_S)
        sock.connect(address)
        return sock
    return socket.create_connection(address, PATIENCE_S)


def reset(caller: Caller) -> None:
    """Close a connection so that the other end sees a reset."""
    linger = struct.pack("ii", 1, 0)
    caller.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    os.close(caller.socket.detach())


def one_at_a_time(sock: socket.socket, data: bytes) -> None:
    """Take the place of `sendall`: the other end reads a byte, or a few, at once."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in data:
        sock.send(bytes((byte,)))


def is_cut(sock: socket.socket) -> bool:
    """Wait for the end of a connection; what comes before it is read and thrown away."""
    sock.settimeout(PATIENCE_S)
    try:
        while sock.recv(65536):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        raise AssertionError("it is still open: was it the beginning of a frame?") from None
    return True


class TransportSuite:
    """The rules. Each test has a broker with one listener of the dialect."""

    @pytest.fixture
    def dialect(self) -> Dialect:
        raise NotImplementedError

    @pytest.fixture
    def broker(self, tmp_path) -> Iterator[Broker]:
        with Broker(tmp_path / "q.db") as broker:
            yield broker

    @pytest.fixture
    def listen(self, broker, dialect):
        def listen(**limits: float) -> BrokerListener:
            options = dict(dialect.options)
            if limits:
                options["limits"] = NetLimits(**limits)  # type: ignore[arg-type]
            return broker.listen(dialect.url, **options)

        broker.queue(dialect.queue)
        return listen

    # ------------------------------------------------------------------- messages

    def test_what_is_put_on_the_wire_is_got_in_python_byte_for_byte(self, broker, listen, dialect):
        caller = dialect.connect(listen())
        for body in dialect.bodies:
            caller.put(body)
            with broker.queue(dialect.queue, bytes).get(timeout=PATIENCE_S) as delivery:
                assert delivery.body == body
        caller.close()

    def test_what_is_put_in_python_is_got_on_the_wire_byte_for_byte(self, broker, listen, dialect):
        caller = dialect.connect(listen())
        queue = broker.queue(dialect.queue)
        for body in dialect.bodies:
            queue.put(body)
            assert caller.get() == body
            caller.settle()
        eventually(lambda: queue.stats().stored == 0)
        caller.close()

    def test_a_waiting_client_gets_what_comes_later(self, broker, listen, dialect):
        caller = dialect.connect(listen())
        caller.put(b"first")
        assert caller.get() == b"first"
        caller.settle()
        broker.queue(dialect.queue).put(b"second")
        assert caller.get() == b"second"
        caller.settle()
        caller.close()

    def test_what_is_confirmed_is_stored_when_the_host_ends(self, tmp_path, dialect):
        path = tmp_path / "again.db"
        with Broker(path) as broker:
            broker.queue(dialect.queue)
            caller = dialect.connect(broker.listen(dialect.url, **dialect.options))
            caller.put(b"kept")
            caller.close()
            if not dialect.confirms:
                queue = broker.queue(dialect.queue)
                eventually(lambda: queue.stats().stored == 1)
        with Broker(path) as broker:
            assert broker.queue(dialect.queue).stats().stored == 1

    def test_bytes_that_come_one_at_a_time_mean_the_same(self, listen, dialect, monkeypatch):
        caller = dialect.connect(listen())
        monkeypatch.setattr(socket.socket, "sendall", one_at_a_time)
        for body in dialect.bodies:
            if len(body) < _SHORT:
                caller.put(body)
                assert caller.get() == body
                caller.settle()
        caller.close()

    def test_a_body_of_exactly_the_limit_is_stored_and_a_longer_one_is_not(
        self, broker, listen, dialect
    ):
        listener = listen(message_bytes=_SHORT)
        first, second = (dialect.connect(listener) for _ in range(2))
        first.put(b"b" * _SHORT)
        with suppress(Exception):  # however the protocol refuses it
            second.put(b"b" * (_SHORT + 1))
        first.close()
        second.close()
        queue = broker.queue(dialect.queue, bytes)
        eventually(lambda: not listener.stats.connections and queue.stats().stored)
        assert [len(message.body) for message in queue.peek(9)] == [_SHORT]

    # ------------------------------------------------------------------ connections

    def test_who_has_not_logged_in_puts_nothing(self, broker, dialect, monkeypatch):
        made: list[Any] = []
        connect = socket.create_connection

        def noted(*args: Any) -> socket.socket:
            made.append(connect(*args))  # closed below, whoever drops it
            return made[-1]

        monkeypatch.setattr(socket, "create_connection", noted)
        queue = broker.queue(dialect.queue)
        limits = NetLimits(login_s=0.3)
        try:
            listener = broker.listen(
                dialect.url, auth=lambda _: None, limits=limits, **dialect.options
            )
        except InvalidOption:
            return  # its clients cannot say who they are
        with suppress(Exception):  # however the protocol refuses it
            made.append(dialect.connect(listener))
            made[-1].put(b"x")
        assert queue.stats().stored == 0
        eventually(lambda: listener.stats.closed and not listener.stats.connections)
        assert queue.stats().stored == 0
        for each in made:
            each.close()

    @pytest.mark.parametrize("end", ["close", "reset"])
    def test_who_leaves_at_any_byte_of_a_frame_leaves_nothing(self, broker, listen, dialect, end):
        listener = listen()
        healthy = dialect.connect(listener)
        for size in range(len(dialect.fragment or b"")):
            caller = dialect.connect(listener)
            caller.socket.sendall(dialect.fragment[:size])
            if end == "close":
                caller.socket.close()
            else:
                reset(caller)
        eventually(lambda: listener.stats.connections == 1)
        if end == "reset" or not dialect.end_completes:
            assert broker.queue(dialect.queue).stats().stored == 0
            healthy.put(b"x")
            assert healthy.get() == b"x"
            healthy.settle()
        healthy.close()

    def test_who_shuts_its_side_is_let_go_and_what_it_put_is_kept(self, broker, listen, dialect):
        listener = listen()
        caller = dialect.connect(listener)
        caller.put(b"x")
        with suppress(OSError):  # where each request has a connection, it is over already
            caller.socket.shutdown(socket.SHUT_WR)
        assert is_cut(caller.socket)
        eventually(lambda: listener.stats.connections == 0)
        assert broker.queue(dialect.queue).stats().stored == 1
        caller.close()

    def test_who_reads_nothing_is_cut_and_holds_nothing_any_more(self, broker, listen, dialect):
        queue = broker.queue(dialect.queue)
        listener = listen(stall_s=0.2)
        caller = dialect.connect(listener)
        caller.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        queue.put(b"b" * _MUCH)
        caller.ask()
        eventually(lambda: listener.stats.counts.get("overdue stalled") == 1)
        eventually(lambda: not any(group.leased for group in queue.stats().groups))
        assert queue.stats().stored == 1
        caller.close()

    @pytest.mark.parametrize("end", ["close", "reset"])
    def test_what_a_client_holds_at_its_end_goes_to_the_next_at_once(
        self, broker, listen, dialect, end
    ):
        if not dialect.acks:
            return  # nothing is held
        listener = listen()
        first, second = dialect.connect(listener), dialect.connect(listener)
        first.put(b"mine")
        assert first.get() == b"mine"
        second.ask()
        if end == "close":
            first.close()
        else:
            reset(first)
        assert second.get() == b"mine"
        second.settle()
        second.close()

    def test_what_a_client_held_is_freed_at_its_end_and_not_when_python_looks_for_circles(
        self, listen, dialect, monkeypatch
    ):
        made: list[weakref.ref[object]] = []
        make_session = Site.make_session

        def noted(site: Site, connection: Connection) -> Session:
            session = make_session(site, connection)
            made.extend((weakref.ref(connection), weakref.ref(session)))
            return session

        monkeypatch.setattr(Site, "make_session", noted)
        caller = dialect.connect(listen())
        caller.put(b"x")
        assert caller.get() == b"x"
        with no_collector():
            reset(caller)
            eventually(lambda: made and not any(each() for each in made))

    def test_garbage_ends_its_own_connection_only(self, listen, dialect):
        listener = listen()
        healthy, hostile = dialect.connect(listener), dialect.connect(listener)
        hostile.socket.sendall(dialect.garbage)
        assert is_cut(hostile.socket)
        hostile.socket.close()
        healthy.put(b"still")
        assert healthy.get() == b"still"
        healthy.settle()
        healthy.close()

    def test_a_frame_that_never_ends_is_cut_at_its_deadline(self, listen, dialect):
        if dialect.fragment is None:
            return
        listener = listen(frame_s=0.05)
        slow = dialect.connect(listener)
        slow.socket.sendall(dialect.fragment)
        assert is_cut(slow.socket)
        slow.socket.close()
        eventually(lambda: listener.stats.counts.get("overdue frame_timeout") == 1)

    def test_more_connections_than_allowed_are_closed_at_once(self, listen, dialect):
        listener = listen(connections=1)
        first = dialect.connect(listener)
        # Where an orderly end means success it is reset, maybe while it still connects.
        with (
            suppress(ConnectionResetError),
            socket.create_connection(listener.address, PATIENCE_S) as second,
        ):
            assert is_cut(second)
        first.put(b"x")
        first.close()
        eventually(lambda: listener.stats.connections == 0)
        dialect.connect(listener).close()

    def test_a_stop_with_clients_ends_in_time_and_loses_nothing(self, tmp_path, dialect):
        with Broker(tmp_path / "again.db") as broker:
            queue = broker.queue(dialect.queue)
            callers = [
                dialect.connect(broker.listen(dialect.url, **dialect.options)) for _ in range(3)
            ]
            callers[0].put(b"x")
            if dialect.acks:
                assert callers[0].get() == b"x"
            callers[1].ask()
            del queue
        for caller in callers:
            assert is_cut(caller.socket)
            caller.socket.close()
        with Broker(tmp_path / "again.db") as broker:
            stored = broker.queue(dialect.queue).stats().stored
            assert stored == 1 if dialect.acks else stored in (0, 1)

    def test_connections_leave_nothing_behind(self, listen, dialect):
        listener = listen()

        def leaves_nothing() -> bool:
            before = len(list(Path("/proc/self/fd").iterdir()))
            for _ in range(20):
                caller = dialect.connect(listener)
                caller.put(b"x")
                caller.close()
            eventually(lambda: listener.stats.connections == 0)
            gc.collect()
            return len(list(Path("/proc/self/fd").iterdir())) <= before

        # What the broker opens once, perhaps only now, is not opened again; a leak is.
        eventually(leaves_nothing)
