"""SSPQ on the wire: packets of an eight-byte header and a payload, in both directions.

Knows: the layout, the types of each side, the retry byte, what may not be read any further.
Does not know: queues, who holds a message, when an answer is due, sockets and clocks.

Bytes go in through `feed`, frozen events come out; the same values are the commands of
`encode`. Numbers in brackets, as in (2), are the sections of docs/protocols/sspq.md.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

import msgspec

from embedq.errors import InvalidOption, LimitExceeded
from embedq.limits import LIMITS, MIB

MAGIC: Final = b"\x55\x99"
HEADER_BYTES: Final = 8

#: The retry byte that is never counted down (3).
ENDLESS: Final = 255

#: What the library and the command line of the original send when told nothing (3).
USUAL_RETRIES: Final = 3

# Magic, type, retries, size: the size is the only field of several bytes, most significant
# first (1).
_HEADER: Final = struct.Struct(">2sBBI")
_LARGEST_SIZE: Final = 0xFFFF_FFFF
_LARGEST_BYTE: Final = 0xFF
_SEND: Final = 0x5E  # a plain number: a member of an enumeration costs a call in Python 3.11
_EVIDENCE_BYTES: Final = 64


class PacketType(IntEnum):
    """The types that have a meaning (2).

    0xFF is no type: the original calls so, inside, what it does not know. 0x90 and 0x91 were a
    ping and its answer in the first versions, without behaviour, and stay unused.
    """

    SEND = _SEND
    RECEIVE = 0xEC
    CONFIRM = 0xC0
    DEAD_RECEIVE = 0xDE
    NO_RECEIVE = 0x0E


@dataclass(frozen=True, slots=True)
class WireLimits:
    """Bounds of one connection. Each comment is `unit: reason`."""

    #: bytes: one payload, also one that is thrown away. Memory is taken as bytes arrive.
    payload_bytes: int = LIMITS.body_bytes


WIRE_LIMITS: Final = WireLimits()


class FaultCode(StrEnum):
    """Why a stream cannot be read any further (5)."""

    MAGIC = "magic"
    SIZE = "size"
    TRUNCATED = "truncated"


class Send(msgspec.Struct, frozen=True, gc=False):
    """A message: put by a client, or delivered by a server, with the tries left after this one."""

    payload: bytes
    retries: int = USUAL_RETRIES


class Receive(msgspec.Struct, frozen=True, gc=False):
    """The client wants the next message of the queue."""


class Confirm(msgspec.Struct, frozen=True, gc=False):
    """The client is done with the message it holds, whichever queue that came from."""


class DeadReceive(msgspec.Struct, frozen=True, gc=False):
    """The client wants the next dead letter."""


class NoReceive(msgspec.Struct, frozen=True, gc=False):
    """The server will not answer the request with a message; never said of an empty queue."""


class Unknown(msgspec.Struct, frozen=True, gc=False):
    """A packet of a type that this side never sends. It was skipped: note it and go on (5)."""

    type: int
    size: int


class Fault(msgspec.Struct, frozen=True, gc=False):
    """The last event of a stream that breaks the rules: settle what came before, then close.

    `offset`: of the packet at fault, counted from the first byte of the connection.
    """

    code: FaultCode
    offset: int
    text: str


Packet = Send | Receive | Confirm | DeadReceive | NoReceive
Event = Packet | Unknown | Fault

# Payload and retry byte mean something in a SEND only; elsewhere they are read and dropped (2).
_FROM_CLIENT: Final[dict[int, Packet]] = {
    PacketType.RECEIVE: Receive(),
    PacketType.CONFIRM: Confirm(),
    PacketType.DEAD_RECEIVE: DeadReceive(),
}
_FROM_SERVER: Final[dict[int, Packet]] = {PacketType.NO_RECEIVE: NoReceive()}
_TYPE: Final[dict[type[Packet], PacketType]] = {
    Receive: PacketType.RECEIVE,
    Confirm: PacketType.CONFIRM,
    DeadReceive: PacketType.DEAD_RECEIVE,
    NoReceive: PacketType.NO_RECEIVE,
}


class Wire:
    """Reads the bytes of one side of one connection. Holds at most one incomplete packet.

    However the bytes are cut, the events are the same, and the work is linear in the bytes.
    """

    def __init__(self, expected: dict[int, Packet], limits: WireLimits) -> None:
        """Read SEND and the `expected` types; every other type is unknown (2)."""
        self._expected = expected
        self._limit = limits.payload_bytes
        self._rest = bytearray()
        self._need = 1
        self._offset = 0
        self._skip = self._skip_start = 0
        self._skipped: Event = Unknown(0, 0)
        self._closed = False
        self._evidence = b""

    @property
    def pending(self) -> bool:
        """Whether a packet has begun and is not complete: for frame deadlines."""
        return bool(self._rest) or self._skip > 0

    @property
    def closed(self) -> bool:
        """Whether the stream has ended, by `end` or by a fault."""
        return self._closed

    @property
    def evidence(self) -> bytes:
        """What had arrived of the packet at fault, at most 64 bytes: for the log."""
        return self._evidence

    def feed(self, data: bytes | bytearray | memoryview) -> list[Event]:
        """Take the next bytes and return what they complete. Raises nothing.

        After a `Fault` all further bytes are ignored: there is no way to find the next packet.
        """
        data = bytes(data)
        if self._closed or not data:
            return []
        events: list[Event] = []
        if self._skip:
            data = self._go_on_skipping(data, events)
        if self._rest:
            self._rest += data
            if len(self._rest) < self._need:
                return events
            data, self._rest = bytes(self._rest), bytearray()
        position = self._read(data, events)
        self._offset += position
        if not self._closed:
            self._rest += data[position:]
        return events

    def end(self) -> list[Event]:
        """Say that no more bytes come: a packet that began is dropped, as a `Fault` (5)."""
        if self._closed:
            return []
        events: list[Event] = []
        if self.pending:
            self._evidence = bytes(self._rest[:_EVIDENCE_BYTES])
            start = self._skip_start if self._skip else self._offset
            text = "the stream ends inside a packet, which is dropped"
            self._fail(FaultCode.TRUNCATED, start, text, events)
        self._closed = True
        return events

    def _read(self, data: bytes, events: list[Event]) -> int:
        position, end = 0, len(data)
        while end - position >= HEADER_BYTES:
            magic, kind, retries, size = _HEADER.unpack_from(data, position)
            if magic != MAGIC or size > self._limit:
                break
            start = position + HEADER_BYTES
            if kind == _SEND:
                if start + size > end:
                    self._need = HEADER_BYTES + size
                    return position
                events.append(Send(data[start : start + size], retries))
            else:
                event = self._expected.get(kind) or Unknown(kind, size)
                if start + size > end:
                    # Thrown away as it comes: only its length has to be remembered.
                    self._skip, self._skipped = start + size - end, event
                    self._skip_start = self._offset + position
                    return end
                events.append(event)
            position = start + size
        self._check_head(data, position, events)
        return position

    def _check_head(self, data: bytes, position: int, events: list[Event]) -> None:
        """Judge a header as early as possible: its first byte, its second, its size."""
        head = data[position : position + HEADER_BYTES]
        if not MAGIC.startswith(head[:2]):
            # Up to the first wrong byte: the text must not depend on how the bytes arrived.
            wrong = head[:2] if head[:1] == MAGIC[:1] else head[:1]
            text = f"a packet begins with 55 99, not with {wrong.hex(' ')}"
        elif len(head) == HEADER_BYTES:
            text = self._oversize(head)
        else:
            # Wake up for the second byte of the magic, then for the whole header.
            self._need = HEADER_BYTES if len(head) > 1 else 2
            return
        code = FaultCode.SIZE if head[:2] == MAGIC else FaultCode.MAGIC
        self._evidence = data[position : position + _EVIDENCE_BYTES]
        self._fail(code, self._offset + position, text, events)

    def _go_on_skipping(self, data: bytes, events: list[Event]) -> bytes:
        count = min(self._skip, len(data))
        self._skip -= count
        self._offset += count
        if not self._skip:
            events.append(self._skipped)
        return data[count:]

    def _oversize(self, head: bytes) -> str:
        size = int.from_bytes(head[4:], "big")
        text = f"a payload of {size} bytes is announced, the limit is {self._limit}"
        if size & 0xFFFF == 0:
            # (5): both mistakes put their small numbers into the upper half of the field.
            text += "; so it looks with the 10-byte header of versions 0.1 and 0.2, or a size "
            text += "with its least significant byte first: neither is supported"
        return text

    def _fail(self, code: FaultCode, offset: int, text: str, events: list[Event]) -> None:
        events.append(Fault(code, offset, text))
        self._closed = True
        self._rest, self._skip = bytearray(), 0


class ServerWire(Wire):
    """What a server reads of its client."""

    def __init__(self, limits: WireLimits = WIRE_LIMITS) -> None:
        """Read what clients send; a NO_RECEIVE from one is unknown (2)."""
        super().__init__(_FROM_CLIENT, limits)


class ClientWire(Wire):
    """What a client reads of its server."""

    def __init__(self, limits: WireLimits = WIRE_LIMITS) -> None:
        """Read what servers send: SEND and NO_RECEIVE (2)."""
        super().__init__(_FROM_SERVER, limits)


def encode(packet: Packet) -> bytes:
    """Return the packet as one piece of bytes, to be written with one call.

    The original reads "up to n bytes": header and payload must reach it together (4). Raises
    InvalidOption for a retry byte outside 0 to 255, LimitExceeded for a payload that no size
    field can announce.
    """
    if isinstance(packet, Send):
        return raw(PacketType.SEND, packet.retries, packet.payload)
    return raw(_TYPE[type(packet)])


def raw(kind: int, retries: int = 0, payload: bytes = b"") -> bytes:
    """Return any packet, also one with a payload or a type that `encode` never writes (2).

    Raises as `encode` does.
    """
    for what, value in (("type", kind), ("retry byte", retries)):
        if not 0 <= value <= _LARGEST_BYTE:
            raise InvalidOption(f"the {what} of an SSPQ packet is 0 to 255, not {value}")
    if len(payload) > _LARGEST_SIZE:
        over = f"{len(payload) // MIB} MiB"
        raise LimitExceeded(f"an SSPQ payload has at most 4 GiB less one byte, not {over}")
    return _HEADER.pack(MAGIC, kind, retries, len(payload)) + payload


def attempts_allowed(retries: int) -> int | None:
    """Return the `max_attempts` that the retry byte of a SEND asks for, None for endless (3)."""
    return None if retries == ENDLESS else retries + 1


def retries_left(max_attempts: int | None, attempt: int) -> int:
    """Return the retry byte of delivery number `attempt` (the first is 1): what comes after it.

    Never 255 for a bounded message: the receiver would take it for endless (3).
    """
    if max_attempts is None:
        return ENDLESS
    return max(0, min(max_attempts - attempt, ENDLESS - 1))
