"""A push as a message of the broker, and a message as the frame that its consumer gets.

Knows: which headers keep what a body cannot (docs/protocols/tmq.md, section Messages).
Does not know: who gets it, when it is settled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from embedq.errors import InvalidName
from embedq.message import Draft, draft
from embedq.names import from_wire, to_wire
from embedq.net import Delivery
from embedq_transports.tmq.frames import TTL_DEFAULT, TTL_MOST, Frame, Kind
from embedq_transports.tmq.limits import ID_BYTES

WIRE_ID: Final = "wire-id"
SOURCE: Final = "tmq-source"
TARGET: Final = "tmq-target"
FLAGS: Final = "tmq-flags"
TTL: Final = "tmq-ttl"
#: Of messages with the PR bit; all others have 0.
URGENT: Final = 9
_RESPONSE: Final = "rs"


def draft_of(push: Frame, target: bytes, expires_at_ms: int | None) -> Draft:
    """Return what to put for an admitted push. `target`: the channel as it is called here.

    Raises an EmbedqError for what no message may be.
    """
    headers = {}
    if push.message_id:
        headers[WIRE_ID] = from_wire(push.message_id)
    if push.source:
        headers[SOURCE] = from_wire(push.source)
    if push.target != target:
        headers[TARGET] = from_wire(push.target)
    if push.response_required:
        headers[FLAGS] = _RESPONSE
    if push.ttl != TTL_DEFAULT:
        headers[TTL] = str(push.ttl)
    return draft(
        push.payload,
        headers=headers or None,
        priority=URGENT if push.priority else 0,
        expires_at_ms=expires_at_ms,
    )


def frame_of(delivery: Delivery, target: bytes, content_type: int, *, makes_ids: bool) -> Frame:
    """Return a message as the push that it was, or would have been.

    Whoever put it may have written anything into its headers: what cannot be sent is left out.
    """
    headers = delivery.headers
    message_id = _bytes(headers, WIRE_ID)
    if not message_id and makes_ids:
        message_id = delivery.id.encode()
    return Frame(
        Kind.CHANNEL,
        content_type,
        message_id,
        _bytes(headers, SOURCE),
        _bytes(headers, TARGET) or target,
        delivery.body,
        priority=delivery.priority > 0,
        response_required=bool(message_id) and headers.get(FLAGS) == _RESPONSE,
        ttl=_ttl(headers.get(TTL, "")),
    )


def _bytes(headers: Mapping[str, str], name: str) -> bytes:
    text = headers.get(name)
    if not text:
        return b""
    try:
        found = to_wire(text)
    except InvalidName:
        return b""
    return found if len(found) <= ID_BYTES else b""


def _ttl(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(TTL_MOST))):
        return TTL_DEFAULT
    return min(int(text), TTL_MOST)
