"""What clients of zbus write and read, as bytes: requests of HTTP, frames of WebSockets.

Knows: the upgrade, masked frames, `pub` and `sub`, when a window is opened again.
Does not know: sockets (bench_listener_client.py), embedq: nothing is shared with its wire.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

#: Messages that a subscriber may be pushed; at half of it the window is opened again.
WINDOW: Final = 100
_MASK: Final = b"\x37\xfa\x21\x3d"
_TEXT, _MASKED, _LONG, _LONGER = 0x81, 0x80, 126, 127
_SHORT, _MIDDLE = 125, 65_535
_END: Final = b"\r\n\r\n"
_LEFT: Final = re.compile(rb'"window":"(\d+)"')

UPGRADE: Final = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def frame(payload: bytes) -> bytes:
    """Return a text frame as clients write it."""
    size = len(payload)
    if size <= _SHORT:
        head = bytes((_TEXT, _MASKED | size))
    else:
        head = bytes((_TEXT, _MASKED | _LONG)) + size.to_bytes(2, "big")
    masks = _MASK * (size // len(_MASK) + 1)
    return head + _MASK + bytes(one ^ mask for one, mask in zip(payload, masks, strict=False))


def say(body: str | None = None, **headers: Any) -> bytes:  # noqa: ANN401  # as JSON is
    """Return a message for a WebSocket."""
    return frame(json.dumps({"headers": headers, "body": body}).encode())


def request(body: bytes, **headers: str) -> bytes:
    """Return a message as a request of HTTP."""
    lines = ["POST / HTTP/1.1", "Host: 127.0.0.1", "Content-Type: text/plain"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


class Frames:
    """Reads what a server writes: the answer to the upgrade, then frames."""

    def __init__(self) -> None:
        self._data = b""
        self._is_open = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the payloads that are complete."""
        data = self._data + data
        at, found = 0, []
        if not self._is_open:
            at = data.find(_END) + len(_END)
            if at < len(_END):
                self._data = data
                return []
            self._is_open = True
        while (ends := _payload(data, at)) is not None and ends[1] <= len(data):
            found.append(data[slice(*ends)])
            at = ends[1]
        self._data = data[at:]
        return found


def _payload(data: bytes, at: int) -> tuple[int, int] | None:
    """Return where the payload of a frame begins and ends, once its head is there."""
    if len(data) < at + 2:
        return None
    size, begin = data[at + 1], at + 2
    if size in (_LONG, _LONGER):
        more = 2 if size == _LONG else 8
        if len(data) < begin + more:
            return None
        size, begin = int.from_bytes(data[begin : begin + more], "big"), begin + more
    return begin, begin + size


class Subscriber:
    """Opens a WebSocket and subscribes; what has left for it is settled."""

    once = False
    #: What has not left for it when it goes is given back.
    waits = False

    def __init__(self, mq: str, channel: str) -> None:
        where: dict[str, Any] = {"cmd": "sub", "mq": mq, "channel": channel, "window": WINDOW}
        self._subscribe = say(**where, id="1")
        self._again = say(**where, ack=False)
        self._frames = Frames()
        self._asked = False

    def begin(self) -> bytes:
        """Open the WebSocket and the window."""
        return UPGRADE + self._subscribe

    def came(self, data: bytes, *, over: bool) -> bytes:
        """Take pushes in; open the window again at half of it, unless time is over."""
        left = WINDOW
        for push in self._frames.feed(data):
            told = _LEFT.search(push)
            left = int(told[1]) if told else left
            if left > WINDOW // 2:
                self._asked = False
        if over or self._asked or left > WINDOW // 2:
            return b""
        self._asked = True
        return self._again


class Echoed:
    """Has as many messages on their way as a window holds; each that comes back goes again."""

    once = False
    #: Nobody misses what is on its way at the end.
    waits = False

    def __init__(self, message: bytes) -> None:
        self._message = message
        self._frames = Frames()

    def begin(self) -> bytes:
        """Open the WebSocket and fill the window."""
        return UPGRADE + self._message * WINDOW

    def came(self, data: bytes, *, over: bool) -> bytes:
        """Say again what has come."""
        count = len(self._frames.feed(data))
        return b"" if over else self._message * count
