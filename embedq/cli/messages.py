"""Messages for the output: as JSON, and the lines of a listing.

Knows: the fields of a stored message and how they are written.
Does not know: where messages come from.
"""

from __future__ import annotations

import msgspec

from embedq.cli.output import json_body
from embedq.cli.showing import iso
from embedq.ids import MessageIds
from embedq.payload import content_type
from embedq.storage.rows import Stored

_decode_headers = msgspec.msgpack.Decoder(dict[str, str]).decode


def headers_of(data: bytes | None) -> dict[str, str] | None:
    """Return stored headers; None if what is stored cannot be read."""
    if data is None:
        return {}
    try:
        return _decode_headers(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None  # shown as null: damage must not hide the message


def json_message(ids: MessageIds, queue: str, message: Stored) -> dict[str, object]:
    """Return a message for JSON."""
    return {
        "id": ids.encode(message.seq),
        "seq": message.seq,
        "queue": queue,
        "put_at": iso(message.put_at),
        "available_at": iso(message.due),
        "expires_at": iso(message.expires),
        "priority": message.priority,
        "ordering_key": message.key,
        "headers": headers_of(message.headers),
        "content_type": content_type(message.kind),
        **json_body(message.body),
    }
