"""What MMQP clients ask for, and its bytes in every form that a client may send.

Knows: the published and the coded layout of requests (docs/protocols/mmqp.md, section Requests).
Does not know: how the forms are told apart when read; that is `wire`.
"""

from typing import Final

import msgspec

from embedq_transports.mmqp.strings import encode_string

MAGIC: Final = b"MMQP"
BINARY_VERSION: Final = b"\x00.\x01"
TEXT_VERSION: Final = b"0.1"
HTTP: Final = b"GET "

# The group of a message that names none, as in every record of the original.
MAIN_GROUP: Final = "main"


class Send(msgspec.Struct, frozen=True, gc=False):
    """Store a message; success is silence. `group` is None in the form without a group."""

    queue: str
    body: bytes
    group: str | None = None
    user: str = ""
    password: str = ""

    @property
    def ordering_group(self) -> str:
        """The group that orders the message: "main" when none or an empty one is named."""
        return self.group or MAIN_GROUP


class Poll(msgspec.Struct, frozen=True, gc=False):
    """Take up to `count` messages of any group; 0 takes none."""

    queue: str
    count: int
    user: str = ""
    password: str = ""


class GroupPoll(msgspec.Struct, frozen=True, gc=False):
    """Take at most one message of a group: the published form of a poll.

    `second` is the field behind the group: None for the character 0, "" for a zero byte, else a
    text. It changes nothing.
    """

    queue: str
    group: str
    second: str | None = None
    user: str = ""
    password: str = ""

    @property
    def any_group(self) -> bool:
        """Whether the group is left open: empty, or 0."""
        return self.group in {"", "0"}

    @property
    def differs(self) -> bool:
        """Whether two groups are named, of which the second is passed over."""
        return self.second not in {None, "", "0", self.group}


class Ping(msgspec.Struct, frozen=True):
    """An HTTP GET, whatever its path: a health check, answered by PONG."""


Request = Send | Poll | GroupPoll | Ping


def encode_request(
    request: Request, *, text_version: bool = False, ending: bytes | None = None
) -> bytes:
    """Return the bytes of a request.

    `ending` stands behind the last field: by default a zero byte for Send, as the original client
    writes, a bar for GroupPoll as published, nothing for Poll.
    """
    if isinstance(request, Ping):
        return b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"
    if isinstance(request, Send):
        command, default = b"M", b"\0"
        rest = encode_string(request.body)
        if request.group is not None:
            rest = encode_string(request.group.encode()) + b"|" + rest
    elif isinstance(request, Poll):
        command, default = b"P", b""
        rest = bytes((request.count,))
    else:
        command, default = b"P", b"|"
        second = b"0" if request.second is None else encode_string(request.second.encode())
        rest = encode_string(request.group.encode()) + b"|" + second
    names = b":".join(encode_string(text.encode()) for text in (request.user, request.password))
    version = TEXT_VERSION if text_version else BINARY_VERSION
    queue = encode_string(request.queue.encode())
    ending = default if ending is None else ending
    return b"|".join((MAGIC, version, command, names, queue, rest + ending))
