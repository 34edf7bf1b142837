"""Clients of zbus on real sockets: a WebSocket, and HTTP as it is written."""

from __future__ import annotations

import json
import socket
from typing import Any, NamedTuple

from websockets.frames import Frame, Opcode
from websockets.protocol import CLIENT, Protocol

from tests.conformance.transport_suite import dial
from tests.transports.zbus.frames_of import UPGRADE, frame


class Response(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes
    raw: bytes


class Http:
    """One connection; requests are written as they are, responses read one by one."""

    def __init__(self, listener) -> None:
        self.socket: socket.socket = dial(listener)
        self.rest = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def request(self, body: bytes = b"", *, path: str = "/", **headers: str) -> None:
        lines = [f"POST {path} HTTP/1.1", "Host: localhost"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        lines.append(f"Content-Length: {len(body)}")
        self.send(("\r\n".join(lines) + "\r\n\r\n").encode() + body)

    def read(self, size: int) -> bytes:
        while len(self.rest) < size:
            data = self.socket.recv(65_536)
            if not data:
                raise EOFError(f"the connection ended behind {self.rest!r}")
            self.rest += data
        data, self.rest = self.rest[:size], self.rest[size:]
        return data

    def until(self, mark: bytes) -> bytes:
        while mark not in self.rest:
            self.read_more()
        return self.read(self.rest.index(mark) + len(mark))

    def read_more(self) -> None:
        data = self.socket.recv(65_536)
        if not data:
            raise EOFError(f"the connection ended behind {self.rest!r}")
        self.rest += data

    def response(self, *, bare: bool = False) -> Response:
        head = self.until(b"\r\n\r\n")
        first, *lines = head.decode().rstrip("\r\n").split("\r\n")
        headers = {}
        for line in lines:
            name, _, value = line.partition(": ")
            headers[name.lower()] = value
        body = b"" if bare else self.read(int(headers.get("content-length", "0")))
        return Response(int(first.split(" ")[1]), headers, body, head + body)

    def query(self, body: bytes = b"", **headers: str) -> Response:
        """Ask and return the response."""
        self.request(body, **headers)
        return self.response()

    def close(self) -> None:
        self.socket.close()


class Ws(Http):
    """A WebSocket, opened as clients of the original do."""

    def __init__(self, listener, upgrade: bytes = UPGRADE) -> None:
        super().__init__(listener)
        self.send(upgrade)
        assert self.until(b"\r\n\r\n").startswith(b"HTTP/1.1 101 ")
        self._protocol = Protocol(CLIENT, max_size=None)
        self._frames: list[Frame] = []

    def say(self, body: object = None, **headers: Any) -> None:
        self.tell({"headers": headers, "body": body})

    def tell(self, message: object) -> None:
        self.send(frame(json.dumps(message, ensure_ascii=False)))

    def frame(self) -> Frame:
        """Return the next frame, whatever it is."""
        while not self._frames:
            if not self.rest:
                self.read_more()
            self._protocol.receive_data(self.rest)
            self.rest = b""
            found = self._protocol.events_received()
            self._frames += [each for each in found if isinstance(each, Frame)]
        return self._frames.pop(0)

    def next(self) -> Any:
        """Return the next message."""
        found = self.frame()
        assert found.opcode is Opcode.TEXT, found
        return json.loads(bytes(found.data))

    def do(self, body: object = None, **headers: Any) -> Any:
        """Ask and return the answer."""
        self.say(body, **headers)
        return self.next()
