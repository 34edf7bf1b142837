"""The values that travel: a draft, a stored message, a receipt, an attempt, a dead letter.

Knows: their fields and units, what a valid draft is, how error texts are kept small.
Does not know: storage, delivery, or how a body was made from an object.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

import msgspec

from embedq.errors import InvalidOption, InvalidPayload, LimitExceeded, shown
from embedq.headers import checked_headers
from embedq.ids import MessageIds
from embedq.lifecycle import Outcome
from embedq.limits import LIMITS, Limits
from embedq.names import check_key

_DEDUP_WINDOW_MS: Final = round(LIMITS.dedup_window_s * 1000)
_TIME_MAX: Final = 1 << 53
_KIND_MAX: Final = 255
_TYPE_BYTES: Final = 255
_ERROR_FLOOR: Final = 64
# MessagePack: one byte for the array and at most five before each text.
_ERROR_OVERHEAD: Final = 16
_CUT: Final = "…".encode()
_FRAMES, _CAUSES = 20, 3


class Draft(msgspec.Struct, frozen=True, gc=False):
    """One new message, not stored yet. Building one checks nothing: draft() does.

    Times are milliseconds of the wall clock. `available_at_ms` None is at once,
    `expires_at_ms` None is never. `max_attempts`: None takes the queue's default, 0 is endless,
    1 to 255 bound the deliveries started.
    """

    # A msgspec struct and not a dataclass: put builds one per message, and a frozen dataclass
    # of this width takes five times as long to build.
    body: bytes
    kind: int = 0
    headers: Mapping[str, str] | None = None
    priority: int = 0
    available_at_ms: int | None = None
    expires_at_ms: int | None = None
    dedup_key: str | None = None
    dedup_window_ms: int = _DEDUP_WINDOW_MS
    ordering_key: str | None = None
    max_attempts: int | None = None


def draft(
    body: bytes | bytearray | memoryview,
    kind: int = 0,
    headers: Mapping[str, str] | None = None,
    *,
    priority: int = 0,
    available_at_ms: int | None = None,
    expires_at_ms: int | None = None,
    dedup_key: str | None = None,
    dedup_window_ms: int = _DEDUP_WINDOW_MS,
    ordering_key: str | None = None,
    max_attempts: int | None = None,
    now_ms: int | None = None,
    limits: Limits = LIMITS,
) -> Draft:
    """Return a checked Draft that shares nothing mutable with the caller.

    With `now_ms` times farther away than delay_max_s are refused. Raises InvalidPayload,
    InvalidOption, InvalidName (keys, header names) or LimitExceeded.
    """
    if type(body) is not bytes or len(body) > limits.body_bytes:
        body = _checked_body(body, limits)
    _check_int(kind, "kind", 0, _KIND_MAX)
    if headers is not None:
        headers = checked_headers(headers, limits)
    if priority != 0 or priority is False:
        _check_int(priority, "priority", 0, limits.priority_max)
    if available_at_ms is not None or expires_at_ms is not None:
        _check_times(available_at_ms, expires_at_ms, now_ms, limits)
    if dedup_key is not None:
        check_key(dedup_key, "dedup_key")
        _check_int(dedup_window_ms, "dedup_window_ms", 0, round(limits.delay_max_s * 1000))
    if ordering_key is not None:
        check_key(ordering_key, "ordering_key")
    if max_attempts is not None:
        _check_int(max_attempts, "max_attempts", 0, limits.attempts_max)
    return Draft(
        body,
        kind,
        headers,
        priority,
        available_at_ms,
        expires_at_ms,
        dedup_key,
        dedup_window_ms,
        ordering_key,
        max_attempts,
    )


def _checked_body(body: object, limits: Limits) -> bytes:
    if not isinstance(body, bytes):
        if not isinstance(body, bytearray | memoryview):
            raise InvalidPayload(
                f"a stored body is bytes, not {type(body).__name__}",
                hint="turn the object into bytes with embedq.payload.encode()",
            )
        body = bytes(body)
    if len(body) > limits.body_bytes:
        raise LimitExceeded(
            f"the body has {len(body)} bytes, more than body_bytes={limits.body_bytes}",
            hint="store the data in a file and put its path",
            limit="body_bytes",
        )
    return body


def _check_int(value: object, what: str, low: int, high: int) -> None:
    # type() and not isinstance(): True is no priority.
    if type(value) is not int or not low <= value <= high:
        text = f"{what}={shown(value)} is not a whole number from {low} to {high}"
        raise InvalidOption(text, argument=what)


def _check_times(
    available_at_ms: int | None, expires_at_ms: int | None, now_ms: int | None, limits: Limits
) -> None:
    farthest = _TIME_MAX if now_ms is None else now_ms + round(limits.delay_max_s * 1000)
    for what, value in (("available_at_ms", available_at_ms), ("expires_at_ms", expires_at_ms)):
        if value is not None:
            _check_int(value, what, 0, farthest)
    available = -1 if available_at_ms is None else available_at_ms
    if expires_at_ms is not None and expires_at_ms <= available:
        raise InvalidOption(
            f"the message expires at {expires_at_ms}, before it is available at {available}",
            hint="choose a time to live longer than the delay",
            argument="expires_at_ms",
        )


class _Identified(msgspec.Struct, frozen=True, eq=False):
    """A value with an id that is computed when somebody asks for it.

    `origin` is what issues the ids of the store, or the id itself. An id costs a hash, which is
    as much as storing a small message; most ids are never looked at.
    """

    origin: MessageIds | str
    seq: int

    @property
    def id(self) -> str:
        """The message id: 32 hexadecimal characters."""
        origin = self.origin
        return origin if isinstance(origin, str) else origin.encode(self.seq)

    def _values(self) -> tuple[object, ...]:
        return (self.id, *[getattr(self, name) for name in self.__struct_fields__[1:]])

    def __eq__(self, other: object) -> bool:
        """Equal are values of one type with equal ids and fields, wherever the id comes from."""
        if not isinstance(other, _Identified) or type(self) is not type(other):
            return False
        return self._values() == other._values()

    # Without it `!=` would be the one of msgspec, which compares identities here.
    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.seq)

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        """Travel with the id instead of the store key."""
        return type(self), self._values()

    def __repr__(self) -> str:
        names = ("id", *self.__struct_fields__[1:])
        fields = zip(names, self._values(), strict=True)
        return f"{type(self).__name__}({', '.join(_field(*field) for field in fields)})"


def _field(name: str, value: object, most: int = 60) -> str:
    if isinstance(value, bytes | str) and len(value) > most:
        return f"{name}={value[:most]!r}… ({len(value)} in all)"
    if isinstance(value, tuple):
        return f"{name}=({len(value)} in all)"
    return f"{name}={value!r}"


class Receipt(_Identified, frozen=True, eq=False):
    """The answer to a put: Receipt(origin, seq, duplicate), and `.id`.

    `duplicate`: the dedup key was known, so id and seq are those of the message stored earlier.
    """

    duplicate: bool = False


class Message(_Identified, frozen=True, eq=False):
    """A stored message as it is delivered: Message(origin, seq, queue, body, …), and `.id`.

    Times are milliseconds of the wall clock; `max_attempts` means what it means in Draft.
    """

    queue: str
    body: bytes
    kind: int
    headers: Mapping[str, str] | None
    put_at_ms: int
    priority: int = 0
    available_at_ms: int | None = None
    expires_at_ms: int | None = None
    ordering_key: str | None = None
    max_attempts: int | None = None


class ErrorInfo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What went wrong in an attempt, small enough to be stored with it."""

    type: str
    message: str = ""
    traceback: str = ""

    @classmethod
    def capped(
        cls, type: str, message: str = "", traceback: str = "", *, limit: int = LIMITS.error_bytes
    ) -> Self:
        """Return an ErrorInfo whose encode() has at most `limit` bytes (at least 64).

        The start of the message and the end of the traceback are kept: there the cause is.
        """
        left = max(limit, _ERROR_FLOOR) - _ERROR_OVERHEAD
        kind = _head(type, min(_TYPE_BYTES, left))
        left -= len(kind)
        tail = _tail(traceback, left)
        text = _head(message, left - min(len(tail), left // 2))
        tail = _tail(traceback, left - len(text))
        return cls(kind.decode(), text.decode(), tail.decode())

    @classmethod
    def from_exception(cls, error: BaseException, *, limit: int = LIMITS.error_bytes) -> Self:
        """Describe `error` with its newest frames and causes; never fails, never is large."""
        frames = _traceback_of(error, limit)
        return cls.capped(_type_name(error), _text_of(error), frames, limit=limit)

    def encode(self) -> bytes:
        """Return MessagePack."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return what encode() stored.

        Bytes that are damaged give an ErrorInfo that says so: a lost reason must not hide the
        message it belongs to.
        """
        try:
            return msgspec.msgpack.decode(data, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return cls("unreadable", f"the stored error of {len(data)} bytes is damaged: {error}")


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _head(text: str, most: int) -> bytes:
    # Sliced before it is encoded: a text of 50 MB is never copied whole.
    data = _utf8(text[: most + 1])
    if len(data) <= most:
        return data
    kept = data[: max(most - len(_CUT), 0)].decode("utf-8", "ignore").encode()
    return kept + _CUT if most >= len(_CUT) else kept


def _tail(text: str, most: int) -> bytes:
    data = _utf8(text[-most - 1 :]) if most > 0 else b""
    if len(data) <= most:
        return data
    room = most - len(_CUT)
    return _CUT + data[-room:].decode("utf-8", "ignore").encode() if room > 0 else b""


def _type_name(error: BaseException) -> str:
    kind = type(error)
    builtin = kind.__module__ == "builtins"
    return kind.__qualname__ if builtin else f"{kind.__module__}.{kind.__qualname__}"


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - user code; the failure becomes the text
        return f"<its text cannot be made: {_type_name(broken)}>"


def _traceback_of(error: BaseException, limit: int) -> str:
    """Format error and causes, the oldest first, as Python prints them but bounded."""
    parts: list[str] = []
    current: BaseException | None = error
    for _ in range(_CAUSES + 1):
        if current is None:
            break
        frames = _frames_of(current.__traceback__)
        summary = "" if current is error else f"{_type_name(current)}: {_text_of(current)[:200]}\n"
        parts.append(f"{frames[-limit:]}{summary}")
        explicit = current.__cause__ is not None or current.__suppress_context__
        current = current.__cause__ if explicit else current.__context__
    return "then\n".join(reversed(parts))


def _frames_of(traceback: TracebackType | None) -> str:
    # Imported when something failed: it would be a tenth of the time to import embedq.
    import traceback as tracebacks  # noqa: PLC0415

    return "".join(tracebacks.format_tb(traceback, limit=-_FRAMES))


class AttemptRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One delivery that was started: a row of the history.

    Times are milliseconds of the wall clock; `ended_ms` and `outcome` are None while it runs.
    """

    attempt: int
    started_ms: int
    ended_ms: int | None
    worker: str
    outcome: Outcome | None
    error: ErrorInfo | None = None


class DeadLetter(_Identified, frozen=True, eq=False):
    """A message that will not be delivered again: DeadLetter(origin, seq, queue, …), and `.id`.

    `reason` is a lifecycle.Reason, `detail` a sentence, `moved_by` who or what decided, `number`
    its place among the dead; `attempts` the newest LIMITS.attempts_kept of them, oldest first.
    """

    queue: str
    group: str
    reason: str
    detail: str
    died_ms: int
    put_at_ms: int
    moved_by: str
    body: bytes
    kind: int
    headers: Mapping[str, str] | None
    priority: int = 0
    ordering_key: str | None = None
    attempts: tuple[AttemptRecord, ...] = ()
    number: int = 0
