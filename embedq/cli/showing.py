"""Texts for people: tables, ages, moments, the beginnings of bodies.

Knows: how wide characters are.
Does not know: where the text goes, what the numbers mean.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from embedq.printable import plain

#: Nothing: no value, or not known.
ABSENT: Final = "–"

_PREVIEW: Final = 60
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_EXACT_BELOW_S: Final = 10


def body_text(body: bytes) -> str:
    """Return a body as text that no terminal obeys; bytes that are no UTF-8 are escaped."""
    return plain(body.decode("utf-8", "backslashreplace"))


def preview(body: bytes, most: int = _PREVIEW) -> str:
    """Return the beginning of a body, in one line."""
    # A character has at most four bytes: a body of megabytes is not decoded whole.
    text = body_text(body[: 4 * most + 4])
    return cut(text, most) if len(body) <= 4 * most + 4 else f"{text[: most - 1]}…"


def cut(text: str, most: int = _PREVIEW) -> str:
    """Return `text`, or its beginning and a mark that there is more."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def age(seconds: float | None) -> str:
    """Return a time span with its two largest units: "3d 4h", "1m 5s", "0.4s"."""
    if seconds is None:
        return ABSENT
    if seconds < _EXACT_BELOW_S:
        return f"{max(0.0, seconds):.1f}s"
    left = int(seconds)
    parts: list[str] = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def iso(ms: int | None) -> str | None:
    """Return a moment as JSON has it: UTC with milliseconds."""
    if ms is None:
        return None
    try:
        moment = datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # beyond the year 9999: damage, or a far wish
        return f"{ms} ms"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def when(ms: int | None) -> str:
    """Return a moment for people, in UTC."""
    text = iso(ms)
    return ABSENT if text is None else text.replace("T", " ", 1)


def size(count: float) -> str:
    """Return a number of bytes: "512 B", "3.4 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:  # noqa: PLR2004  # that is what the units are
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def number(count: int | None) -> str:
    """Return a count with thousands apart."""
    return ABSENT if count is None else f"{count:,}"


def counted(count: int, what: str) -> str:
    """Return "1 message", "2,000 messages"."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def width(text: str) -> int:
    """Return how many columns a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: str = "") -> str:
    """Return lines in columns; cells are escaped. `right`: heads of columns that hold numbers."""
    lines = [head, *[[plain(cell) for cell in row] for row in rows]]
    widths = [max(map(width, column)) for column in zip(*lines, strict=True)]
    numbers = {at for at, name in enumerate(head) if name in right.split()}
    return "\n".join(
        "  ".join(
            _padded(cell, room, right=at in numbers)
            for at, (cell, room) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _padded(cell: str, room: int, *, right: bool) -> str:
    space = " " * (room - width(cell))
    return space + cell if right else cell + space


def fields(pairs: Sequence[tuple[str, str]]) -> str:
    """Return "name  value" lines, the names in one column; values are escaped."""
    room = max((len(name) for name, _ in pairs), default=0)
    return "\n".join(f"{name:{room}}  {plain(value)}".rstrip() for name, value in pairs)
