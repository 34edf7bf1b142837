"""What PHPMQ can say: the messages of both sides, their packages, the forms, the limits.

Knows: which message consists of which packages, in which order they are written.
Does not know: how bytes are cut into messages, queues, sockets and clocks.

Numbers in brackets, as in (2), are the sections of docs/protocols/phpmq.md.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from embedq.errors import InvalidOption
from embedq.limits import LIMITS

HEADER_BYTES: Final = 8

#: Lengths of a package header (1): what programs use, their first draft, the published text.
WIDTHS: Final = (32, 35, 36)
SEPARATORS: Final = (b"", b"\n", b"\r\n")


# What a package holds (2). Plain numbers: a member of an enumeration costs a call in Python 3.11.
QUEUE: Final = 1
CONTENT: Final = 2
ID: Final = 3
WINDOW: Final = 4
TTL: Final = 5


@dataclass(frozen=True, slots=True)
class WireLimits:
    """Bounds of one connection (5). Each comment is `unit: reason`."""

    #: bytes: a queue name. At most 999, or the three widths can no longer be told apart (3).
    name_bytes: int = LIMITS.name_bytes
    #: bytes: a content. Memory is taken as bytes arrive, not as they are announced.
    content_bytes: int = LIMITS.body_bytes
    #: bytes: a message id, opaque to clients.
    id_bytes: int = 255
    #: digits: a window or a time to live, before it is read as a number.
    number_digits: int = 255
    #: messages: the widest window. More is not refused but means this.
    window_max: int = 65_535
    #: seconds: the longest time to live. More is not refused but means this.
    ttl_max_s: int = int(LIMITS.delay_max_s)

    def __post_init__(self) -> None:
        """Raise InvalidOption when the widths could not be told apart."""
        if not 1 <= self.name_bytes <= _LONGEST_NAME:
            raise InvalidOption(
                f"name_bytes of PHPMQ is {self.name_bytes}, outside 1 to {_LONGEST_NAME}"
            )


_LONGEST_NAME: Final = 999
WIRE_LIMITS: Final = WireLimits()


@dataclass(frozen=True, slots=True)
class Form:
    """How the packages of one connection are spelled: the same for its whole life (3)."""

    #: Length of a package header in bytes.
    width: int = WIDTHS[0]
    #: What stands between the parts: nothing, LF or CRLF.
    separator: bytes = SEPARATORS[0]

    def __post_init__(self) -> None:
        """Raise InvalidOption for a form that nobody speaks."""
        if self.width not in WIDTHS or self.separator not in SEPARATORS:
            raise InvalidOption(
                f"no PHPMQ form has {self.width} bytes and the separator {self.separator!r}",
                hint="the width is 32, 35 or 36; the separator nothing, LF or CRLF",
            )


class FaultCode(StrEnum):
    """Why a stream cannot be read any further (5)."""

    HEADER = "header"
    VERSION = "version"
    TYPE = "type"
    COUNT = "count"
    FORM = "form"
    PACKAGE = "package"
    LENGTH = "length"
    NUMBER = "number"
    TRUNCATED = "truncated"


class Publish(msgspec.Struct, frozen=True, gc=False):
    """001: put a message. `ttl`: seconds, 0 for ever, None from who does not know of it (2)."""

    queue: bytes
    content: bytes
    ttl: int | None = None


class Consume(msgspec.Struct, frozen=True, gc=False):
    """002: from now on hold at most `window` messages, of this queue only; 0 stops."""

    queue: bytes
    window: int


class Dispatch(msgspec.Struct, frozen=True, gc=False):
    """003: the server hands over a message. `ttl` only for who has shown to know it (4)."""

    queue: bytes
    content: bytes
    id: bytes
    ttl: int | None = None


class Ack(msgspec.Struct, frozen=True, gc=False):
    """004: the message is done, whoever holds it."""

    queue: bytes
    id: bytes


class Requeue(msgspec.Struct, frozen=True, gc=False):
    """005 from a client: back to the tail under the same id. `ttl`: seconds, 0 for ever."""

    queue: bytes
    id: bytes
    ttl: int = 0


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """005 from a server: the publish is stored. Three days of 2017 knew it; off otherwise (4)."""

    queue: bytes
    id: bytes


class DeadLetter(msgspec.Struct, frozen=True, gc=False):
    """006: away with the message, to the dead letters."""

    queue: bytes
    id: bytes


class Fault(msgspec.Struct, frozen=True, gc=False):
    """The last event of a stream that breaks the rules: carry out what came before, then close.

    `offset`: of the part at fault (a header, a package header, a content), counted from the
    first byte of the connection. There is no frame that tells the client.
    """

    code: FaultCode
    offset: int
    text: str


Message = Publish | Consume | Dispatch | Ack | Requeue | Receipt | DeadLetter
Event = Message | Fault


@dataclass(frozen=True, slots=True)
class Shape:
    """One row of the table of messages: what a header announces."""

    kind: int
    packages: tuple[int, ...]
    message: type[Message]

    @property
    def header(self) -> bytes:
        """The eight bytes that announce this message, version 01."""
        return b"H01%03d%02d" % (self.kind, len(self.packages))


# (2). The count tells the two dialects apart; programs of either write this order and read any.
FROM_CLIENT: Final = (
    Shape(1, (QUEUE, CONTENT), Publish),
    Shape(1, (QUEUE, CONTENT, TTL), Publish),
    Shape(2, (QUEUE, WINDOW), Consume),
    Shape(4, (QUEUE, ID), Ack),
    Shape(5, (QUEUE, ID, TTL), Requeue),
    Shape(6, (QUEUE, ID), DeadLetter),
)
FROM_SERVER: Final = (
    Shape(3, (QUEUE, CONTENT, ID), Dispatch),
    Shape(3, (QUEUE, CONTENT, ID, TTL), Dispatch),
    Shape(5, (QUEUE, ID), Receipt),
)


def seconds_left(left_ms: int | None) -> int:
    """Return the `ttl` of a dispatch: seconds rounded up, at least 1; 0 when it never ends (4)."""
    return 0 if left_ms is None else max(1, -(-left_ms // 1000))
