"""Bodies between the dialects: what a content type says, forms, base64.

Knows: the tables of docs/protocols/zbus.md: which bodies are text, JSON or bytes, and how each is
written.
Does not know: where a body comes from or goes to.
"""

from __future__ import annotations

import base64
import binascii
import codecs
from collections.abc import Mapping
from email.message import Message as Mime
from functools import lru_cache
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from embedq.payload import BYTES, JSON, TEXT
from embedq_transports.zbus.headers import add
from embedq_transports.zbus.limits import ZbusLimits

FORM: Final = "application/x-www-form-urlencoded"
MULTIPART: Final = "multipart/form-data"
#: Content types whose bodies are text in JSON.
_TEXTS: Final = ("text", "application/json", "application/javascript", "application/xml")
_PART_HEADERS: Final = 8
#: Content types and charsets that are remembered, and how long one may be for that.
_MANY, _SHORT = 256, 128


class BadForm(ValueError):
    """A body is not what its content type says."""


def from_http(data: bytes, content_type: str | None, limits: ZbusLimits) -> tuple[int, bytes]:
    """Return kind and body of an HTTP request. JSON stays the text that it is.

    Raises BadForm for forms that are none, and for text that is not of its charset.
    """
    if not data:
        return BYTES, b""
    name, parameters = content_type_of(content_type)
    if name.startswith(("text/", "application/json")):
        return TEXT, _text(data, parameters.get("charset"))
    if name == FORM:
        return JSON, _json(_form(data, parameters.get("charset"), limits))
    if name == MULTIPART:
        return JSON, _json(_multipart(data, parameters.get("boundary"), limits))
    return BYTES, data


def from_json(value: msgspec.Raw, content_type: str | None) -> tuple[int, bytes]:
    """Return kind and body of a WebSocket message: `value` is its body, as JSON text.

    A text whose content type says that it is none is base64 of bytes, if it can be.
    """
    raw = bytes(value)
    if not raw or raw == b"null":
        return BYTES, b""
    if raw[:1] != b'"':
        return JSON, raw
    text = msgspec.json.decode(raw, type=str)
    if content_type and not content_type.startswith(_TEXTS):
        try:
            return BYTES, base64.b64decode(text.encode("ascii"), validate=True)
        except (binascii.Error, UnicodeEncodeError):
            pass  # not base64: then it is text
    # An empty text is one, although no bytes at all are null.
    return (TEXT, text.encode("utf-8", "surrogatepass")) if text else (JSON, b'""')


def to_json(kind: int, body: bytes) -> msgspec.Raw:
    """Return a body as JSON text: bytes as base64, text as a string, JSON as it is."""
    if kind == TEXT:
        try:
            return msgspec.Raw(msgspec.json.encode(body.decode()))
        except UnicodeDecodeError:
            kind = BYTES  # whoever put it said so, and it is none
    if kind == JSON:
        return msgspec.Raw(body)
    if not body:
        return msgspec.Raw(b"null")
    return msgspec.Raw(msgspec.json.encode(base64.b64encode(body).decode()))


def to_http(kind: int, body: bytes, content_type: str | None) -> bytes:
    """Return a body as that of an HTTP response.

    With the content type of JSON a text becomes a JSON string, unless it is JSON already: what
    an HTTP request brought as JSON is a text. A text is written in the charset it declares.
    """
    if kind == JSON:
        return body
    if kind != TEXT:
        return body
    name, parameters = content_type_of(content_type)
    if name.startswith("application/json") and not _is_json(body):
        return bytes(to_json(TEXT, body))
    charset = parameters.get("charset")
    codec = _codec(charset) if charset else None
    if codec is None or codec.name == "utf-8":
        return body
    try:
        return codec.encode(body.decode())[0]
    except (UnicodeError, ValueError):
        return body  # it cannot be said in that charset


def default_type(kind: int) -> str:
    """Return the content type of a message that has none."""
    if kind == TEXT:
        return "text/plain; charset=utf8"
    return "application/json; charset=utf8" if kind == JSON else "application/octet-stream"


def content_type_of(value: str | None) -> tuple[str, Mapping[str, str]]:
    """Return the type in lower case and its parameters."""
    if not value:
        return "", {}
    return _remembered(value) if len(value) <= _SHORT else _content_type_of(value)


