"""The client's end of MMQP: the bytes of a server in, its answers out.

Knows: how each answer ends: records by a zero, an error line and a pong by the end of the stream.
Does not know: what was asked.
"""

from typing import Final

import msgspec

from embedq_transports.mmqp.answers import (
    COUNT_BYTES,
    END,
    ERROR,
    FIXED_BYTES,
    ID_BYTES,
    PONG,
    RECORDS,
    TIME_BYTES,
    Record,
)
from embedq_transports.mmqp.limits import MMQP_LIMITS, MmqpLimits
from embedq_transports.mmqp.strings import BadField, Code, Span, find_string, read_utf8

_ERROR_FIELDS: Final = 2


class EndOfRecords(msgspec.Struct, frozen=True):
    """The answer to a poll is complete."""


class ErrorLine(msgspec.Struct, frozen=True):
    """The server refused. `code` is usually one of Code; others are allowed."""

    code: str
    detail: str


class Pong(msgspec.Struct, frozen=True):
    """The server is there."""


class Silence(msgspec.Struct, frozen=True):
    """The connection ended without a byte: a message was stored."""


class BadAnswer(msgspec.Struct, frozen=True):
    """The last event: the bytes are no answer of MMQP, or end within one."""

    text: str


Answer = Record | EndOfRecords | ErrorLine | Pong | Silence | BadAnswer

_HEADS: Final = (RECORDS, ERROR, PONG)


class ClientWire:
    """Reads the answers on one connection."""

    def __init__(self, limits: MmqpLimits = MMQP_LIMITS) -> None:
        self._limits = limits
        self._buffer = bytearray()
        self._head = b""  # of the answer that is being read
        self._need = 1
        self._silent = True
        self._closed = False

    def feed(self, data: bytes | bytearray | memoryview) -> list[Answer]:
        """Take bytes as they arrive and return what they complete; never raises for content."""
        if self._closed or not data:
            return []
        self._silent = False
        self._buffer += data
        events: list[Answer] = []
        try:
            while len(self._buffer) >= self._need and self._step(events):
                pass
        except BadField as error:
            events.append(self._bad(error.text))
        return events

    def end(self) -> list[Answer]:
        """Tell that the server has closed."""
        if self._closed:
            return []
        if self._silent:
            self._closed = True
            return [Silence()]
        rest = bytes(self._buffer)
        if self._head == PONG and rest == PONG:
            self._closed = True
            return [Pong()]
        if self._head == ERROR:
            return [self._error_line(rest[len(ERROR) :])]
        if self._head or rest:
            return [self._bad("the connection ended within an answer")]
        self._closed = True
        return []

    def _bad(self, text: str) -> BadAnswer:
        self._closed = True
        self._buffer = bytearray()
        return BadAnswer(text)

    def _step(self, events: list[Answer]) -> bool:
        if self._head == RECORDS:
            return self._record(events)
        if self._head:
            # An error line or a pong: it ends with the stream, and is short.
            if len(self._buffer) > self._limits.http_bytes:
                raise BadField(Code.TOO_LARGE, "an answer without an end mark is too long")
            self._need = len(self._buffer) + 1
            return False
        for head in _HEADS:
            if self._buffer.startswith(head[: len(RECORDS)]):
                self._head = head
                if head == RECORDS:
                    self._used(len(RECORDS))
                return True
            if head.startswith(self._buffer):
                self._need = len(self._buffer) + 1
                return False
        raise BadField(Code.BAD_REQUEST, "the first bytes are no answer of MMQP")

    def _used(self, count: int) -> None:
        del self._buffer[:count]
        self._need = 1

    def _record(self, events: list[Answer]) -> bool:
        if self._buffer.startswith(END):
            self._used(len(END))
            self._head = b""
            events.append(EndOfRecords())
            return True
        span = find_string(self._buffer, 0, self._limits.answer_bytes, "record")
        if span is None or span.end > len(self._buffer):
            self._need = max(span.end if span else 0, len(self._buffer) + 1)
            return False
        events.append(_read_record(bytes(self._buffer[span.start : span.end])))
        self._used(span.end)
        return True

    def _error_line(self, line: bytes) -> Answer:
        fields = line.decode("utf-8", "replace").split("|", 1)
        if len(fields) != _ERROR_FIELDS or not fields[1].endswith("|0"):
            return self._bad("the error line has no code, no detail or no end")
        self._closed = True
        return ErrorLine(fields[0], fields[1][: -len("|0")])


def _read_record(data: bytes) -> Record:
    at = FIXED_BYTES
    texts: list[bytes] = []
    for what in ("group", "body"):
        span: Span | None = find_string(data, at, len(data), what)
        if span is None or span.end > len(data):
            raise BadField(Code.BAD_REQUEST, f"the {what} goes beyond its record")
        texts.append(read_utf8(data, span, what))
        at = span.end
    if data[at:] != END:
        raise BadField(Code.BAD_REQUEST, "a record does not end where its size says")
    received = data[ID_BYTES : ID_BYTES + TIME_BYTES]
    available = data[ID_BYTES + TIME_BYTES : FIXED_BYTES - COUNT_BYTES]
    return Record(
        body=texts[1],
        group=texts[0].decode(),
        received=int.from_bytes(received, "big"),
        available=int.from_bytes(available, "big"),
        receive_count=int.from_bytes(data[FIXED_BYTES - COUNT_BYTES : FIXED_BYTES], "big"),
        message_id=data[:ID_BYTES],
    )
