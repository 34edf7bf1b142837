"""The TMQ wire: bytes in, events out, for either end of a connection.

Knows: the preamble, the byte order told from the Hello, where frames begin and end, which frames
every reader drops. Does not know: clients, channels, tokens, or what an event sets off.
"""

from abc import ABC, abstractmethod
from enum import StrEnum
from typing import Final, Literal

import msgspec

from embedq_transports.tmq.frames import (
    BIG_CLIENT,
    BIG_SERVER,
    HEADER_BYTES,
    LITTLE,
    PREAMBLE,
    Content,
    Dialect,
    Frame,
    Header,
    Kind,
    Order,
    encode_frame,
    header_bytes,
    read_frame,
    read_header,
)
from embedq_transports.tmq.hello import Hello, read_hello
from embedq_transports.tmq.limits import TMQ_LIMITS, TmqLimits

# Frames a server acts upon; the rest is dropped and counted (docs/protocols/tmq.md, Types).
_KNOWN: Final = frozenset(Kind) - {Kind.OTHER, Kind.REDIRECT}
_FAMILY: Final = len(b"TMQ")


class FaultCode(StrEnum):
    """Why a connection cannot go on."""

    BAD_PREAMBLE = "bad_preamble"
    OTHER_VERSION = "other_version"
    NOT_HELLO = "not_hello"
    TOO_LARGE = "too_large"
    TRUNCATED = "truncated"


class Greeted(msgspec.Struct, frozen=True):
    """The other end's preamble is right. A server answers PREAMBLE at once, in one write."""


class LoggedIn(msgspec.Struct, frozen=True):
    """The Hello: `frame` is the frame that carried it."""

    hello: Hello
    frame: Frame

    @property
    def client_id(self) -> bytes:
        """The id the client asks for: its Client-Id, else the frame's source, else b""."""
        return self.hello.client_id or self.frame.source


class Received(msgspec.Struct, frozen=True, gc=False):
    """A frame to act upon."""

    frame: Frame


class Dropped(msgspec.Struct, frozen=True, gc=False):
    """A frame that every server passes over in silence: `reason` is for a counter."""

    frame: Frame
    reason: Literal["ttl", "type"]


class Fault(msgspec.Struct, frozen=True):
    """The last event: write `answer` (often nothing), or tell of `status`; then close.

    A status is what `answers.status_for` makes a frame of for `request`, which is what cannot be
    read, without its payload; before the login there is none, and `answers.refused` does it.
    Whoever has the connection makes the frame: the wire knows neither ids nor who the client is.
    """

    code: FaultCode
    text: str
    answer: bytes = b""
    status: int = 0
    request: Frame | None = None


Event = Greeted | LoggedIn | Received | Dropped | Fault


class _Oversize(msgspec.Struct, frozen=True):
    """A frame whose payload is above the limit: its header and ids only."""

    frame: Frame
    payload: int


class _Frames:
    """A stream cut into frames. It looks at a frame three times at most, however it arrives."""

    def __init__(self, dialect: Dialect, payload_bytes: int) -> None:
        self.dialect = dialect
        self.payload_bytes = payload_bytes
        self.buffer = bytearray()
        self.at = 0
        self._header: Header | None = None
        self._need = HEADER_BYTES

    @property
    def waiting(self) -> int:
        """Bytes that are here and not used."""
        return len(self.buffer) - self.at

    def compact(self, *, keep: bool) -> None:
        """Give back the memory of what was used, or of everything."""
        if not keep:
            self.buffer = bytearray()
        elif self.at:
            del self.buffer[: self.at]
        self.at = 0

    def next(self) -> Frame | _Oversize | None:
        """Return the next frame, or None when bytes are missing."""
        while self.waiting >= self._need:
            header = self._header
            if header is None:
                size = header_bytes(self.buffer, self.at)
                if self.waiting < size:
                    self._need = size
                    return None
                self._header = header = read_header(self.buffer, self.at, self.dialect)
                # Checked before a byte of the payload is kept; the ids are needed to answer.
                fits = header.payload <= self.payload_bytes
                self._need = header.ids_end + (header.payload if fits else 0)
                continue
            fits = header.payload <= self.payload_bytes
            frame = read_frame(header, self.buffer, self.at, payload=fits)
            self.at += self._need
            self._header, self._need = None, HEADER_BYTES
            return frame if fits else _Oversize(frame, header.payload)
        return None


