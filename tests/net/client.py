"""A client of the protocol of the guide."""

from __future__ import annotations

import ssl

from tests.conformance.transport_suite import dial


class Client:
    def __init__(self, listener, context: ssl.SSLContext | None = None) -> None:
        self.socket = dial(listener)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
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
