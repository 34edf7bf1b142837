"""Bodies: from objects to bytes and back.

Knows: three kinds of content (bytes, text, JSON), and how an annotation reads each of them.
Does not know: size limits, storage, what a handler does; it never unpickles anything.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeVar, overload

import msgspec

from embedq.errors import InvalidPayload

BYTES: Final = 0
TEXT: Final = 1
JSON: Final = 2
#: What `kind` says about a body, as a content type. The numbers are stored: never change one.
CONTENT_TYPES: Final = {
    BYTES: "application/octet-stream",
    TEXT: "text/plain;charset=utf-8",
    JSON: "application/json",
}

_T = TypeVar("_T")
# What encoders and validators raise for data they do not like; anything else is a bug to see.
_BAD_DATA: Final = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
_NO_TYPE: Final = (None, object, Any)
# A float that is infinite or not a number, as MessagePack starts it.
_NON_FINITE: Final = (b"\xcb\x7f\xf0", b"\xcb\xff\xf0", b"\xcb\x7f\xf8", b"\xcb\xff\xf8")
_SHOWN: Final = 200


def encode(obj: object) -> tuple[int, bytes]:
    """Return (kind, body).

    bytes, bytearray and memoryview are kept as they are, str becomes UTF-8, everything else
    JSON: None, bool, numbers, list, tuple, set, dict, datetime, UUID, Decimal, enums,
    dataclasses, msgspec structs, and pydantic models. Raises InvalidPayload for other objects,
    for NaN and infinity (JSON has none), and for nesting deeper than Python recurses.
    """
    if isinstance(obj, bytes):
        return BYTES, bytes(obj)
    if isinstance(obj, str):
        return TEXT, _encode_text(obj)
    if isinstance(obj, bytearray | memoryview):
        return BYTES, bytes(obj)
    return JSON, _encode_json(obj)


@overload
def decode(kind: int, body: bytes) -> object: ...
@overload
def decode(kind: int, body: bytes, type: type[_T]) -> _T: ...
@overload
def decode(kind: int, body: bytes, type: object) -> object: ...
def decode(kind: int, body: bytes, type: object = None) -> object:
    """Return the object in `body`, as `type` when one is given.

    Without a type: bytes, str, or plain JSON values, by kind. `bytes` and `str` are the body
    itself, whatever its kind. Any other type is read from JSON (and from plain text, if it fits:
    "5" is an int), also when a producer on some wire could not name a content type. Raises
    InvalidPayload when the body is not what was asked for.
    """
    if type is bytes or type is bytearray or type is memoryview:
        return type(body)
    if type is str:
        return _decode_text(body)
    untyped = type in _NO_TYPE
    if kind == BYTES and untyped:
        return body
    if kind == TEXT:
        text = _decode_text(body)
        return text if untyped else _text_as(text, body, type)
    if kind not in CONTENT_TYPES:
        raise InvalidPayload(
            f"content of kind {kind} is unknown to this release",
            hint="ask for bytes, or upgrade embedq",
            kind=kind,
        )
    return _decode_json(body, None if untyped else type)


def content_type(kind: int) -> str:
    """Return the content type of `kind`; unknown kinds are bytes to everybody."""
    return CONTENT_TYPES.get(kind, CONTENT_TYPES[BYTES])


def _encode_text(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidPayload(
            f"the str has a lone surrogate at position {error.start}, which UTF-8 cannot carry",
            hint='put bytes instead, for instance text.encode("utf-8", "surrogateescape")',
        ) from None


def _encode_json(obj: object) -> bytes:
    try:
        kind: type = type(obj)
        dump = _json_method(kind)
        body = _ENCODER.encode(obj) if dump is None else _encode_text(dump(obj))
        # msgspec and pydantic write NaN and infinity as null, and silence would change the body.
        altered = b"null" in body and _has_non_finite(obj)
    except _BAD_DATA as error:
        raise _not_encodable(obj, error) from error
    if altered:
        raise InvalidPayload(
            f"{_name(type(obj))} holds a float that is infinite or not a number",
            hint="JSON has no such number: use None, a str, or put bytes",
        )
    return body


# Looking for an attribute that is not there takes as long as encoding a small object.
@lru_cache(maxsize=512)
def _json_method(kind: type) -> Callable[[object], str] | None:
    method: Callable[[object], str] | None = getattr(kind, "model_dump_json", None)
    return method


def _to_builtins(obj: object) -> object:
    dump = getattr(type(obj), "model_dump", None)
    if dump is None:
        raise TypeError(f"{_name(type(obj))} has no form in JSON")
    plain: object = dump(obj, mode="json")
    return plain


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_to_builtins)


def _to_probe(obj: object) -> object:
    # "python" keeps the numbers as they are; values without a number in them do not matter.
    dump = getattr(type(obj), "model_dump", None)
    plain: object = None if dump is None else dump(obj, mode="python")
    return plain


def _has_non_finite(obj: object) -> bool:
    try:
        probe = msgspec.msgpack.encode(obj, enc_hook=_to_probe)
    except OverflowError:
        # Integers beyond 64 bits are fine in JSON; only the long way can tell about the rest.
        return _walk_finds_non_finite(obj)
    # The marks can also occur by chance inside other numbers: then look closely.
    return any(mark in probe for mark in _NON_FINITE) and _walk_finds_non_finite(obj)


def _walk_finds_non_finite(obj: object) -> bool:
    pending = [msgspec.to_builtins(obj, enc_hook=_to_probe)]
    while pending:
        value = pending.pop()
        if isinstance(value, float):
            if not math.isfinite(value):
                return True
        elif isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, list | tuple | set | frozenset):
            pending.extend(value)
    return False


def _decode_text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise InvalidPayload(
            f"the body is not UTF-8: {error.reason} at byte {error.start}",
            hint="ask for bytes and decode them in the handler",
        ) from None


def _text_as(text: str, body: bytes, wanted: object) -> object:
    # An enum, a number, a date: their text is no JSON, so the direct way comes first.
    try:
        return msgspec.convert(text, wanted, dec_hook=_from_builtins)
    except _BAD_DATA:
        return _decode_json(body, wanted)


def _decode_json(body: bytes, wanted: object) -> object:
    try:
        validate: Callable[[bytes], object] | None
        validate = getattr(wanted, "model_validate_json", None)
        if validate is not None:
            return validate(body)
        return _decoder(wanted).decode(body)
    except _BAD_DATA as error:
        name = "JSON" if wanted is None else _name(wanted)
        reason = _shorten(_why(error))
        raise InvalidPayload(
            f"the body of {len(body)} bytes is not {name}: {reason}",
            hint="compare producer and annotation; ask for bytes to see the body as it is",
        ) from error


def _decoder(wanted: object) -> "msgspec.json.Decoder[object]":
    try:
        return _cached_decoder(wanted)
    except TypeError:
        # Either an annotation that cannot be hashed, or none that msgspec reads: it says which.
        return _new_decoder(wanted)


def _new_decoder(wanted: object) -> "msgspec.json.Decoder[object]":
    content: Any = Any if wanted is None else wanted
    return msgspec.json.Decoder(content, dec_hook=_from_builtins)


# Building a decoder takes longer than using it once.
_cached_decoder = lru_cache(maxsize=512)(_new_decoder)


def _from_builtins(wanted: type, value: object) -> object:
    validate = getattr(wanted, "model_validate", None)
    if validate is None:
        raise TypeError(f"{_name(wanted)} is no type that JSON can become")
    try:
        return validate(value)
    except ValueError as error:
        raise ValueError(_why(error)) from error


def _why(error: Exception) -> str:
    """Say what is wrong with a body.

    The own text of pydantic's errors has several lines, a web address, and the values that were
    wrong: secrets, perhaps, which would stand in logs.
    """
    if not hasattr(error, "error_count"):
        return f"{error}"
    rows = error.errors(include_url=False, include_context=False, include_input=False)  # type: ignore[attr-defined]
    return "; ".join(f"{row['msg']} - at `{_path(row['loc'])}`" for row in rows)


def _path(parts: tuple[object, ...]) -> str:
    steps = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return f"${''.join(steps)}"


def _not_encodable(obj: object, error: Exception) -> InvalidPayload:
    if isinstance(error, RecursionError):
        return InvalidPayload(
            f"{_name(type(obj))} is nested too deeply, or contains itself",
            hint="flatten it, or put bytes",
        )
    return InvalidPayload(f"{_name(type(obj))} cannot be a body: {_shorten(f'{error}')}")


def _name(kind: object) -> str:
    return _shorten(kind.__qualname__ if isinstance(kind, type) else repr(kind))


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
