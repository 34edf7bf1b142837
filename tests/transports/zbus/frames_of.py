"""What a client writes on a WebSocket, and how it reads what comes back."""

from __future__ import annotations

import json
from typing import Any

from websockets.frames import Frame, Opcode
from websockets.protocol import CLIENT, Protocol

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
UPGRADE = (
    "GET /any/path HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    f"Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n\r\n"
).encode()


def frame(payload: str | bytes, opcode: Opcode = Opcode.TEXT, *, fin: bool = True) -> bytes:
    data = payload.encode() if isinstance(payload, str) else payload
    return Frame(opcode, data, fin).serialize(mask=True)


def message(**members: Any) -> bytes:
    return frame(json.dumps(members, ensure_ascii=False))


class Reader:
    """Reads what a server sends on a WebSocket."""

    def __init__(self) -> None:
        self._protocol = Protocol(CLIENT, max_size=None)

    def feed(self, data: bytes) -> list[Frame]:
        self._protocol.receive_data(data)
        return [each for each in self._protocol.events_received() if isinstance(each, Frame)]

    def fault(self) -> str | None:
        """Return what is wrong with what has come."""
        error = self._protocol.parser_exc
        return None if error is None or self._protocol.close_rcvd is not None else repr(error)
