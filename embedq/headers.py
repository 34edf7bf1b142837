"""The headers of a message: what they may be.

Knows: names, sizes and how many there may be.
Does not know: what any of them means, how they are stored.
"""

from collections.abc import Mapping

from embedq.errors import InvalidName, InvalidOption, LimitExceeded
from embedq.limits import LIMITS, Limits
from embedq.names import check_header_name


def checked_headers(headers: object, limits: Limits) -> dict[str, str] | None:
    """Return a copy that obeys the rules, None for none at all.

    Raises InvalidOption, InvalidName or LimitExceeded.
    """
    if not isinstance(headers, Mapping):
        msg = f"headers is a mapping of str to str, not {type(headers).__name__}"
        raise InvalidOption(msg, argument="headers")
    checked = dict(headers)
    if len(checked) > limits.headers_count:
        msg = f"{len(checked)} headers are more than headers_count={limits.headers_count}"
        raise LimitExceeded(msg, limit="headers_count")
    if not _are_plain(checked, limits):
        _check_each(checked, limits)
    return checked or None


def _are_plain(headers: dict[str, str], limits: Limits) -> bool:
    """Whether headers need no closer look: all of them together obey the rules for one."""
    try:
        names, values = "".join(headers), "".join(headers.values())
    except TypeError:
        return False
    size = len(names) + len(values)
    return (
        len(names) <= LIMITS.name_bytes
        and size <= limits.header_bytes
        and size <= limits.headers_bytes
        and names.isascii()
        and values.isascii()
        and names.isprintable()
        and "" not in headers
    )


def _check_each(headers: dict[str, str], limits: Limits) -> None:
    total = 0
    for name, value in headers.items():
        check_header_name(name)
        size = _header_size(name, value)
        if size > limits.header_bytes:
            msg = f"the header {name!r} has {size} bytes, more than {limits.header_bytes}"
            raise LimitExceeded(msg, limit="header_bytes")
        total += size
    if total > limits.headers_bytes:
        msg = f"the headers have {total} bytes, more than headers_bytes={limits.headers_bytes}"
        raise LimitExceeded(msg, limit="headers_bytes")


def _header_size(name: str, value: object) -> int:
    if not isinstance(value, str):
        msg = f"the header {name!r} is a str, not {type(value).__name__}"
        raise InvalidOption(msg, argument="headers")
    try:
        return len(name.encode()) + len(value.encode())
    except UnicodeEncodeError:
        msg = f"the header {name!r} has a value with a lone surrogate"
        raise InvalidName(msg, hint="encode binary values, for instance as base64") from None
