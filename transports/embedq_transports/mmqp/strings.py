"""The counted string of MMQP: a length of a length, a length, bytes of UTF-8.

Knows: both directions and what is wrong with a string (docs/protocols/mmqp.md, section Strings).
Does not know: which field a string is, nor what surrounds it.
"""

from enum import StrEnum
from typing import Final

import msgspec

SIZE_MOST: Final = 8


class Code(StrEnum):
    """The word in an error line. Only the first is the original's."""

    QUEUE_NOT_FOUND = "QUEUE_NOT_FOUND"
    AUTH_FAILED = "AUTH_FAILED"
    BAD_REQUEST = "BAD_REQUEST"
    BAD_VERSION = "BAD_VERSION"
    TOO_LARGE = "TOO_LARGE"
    QUEUE_FULL = "QUEUE_FULL"
    UNKNOWN_COMMAND = "UNKNOWN_COMMAND"
    SHUTTING_DOWN = "SHUTTING_DOWN"


class BadField(Exception):
    """A field that breaks a rule; the readers turn it into a Fault."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Span(msgspec.Struct, frozen=True, gc=False):
    """Where the bytes of a string stand: `end` may lie beyond what has arrived."""

    start: int
    end: int
    shortest: bool


def encode_size(size: int) -> bytes:
    """Return a length in the fewest bytes: 0 is one zero byte, 65,536 is 03 01 00 00."""
    count = (size.bit_length() + 7) // 8
    return bytes((count,)) + size.to_bytes(count, "big")


def encode_string(text: bytes) -> bytes:
    """Return a counted string."""
    return encode_size(len(text)) + text


def find_string(buffer: bytes | bytearray, at: int, most: int, what: str) -> Span | None:
    """Locate the string at `at`; None when its length has not arrived yet.

    Lengths in more bytes than needed are legal. Raises BadField for a length of more than eight
    bytes, or for one above `most`, before any of it is there.
    """
    if at >= len(buffer):
        return None
    count = buffer[at]
    if count > SIZE_MOST:
        text = f"the length of the {what} has {count} bytes, more than {SIZE_MOST}"
        raise BadField(Code.BAD_REQUEST, text)
    start = at + 1 + count
    if len(buffer) < start:
        return None
    size = int.from_bytes(buffer[at + 1 : start], "big")
    if size > most:
        raise BadField(Code.TOO_LARGE, f"the {what} has {size} bytes, more than {most}")
    return Span(start, start + size, shortest=not count or buffer[at + 1] != 0)


def read_utf8(buffer: bytes | bytearray, span: Span, what: str) -> bytes:
    """Return the bytes of a string that is there; raises BadField when they are not UTF-8."""
    with memoryview(buffer) as view:
        data = bytes(view[span.start : span.end])
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            text = f"the {what} is not UTF-8 at byte {error.start}"
            raise BadField(Code.BAD_REQUEST, text) from None
    return data


def is_utf8(buffer: bytes | bytearray, span: Span) -> bool:
    """Tell whether the bytes of a string that is there are UTF-8."""
    try:
        buffer[span.start : span.end].decode()
    except UnicodeDecodeError:
        return False
    return True
