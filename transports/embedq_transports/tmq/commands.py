"""What a client wants of a TMQ server: Server frames read into commands.

Knows: command codes, the two forms of a queue payload, option lines (docs/protocols/tmq.md,
section Commands). Does not know: which channels exist or who may change them.
"""

import re
from enum import StrEnum
from typing import Final

import msgspec

from embedq_transports.tmq.frames import CONTENT_MOST, Content, Frame

_ID_BYTES: Final = 2
_NUMBER: Final = re.compile("[0-9]{1,10}")
_TRUE: Final = frozenset({"1", "true"})
_FALSE: Final = frozenset({"0", "false"})


class QueueStatus(StrEnum):
    """How a queue hands out its messages; the value is what stock clients write."""

    ROUTE = "route"
    PUSH = "push"
    PULL = "pull"
    ROUND_ROBIN = "roundrobin"
    PAUSED = "pause"
    STOPPED = "stop"


_STATUSES: Final = {
    **{status.value: status for status in QueueStatus},
    "rr": QueueStatus.ROUND_ROBIN,
    "round": QueueStatus.ROUND_ROBIN,
    "robin": QueueStatus.ROUND_ROBIN,
    "round-robin": QueueStatus.ROUND_ROBIN,
    "paused": QueueStatus.PAUSED,
    "stopped": QueueStatus.STOPPED,
}


class QueueOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Option lines; None is "not said". Times are milliseconds."""

    content_type: int | None = None
    only_first_acquirer: bool | None = None
    request_acknowledge: bool | None = None
    acknowledge_timeout: int | None = None
    message_timeout: int | None = None
    use_message_id: bool | None = None
    wait_for_acknowledge: bool | None = None
    hide_client_names: bool | None = None
    queue_status: QueueStatus | None = None
    allow_multiple_queues: bool | None = None
    allowed_queues: tuple[int, ...] | None = None
    destroy_when_empty: bool | None = None
    client_limit: int | None = None
    queue_limit: int | None = None
    message_limit: int | None = None
    message_size_limit: int | None = None
    message_delivery_handler: str | None = None
    channel_event_handler: str | None = None
    channel_authenticator: str | None = None
    #: Lines with a key that no program of the time knew, the key in lower case.
    others: tuple[tuple[str, str], ...] = ()


_WHOLE: Final = frozenset(
    "acknowledge_timeout message_timeout client_limit queue_limit message_limit "
    "message_size_limit".split()
)
_TEXT: Final = frozenset(
    {"message_delivery_handler", "channel_event_handler", "channel_authenticator"}
)
_KEYS: Final = {
    name.replace("_", "-"): name for name in QueueOptions.__struct_fields__ if name != "others"
}

_Value = int | str | QueueStatus | tuple[int, ...]


class Command(msgspec.Struct, frozen=True):
    """A command of the frame's content type for the channel that is its target.

    `queue` is the content type of the queue meant, None when the payload names none.
    """

    content: Content
    channel: bytes
    queue: int | None = None
    options: QueueOptions = QueueOptions()


class Unreadable(msgspec.Struct, frozen=True):
    """No command: `status` is the answer when the frame requires one, `text` says why."""

    status: Content
    text: str


_PLAIN: Final = frozenset({Content.JOIN, Content.LEAVE, Content.REMOVE_CHANNEL})
_WITH_OPTIONS: Final = frozenset(
    {Content.CREATE_CHANNEL, Content.CREATE_QUEUE, Content.REMOVE_QUEUE, Content.UPDATE_QUEUE}
)
# A queue that such a payload does not name is the one of content type 0.
_NEEDS_QUEUE: Final = _WITH_OPTIONS - {Content.CREATE_CHANNEL}


def read_command(frame: Frame) -> Command | Unreadable:
    """Read a Server frame; every other content type is Unreadable with 404."""
    try:
        content = Content(frame.content_type)
    except ValueError:
        content = None
    if content in _PLAIN:
        return Command(content, frame.target)
    if content not in _WITH_OPTIONS:
        text = f"the server knows no command {frame.content_type}"
        return Unreadable(Content.NOT_FOUND, text)
    named = content in _NEEDS_QUEUE
    # The id is little-endian in every release, also where the frame's own order is not.
    if named and len(frame.payload) == _ID_BYTES:
        return Command(content, frame.target, int.from_bytes(frame.payload, "little"))
    try:
        options = read_options(frame.payload)
    except ValueError as error:
        return Unreadable(Content.BAD_REQUEST, str(error))
    queue = options.content_type
    return Command(content, frame.target, (queue or 0) if named else queue, options)


def read_options(payload: bytes) -> QueueOptions:
    """Read option lines that end in CRLF or LF; the last of equal keys wins.

    Raises ValueError, naming the line, for a value that its key cannot have.
    """
    found: dict[str, _Value] = {}
    others: dict[str, str] = {}
    for line in payload.decode("utf-8", "replace").replace("\r\n", "\n").split("\n"):
        key, colon, value = (part.strip() for part in line.partition(":"))
        if not colon:
            continue
        name = _KEYS.get(key.lower())
        if name is None:
            others[key.lower()] = value
        else:
            found[name] = _read_value(name, value)
    return msgspec.convert({**found, "others": tuple(others.items())}, QueueOptions)


def _read_value(name: str, value: str) -> _Value:
    if name in _TEXT:
        return value
    if name in _WHOLE:
        return _number(name, value)
    if name == "content_type":
        return _content_type(name, value)
    if name == "allowed_queues":
        return tuple(_content_type(name, part.strip()) for part in value.split(",") if part)
    lower = value.lower()
    if name == "queue_status" and lower in _STATUSES:
        return _STATUSES[lower]
    if name != "queue_status" and lower in _TRUE | _FALSE:
        return lower in _TRUE
    raise _wrong(name, value)


def _number(name: str, value: str) -> int:
    if not _NUMBER.fullmatch(value):
        raise _wrong(name, value)
    return int(value)


def _content_type(name: str, value: str) -> int:
    number = _number(name, value)
    if number > CONTENT_MOST:
        raise _wrong(name, value)
    return number


def _wrong(name: str, value: str) -> ValueError:
    key = "-".join(part.capitalize() for part in name.split("_"))
    return ValueError(f"the option {key} cannot be {value[:40]!r}")


def encode_options(options: QueueOptions) -> bytes:
    """Return the option lines of everything that is said."""
    lines: list[str] = []
    for key, name in _KEYS.items():
        value = getattr(options, name)
        if value is None:
            continue
        if isinstance(value, bool):
            value = int(value)
        elif isinstance(value, tuple):
            value = ",".join(map(str, value))
        lines.append(f"{key.title()}: {value}\r\n")
    lines += [f"{key}: {value}\r\n" for key, value in options.others]
    return "".join(lines).encode()
