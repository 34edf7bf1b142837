"""A client of TMQ, written from the published document and from what its programs do.

Knows: frames in both byte orders, the handshake, what stock clients of 2.8.5 put into each frame.
Does not know: embedq; it shares no code with it.

It is as strict as the originals: it reads eight bytes once and takes them for the whole preamble,
it drops what comes with no hop left, it leaves when it is told to; it never waits for the answer
to its Hello. `old`: a client of 2.0.1-beta, which writes the content type and the length of a
payload big-endian, reads that length little-endian, and dies when a header comes in pieces.
"""

from __future__ import annotations

import itertools
import select
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

PREAMBLE: Final = b"TMQ/1.01"
TERMINATE, PING, PONG = 0x08, 0x09, 0x0A
SERVER, CHANNEL, CLIENT, DELIVERY, RESPONSE = 0x10, 0x11, 0x12, 0x13, 0x14
HELLO, ACCEPTED, JOIN, LEAVE = 101, 202, 601, 602
CREATE_CHANNEL, REMOVE_CHANNEL = 603, 604
CREATE_QUEUE, REMOVE_QUEUE, UPDATE_QUEUE = 610, 611, 612
_MARKERS: Final = {253: 2, 254: 4, 255: 8}


@dataclass(frozen=True)
class Frame:
    """A frame. `ttl`: hops, as on the wire."""

    kind: int
    content: int = 0
    id: bytes = b""
    source: bytes = b""
    target: bytes = b""
    body: bytes = b""
    first: bool = False
    urgent: bool = False
    wants_response: bool = False
    wants_delivery: bool = False
    ttl: int = 16

    def bytes(self, order: Any = "little") -> bytes:
        """Return what is sent."""
        return b"".join(
            (
                bytes((self.kind | self.first << 7 | self.urgent << 6,)),
                bytes((self.ttl | self.wants_response << 7 | self.wants_delivery << 6,)),
                bytes(map(len, (self.id, self.source, self.target))),
                self.content.to_bytes(2, order),
                _length(len(self.body), order),
                self.id + self.source + self.target + self.body,
            )
        )


def _length(size: int, order: Any) -> bytes:
    if size < min(_MARKERS):
        return bytes((size,))
    for marker, count in _MARKERS.items():
        if size < 1 << 8 * count:
            return bytes((marker,)) + size.to_bytes(count, order)
    raise ValueError(size)


class Died(Exception):
    """What ends the original's client."""


