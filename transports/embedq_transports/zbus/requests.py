"""From an HTTP request or the JSON of a WebSocket to the message that it carries.

Knows: that headers are members of the message, what the query of `/` may say, five JSON keys.
Does not know: bytes on a connection (http.py, frames.py), what commands do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote_plus

import msgspec

from embedq.payload import TEXT
from embedq_transports.zbus.bodies import BadForm, from_http, from_json
from embedq_transports.zbus.headers import text_of_bytes
from embedq_transports.zbus.limits import ZbusLimits
from embedq_transports.zbus.message import Message

#: What the query of `/` may say instead of headers; `body` is the body.
_BODY: Final = "body"
#: A target as proxies get it, which servers have to read, too.
_ABSOLUTE: Final = re.compile(rb"(?i:https?)://([^/?]*)(.*)", re.DOTALL)
#: How deep the value of a header may be: it is read again for each consumer.
_DEPTH: Final = 32
#: Whole numbers that JSON is written with here.
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1


class NoMessage(ValueError):
    """What came is no zbus message."""


class _Json(msgspec.Struct):
    headers: dict[str, Any] | None = None
    body: msgspec.Raw = msgspec.Raw(b"")
    url: str | None = None
    method: str | None = None
    status: int | str | None = None


_decode: Final = msgspec.json.Decoder(_Json).decode


def message_of_request(
    method: str,
    target: bytes,
    headers: dict[str, Any],
    fields: dict[str, Any],
    body: bytes,
    limits: ZbusLimits,
) -> Message:
    """Return the message of an HTTP request. Raises NoMessage for a body that is not its type.

    `headers` and `fields`: what read_headers has made; they become those of the message.
    """
    if not target.startswith(b"/"):
        target = _from_absolute(target, fields)
    path, _, query = target.partition(b"?")
    asked: dict[str, str] = {}
    said = None
    if query and path == b"/" and "cmd" not in fields:
        asked = _asked(query, limits)
        said = asked.pop(_BODY, None)
        spelled = {name.lower(): name for name in headers}
        for name, value in asked.items():
            lower = name.lower()
            headers[spelled.setdefault(lower, name)] = fields[lower] = value
    if said is not None:
        kind, data = (TEXT, said.encode("utf-8", "surrogatepass"))
    else:
        content_type = fields.get("content-type")
        try:
            kind, data = from_http(
                body, content_type if type(content_type) is str else None, limits
            )
        except BadForm as error:
            raise NoMessage(str(error)) from error
    # What a query said is in the headers now: it may be a signature, which is not to be kept.
    url = "/" if asked or target == b"/" else unquote_plus(target.decode("utf-8", "replace"))
    return Message(headers, fields, kind, data, url, method)


def _from_absolute(target: bytes, fields: dict[str, Any]) -> bytes:
    """Return path and query of a target that names the host, too; that host is what counts."""
    found = _ABSOLUTE.fullmatch(target)
    if found is None:
        return target
    fields["host"] = text_of_bytes(found[1])
    rest = found[2]
    return rest if rest.startswith(b"/") else b"/" + rest


def _asked(query: bytes, limits: ZbusLimits) -> dict[str, str]:
    """Return the parameters of a query that has a command; else none."""
    try:
        pairs = parse_qsl(
            query.decode("utf-8", "replace"),
            keep_blank_values=True,
            max_num_fields=limits.form_parts,
        )
    except ValueError as error:
        raise NoMessage("the query has too many parameters") from error
    found = dict(pairs)
    return found if any(name.lower() == "cmd" for name in found) else {}


def message_of_json(data: bytes, *, keep_raw: bool) -> Message:
    """Return the message of a WebSocket message. Raises NoMessage.

    `keep_raw`: a signature may have to be checked, which is about the numbers as they were
    written.
    """
    try:
        found = _decode(data)
        headers = found.headers or {}
        for value in headers.values():
            _check(value, _DEPTH)
        content_type = _field(headers, "content-type")
        kind, body = from_json(found.body, content_type if isinstance(content_type, str) else None)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise NoMessage("json format required") from error
    fields = {name.lower(): value for name, value in headers.items()}
    raw = data if keep_raw else None
    status = found.status
    if isinstance(status, str):
        status = int(status) if status.isascii() and status.isdecimal() else None
    if status is not None and not 100 <= status <= 999:  # noqa: PLR2004  # what HTTP can say
        status = None
    return Message(headers, fields, kind, body, found.url, found.method, status, raw)


def _check(value: object, depth: int) -> None:
    """Refuse the value of a header that could be read and not be written again."""
    if isinstance(value, dict | list):
        if not depth:
            raise NoMessage(f"a header is deeper than {_DEPTH}")
        for each in value.values() if isinstance(value, dict) else value:
            _check(each, depth - 1)
    elif type(value) is int and not _LEAST <= value <= _MOST:
        raise NoMessage("a header is a number of more than 64 bits")


def _field(headers: Mapping[str, Any], wanted: str) -> object:
    return next((value for name, value in headers.items() if name.lower() == wanted), None)
