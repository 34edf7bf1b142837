"""What a zbus server writes: responses of HTTP, text frames, one profile for every client.

Knows: the form of answers and pushes (docs/protocols/zbus.md), what a header of HTTP may hold.
Does not know: which answer a command gets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from http import HTTPStatus
from operator import itemgetter
from typing import Any, Final

import msgspec

from embedq.payload import JSON, TEXT
from embedq_transports.zbus.bodies import default_type, to_http, to_json
from embedq_transports.zbus.frames import text_frame

#: The content types that the server itself writes.
TEXT_TYPE: Final = "text/plain; charset=utf8"
JSON_TYPE: Final = "application/json; charset=utf8"
#: `take` found nothing.
NOTHING: Final = 604
#: Headers of a connection or of a body: never those of a message.
OF_HTTP: Final = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
#: Statuses whose responses end with their head.
_BODILESS: Final = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Answer(msgspec.Struct, frozen=True):
    """An answer or a push, before it is known how it travels. `status` None is a push."""

    headers: dict[str, Any]
    kind: int = TEXT
    body: bytes = b""
    status: int | None = None
    url: str | None = None
    method: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return its five members; keys are sorted when it is written."""
        return {
            "body": to_json(self.kind, self.body),
            "headers": self.headers,
            "method": self.method,
            "status": self.status,
            "url": self.url,
        }


def told(status: int, text: str, wire_id: str | None) -> Answer:
    """Return an answer that is a sentence."""
    headers: dict[str, Any] = {"Content-Type": TEXT_TYPE}
    if wire_id is not None:
        headers["id"] = wire_id
    return Answer(headers, TEXT, text.encode("utf-8", "replace"), status)


def shown(value: object, wire_id: str | None, status: int = 200, **headers: str) -> Answer:
    """Return an answer that is a value."""
    named: dict[str, Any] = dict(headers)
    if wire_id is not None:
        named["id"] = wire_id
    return Answer(named, JSON, msgspec.json.encode(value, order="deterministic"), status)


def messages(found: Iterable[Answer]) -> list[dict[str, Any]]:
    """Return messages as `take` answers with them."""
    return [each.as_json() for each in found]


def to_frame(answer: Answer) -> bytes:
    """Return an answer as a text frame: compact JSON, its keys sorted, nulls written."""
    return text_frame(msgspec.json.encode(answer.as_json(), order="deterministic"))


def to_response(
    answer: Answer,
    *,
    keep: bool = True,
    bare: bool = False,
    extra: Mapping[str, str] | None = None,
) -> bytes:
    """Return an answer as a response of HTTP; a push is one, too, with the status 200.

    `bare`: without its body, for HEAD. `extra`: headers of the connection.
    """
    given, sent = "", []
    for name, value in answer.headers.items():
        lower = name.lower()
        if lower == "content-type":
            given = value if isinstance(value, str) and value else given
        elif lower not in OF_HTTP:
            sent.append((lower, name, value))
    if len(sent) > 1:
        sent.sort(key=itemgetter(0))
    content_type = given or (JSON_TYPE if answer.kind == JSON else default_type(answer.kind))
    body = to_http(answer.kind, answer.body, given or None)
    status = _status_of(answer.status, body)
    lines = [_first_line(status)]
    for _, name, value in sent:
        lines += _header(name, value)
    if extra:
        lines += [f"{name}: {value}" for name, value in extra.items()]
    lines.append("Connection: Keep-Alive" if keep else "Connection: close")
    if status != HTTPStatus.NO_CONTENT:
        lines += _header("Content-Type", content_type)
        lines.append(f"Content-Length: {len(body)}")
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "replace")
    return head if bare else head + body


def _status_of(status: int | None, body: bytes) -> int:
    """Return the status of a response: services and publishers may say any.

    Behind an interim one a client waits for another, and of some it reads no body: what follows
    would be read as the next response.
    """
    if status is None or status < HTTPStatus.OK or (body and status in _BODILESS):
        return HTTPStatus.OK
    return status


def sentence(status: int, text: str, wire_id: str, *, keep: bool) -> bytes:
    """Return what to_response() makes of told(): most answers are no more than that."""
    body = text.encode("utf-8", "replace")
    shown_id = wire_id if wire_id.isprintable() else _CONTROL.sub(" ", wire_id)
    head = (
        f"{_first_line(status)}\r\nid: {shown_id}\r\n"
        f"Connection: {'Keep-Alive' if keep else 'close'}\r\n"
        f"Content-Type: {TEXT_TYPE}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode("utf-8", "replace") + body


def _header(name: str, value: object) -> list[str]:
    """Return the lines of a header; a list is several, what HTTP cannot say is left out."""
    if value is None or not _TOKEN.fullmatch(name):
        return []
    if isinstance(value, list | tuple):
        return [line for each in value for line in _header(name, each)]
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return [f"{name}: {text if text.isprintable() else _CONTROL.sub(' ', text)}"]


@lru_cache
def _first_line(status: int) -> str:
    try:
        reason = HTTPStatus(status).phrase
    except ValueError:
        reason = f"Unknown Status ({status})"
    return f"HTTP/1.1 {status} {reason}"
