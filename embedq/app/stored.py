"""A stored row as the message that applications see.

Knows: the fields of both, that headers may be unreadable.
Does not know: where rows come from.
"""

from __future__ import annotations

import logging

import msgspec

from embedq.ids import MessageIds
from embedq.message import Message
from embedq.storage.rows import Stored

_log = logging.getLogger("embedq")
_decode_headers = msgspec.msgpack.Decoder(dict[str, str]).decode


def message_of(ids: MessageIds, queue: str, row: Stored) -> Message:
    """Return a row as a message; headers that cannot be read are None, and the log says so."""
    return Message(
        ids,
        row.seq,
        queue=queue,
        body=row.body,
        kind=row.kind,
        headers=_headers(row),
        put_at_ms=row.put_at,
        priority=row.priority,
        available_at_ms=row.due,
        expires_at_ms=row.expires,
        ordering_key=row.key,
        max_attempts=row.max_attempts,
    )


def _headers(row: Stored) -> dict[str, str] | None:
    try:
        return None if row.headers is None else _decode_headers(row.headers)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        # Damage must not hide the message, nor those after it.
        _log.warning("the headers of message %s cannot be read: %s", row.seq, error)
        return None
