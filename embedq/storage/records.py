"""Decode the rows of an SQLite file from their bytes.

Knows: variable-length integers, the types a record declares, the values that follow them.
Does not know: pages, where a record lies, what a column is for.
"""

from __future__ import annotations

import struct
from typing import Final

_VARINT_BYTES: Final = 9
_INT_BYTES: Final = (0, 1, 2, 3, 4, 6, 8)
_REAL, _ZERO, _ONE, _BLOB = 7, 8, 9, 12

Value = int | float | str | bytes | None


class Malformed(ValueError):
    """What was read cannot be what SQLite wrote."""


class BadText(bytes):
    """A text value that is no UTF-8."""


def signed(value: int) -> int:
    """Return the 64-bit number that a decoded varint stands for."""
    return value - (1 << 64) if value >> 63 else value


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Decode a variable-length integer; return it and the place after it. Raises Malformed."""
    value = 0
    for place in range(at, min(at + _VARINT_BYTES - 1, len(data))):
        byte = data[place]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:  # noqa: PLR2004 - the bit that says another byte follows
            return value, place + 1
    last = at + _VARINT_BYTES - 1
    if last >= len(data):
        raise Malformed
    return value << 8 | data[last], last + 1


def record(payload: bytes, *, whole: bool = True) -> list[Value]:
    """Decode a row. Of a payload that is not whole the values that are there, the last one cut.

    Raises Malformed.
    """
    size, at = varint(payload, 0)
    if not at <= size <= len(payload):
        raise Malformed
    types: list[int] = []
    while at < size:
        code = payload[at]
        if code < 0x80:  # noqa: PLR2004 - most types are one byte; a call would double the time
            at += 1
        else:
            code, at = varint(payload, at)
        types.append(code)
    if at != size:
        raise Malformed
    values: list[Value] = []
    for code in types:
        length = _length_of(code)
        if at + length > len(payload):
            if whole:
                raise Malformed
            if code >= _BLOB and at < len(payload):
                values.append(_value(code, payload[at:]))
            break
        values.append(_value(code, payload[at : at + length]))
        at += length
    else:
        if at != len(payload):
            raise Malformed
    return values


def _length_of(code: int) -> int:
    if code >= _BLOB:
        return (code - _BLOB) // 2
    if code < _REAL:
        return _INT_BYTES[code]
    if code > _ONE:
        raise Malformed
    return 8 if code == _REAL else 0


def _value(code: int, data: bytes) -> Value:
    if code >= _BLOB:
        return _text(data) if code % 2 else data
    if code == 0:
        return None
    if code < _REAL:
        return int.from_bytes(data, "big", signed=True)
    if code == _REAL:
        return float(struct.unpack(">d", data)[0])
    return code - _ZERO


def _text(data: bytes) -> str | BadText:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return BadText(data)
