"""A client of zbus on a WebSocket, as those of the original speak: JSON, bytes as base64."""

from __future__ import annotations

import base64
import json
import socket
from typing import Any, Final

from websockets.frames import Frame, Opcode
from websockets.protocol import CLIENT, Protocol

BYTES: Final = "application/octet-stream"
_UPGRADE: Final = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class ZbusClient:
    """One connection. Calls wait for their answer, at most `timeout` seconds."""

    def __init__(self, address: Any, timeout: float) -> None:
        self.socket = socket.create_connection(address, timeout)
        self.socket.sendall(_UPGRADE)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = self.socket.recv(1)
            assert byte, head
            head += byte
        assert head.startswith(b"HTTP/1.1 101 "), head
        self._protocol = Protocol(CLIENT, max_size=None)
        self._frames: list[Frame] = []

    def say(self, body: object = None, **headers: Any) -> None:
        """Send a message."""
        text = json.dumps({"headers": headers, "body": body}, ensure_ascii=False)
        self.socket.sendall(Frame(Opcode.TEXT, text.encode()).serialize(mask=True))

    def next(self) -> dict[str, Any]:
        """Return the next message."""
        while not self._frames:
            data = self.socket.recv(65_536)
            assert data, "the connection has ended"
            self._protocol.receive_data(data)
            found = self._protocol.events_received()
            self._frames += [each for each in found if isinstance(each, Frame)]
        message: dict[str, Any] = json.loads(bytes(self._frames.pop(0).data))
        return message

    def ask(self, body: object = None, **headers: Any) -> dict[str, Any]:
        """Send a message and return its answer."""
        self.say(body, **headers)
        return self.next()

    def put(self, mq: str, body: bytes) -> dict[str, Any]:
        """Put bytes."""
        text = base64.b64encode(body).decode()
        return self.ask(text, **{"cmd": "pub", "mq": mq, "Content-Type": BYTES})

    @staticmethod
    def body(message: dict[str, Any]) -> bytes:
        """Return a body: of bytes it is base64, of text the text."""
        text = message["body"]
        if text is None:
            return b""
        assert isinstance(text, str), message
        is_bytes = message["headers"].get("Content-Type") == BYTES
        return base64.b64decode(text) if is_bytes else text.encode()

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()
