"""The bytes of one side of a PHPMQ connection, read into messages however they are cut.

Knows: messages, packages, separators, when bytes can no longer become a message.
Does not know: how a form is told from bytes (form.py), windows, queues, sockets and clocks.

Numbers in brackets, as in (2), are the sections of docs/protocols/phpmq.md.
"""

from functools import lru_cache
from typing import Final

from embedq_transports.phpmq.wire.form import NoForm, form_of, separator_of
from embedq_transports.phpmq.wire.messages import (
    CONTENT,
    FROM_CLIENT,
    FROM_SERVER,
    HEADER_BYTES,
    ID,
    QUEUE,
    TTL,
    WINDOW,
    WIRE_LIMITS,
    Ack,
    Consume,
    DeadLetter,
    Dispatch,
    Event,
    Fault,
    FaultCode,
    Form,
    Message,
    Publish,
    Receipt,
    Requeue,
    Shape,
    WireLimits,
)

_EVIDENCE_BYTES: Final = 64
_USUAL: Final = Form()
_BREAKS: Final = frozenset((b"\r", b"\n"))
_P: Final = ord("P")
_NO_PACKAGE: Final = "a package begins with P"
_FROM_CLIENT: Final = {shape.header: shape for shape in FROM_CLIENT}
_FROM_SERVER: Final = {shape.header: shape for shape in FROM_SERVER}
_KIND_OF: Final = {b"P%02d" % kind: kind for kind in (QUEUE, CONTENT, ID, WINDOW, TTL)}


