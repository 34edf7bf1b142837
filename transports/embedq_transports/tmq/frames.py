"""One TMQ frame: its fields, its codes and its bytes in both byte orders.

Knows: the layout (docs/protocols/tmq.md, section Frame) and the defects of the old byte order.
Does not know: what a frame means, where one begins in a stream, or who may send it.
"""

from enum import IntEnum
from typing import Final, Literal

import msgspec

from embedq.errors import LimitExceeded
from embedq_transports.tmq.limits import ID_BYTES

PREAMBLE: Final = b"TMQ/1.01"
HEADER_BYTES: Final = 8
TTL_DEFAULT: Final = 16
TTL_MOST: Final = 63
CONTENT_MOST: Final = 0xFFFF

_KIND_BITS: Final = 0x3F
_HIGH: Final = 0x80  # FA in the first byte, RS in the second
_NEXT: Final = 0x40  # PR in the first byte, AC in the second
# The length byte is the length itself below 253; above, it says how many bytes carry it.
_DIRECT: Final = 253
_EXTENDED: Final = {253: 2, 254: 4, 255: 8}

Order = Literal["little", "big"]


class Kind(IntEnum):
    """The type of a frame, six bits; other values are legal on the wire and mean nothing."""

    OTHER = 0x00
    TERMINATE = 0x08
    PING = 0x09
    PONG = 0x0A
    SERVER = 0x10
    CHANNEL = 0x11
    CLIENT = 0x12
    DELIVERY = 0x13  # later called Acknowledge
    RESPONSE = 0x14
    REDIRECT = 0x15  # in the published text only: no program ever sent or read it


