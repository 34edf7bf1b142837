"""MMQP keeps what every transport keeps."""

from __future__ import annotations

import socket
import time

import pytest

from embedq.app.listeners import BrokerListener
from tests.conformance.transport_suite import PATIENCE_S, Dialect, TransportSuite
from tests.interop.mmqp_client import Mack, Poller, messages


class MmqpCaller:
    """A client that is connected before it asks, and again for every further request."""

    def __init__(self, address) -> None:
        self.sender = Mack(address)
        self.poller = Poller(address)
        self.socket = self._connect()
        self.is_fresh = True

    def _connect(self) -> socket.socket:
        return socket.create_connection(self.sender.address, PATIENCE_S)

    def _send(self, request: bytes) -> None:
        if not self.is_fresh:
            self.socket.close()
            self.socket = self._connect()
        self.is_fresh = False
        self.socket.sendall(request)

    def _read(self) -> bytes:
        parts = []
        while part := self.socket.recv(65_536):
            parts.append(part)
        return b"".join(parts)

    def put(self, body: bytes) -> None:
        self._send(self.sender.request("q", body.decode(), "main"))
        assert self._read() == b""

    def ask(self) -> None:
        self._send(self.poller.head(b"P", "q") + bytes([1]))

    def get(self) -> bytes:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            self.ask()
            if found := messages(self._read()):
                return found[0].body.encode()
        raise AssertionError("no message came")

    def settle(self) -> None:
        """Nothing: what has been sent is settled."""

    def close(self) -> None:
        self.socket.close()


class MmqpDialect(Dialect):
    url = "mmqp://127.0.0.1:0"
    acks = False
    end_completes = True  # of an M without a group
    fragment = Mack(("", 0)).request("q", "hello")[:-3]
    bodies = (b"", b"x", b"\0\r\n|:", "Grüße".encode(), b"b" * 100_000)

    def connect(self, listener: BrokerListener) -> MmqpCaller:
        return MmqpCaller(listener.address)


class TestConformance(TransportSuite):
    @pytest.fixture
    def dialect(self) -> Dialect:
        return MmqpDialect()
