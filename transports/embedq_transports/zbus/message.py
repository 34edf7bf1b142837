"""A zbus message, as both dialects carry it, and the events that a wire makes of bytes.

Knows: the five members, that names of headers have no case, which values count as true.
Does not know: how a message is written down, what a command means.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from embedq.payload import BYTES

#: Whole numbers that a header may say: what Java's `int` holds, the type they have there, and
#: its `long` for numbers of messages.
INT: Final = (1 << 31) - 1
LONG: Final = (1 << 63) - 1
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")


class BadInteger(ValueError):
    """A header that has to be a whole number is none; the text is that of the original."""

    def __init__(self, value: object) -> None:
        """Say it as Java's parser does, shortened."""
        super().__init__(f'For input string: "{_shown(value)}"')


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message. A body without bytes is null; `kind` is that of embedq.payload.

    `headers` have the names and the values that were sent, `fields` the same values under names
    in lower case. `status` is None in requests. `raw`: the JSON that a signature is about.
    """

    headers: dict[str, Any]
    fields: dict[str, Any]
    kind: int = BYTES
    body: bytes = b""
    url: str | None = None
    method: str | None = None
    status: int | None = None
    raw: bytes | None = None

    def text(self, name: str) -> str | None:
        """Return a header as text, None if it is absent or null. `name` is in lower case."""
        value = self.fields.get(name)
        return value if value is None or type(value) is str else text_of(value)

    def number(self, name: str, most: int = INT) -> int | None:
        """Return a header as a whole number, None if it is absent. Raises BadInteger.

        `most`: it is neither above nor below that.
        """
        value = self.fields.get(name)
        if value is None:
            return None
        if type(value) is str and _NUMBER.fullmatch(value):
            value = int(value)
        if type(value) is not int or not -most <= value <= most:
            raise BadInteger(value)
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a header as a truth: true in any case, or as a text; anything else is false."""
        value = self.fields.get(name)
        if value is None:
            return default
        return value is True or (type(value) is str and value.lower() == "true")


def text_of(value: object) -> str:
    """Return the value of a header as text: texts as they are, all else as compact JSON."""
    return value if type(value) is str else msgspec.json.encode(value).decode()


def _shown(value: object) -> str:
    text = text_of(value)
    return text if len(text) <= 40 else text[:39] + "…"  # noqa: PLR2004  # enough to know it by


class Came(msgspec.Struct, frozen=True, gc=False):
    """A message has come. `last`: the client wants no other answer (HTTP); `bare`: HEAD."""

    message: Message
    last: bool = False
    bare: bool = False


class Write(msgspec.Struct, frozen=True):
    """Bytes that the protocol itself owes the client: write them now."""

    data: bytes


class Opened(msgspec.Struct, frozen=True):
    """From here on it is a WebSocket; write the answer."""

    data: bytes


class Malformed(msgspec.Struct, frozen=True):
    """What is no zbus message, or may not come: it is answered, and the connection lives.

    `last`, `bare`: see Came. `origin`: the page that it is from, if it may read the answer.
    """

    text: str = "json format required"
    wire_id: str | None = None
    last: bool = False
    status: int = 400
    bare: bool = False
    origin: str = ""


class Fault(msgspec.Struct, frozen=True):
    """The last event: write `answer`, which may be empty, then close."""

    code: str
    text: str
    answer: bytes = b""


class Ended(msgspec.Struct, frozen=True):
    """The last event: the client has closed in good order. Write `answer`, then close."""

    answer: bytes = b""


Event = Came | Write | Opened | Malformed | Fault | Ended
