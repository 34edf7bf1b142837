"""Signatures of zbus messages, of both generations, in every spelling that clients use.

Knows: which members are signed, how each client writes the JSON that is signed.
Does not know: who has which secret.

The texts that clients of the original sign differ for one and the same message
(docs/protocols/zbus.md has the table): a handful of candidates is made, and the signature has to
be that of one of them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from embedq.payload import BYTES
from embedq_transports.zbus.answers import OF_HTTP
from embedq_transports.zbus.bodies import to_json
from embedq_transports.zbus.message import Message

#: What newer JavaScript clients sign if they are not told.
_DEFAULT_FIELDS: Final = "url,method,body,h.*"
_JAVA_ESCAPED: Final = re.compile("[\x7f-\x9f\u2028\u2029]")
_CONTROL: Final = re.compile('[\x00-\x1f"\\\\]')
_SHORT: Final = {
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
    '"': '\\"',
    "\\": "\\\\",
}


class Number(str):
    """A number as it was written: signatures are about its characters."""

    __slots__ = ()


def proof(message: Message, *, constant: bool) -> Callable[[bytes], bool]:
    """Return whether a secret signed this message. `constant`: also if nothing of it is signed.

    Either case of hexadecimal digits will do. A message that is no JSON proves nothing, nor does
    one with a header in two spellings: one of them may be signed, and the other be read.
    """
    fields = message.fields
    if any(fields[name.lower()] != value for name, value in message.headers.items()):
        return lambda _secret: False
    given = (message.text("signature") or "").lower().encode("ascii", "replace")

    def proves(secret: bytes) -> bool:
        try:
            return any(
                hmac.compare_digest(_sign(secret, text), given)
                for text in candidates(message, constant=constant)
            )
        except (ValueError, RecursionError):
            return False

    return proves


def _sign(secret: bytes, text: str) -> bytes:
    made = hmac.new(secret, text.encode("utf-8", "surrogatepass"), hashlib.sha256)
    return made.hexdigest().encode()


def candidates(message: Message, *, constant: bool) -> Iterator[str]:
    """Yield every text that a client may have signed for this message, each once."""
    seen = set()
    for chosen in _selections(_whole(message), message, constant=constant):
        for form in _forms(chosen):
            for text in _spellings(form):
                if text not in seen:
                    seen.add(text)
                    yield text


# -------------------------------------------------------------------- what has been signed


def _whole(message: Message) -> dict[str, Any]:
    """Return the message with its numbers as they were written, without the signature."""
    if message.raw is not None:
        found: dict[str, Any] = json.loads(
            message.raw, parse_int=Number, parse_float=Number, parse_constant=Number
        )
        whole: dict[str, Any] = {name: found[name] for name in _MEMBERS if name in found}
    else:
        body = bytes(to_json(message.kind, message.body))
        whole = {
            "url": message.url,
            "method": message.method,
            "body": json.loads(body, parse_int=Number, parse_float=Number),
        }
        if message.kind == BYTES and not message.body:
            del whole["body"]
    headers = found.get("headers") if message.raw is not None else message.headers
    whole["headers"] = {
        name: value for name, value in (headers or {}).items() if name.lower() != "signature"
    }
    return whole


_MEMBERS: Final = ("body", "headers", "method", "status", "url")


def _selections(
    whole: dict[str, Any], message: Message, *, constant: bool
) -> Iterator[dict[str, Any]]:
    """Yield the members that may have been signed."""
    headers: dict[str, Any] = whole["headers"]
    # Over HTTP the library below the client adds headers after it has signed.
    own = headers
    if message.raw is None:
        own = {name: value for name, value in headers.items() if name.lower() not in OF_HTTP}
    key = next((value for name, value in headers.items() if name.lower() == "apikey"), None)
    fields = message.text("signfields")
    if fields is None:
        yield whole
        yield {"headers": own, **{n: v for n, v in whole.items() if n != "headers"}}
        if message.raw is None and message.text("cmd") is not None:  # else the URL is the command
            yield {"headers": own, **({"body": whole["body"]} if "body" in whole else {})}
        if constant:
            yield {"headers": {"apiKey": key}}
        return
    base = {"apiKey": key, "signFields": fields}
    for named in (fields,) if fields else (fields, _DEFAULT_FIELDS):
        words = [word.strip() for word in named.split(",") if word.strip()]
        if not words and not constant:
            continue
        for all_headers in (headers, own):
            yield _chosen(whole, all_headers, base, words, absent=False)
        yield _chosen(whole, own, base, words, absent=True)


def _chosen(
    whole: dict[str, Any],
    headers: dict[str, Any],
    base: dict[str, Any],
    words: list[str],
    *,
    absent: bool,
) -> dict[str, Any]:
    """Return the members that a list names. `absent`: a header that is missing counts as null."""
    signed = dict(base)
    for word in words:
        if word == "h.*":
            signed |= headers
        elif word.startswith("h."):
            name = word[2:]
            if name in headers or absent:
                signed[name] = headers.get(name)
    chosen: dict[str, Any] = {"headers": signed}
    for word in words:
        if word in ("url", "method", "body") and word in whole:
            chosen[word] = whole[word]
    return chosen


def _forms(chosen: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what clients make of nulls, of header values that are no texts, of JSON in texts."""
    for each in _nulls(chosen):
        yield each
        texts = {name: _as_text(value) for name, value in each["headers"].items()}
        yield {**each, "headers": texts}
        body = each.get("body")
        if type(body) is str:
            try:
                parsed = json.loads(body, parse_int=Number, parse_float=Number)
            except (ValueError, RecursionError):
                continue
            yield {**each, "body": parsed}
            yield {**each, "body": parsed, "headers": texts}


