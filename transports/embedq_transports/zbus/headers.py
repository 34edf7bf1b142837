"""The headers of a request as text, each name in the spelling it came in and in lower case.

Knows: that they are UTF-8 or Latin-1, that one which comes twice is a list.
Does not know: what any of them means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

#: Names of headers up to this length are remembered, and so many of them: there are few, and
#: each request has them.
_SHORT, _MANY = 64, 512
_names: Final[dict[bytes, tuple[str, str]]] = {}


def read_headers(raw: Sequence[tuple[bytes, bytes]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the headers by their names as they came, and by the same in lower case.

    One that comes twice is a list, as the original makes it, under its first spelling.
    """
    headers: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    for raw_name, raw_value in raw:
        name, lower = _names.get(raw_name) or _name_of(raw_name)
        try:
            value = raw_value.decode()
        except UnicodeDecodeError:
            value = text_of_bytes(raw_value)
        if lower in fields:
            name = list(headers)[list(fields).index(lower)]  # the two have the same order
            add(headers, name, value)
            fields[lower] = headers[name]
        else:
            headers[name] = fields[lower] = value
    return headers, fields


def _name_of(raw: bytes) -> tuple[str, str]:
    """Return a name as it came, and in lower case."""
    name = text_of_bytes(raw)
    named = name, name.lower()
    if len(raw) <= _SHORT:
        if len(_names) >= _MANY:  # whoever has sent names that nobody has is not remembered
            _names.clear()
        _names[raw] = named
    return named


def text_of_bytes(raw: bytes) -> str:
    """Return UTF-8 as text, and what is none as Latin-1."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def add(attributes: dict[str, Any], name: str, value: str) -> None:
    """Keep a value; of several of one name, a list."""
    known = attributes.get(name)
    if known is None:
        attributes[name] = value
    elif isinstance(known, list):
        known.append(value)
    else:
        attributes[name] = [known, value]
