"""A zbus message as a message of the broker, and back.

Knows: what of it becomes a header of its own, what the header `zbus` keeps, what is never kept.
Does not know: commands, connections.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import msgspec

from embedq.message import Draft, draft
from embedq.net import Delivery
from embedq.payload import BYTES
from embedq_transports.zbus.answers import OF_HTTP, Answer
from embedq_transports.zbus.message import Message, text_of

#: The publisher's id, and the rest of what a message of the broker has no place for.
WIRE_ID: Final = "wire-id"
REST: Final = "zbus"
#: Headers that are not kept: credentials, and what the server says anew to each consumer.
_NOT_KEPT: Final = OF_HTTP | {
    "acknowledge",
    "apikey",
    "attempt",
    "channel",
    "cmd",
    "id",
    "mq",
    "offset",
    "remote-addr",
    "signature",
    "signfields",
    "source",
    "target",
    "window",
}


class Rest(msgspec.Struct, omit_defaults=True):
    """What the header `zbus` keeps, as JSON. `source`: the session that a reply is routed to."""

    source: str = ""
    peer: str = ""
    url: str | None = None
    method: str | None = None
    status: int | None = None
    headers: dict[str, Any] = {}


_decode: Final = msgspec.json.Decoder(Rest).decode


def draft_of(message: Message, wire_id: str, source: str, peer: str) -> Draft:
    """Return the message to put. Raises LimitExceeded, InvalidName for headers too large."""
    headers, others = {}, {}
    for name, value in message.headers.items():
        lower = name.lower()
        if lower in _NOT_KEPT:
            continue
        if isinstance(value, str) and name and lower not in (WIRE_ID, REST):
            headers[name] = value
        else:
            others[name] = value
    rest = Rest(source, peer, message.url, message.method, message.status, others)
    headers[WIRE_ID] = wire_id
    headers[REST] = msgspec.json.encode(rest).decode()
    return draft(message.body, message.kind, headers)


def kept_of(delivery: Delivery) -> tuple[dict[str, Any], Rest]:
    """Return the publisher's headers, and the rest; nothing of it need be there."""
    headers: dict[str, Any] = dict(delivery.headers)
    raw = headers.pop(REST, None)
    rest = Rest()
    if raw is not None:
        # Somebody else may have such a header, too: then it says nothing here.
        with suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
            rest = _decode(raw.encode("utf-8", "surrogatepass"))
    return rest.headers | headers, rest  # what is ours counts, if a publisher says the same


def answer_of(
    delivery: Delivery, mq: str, channel: str | None = None, window: int | None = None
) -> Answer:
    """Return a message as its consumer gets it. `offset` and `window` are texts: see 4.4."""
    headers, rest = kept_of(delivery)
    for name in [name for name in headers if name.lower() in _NOT_KEPT]:
        del headers[name]
    wire_id = headers.pop(WIRE_ID, None)
    headers["id"] = delivery.id if wire_id is None else text_of(wire_id)
    headers["mq"] = mq
    headers["offset"] = str(delivery.seq)
    headers["source"] = rest.source
    headers["remote-addr"] = rest.peer
    if delivery.kind == BYTES and not rest.source and delivery.body:
        # Of another protocol, or of Python: nothing else says that its body is base64.
        headers.setdefault("Content-Type", "application/octet-stream")
    if channel is not None:
        headers["channel"] = channel
        if rest.url is not None and delivery.body:
            # Services of zbuspy 1.0.20 know this spelling alone, and fail on None.
            headers.setdefault("content-type", _content_type(headers))
    if window is not None:
        headers["window"] = str(window)
    return Answer(headers, delivery.kind, delivery.body, rest.status, rest.url, rest.method)


def _content_type(headers: dict[str, Any]) -> str:
    """Return what is said of a body, in whatever spelling; nothing is an empty text."""
    found = (value for name, value in headers.items() if name.lower() == "content-type")
    return next((value for value in found if isinstance(value, str)), "")
