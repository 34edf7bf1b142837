"""Names of channels and of their queues, and the queues of the broker that they are.

Knows: that the queue of content type 101 in channel ch-1 is `ch-1/101`, whatever the case; how
an id looks that is made here.
Does not know: which channels exist.
"""

from __future__ import annotations

import secrets
from typing import Final

from embedq.errors import InvalidName
from embedq.limits import LIMITS
from embedq.names import check_queue_name, from_wire, to_wire
from embedq_transports.tmq.frames import CONTENT_MOST

#: The queue that keeps what channels and queues were told to be. No channel can have its name.
BOOK: Final = "@tmq"
_LONGEST_TYPE: Final = len(f"/{CONTENT_MOST}")
_ID_BYTES: Final = 16


def made_id() -> bytes:
    """Return a new id, of a message or of a client: 32 hexadecimal digits, as a GUID has."""
    return secrets.token_hex(_ID_BYTES).encode()


def channel_name(target: bytes) -> str | None:
    """Return the name for a target, or None where no channel can be called that."""
    name = from_wire(target)
    if not target or name.startswith("@"):
        return None
    return name if len(name.encode()) + _LONGEST_TYPE <= LIMITS.name_bytes else None


def queue_name(channel: str, content_type: int) -> str:
    """Return the name of a queue of the broker."""
    return f"{channel}/{content_type}"


def split(name: str) -> tuple[str, int] | None:
    """Return channel and content type of a queue of the broker; None for all others."""
    channel, _, digits = name.rpartition("/")
    if not channel or channel.startswith("@") or not (digits.isascii() and digits.isdigit()):
        return None
    content_type = int(digits[: len(str(CONTENT_MOST)) + 1])
    if content_type > CONTENT_MOST or str(content_type) != digits:
        return None
    return channel, content_type


def key_of(channel: str) -> str:
    """Return by what a channel is looked up: CH-1 is ch-1."""
    return channel.casefold()


def target_of(channel: str) -> bytes | None:
    """Return the target that stands for a channel; None if no bytes can."""
    try:
        return to_wire(check_queue_name(channel))
    except InvalidName:
        return None
