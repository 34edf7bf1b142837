"""The server's end of MMQP: bytes in, requests out.

Knows: how the forms of a request are told apart, also by a pause (docs/protocols/mmqp.md, section
Telling the forms apart). Does not know: how long a pause is, queues, users, or when to close.
"""

from collections.abc import Callable
from typing import Final

from embedq_transports.mmqp.answers import encode_error
from embedq_transports.mmqp.faults import Fault, FaultCode, Unanswered
from embedq_transports.mmqp.header import HEADER_BYTES, HEADERS, check_header, magic_at, next_magic
from embedq_transports.mmqp.limits import MMQP_LIMITS, MmqpLimits
from embedq_transports.mmqp.requests import (
    HTTP,
    MAGIC,
    GroupPoll,
    Ping,
    Poll,
    Request,
    Send,
)
from embedq_transports.mmqp.strings import (
    SIZE_MOST,
    BadField,
    Code,
    find_string,
    is_utf8,
    read_utf8,
)

_BAR: Final = ord("|")
_COLON: Final = ord(":")
# Error lines name them in words: a bar would be a field's end there.
_NAMES: Final = {_BAR: "a bar", _COLON: "a colon"}
_NUL: Final = 0
_ZERO: Final = ord("0")
_ANY_SIZE: Final = 1 << 8 * SIZE_MOST

Event = Request | Fault


def _nothing() -> None:
    """Read nothing more."""


