"""The WebSocket of a zbus connection: its handshake, then messages out of frames.

Knows: websockets, whose part without I/O reads frames; the limits it does not know.
Does not know: JSON, commands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from websockets.frames import Close, CloseCode, Frame, Opcode
from websockets.protocol import SERVER, Protocol, State
from websockets.utils import accept_key

from embedq_transports.zbus.http import refusal
from embedq_transports.zbus.limits import ZbusLimits
from embedq_transports.zbus.message import Ended, Fault, Opened, Write

_VERSION: Final = b"13"
#: Bytes of a Sec-WebSocket-Key: 16 in base64.
_KEY_BYTES: Final = 24
#: Lengths above which a frame has two or eight bytes more for it.
_SHORT, _MIDDLE = 125, 65_535
#: What every frame of a client begins with: two bytes and the mask.
_LEAST: Final = 6
#: The first byte of a close.
_CLOSE: Final = b"\x88"


def is_websocket(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether a request that wants to upgrade wants this."""
    wanted = (value for name, value in headers if name.lower() == b"upgrade")
    return any(b"websocket" in (token.strip().lower() for token in v.split(b",")) for v in wanted)


def handshake(
    method: str, headers: Sequence[tuple[bytes, bytes]], extra: Mapping[str, str]
) -> Opened | Fault:
    """Answer the wish for a WebSocket. `extra`: headers that the answer gets beside its own."""
    named = {name.lower(): value.strip() for name, value in headers}
    key = named.get(b"sec-websocket-key", b"")
    if named.get(b"sec-websocket-version") != _VERSION:
        answer = refusal(426, "version 13 is spoken here", "sec-websocket-version: 13")
        return Fault("handshake", "a version of WebSocket that is not 13", answer)
    if method != "GET" or len(key) != _KEY_BYTES:
        text = "a WebSocket begins with GET and a key"
        return Fault("handshake", text, refusal(400, text))
    lines = [
        "HTTP/1.1 101 Switching Protocols",
        "upgrade: websocket",
        "connection: upgrade",
        f"sec-websocket-accept: {accept_key(key.decode('latin-1'))}",
        *(f"{name}: {value}" for name, value in extra.items()),
    ]
    return Opened(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))


class FrameReader:
    """Reads messages; pings are answered, a close is echoed. After Fault or Ended no more."""

    def __init__(self, limits: ZbusLimits) -> None:
        self._protocol = Protocol(SERVER, max_size=limits.frame_bytes)
        self._limits = limits
        self._parts: list[bytes] = []
        self._in_message = False
        self._unread = 0
        #: Nothing more is read.
        self.closed = False

    @property
    def pending(self) -> bool:
        """Whether a message has begun and is not complete."""
        return not self.closed and (self._in_message or self._unread > 0)

    def feed(self, data: bytes) -> list[bytes | Write | Fault | Ended]:
        """Return what the bytes complete; a message is its bytes."""
        out: list[bytes | Write | Fault | Ended] = []
        if self.closed:
            return out
        protocol = self._protocol
        protocol.receive_data(data)
        self._unread += len(data)
        for frame in protocol.events_received():
            if isinstance(frame, Frame):
                self._unread -= _size(len(frame.data))
                self._take(frame, out)
        # Its pongs come behind all messages of these bytes; ours are where the pings were.
        owed = b"".join(each for each in protocol.data_to_send() if each[:1] == _CLOSE)
        if any(isinstance(each, Fault) for each in out) or protocol.state is State.OPEN:
            return out
        self.closed = True
        error = protocol.parser_exc
        if protocol.close_rcvd is not None and error is None:
            out.append(Ended(owed))
        else:
            too_large = (
                protocol.close_sent and protocol.close_sent.code == CloseCode.MESSAGE_TOO_BIG
            )
            out.append(Fault("too_large" if too_large else "frame", str(error), owed))
        return out

    def _take(self, frame: Frame, out: list[bytes | Write | Fault | Ended]) -> None:
        if frame.opcode is Opcode.PING and not self.closed:
            out.append(Write(Frame(Opcode.PONG, bytes(frame.data)).serialize(mask=False)))
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT) or self.closed:
            return
        self._parts.append(bytes(frame.data))
        self._in_message = not frame.fin
        if frame.fin:
            out.append(b"".join(self._parts))
            self._parts = []
        elif len(self._parts) > self._limits.fragments:
            self.closed = True
            self._parts = []
            out.append(Fault("too_large", "too many fragments", close_frame(1009)))


def _size(length: int) -> int:
    """Return how many bytes a client's frame of this payload has."""
    extra = 0 if length <= _SHORT else 2 if length <= _MIDDLE else 8
    return _LEAST + extra + length


def text_frame(payload: bytes) -> bytes:
    """Return a text frame of a server."""
    return Frame(Opcode.TEXT, payload).serialize(mask=False)


def close_frame(code: int) -> bytes:
    """Return a close frame of a server."""
    return Frame(Opcode.CLOSE, Close(code, "").serialize()).serialize(mask=False)