class TmqClient:
    """One connection, through its handshake.

    `hello`: further lines, as in {"Client-Name": "bob"}. `waits`: it waits for the preamble of
    the server before its Hello, as the first program did. `says_source`: it names itself in its
    frames, as all but the oldest do.
    """

    def __init__(
        self,
        address: Any,
        id: str = "",
        *,
        hello: dict[str, str] | None = None,
        old: bool = False,
        waits: bool = False,
        says_source: bool = True,
        timeout: float = 30.0,
    ) -> None:
        self.order = "big" if old else "little"
        self.timeout = timeout
        self.id = id.encode()
        self.says_source = says_source
        self.inbox: deque[Frame] = deque()
        self._numbers = itertools.count(1)
        self.socket = socket.create_connection(address, timeout)
        self.socket.sendall(PREAMBLE)
        if waits:
            self._preamble()
        lines = {**(hello or {}), "Client-Id": id}
        text = "CONNECT /\r\n" + "".join(f"{key}: {value}\r\n" for key, value in lines.items())
        self.send(Frame(SERVER, HELLO, self.new_id(), self.source, body=text.encode(), first=True))
        if not waits:
            self._preamble()

    def _preamble(self) -> None:
        self._ready()
        answer = self.socket.recv(8)
        if answer != PREAMBLE:
            raise Died(f"the server answers {answer!r}")

    # --- what is sent --------------------------------------------------------------------------

    @property
    def source(self) -> bytes:
        """What its frames say of whom they are."""
        return self.id if self.says_source else b""

    def new_id(self) -> bytes:
        """A message id: 32 hexadecimal digits, as a GUID has."""
        return b"%032x" % next(self._numbers)

    def send(self, frame: Frame) -> None:
        """Send a frame."""
        self.socket.sendall(frame.bytes(self.order))

    def command(self, content: int, channel: str, body: bytes = b"") -> int:
        """Tell the server something and return the status that it answers."""
        id = self.new_id()
        self.send(
            Frame(SERVER, content, id, self.source, channel.encode(), body, wants_response=True)
        )
        return self.answer(id).content

    def join(self, channel: str) -> int:
        """Consume the queues of a channel from now on."""
        return self.command(JOIN, channel)

    def leave(self, channel: str) -> int:
        """Consume them no more."""
        return self.command(LEAVE, channel)

    def create(self, channel: str, queue: int, **options: object) -> int:
        """Make a queue: by its number alone, or with option lines."""
        if not options:
            return self.command(CREATE_QUEUE, channel, queue.to_bytes(2, "little"))
        return self.command(CREATE_QUEUE, channel, lines(content_type=queue, **options))

    def update(self, channel: str, queue: int, **options: object) -> int:
        """Change options of a queue."""
        return self.command(UPDATE_QUEUE, channel, lines(content_type=queue, **options))

    def pushing(self, channel: str, queue: int, body: bytes, **more: Any) -> Frame:
        """Return the frame of a message; `more` are its fields."""
        id = more.pop("id", None)
        id = self.new_id() if id is None else id
        return Frame(CHANNEL, queue, id, self.source, channel.encode(), body, **more)

    def push(self, channel: str, queue: int, body: bytes, **more: Any) -> bytes:
        """Put a message; return its id."""
        frame = self.pushing(channel, queue, body, **more)
        self.send(frame)
        return frame.id

    def put(self, channel: str, queue: int, body: bytes, **more: Any) -> bytes:
        """Put a message and wait for its Delivery."""
        id = self.push(channel, queue, body, wants_delivery=True, **more)
        self.delivery(id)
        return id

    def pull(self, channel: str, queue: int) -> Frame:
        """Ask for one message, and return what is answered."""
        return self.answer(self.push(channel, queue, b"", wants_response=True))

    def tell(self, client: str, content: int, body: bytes, **more: Any) -> bytes:
        """Send a message to another client; return its id."""
        id = more.pop("id", None)
        id = self.new_id() if id is None else id
        self.send(Frame(CLIENT, content, id, self.source, client.encode(), body, **more))
        return id

    def ack(self, got: Frame, **more: Any) -> None:
        """Acknowledge what was received, as 2.8.5 does."""
        peer = got.kind == CLIENT
        target = got.source if peer else got.target
        fields = {"first": got.first, "urgent": peer, **more}
        self.send(Frame(DELIVERY, got.content, got.id, self.source, target, **fields))

    def respond(self, got: Frame, content: int, body: bytes) -> None:
        """Answer a message: stock clients name the channel as the target, not the producer."""
        target = got.target if got.kind == CHANNEL else got.source
        self.send(Frame(RESPONSE, content, got.id, self.source, target, body, first=got.first))

    # --- what is read --------------------------------------------------------------------------

    def receive(self) -> Frame:
        """Wait for a frame that is not of the connection itself. Raises Died."""
        return self.inbox.popleft() if self.inbox else self._read()

    def message(self) -> Frame:
        """Wait for a message of a channel."""
        return self._wait(lambda frame: frame.kind == CHANNEL)

    def delivery(self, id: bytes) -> Frame:
        """Wait for the Delivery of a message."""
        return self._wait(lambda frame: (frame.kind, frame.id) == (DELIVERY, id))

    def answer(self, id: bytes) -> Frame:
        """Wait for the Response with an id."""
        return self._wait(lambda frame: (frame.kind, frame.id) == (RESPONSE, id))

    def accepted(self) -> bytes:
        """Wait for the answer to the Hello; return the id that it names."""
        frame = self._wait(lambda frame: frame.kind == SERVER)
        if frame.content != ACCEPTED:
            raise Died(f"the server answers {frame.content}")
        self.id = frame.target
        return self.id

    def _wait(self, wanted: Callable[[Frame], bool]) -> Frame:
        for frame in self.inbox:
            if wanted(frame):
                self.inbox.remove(frame)
                return frame
        while True:
            frame = self._read()
            if wanted(frame):
                return frame
            self.inbox.append(frame)

    def _read(self) -> Frame:
        while True:
            frame = self._frame()
            if not frame.ttl:
                continue
            if frame.kind == TERMINATE:
                raise Died("terminated")
            if frame.kind == PING:
                self.socket.sendall(b"\x8a\xff" + bytes(6))
            elif frame.kind != PONG:
                return frame

    def _frame(self) -> Frame:
        head = self._exactly(8)
        size = head[7]
        if size in _MARKERS:
            size = int.from_bytes(self._exactly(_MARKERS[size]), "little")
        id, source, target = (self._exactly(count) for count in head[2:5])
        return Frame(
            head[0] & 0x3F,
            int.from_bytes(head[5:7], self.order),  # type: ignore[arg-type]
            id,
            source,
            target,
            self._exactly(size),
            bool(head[0] & 0x80),
            bool(head[0] & 0x40),
            bool(head[1] & 0x80),
            bool(head[1] & 0x40),
            head[1] & 0x3F,
        )

    def _exactly(self, count: int) -> bytes:
        parts = []
        while count:
            self._ready()
            part = self.socket.recv(count)
            if not part:
                raise Died("disconnected")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _ready(self) -> None:
        if not select.select([self.socket], [], [], self.timeout)[0]:
            raise Died("nothing came")

    def hears_nothing(self, seconds: float = 0.2) -> bool:
        """Whether nothing comes for a while, not even the end."""
        return not self.inbox and not select.select([self.socket], [], [], seconds)[0]

    def is_closed(self) -> bool:
        """Wait for the end; whatever else comes is an error."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        """Close as stock clients do: a Terminate, then the socket."""
        with suppress(OSError):  # it may be gone already
            self.send(Frame(TERMINATE, id=self.new_id(), source=self.source))
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


def lines(**options: object) -> bytes:
    """Return option lines: queue_status="push" is Queue-Status: push."""
    texts = []
    for name, value in options.items():
        key = "-".join(part.capitalize() for part in name.split("_"))
        texts.append(f"{key}: {int(value) if isinstance(value, bool) else value}\r\n")
    return "".join(texts).encode()