class Content(IntEnum):
    """Content types with a meaning: commands in Server frames, statuses in answers."""

    HELLO = 101
    OK = 200
    ACCEPTED = 202
    BAD_REQUEST = 400
    UNAUTHORIZED = 401
    NOT_FOUND = 404
    UNACCEPTABLE = 406
    DUPLICATE = 481
    LIMIT_EXCEEDED = 482
    FAILED = 500
    BUSY = 503
    JOIN = 601
    LEAVE = 602
    CREATE_CHANNEL = 603
    REMOVE_CHANNEL = 604
    CHANNEL_INFORMATION = 605
    CHANNEL_LIST = 606
    CHANNEL_CONSUMERS = 607
    CREATE_QUEUE = 610
    REMOVE_QUEUE = 611
    UPDATE_QUEUE = 612
    QUEUE_INFORMATION = 615
    QUEUE_LIST = 616
    INSTANCE_LIST = 621
    CLIENT_LIST = 631


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A frame as it stands on the wire. Ids are bytes: they are echoed as they came.

    `ttl` counts hops, not time, and is the value on the wire: a reader has not taken one off.
    """

    kind: int
    content_type: int = 0
    message_id: bytes = b""
    source: bytes = b""
    target: bytes = b""
    payload: bytes = b""
    first_acquirer: bool = False
    priority: bool = False
    response_required: bool = False
    acknowledge: bool = False
    ttl: int = TTL_DEFAULT


class Dialect(msgspec.Struct, frozen=True):
    """The byte orders of one connection, seen from one of its ends."""

    content: Order
    length_in: Order
    length_out: Order


# 2.0.8-beta to 2.8.5: little-endian throughout.
LITTLE: Final = Dialect("little", "little", "little")
# Before that, clients wrote the content type and the extended length big-endian, but read the
# length little-endian. So the two ends of such a connection write differently.
BIG_SERVER: Final = Dialect("big", "big", "little")
BIG_CLIENT: Final = Dialect("big", "little", "big")

PING: Final = Frame(
    Kind.PING, first_acquirer=True, response_required=True, acknowledge=True, ttl=TTL_MOST
)
PONG: Final = Frame(
    Kind.PONG, first_acquirer=True, response_required=True, acknowledge=True, ttl=TTL_MOST
)
TERMINATE: Final = Frame(Kind.TERMINATE)


class Header(msgspec.Struct, frozen=True, gc=False):
    """The first bytes of a frame, decoded: what it is and how long its parts are."""

    kind: int
    flags: int  # the two flag bits of byte 0, then those of byte 1
    ttl: int
    content_type: int
    ids: tuple[int, int, int]
    start: int  # of the ids: 8 plus the extended length
    payload: int

    @property
    def ids_end(self) -> int:
        """Bytes of the frame without its payload."""
        return self.start + sum(self.ids)


def header_bytes(buffer: bytes | bytearray, at: int) -> int:
    """Return how long the header at `at` is; its first eight bytes must be there."""
    return HEADER_BYTES + _EXTENDED.get(buffer[at + 7], 0)


def read_header(buffer: bytes | bytearray, at: int, dialect: Dialect) -> Header:
    """Decode the header at `at`, of which header_bytes() are there. Every value is legal."""
    first, second, *ids = buffer[at : at + 5]
    length = buffer[at + 7]
    start = header_bytes(buffer, at)
    if length >= _DIRECT:
        length = int.from_bytes(buffer[at + 8 : at + start], dialect.length_in)
    return Header(
        kind=first & _KIND_BITS,
        flags=(first >> 6) << 2 | second >> 6,
        ttl=second & TTL_MOST,
        content_type=int.from_bytes(buffer[at + 5 : at + 7], dialect.content),
        ids=(ids[0], ids[1], ids[2]),
        start=start,
        payload=length,
    )


def read_frame(header: Header, buffer: bytes | bytearray, at: int, *, payload: bool) -> Frame:
    """Build the frame whose header stands at `at`; without `payload`, leave it empty."""
    message_id, source, target = header.ids
    with memoryview(buffer) as view:
        begin = at + header.start
        source_at = begin + message_id
        target_at = source_at + source
        end = target_at + target
        return Frame(
            header.kind,
            header.content_type,
            bytes(view[begin:source_at]),
            bytes(view[source_at:target_at]),
            bytes(view[target_at:end]),
            bytes(view[end : end + header.payload]) if payload else b"",
            bool(header.flags & 8),
            bool(header.flags & 4),
            bool(header.flags & 2),
            bool(header.flags & 1),
            header.ttl,
        )


def encode_frame(frame: Frame, dialect: Dialect = LITTLE) -> bytes:
    """Return the bytes of a frame, to be written in one call.

    A `ttl` above 63 is sent as 63, as the original does. Raises LimitExceeded for an id above
    255 bytes (the original wraps its length and loses step) and for numbers that do not fit.
    """
    for what, value in (
        ("message id", frame.message_id),
        ("source id", frame.source),
        ("target id", frame.target),
    ):
        if len(value) > ID_BYTES:
            msg = f"the {what} of a TMQ frame has {len(value)} bytes, more than {ID_BYTES}"
            raise LimitExceeded(msg, what=what)
    for what, number, most in (
        ("type", frame.kind, _KIND_BITS),
        ("content type", frame.content_type, CONTENT_MOST),
        ("ttl", min(frame.ttl, TTL_MOST), TTL_MOST),
    ):
        if not 0 <= number <= most:
            msg = f"the {what} {number} of a TMQ frame is not within 0 and {most}"
            raise LimitExceeded(msg, what=what)
    head = bytes(
        (
            frame.kind | _HIGH * frame.first_acquirer | _NEXT * frame.priority,
            min(frame.ttl, TTL_MOST) | _HIGH * frame.response_required | _NEXT * frame.acknowledge,
            len(frame.message_id),
            len(frame.source),
            len(frame.target),
        )
    )
    return b"".join(
        (
            head,
            frame.content_type.to_bytes(2, dialect.content),
            _encode_length(len(frame.payload), dialect.length_out),
            frame.message_id,
            frame.source,
            frame.target,
            frame.payload,
        )
    )


def _encode_length(length: int, order: Order) -> bytes:
    if length < _DIRECT:
        return bytes((length,))
    marker = next(
        (marker for marker, size in _EXTENDED.items() if length < 1 << 8 * size), max(_EXTENDED)
    )
    return bytes((marker,)) + length.to_bytes(_EXTENDED[marker], order)