class ServerWire:
    """Reads requests, usually one. Everything it needs of a field is kept as soon as it is there.

    Some forms end only when nothing follows. While `waits_for_quiet` is true, a session that has
    received nothing for a moment calls quiet().
    """

    def __init__(self, limits: MmqpLimits = MMQP_LIMITS) -> None:
        self._limits = limits
        self._buffer = bytearray()
        self._at = 0
        self._need = 1  # length of the buffer from which on the step is worth a call
        self._step: Callable[[], Request | None] = self._start
        self._tail = b""  # what may still follow the last request, in this order
        self._if_quiet: Request | None = None
        self._quiet_at = 0
        self._closed = False
        self._queue = self._user = self._password = ""
        self._command = b""
        self._counted = Poll("", 0)  # what a poll is, unless it names a group
        self._body = b""
        self._first = b""  # of a Send: its group or its body; of a GroupPoll: its group
        self._scanned = 0

    @property
    def closed(self) -> bool:
        """Whether nothing more is read: bytes that still come are thrown away."""
        return self._closed

    @property
    def pending(self) -> bool:
        """Whether a request has begun that is not complete."""
        return not self._closed and (self._step != self._start or self._at < len(self._buffer))

    @property
    def waits_for_quiet(self) -> bool:
        """Whether quiet() would complete a request."""
        return self._if_quiet is not None

    def feed(self, data: bytes | bytearray | memoryview) -> list[Event]:
        """Take bytes as they arrive and return what they complete; never raises for content."""
        if self._closed:
            return []
        self._buffer += data
        return self._advance()

    def quiet(self) -> list[Event]:
        """Tell that nothing has come for a moment: a request that may end here does."""
        return self._paused(is_end=False)

    def end(self) -> list[Event]:
        """Tell that no more bytes will come; what is left of a request is a Fault."""
        events = self._paused(is_end=True)
        if self.pending:
            text = "the connection ended within a request"
            events.append(Fault(FaultCode.TRUNCATED, text))
        self._close()
        return events

    def _paused(self, *, is_end: bool) -> list[Event]:
        events: list[Event] = []
        while (request := self._if_quiet) is not None:
            self._at = self._quiet_at
            if isinstance(request, Poll) and self._at < len(self._buffer):
                # What stands behind a count is ignored, up to a request.
                self._at = next_magic(self._buffer, self._at)
                if is_end and not magic_at(self._buffer, self._at):
                    self._at = len(self._buffer)
            self._done(b"")
            events.append(request)
            if isinstance(request, Ping):
                self._close()
            events += self._advance()
        return events

    def _advance(self) -> list[Event]:
        events: list[Event] = []
        try:
            while not self._closed and len(self._buffer) >= self._need:
                self._if_quiet = None
                request = self._step()
                if request is not None:
                    events.append(request)
        except BadField as error:
            code = FaultCode[error.code.name]
            events.append(Fault(code, error.text, encode_error(error.code, error.text)))
            self._close()
        except Unanswered as error:
            events.append(Fault(error.code, error.text))
            self._close()
        self._compact()
        return events

    def _compact(self) -> None:
        used = self._at
        if used:
            del self._buffer[:used]
            self._at = 0
            self._need -= used
            self._quiet_at -= used

    def _close(self) -> None:
        self._closed = True
        self._if_quiet = None
        self._buffer = bytearray()
        self._at = 0
        self._step = _nothing  # a method of this would keep it until Python looks for circles

    # --- waiting and completing ------------------------------------------------------------------

    def _wait(self, need: int = 0) -> None:
        """Ask for a longer buffer: one byte more, or `need` in all."""
        self._need = max(need, len(self._buffer) + 1)

    def _wait_or_quiet(self, request: Request, at: int) -> None:
        """Ask for one byte more; if none comes, the request is complete and ends at `at`."""
        self._if_quiet = request
        self._quiet_at = at
        self._wait()

    def _go(self, step: Callable[[], Request | None], used: int) -> None:
        self._at += used
        self._need = self._at + 1
        self._step = step

    def _done(self, tail: bytes) -> None:
        self._tail = tail
        self._first = self._body = b""
        self._if_quiet = None
        self._go(self._start, 0)

    def _peek(self, offset: int = 0) -> int | None:
        at = self._at + offset
        return self._buffer[at] if at < len(self._buffer) else None

    def _text(self, most: int, what: str) -> bytes | None:
        """Return the string at hand and step over it, or None and wait."""
        span = find_string(self._buffer, self._at, most, what)
        if span is None or span.end > len(self._buffer):
            self._wait(span.end if span else 0)
            return None
        data = read_utf8(self._buffer, span, what)
        self._at = span.end
        return data

    def _text_before(self, separator: int, what: str) -> str | None:
        """Return the short string at hand and step over it and the byte behind it, or wait."""
        span = find_string(self._buffer, self._at, self._limits.text_bytes, what)
        if span is None or span.end >= len(self._buffer):
            self._wait(span.end + 1 if span else 0)
            return None
        text = read_utf8(self._buffer, span, what).decode()
        found = self._buffer[span.end]
        if found != separator:
            text = f"the byte behind the {what} is 0x{found:02x}, not {_NAMES[separator]}"
            raise BadField(Code.BAD_REQUEST, text)
        self._at = span.end + 1
        return text

    # --- the steps, in the order of a request ----------------------------------------------------

    def _start(self) -> Request | None:
        while self._tail and (byte := self._peek()) is not None:
            place = self._tail.find(byte)
            self._at += place >= 0
            self._tail = self._tail[place + 1 :] if place >= 0 else b""
        head = self._buffer[self._at : self._at + len(MAGIC)]
        if head == MAGIC:
            self._go(self._header, 0)
            self._need = self._at + len(MAGIC) + 1
        elif head == HTTP:
            self._scanned = 0
            self._go(self._http, 0)
        elif MAGIC.startswith(head) or HTTP.startswith(head):
            self._wait()
        else:
            text = "the first bytes are neither MMQP nor an HTTP GET"
            raise Unanswered(FaultCode.BAD_MAGIC, text)
        return None

    def _header(self) -> None:
        head = bytes(self._buffer[self._at : self._at + HEADER_BYTES])
        if head not in HEADERS:
            check_header(head)
        if len(head) < HEADER_BYTES:
            self._wait()
            return
        self._command = head[9:10]
        self._go(self._user_text, HEADER_BYTES)

    def _user_text(self) -> None:
        text = self._text_before(_COLON, "user name")
        if text is not None:
            self._user = text
            self._go(self._password_text, 0)

    def _password_text(self) -> None:
        text = self._text_before(_BAR, "password")
        if text is not None:
            self._password = text
            self._go(self._queue_text, 0)

    def _queue_text(self) -> None:
        text = self._text_before(_BAR, "queue name")
        if text is not None:
            self._queue = text
            self._go(self._send_first if self._command == b"M" else self._poll, 0)

    # --- M: group and body, or the body alone ----------------------------------------------------

    def _send_first(self) -> None:
        data = self._text(self._limits.body_bytes, "message")
        if data is not None:
            self._first = data
            self._go(self._behind_first, 0)
            self._offer(self._send(data))

    def _behind_first(self) -> Request | None:
        if self._buffer[self._at] == _BAR:
            if len(self._first) > self._limits.text_bytes:
                most = self._limits.text_bytes
                text = f"the group has {len(self._first)} bytes, more than {most}"
                raise BadField(Code.TOO_LARGE, text)
            self._go(self._send_body, 1)
            return None
        return self._ended(self._send(self._first), b"\0")

    def _send_body(self) -> None:
        data = self._text(self._limits.body_bytes, "message")
        if data is not None:
            self._body = data
            self._go(self._behind_body, 0)
            self._offer(self._send(data, self._first.decode()))

    def _behind_body(self) -> Request | None:
        return self._ended(self._send(self._body, self._first.decode()), b"|\0")

    def _send(self, body: bytes, group: str | None = None) -> Send:
        return Send(self._queue, body, group, self._user, self._password)

    def _offer(self, request: Request) -> None:
        """Let a pause complete the request, unless a byte behind it is there already."""
        if self._at == len(self._buffer):
            self._wait_or_quiet(request, self._at)

    def _ended(self, request: Request, tail: bytes) -> Request | None:
        """Complete a request that a byte of `tail` or the next request ends."""
        byte = self._buffer[self._at]
        if byte in tail:
            self._done(tail)
            return request
        magic = magic_at(self._buffer, self._at)
        if magic is None:
            self._wait_or_quiet(request, self._at)
            return None
        if magic:
            self._done(b"")
            return request
        text = f"the byte behind the message is 0x{byte:02x}: too much, or a field too few"
        raise BadField(Code.BAD_REQUEST, text)

    # --- P: a count, or a group and a second field -----------------------------------------------

    def _poll(self) -> Request | None:
        count = self._buffer[self._at]
        self._counted = Poll(self._queue, count, self._user, self._password)
        if count > SIZE_MOST:
            return self._count(1, b"|\0")
        # A count, or the size of the size of a group: what follows tells.
        bar = self._peek(1) == _BAR
        is_empty = bar and not count  # a group without a byte, or a count of 0 and its bar
        behind = self._at + 1 + bar
        byte = self._peek(1 + bar)
        magic = None if byte is None else magic_at(self._buffer, behind)
        if magic or (byte == _NUL and not is_empty):
            return self._count(1, b"|\0")
        if magic is None:
            if is_empty and byte is not None:
                self._wait()
            else:
                self._wait_or_quiet(self._counted, behind)
        elif is_empty:
            self._go(self._second, 2)
        elif count:
            self._go(self._poll_group, 0)
        else:
            self._go(self._ignored, 1)
        return None

    def _count(self, used: int, tail: bytes) -> Poll:
        self._at += used
        self._done(tail)
        return self._counted

    def _poll_group(self) -> Request | None:
        """Read a group, which it is once a bar stands behind it: else it stands behind a count."""
        buffer, at = self._buffer, self._at
        span = find_string(buffer, at, _ANY_SIZE, "group")
        if span is not None and span.end - span.start > self._limits.text_bytes:
            self._go(self._ignored, 1)
            return None
        if span is None or span.end >= len(buffer):
            self._wait_or_quiet(self._counted, at + 1)
            self._need = max(self._need, span.end + 1 if span else at + 1 + buffer[at])
            return None
        byte = buffer[span.end]
        if byte == _BAR:
            self._first = read_utf8(buffer, span, "group")
            self._go(self._second, span.end + 1 - at)
        elif byte == _NUL and is_utf8(buffer, span) and buffer.find(MAGIC, at, span.end) < 0:
            return self._count(span.end + 1 - at, b"")
        else:
            self._go(self._ignored, 1)
        return None

    def _ignored(self) -> Request | None:
        """Pass over what stands behind a count and is no group, and keep none of it."""
        self._at = next_magic(self._buffer, self._at)
        if magic_at(self._buffer, self._at):
            return self._count(0, b"")
        self._wait_or_quiet(self._counted, self._at)
        return None

    def _second(self) -> Request | None:
        group = self._first.decode()
        if self._buffer[self._at] == _ZERO:
            self._at += 1
            second = None
        else:
            data = self._text(self._limits.text_bytes, "second group")
            if data is None:
                return None
            second = data.decode()
        self._done(b"|\0")
        return GroupPoll(self._queue, group, second, self._user, self._password)

    # --- HTTP ------------------------------------------------------------------------------------

    def _http(self) -> Request | None:
        # The pong is due once the request is read: closing before would reset the connection.
        begin, end = self._at + max(0, self._scanned - 3), self._at + self._limits.http_bytes
        if any(self._buffer.find(mark, begin, end) >= 0 for mark in (b"\r\n\r\n", b"\n\n")):
            self._close()
            return Ping()
        if len(self._buffer) >= end:
            text = f"an HTTP request is longer than {self._limits.http_bytes} bytes"
            raise Unanswered(FaultCode.TOO_LARGE, text)
        self._scanned = len(self._buffer) - self._at
        self._wait_or_quiet(Ping(), len(self._buffer))
        return None
