"""Which of nine forms a PHPMQ client speaks, told from the first bytes it sends.

Knows: three widths of a package header, three separators, how a first message tells them apart.
Does not know: what a message means; it never looks behind the first two package headers.

Numbers in brackets, as in (3), are the sections of docs/protocols/phpmq.md.
"""

from typing import Final

from embedq_transports.phpmq.wire.messages import WIDTHS, Form, WireLimits

_FLAG: Final = 3  # "P" and the two digits of the type
_LEAST: Final = WIDTHS[0] - _FLAG
_MIDDLE: Final = WIDTHS[1] - _FLAG
_MOST: Final = WIDTHS[2] - _FLAG

# The package that stands second when the queue name stands first; in a message that begins
# otherwise the queue name is expected second.
_SECOND: Final = {1: b"P02", 2: b"P04", 3: b"P02", 4: b"P03", 5: b"P03", 6: b"P03"}
_FIRST: Final = b"P01"

# A length of a second package that is worth believing: below 10^9, so 23 zeros come first.
_ZEROS: Final = b"0" * (_MIDDLE - 9)


class NoForm(ValueError):
    """These bytes begin no PHPMQ message in any form. The text says why."""


def separator_of(data: bytes, position: int) -> bytes | None:
    """Return what separates the parts; `position` is just behind the message header (3).

    None: more bytes are needed. Raises NoForm.
    """
    following = data[position : position + 2]
    if following[:1] == b"P":
        return b""
    if following[:1] == b"\n":
        return b"\n"
    if following == b"\r\n":
        return b"\r\n"
    if following in {b"", b"\r"}:
        return None
    raise NoForm("a message header is followed by P, LF or CRLF")


def form_of(
    data: bytes, position: int, separator: bytes, message: int, limits: WireLimits
) -> Form | None:
    """Return the form; `position` is at the first package header of message type `message`.

    None: more bytes are needed, and a client of any form sends them. Raises NoForm.
    """
    if separator:
        width = _width_of_line(data, position, separator)
    else:
        width = _width_of_bare(data, position, message, limits)
    return None if width is None else Form(width, separator)


def _width_of_line(data: bytes, position: int, separator: bytes) -> int | None:
    """The first package header is a line: its length is the width (3)."""
    end = data.find(separator, position, position + WIDTHS[-1] + len(separator))
    if end < 0:
        if len(data) - position >= WIDTHS[-1] + len(separator):
            raise NoForm("the first package header is a line of 32, 35 or 36 bytes")
        return None
    if end - position not in WIDTHS:
        raise NoForm("the first package header is a line of 32, 35 or 36 bytes")
    return end - position


def _width_of_bare(data: bytes, position: int, message: int, limits: WireLimits) -> int | None:
    """The digits behind "P01" tell the width, because names are shorter than 1,000 bytes (3).

    Read with the smallest width, the wider forms of a short name look like the length 0.
    """
    digits = data[position + _FLAG : position + _FLAG + _MOST]
    least, following = digits[:_LEAST], digits[_LEAST:]
    if len(least) < _LEAST:
        return None
    if least.strip(b"0") or following[:1] == b"P":
        # Whether these are digits at all is for the reader of package headers to say.
        return WIDTHS[0]
    in_both = following[: _MIDDLE - _LEAST]
    if in_both and not in_both.isdigit():
        raise NoForm("29 zeros are followed by neither more digits nor the next package")
    if len(following) < _MOST - _LEAST:
        return None
    if not following[-1:].isdigit():
        return WIDTHS[1]
    return _width_by_second(data, position, int(in_both), message, limits)


def _width_by_second(
    data: bytes, position: int, length: int, message: int, limits: WireLimits
) -> int | None:
    """Decide between 35 and 36: is there a second package header where 35 would have it?

    Only a queue name made for it can look so. The comparison ends at the first byte that differs,
    so it never waits for bytes that a client of 36 does not send.
    """
    is_first = data[position : position + _FLAG] == _FIRST
    if is_first and length > limits.name_bytes:
        return WIDTHS[1]  # read as 36 the name is longer still: refused either way
    expected = (_SECOND[message] if is_first else _FIRST) + _ZEROS
    start = position + _FLAG + _MIDDLE + length
    found = data[start : start + WIDTHS[1]]
    digits = found[len(expected) :]
    if not expected.startswith(found[: len(expected)]) or (digits and not digits.isdigit()):
        return WIDTHS[2]
    return WIDTHS[1] if len(found) == WIDTHS[1] else None
