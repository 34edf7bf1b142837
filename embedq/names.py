"""Names of queues and groups, keys, and how foreign bytes become names.

Knows: 1 to 255 bytes of UTF-8, no control characters; percent-encoding of all other bytes.
Does not know: which queues exist, nor what a name is used for.
"""

import re
from typing import Final

from embedq.errors import InvalidName
from embedq.limits import LIMITS

# C0, DEL and C1: they hide in terminals, logs and the frames of text protocols.
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_SHOWN: Final = 60
# The last range is how "surrogateescape" marks bytes that are not UTF-8.
_TO_ESCAPE: Final = re.compile("[\x00-\x1f%\x7f-\x9f\udc80-\udcff]")
_ESCAPED: Final = re.compile(b"%([0-9A-F]{2})")
_ZERO: Final = "%00"


def check_queue_name(name: str) -> str:
    """Return `name` when a queue may have it; InvalidName says which rule it breaks."""
    return _check(name, "queue name", LIMITS.name_bytes)


def check_group_name(name: str) -> str:
    """Return `name` when a consumer group may have it; InvalidName says which rule it breaks."""
    return _check(name, "group name", LIMITS.name_bytes)


def check_key(key: str, what: str) -> str:
    """Return `key` when it may be a dedup or ordering key; `what` names it in InvalidName."""
    return _check(key, what, LIMITS.key_bytes)


def check_header_name(name: str) -> str:
    """Return `name` when a header may have it; InvalidName says which rule it breaks."""
    return _check(name, "header name", LIMITS.name_bytes)


def from_wire(name: bytes) -> str:
    """Return the name for bytes from a wire: UTF-8 stays, other bytes become %XX.

    "%" and control characters are encoded too, so that to_wire() is an exact inverse. No bytes
    at all are "%00"; therefore a name of n zero bytes and nothing else is n + 1 times "%00".
    The result may be too long for a name: check_queue_name() tells.
    """
    if not name.strip(b"\0"):
        return _ZERO * (len(name) + 1)
    return _TO_ESCAPE.sub(_escape, name.decode("utf-8", "surrogateescape"))


def to_wire(name: str) -> bytes:
    """Return the bytes that from_wire() made `name` of.

    Raises InvalidName when from_wire() cannot have made it, such as "100%": its bytes would
    name another queue.
    """
    try:
        wire = _ESCAPED.sub(_unescape, name.encode())
    except UnicodeEncodeError:
        wire = b""
    if not wire.strip(b"\0"):
        wire = wire[1:]
    if from_wire(wire) != name:
        msg = f"the name {_shown(name)} cannot be written on a wire"
        raise InvalidName(msg, hint='use "%" only as from_wire() writes it: "%25" stands for "%"')
    return wire


def _escape(match: re.Match[str]) -> str:
    raw = match.group().encode("utf-8", "surrogateescape")
    return "".join(f"%{byte:02X}" for byte in raw)


def _unescape(match: re.Match[bytes]) -> bytes:
    return bytes((int(match.group(1), 16),))


def _check(name: object, what: str, max_bytes: int) -> str:
    if not isinstance(name, str):
        msg = f"{'an' if what[0] in 'aeiou' else 'a'} {what} is a str, not {type(name).__name__}"
        raise InvalidName(msg, what=what)
    if not name:
        msg = f"the {what} is empty"
        raise InvalidName(msg, what=what)
    # len() first: a name of a gigabyte is refused without encoding it.
    if len(name) > max_bytes or (not name.isascii() and _too_long(name, what, max_bytes)):
        msg = f"the {what} {_shown(name)} is longer than {max_bytes} bytes of UTF-8"
        raise InvalidName(msg, what=what)
    # isprintable() is one C loop that answers for nearly every name.
    if not name.isprintable():
        control = _CONTROL.search(name)
        if control is not None:
            code = f"U+{ord(control.group()):04X}"
            msg = f"the {what} {_shown(name)} has the control character {code}"
            raise InvalidName(msg, what=what)
    return name


def _too_long(name: str, what: str, max_bytes: int) -> bool:
    try:
        return len(name.encode()) > max_bytes
    except UnicodeEncodeError as error:
        msg = f"the {what} {_shown(name)} has a lone surrogate at position {error.start}"
        raise InvalidName(msg, what=what) from None


def _shown(name: str) -> str:
    text = ascii(name[: _SHOWN + 1])
    return text if len(text) <= _SHOWN + 2 else f"{text[:_SHOWN]}…"