class _Wire(ABC):
    """What both ends share: the preamble, the frames, the end."""

    def __init__(self, dialect: Dialect, payload_bytes: int) -> None:
        self._frames = _Frames(dialect, payload_bytes)
        self._greeted = False
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether a Fault was given: bytes that still come are thrown away."""
        return self._closed

    @property
    def pending(self) -> bool:
        """Whether a frame, or the preamble, has begun and not ended."""
        return self._frames.waiting > 0

    @property
    def dialect(self) -> Dialect:
        """The byte orders of this connection."""
        return self._frames.dialect

    def encode(self, frame: Frame) -> bytes:
        """Return the bytes of a frame for this connection; raises LimitExceeded."""
        return encode_frame(frame, self._frames.dialect)

    def feed(self, data: bytes | bytearray | memoryview) -> list[Event]:
        """Take bytes as they arrive and return what they complete; never raises for content."""
        if self._closed:
            return []
        frames = self._frames
        frames.buffer += data
        events: list[Event] = []
        if self._greeted or self._greet(events):
            self._read(events)
        frames.compact(keep=not self.closed)
        return events

    def end(self) -> list[Event]:
        """Tell that no more bytes will come; what is left of a frame is a Fault."""
        if self._closed or not self._frames.waiting:
            return []
        self._closed = True
        text = f"the connection ended within a frame, after {self._frames.waiting} bytes of it"
        return [Fault(FaultCode.TRUNCATED, text)]

    def _fault(
        self,
        code: FaultCode,
        text: str,
        answer: bytes = b"",
        *,
        status: int = 0,
        request: Frame | None = None,
    ) -> Fault:
        self._closed = True
        return Fault(code, text, answer, status, request)

    def _greet(self, events: list[Event]) -> bool:
        frames = self._frames
        given = bytes(frames.buffer[: len(PREAMBLE)])
        same = len(PREAMBLE)
        for index, byte in enumerate(given):
            if byte != PREAMBLE[index]:
                same = index
                break
        if same < len(PREAMBLE):
            events.append(self._wrong_preamble(same))
            return False
        if len(given) < len(PREAMBLE):
            return False
        frames.at = len(PREAMBLE)
        self._greeted = True
        events.append(Greeted())
        return True

    def _wrong_preamble(self, same: int) -> Fault:
        # Another version is told ours; another protocol is told nothing.
        if same >= _FAMILY:
            text = "the other end speaks a version of TMQ other than 1.01"
            return self._fault(FaultCode.OTHER_VERSION, text, self._version_answer())
        text = "the first bytes are no TMQ preamble"
        return self._fault(FaultCode.BAD_PREAMBLE, text)

    def _version_answer(self) -> bytes:
        return b""

    def _too_large(self, found: _Oversize, status: int = 0, request: Frame | None = None) -> Fault:
        most = self._frames.payload_bytes
        text = f"a payload of {found.payload} bytes is announced, more than {most}"
        return self._fault(FaultCode.TOO_LARGE, text, status=status, request=request)

    @abstractmethod
    def _read(self, events: list[Event]) -> None:
        """Add what the frames say, behind the preamble."""


class ServerWire(_Wire):
    """The server's end: reads a preamble, a Hello, then frames.

    `order` "auto" tells the byte order from the Hello, whose content type is 101: bytes 65 00
    are little-endian, 00 65 big-endian.
    """

    def __init__(
        self,
        limits: TmqLimits = TMQ_LIMITS,
        *,
        order: Literal["auto", "little", "big"] = "auto",
    ) -> None:
        super().__init__(BIG_SERVER if order == "big" else LITTLE, limits.hello_bytes)
        self._limits = limits
        self._auto = order == "auto"
        self._checked = False
        self._logged_in = False

    def _version_answer(self) -> bytes:
        return PREAMBLE

    def _read(self, events: list[Event]) -> None:
        frames = self._frames
        if not self._logged_in and not self._log_in(events):
            return
        while (found := frames.next()) is not None:
            if isinstance(found, _Oversize):
                events.append(self._too_large(found, Content.LIMIT_EXCEEDED, found.frame))
                return
            if not found.ttl:
                events.append(Dropped(found, "ttl"))
            elif found.kind in _KNOWN:
                events.append(Received(found))
            else:
                events.append(Dropped(found, "type"))

    def _log_in(self, events: list[Event]) -> bool:
        frames = self._frames
        if not self._checked:
            if frames.waiting < HEADER_BYTES:
                return False
            self._checked = True
            if not self._is_hello(bytes(frames.buffer[frames.at : frames.at + HEADER_BYTES])):
                text = "the first frame is not a Hello"
                status = Content.BAD_REQUEST
                events.append(self._fault(FaultCode.NOT_HELLO, text, status=status))
                return False
        found = frames.next()
        if found is None:
            return False
        if isinstance(found, _Oversize):
            events.append(self._too_large(found, Content.BAD_REQUEST))
            return False
        self._logged_in = True
        frames.payload_bytes = self._limits.payload_bytes
        events.append(LoggedIn(read_hello(found.payload), found))
        return True

    def _is_hello(self, head: bytes) -> bool:
        if self._auto and int.from_bytes(head[5:7], "big") == Content.HELLO:
            self._frames.dialect = BIG_SERVER
        header = read_header(head[:7] + b"\0", 0, self._frames.dialect)
        return (
            header.kind == Kind.SERVER and header.content_type == Content.HELLO and header.ttl > 0
        )


class ClientWire(_Wire):
    """The client's end: reads a preamble, then frames; unknown types are received, too."""

    def __init__(self, limits: TmqLimits = TMQ_LIMITS, *, order: Order = "little") -> None:
        super().__init__(BIG_CLIENT if order == "big" else LITTLE, limits.payload_bytes)

    def _read(self, events: list[Event]) -> None:
        while (found := self._frames.next()) is not None:
            if isinstance(found, _Oversize):
                events.append(self._too_large(found))
                return
            events.append(Received(found) if found.ttl else Dropped(found, "ttl"))
