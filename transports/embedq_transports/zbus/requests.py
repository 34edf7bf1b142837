"""From an HTTP request or the JSON of a WebSocket to the message that it carries.

Knows: that headers are members of the message, what the query of `/` may say, five JSON keys.
Does not know: bytes on a connection (http.py, frames.py), what commands do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final
from urllib.parse import parse_qsl, unquote_plus

import msgspec

from embedq.payload import TEXT
from embedq_transports.zbus.bodies import BadForm, add, from_http, from_json
from embedq_transports.zbus.limits import ZbusLimits
from embedq_transports.zbus.message import Message

#: What the query of `/` may say instead of headers; `body` is the body.
_BODY: Final = "body"
#: A target as proxies get it, which servers have to read, too.
_ABSOLUTE: Final = re.compile(rb"(?i:https?)://([^/?]*)(.*)", re.DOTALL)
#: How deep the value of a header may be: it is read again for each consumer.
_DEPTH: Final = 32
#: Names of headers up to this length are remembered.
_SHORT: Final = 64
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
    headers: Sequence[tuple[bytes, bytes]],
    body: bytes,
    limits: ZbusLimits,
) -> Message:
    """Return the message of an HTTP request. Raises NoMessage for a body that is not its type.

    Names and values are UTF-8, or Latin-1 where they are not. A header that comes twice is a
    list, as the original makes it.
    """
    named: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    seen: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, lower = _named(raw_name) if len(raw_name) <= _SHORT else _name_of(raw_name)
        if lower in seen:
            add(named, seen[lower], _text(raw_value))
            fields[lower] = named[seen[lower]]
        else:
            seen[lower] = name
            named[name] = fields[lower] = _text(raw_value)
    if not target.startswith(b"/"):
        target = _from_absolute(target, fields)
    path, _, query = target.partition(b"?")
    asked = _asked(query, limits) if path == b"/" and query and "cmd" not in seen else {}
    said = asked.pop(_BODY, None)
    for name, value in asked.items():
        named[seen.setdefault(name.lower(), name)] = fields[name.lower()] = value
    if said is not None:
        kind, data = (TEXT, said.encode("utf-8", "surrogatepass"))
    else:
        content_type = fields.get("content-type")
        try:
            kind, data = from_http(
                body, content_type if isinstance(content_type, str) else None, limits
            )
        except BadForm as error:
            raise NoMessage(str(error)) from error
    # What a query said is in the headers now: it may be a signature, which is not to be kept.
    url = "/" if asked or target == b"/" else unquote_plus(target.decode("utf-8", "replace"))
    return Message(named, fields, kind, data, url, method)


def _from_absolute(target: bytes, fields: dict[str, Any]) -> bytes:
    """Return path and query of a target that names the host, too; that host is what counts."""
    found = _ABSOLUTE.fullmatch(target)
    if found is None:
        return target
    fields["host"] = _text(found[1])
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


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _name_of(raw: bytes) -> tuple[str, str]:
    """Return the name of a header, and the same in lower case."""
    name = _text(raw)
    return name, name.lower()


#: There are few, and each request has them.
_named: Final = lru_cache(512)(_name_of)