def _content_type_of(value: str) -> tuple[str, Mapping[str, str]]:
    name, _, rest = value.partition(";")
    if not rest:
        return name.strip().lower(), {}
    mime = Mime()
    mime["Content-Type"] = value.replace("\r", " ").replace("\n", " ")
    parameters = {}
    for key, given in (mime.get_params(failobj=[]) or [])[1:]:
        parameters[key.lower()] = given
    return name.strip().lower(), parameters


#: There are few, and each message has one.
_remembered: Final = lru_cache(_MANY)(_content_type_of)


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _json(value: object) -> bytes:
    return msgspec.json.encode(value)


def _codec(charset: str | None) -> codecs.CodecInfo | None:
    """Return a codec of text, None for a charset that is none or unknown."""
    return _find_codec(charset) if charset is None or len(charset) <= _SHORT else None


@lru_cache(_MANY)
def _find_codec(charset: str | None) -> codecs.CodecInfo | None:
    try:
        codec = codecs.lookup(charset or "utf-8")
        codec.decode(b"")[0].upper()
        if not isinstance(codec.encode("")[0], bytes):
            return None
    except (LookupError, ValueError, AttributeError, TypeError):
        return None
    return codec


def _text(data: bytes, charset: str | None) -> bytes:
    """Return text as UTF-8, whatever charset it came in."""
    codec = _codec(charset)
    if codec is None:
        raise BadForm(f"the charset {charset!r} is unknown")
    try:
        text = codec.decode(data)[0]
        return data if codec.name == "utf-8" else text.encode()
    except (UnicodeError, ValueError) as error:
        raise BadForm(f"the body is not {codec.name}") from error


# ------------------------------------------------------------------------------------- forms


def _form(data: bytes, charset: str | None, limits: ZbusLimits) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    codec = _codec(charset)
    try:
        pairs = parse_qsl(
            data.decode("utf-8"),
            keep_blank_values=True,
            max_num_fields=limits.form_parts,
            encoding="utf-8" if codec is None else codec.name,
            errors="replace",
        )
    except ValueError as error:  # UnicodeDecodeError is one
        raise BadForm("the body is no form, or has too many fields") from error
    for name, value in pairs:
        add(attributes, name, value)
    return {"attributes": attributes, "files": {}}


def _multipart(data: bytes, boundary: str | None, limits: ZbusLimits) -> dict[str, Any]:
    """Read a form of several parts: values of fields, and files as base64."""
    if not boundary or not boundary.isascii():
        raise BadForm("a multipart body without a boundary")
    attributes: dict[str, Any] = {}
    files: dict[str, list[dict[str, str]]] = {}
    mark = b"--" + boundary.encode()
    pieces = (b"\r\n" + data).split(b"\r\n" + mark, limits.form_parts + 1)
    if len(pieces) < 2 or not pieces[-1].startswith(b"--"):  # noqa: PLR2004  # preamble, end
        raise BadForm("a multipart body that does not end, or has too many parts")
    for piece in pieces[1:-1]:
        head, found, content = piece.partition(b"\r\n\r\n")
        if not found:
            raise BadForm("a part without an empty line")
        name, file_name, content_type = _part_of(head)
        if file_name is None:
            add(attributes, name, content.decode("utf-8", "replace"))
        else:
            entry = {
                "fileName": file_name,
                "contentType": content_type,
                "data": base64.b64encode(content).decode(),
            }
            files.setdefault(name, []).append(entry)
    return {"attributes": attributes, "files": files}


def _part_of(head: bytes) -> tuple[str, str | None, str]:
    """Return name, file name and content type of a part."""
    lines = head.decode("utf-8", "replace").split("\r\n")[1:]
    if len(lines) > _PART_HEADERS:
        raise BadForm("a part with too many headers")
    mime = Mime()
    for line in lines:
        key, found, value = line.partition(":")
        key = key.strip().lower()
        if found and key in ("content-disposition", "content-type") and key not in mime:
            mime[key] = value.strip().replace("\r", " ").replace("\n", " ")
    name = mime.get_param("name", header="content-disposition")
    if not isinstance(name, str):
        raise BadForm("a part without a name")
    return name, mime.get_filename(), mime.get("content-type", "application/octet-stream")