def _nulls(chosen: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield chosen
    outer = {name: value for name, value in chosen.items() if value is not None}
    headers = {name: v for name, v in chosen["headers"].items() if v is not None}
    yield {**outer, "headers": headers}
    yield {**{name: _without_nulls(value) for name, value in outer.items()}, "headers": headers}


def _without_nulls(value: Any) -> Any:  # noqa: ANN401  # any JSON
    """Drop members that are null, at every depth; lists keep theirs."""
    if isinstance(value, dict):
        return {n: _without_nulls(v) for n, v in value.items() if v is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _as_text(value: Any) -> Any:  # noqa: ANN401  # any JSON
    """Return the text that Java makes of a header."""
    if type(value) is Number:
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


# --------------------------------------------------------------------------- how it is written


def _spellings(form: dict[str, Any]) -> Iterator[str]:
    """Yield a form as JSON: raw characters, Java's escapes, ASCII alone."""
    raw = _write(form, _quote_raw)
    yield raw
    java = _write(form, _quote_java)
    if java != raw:
        yield java
    if not raw.isascii():
        yield _write(form, json.dumps)


def _write(value: Any, quote: Callable[[str], str]) -> str:  # noqa: ANN401  # any JSON
    """Return compact JSON with sorted keys."""
    if type(value) is Number:
        return str(value)
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, dict):
        names = sorted(value, key=_code_units)
        return "{" + ",".join(f"{quote(n)}:{_write(value[n], quote)}" for n in names) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_write(each, quote) for each in value) + "]"
    return json.dumps(value)


def _code_units(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


def _quote_raw(text: str) -> str:
    return '"' + _CONTROL.sub(_escape_lower, text) + '"'


def _escape_lower(match: re.Match[str]) -> str:
    char = match[0]
    return _SHORT.get(char) or f"\\u{ord(char):04x}"


def _quote_java(text: str) -> str:
    made = _CONTROL.sub(_escape_upper, text)
    return '"' + _JAVA_ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04X}", made) + '"'


def _escape_upper(match: re.Match[str]) -> str:
    char = match[0]
    return _SHORT.get(char) or f"\\u{ord(char):04X}"
