"""A protocol of four requests on the port of transports: puts, deliveries, acks, disconnects."""

from __future__ import annotations

import socket
from typing import ClassVar

import pytest

from tests.conformance.transport_suite import PATIENCE_S, Dialect, TransportSuite
from tests.net.lines import LINES


class Client:
    def __init__(self, listener) -> None:
        self.socket = socket.create_connection(listener.address, PATIENCE_S)
        self._rest = b""
        self._asked = False
        self._held = ""

    def line(self) -> str:
        while b"\n" not in self._rest:
            data = self.socket.recv(65536)
            if not data:
                return ""
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        return line.decode()

    def say(self, text: str) -> str:
        self.socket.sendall(text.encode() + b"\n")
        return self.line()

    def put(self, body: bytes) -> None:
        assert self.say(f"PUT q {body.decode()}").startswith("STORED ")

    def ask(self) -> None:
        self.socket.sendall(b"GET q\n")
        self._asked = True

    def get(self) -> bytes:
        if not self._asked:
            self.ask()
        self._asked = False
        word, self._held, text = self.line().split(" ", 2)
        assert word == "MESSAGE"
        return text.encode()

    def settle(self) -> None:
        assert self.say(f"ACK {self._held}") == "OK"

    def close(self) -> None:
        self.socket.close()


class Lines(Dialect):
    url = "lines://127.0.0.1:0"
    options: ClassVar[dict[str, object]] = {"transport": LINES}
    garbage = b"HELLO?\n"
    fragment = b"PUT q "
    bodies = (b"", b"x", "Grüße".encode(), b"b" * 100_000)

    def connect(self, listener):
        return Client(listener)


class TestConformance(TransportSuite):
    @pytest.fixture
    def dialect(self):
        return Lines()