class Wire:
    """Reads the bytes of one side of one connection. Holds at most one incomplete message.

    However the bytes are cut, the events are the same, and the work is linear in the bytes.
    """

    def __init__(self, shapes: dict[bytes, Shape], form: Form | None, limits: WireLimits) -> None:
        """Read these `shapes`, by header; without a `form` the first message shows it (3)."""
        self._shapes = shapes
        self._limits = limits
        self._longest = {
            QUEUE: limits.name_bytes,
            CONTENT: limits.content_bytes,
            ID: limits.id_bytes,
            WINDOW: limits.number_digits,
            TTL: limits.number_digits,
        }
        self._form = form
        self._separator = form.separator if form else b""
        # The message being read: what it is, its packages so far, the package being read.
        self._shape: Shape | None = None
        self._contents: dict[int, bytes] = {}
        self._package = 0
        self._length = 0
        self._may_break = False
        # Where we are: `_rest` begins `_offset` bytes into the stream and needs `_need` to go on.
        self._rest = bytearray()
        self._need = 1
        self._offset = self._position = self._start = 0
        self._speaks_ttl = self._closed = False
        self._evidence = b""

    @property
    def form(self) -> Form | None:
        """The form to answer in, None before the first message has shown it."""
        return self._form

    @property
    def speaks_ttl(self) -> bool:
        """Whether the client has shown to know the dialect of 2018: a 003 may have a TTL (4)."""
        return self._speaks_ttl

    @property
    def pending(self) -> bool:
        """Whether a message has begun and is not complete: for frame deadlines."""
        return bool(self._rest) or self._shape is not None

    @property
    def closed(self) -> bool:
        """Whether the stream has ended, by `end` or by a fault."""
        return self._closed

    @property
    def evidence(self) -> bytes:
        """What had arrived of the part at fault, at most 64 bytes: for the log."""
        return self._evidence

    def feed(self, data: bytes | bytearray | memoryview) -> list[Event]:
        """Take the next bytes and return what they complete. Raises nothing.

        After a `Fault` all further bytes are ignored: there is no way to find the next message.
        """
        data = bytes(data)
        if self._closed:
            return []
        if self._rest:
            self._rest += data
            if len(self._rest) < self._need:
                return []
            data, self._rest = bytes(self._rest), bytearray()
        events: list[Event] = []
        self._position = 0
        try:
            while self._step(data, events):
                pass
        except _Broken as broken:
            position = self._position
            self._evidence = data[position : position + _EVIDENCE_BYTES]
            self._close()
            events.append(Fault(broken.code, self._offset + position, str(broken)))
            return events
        self._offset += self._position
        self._rest += data[self._position :]
        return events

    def end(self) -> list[Event]:
        """Say that no more bytes come: a message that began is dropped, as a `Fault` (5)."""
        truncated = self.pending and not self._closed
        self._evidence = self._evidence or bytes(self._rest[:_EVIDENCE_BYTES])
        start = self._start if self._shape else self._offset
        self._close()
        text = "the stream ends inside a message, which is dropped"
        return [Fault(FaultCode.TRUNCATED, start, text)] if truncated else []

    def _step(self, data: bytes, events: list[Event]) -> bool:
        shape = self._shape
        return self._packages(data, shape, events) if shape else self._header(data)

    def _close(self) -> None:
        self._closed = True
        self._rest, self._shape, self._contents = bytearray(), None, {}

    def _header(self, data: bytes) -> bool:
        """Read a message header and what separates it; False when more bytes are needed."""
        position = self._position
        shape = self._shapes.get(data[position : position + HEADER_BYTES])
        if shape is None:
            # Line breaks before a header mean nothing in any form (3).
            while data[position : position + 1] in _BREAKS:
                position += 1
            self._position = position
            head = data[position : position + HEADER_BYTES]
            shape = self._shapes.get(head)
            if shape is None:
                self._need = self._judge(head)
                return False
        position += HEADER_BYTES
        separator = self._separator
        if self._form is None:
            try:
                found = separator_of(data, position)
            except NoForm as error:
                raise _Broken(FaultCode.FORM, str(error)) from None
            if found is None:
                self._need = len(data) - self._position + 1
                return False
            self._separator = separator = found
        elif separator and not self._is_there(separator, data, position):
            self._need = HEADER_BYTES + len(separator)
            return False
        self._start = self._offset + self._position
        self._position = position + len(separator)
        self._shape, self._contents, self._may_break = shape, {}, False
        return True

    def _judge(self, head: bytes) -> int:
        """Say how many bytes a header needs that is none yet, or what is wrong with it (5)."""
        if head[:1] not in {b"", b"H"} or not (head[1:2] or b"0").isdigit():
            raise _Broken(FaultCode.HEADER, "a message begins with H and a digit")
        if len(head) < HEADER_BYTES:
            return HEADER_BYTES if len(head) > 1 else len(head) + 1
        if not head[1:].isdigit():
            raise _Broken(FaultCode.HEADER, "a message header is H and seven digits")
        if head[1:3] != b"01":
            text = f"version {head[1:3].decode()} was asked for, only 01 exists"
            raise _Broken(FaultCode.VERSION, text)
        kind = head[3:6].decode()
        if not any(header.startswith(head[:6]) for header in self._shapes):
            raise _Broken(FaultCode.TYPE, f"this side sends no message of type {kind}")
        text = f"a message of type {kind} does not have {head[6:].decode()} packages"
        raise _Broken(FaultCode.COUNT, text)

    def _packages(self, data: bytes, shape: Shape, events: list[Event]) -> bool:
        """Read the packages of a message; False when more bytes are needed."""
        contents, count = self._contents, len(shape.packages)
        while len(contents) < count:
            kind = self._package or self._package_header(data, shape)
            if not kind:
                return False
            start = self._position
            stop = start + self._length
            if stop > len(data):
                self._need = self._length
                return False
            content = data[start:stop]
            if kind >= WINDOW and content and not content.isdigit():
                raise _Broken(FaultCode.NUMBER, f"package {kind:02d} holds digits only")
            contents[kind] = content
            self._package, self._position, self._may_break = 0, stop, True
        self._shape = None
        events.append(self._message(shape.message, contents))
        return True

    def _package_header(self, data: bytes, shape: Shape) -> int:
        """Read a package header and what separates it; 0 when more bytes are needed."""
        separator = self._separator
        if separator and self._may_break and not self._break(data):
            return 0
        position = self._position
        form = self._form or self._find_form(data, shape)
        end = position + form.width if form else len(data)
        if form is None or len(data) < end + len(separator):
            return self._wait_for_package(data, form)
        kind, length = _read(data[position:end])
        if kind not in shape.packages or kind in self._contents:
            if data[position] != _P:
                raise _Broken(FaultCode.PACKAGE, _NO_PACKAGE)
            text = f"message type {shape.kind:03d} does not have this package, or not twice"
            raise _Broken(FaultCode.PACKAGE, text)
        if length < 0:
            raise _Broken(FaultCode.NUMBER, f"the length of package {kind:02d} is not a number")
        if length > self._longest[kind] or (kind == ID and not length):
            text = (
                f"package {kind:02d} announces {length} bytes, {self._longest[kind]} are allowed"
            )
            raise _Broken(FaultCode.LENGTH, text)
        if separator:
            self._is_there(separator, data, end)
        self._position, self._package, self._length = end + len(separator), kind, length
        return kind

    def _wait_for_package(self, data: bytes, form: Form | None) -> int:
        """Wait for the byte that tells a package from garbage, then for the rest."""
        held = len(data) - self._position
        if form is None or not held:
            self._need = held + 1
        else:
            self._need = form.width + len(form.separator)
        if held and data[self._position] != _P:
            raise _Broken(FaultCode.PACKAGE, _NO_PACKAGE)
        return 0

    def _break(self, data: bytes) -> bool:
        """Skip the one separator that may follow a content; False when it is cut in two (3)."""
        separator, position = self._separator, self._position
        if separator and data.startswith(separator, position):
            self._position += len(separator)
        elif separator[:1] == b"\r" and data[position:] == b"\r":
            self._need = 2
            return False
        elif separator and position == len(data):
            self._need = 1
            return False
        self._may_break = False
        return True

    def _find_form(self, data: bytes, shape: Shape) -> Form | None:
        if not data.startswith(b"P", self._position):
            return None
        try:
            form = form_of(data, self._position, self._separator, shape.kind, self._limits)
        except NoForm as error:
            raise _Broken(FaultCode.FORM, str(error)) from None
        self._form = form
        return form

    def _is_there(self, separator: bytes, data: bytes, position: int) -> bool:
        """Whether the separator has arrived whole; anything else in its place is a fault (3)."""
        found = data[position : position + len(separator)]
        if not separator.startswith(found):
            text = "the separator of this connection is missing, or the width has changed"
            raise _Broken(FaultCode.FORM, text)
        return len(found) == len(separator)

    def _message(self, message: type[Message], contents: dict[int, bytes]) -> Message:
        queue = contents[QUEUE]
        id = contents.get(ID, b"")
        content = contents.get(CONTENT, b"")
        if message is Consume:
            asked = int(contents[WINDOW] or b"0")
            return Consume(queue, min(asked, self._limits.window_max))
        if message is Ack or message is DeadLetter or message is Receipt:
            self._speaks_ttl |= message is DeadLetter
            return message(queue, id)
        ttl = None
        if TTL in contents:
            self._speaks_ttl = True
            ttl = min(int(contents[TTL] or b"0"), self._limits.ttl_max_s)
        if message is Publish:
            return Publish(queue, content, ttl)
        if message is Dispatch:
            return Dispatch(queue, content, id, ttl)
        return Requeue(queue, id, ttl or 0)


@lru_cache(maxsize=1024)
def _read(head: bytes) -> tuple[int, int]:
    """Return kind and length of a package header, 0 and -1 where they are none.

    Remembered for all connections together: the same few headers come again and again, and the
    length costs more than all the rest.
    """
    digits = head[3:]
    return _KIND_OF.get(head[:3], 0), int(digits) if digits.isdigit() else -1


class ServerWire(Wire):
    """What a server reads of its client."""

    def __init__(self, *, form: Form | None = None, limits: WireLimits = WIRE_LIMITS) -> None:
        """Read what clients send, in `form`, or in the form that the first message shows (3)."""
        super().__init__(_FROM_CLIENT, form, limits)


class ClientWire(Wire):
    """What a client reads of its server."""

    def __init__(self, *, form: Form = _USUAL, limits: WireLimits = WIRE_LIMITS) -> None:
        """Read what servers send, in the `form` that this client writes."""
        super().__init__(_FROM_SERVER, form, limits)


class _Broken(Exception):
    """These bytes become no message. Inside this file only: outside it is a Fault."""

    def __init__(self, code: FaultCode, text: str) -> None:
        super().__init__(text)
        self.code = code
