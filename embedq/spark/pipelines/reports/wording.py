"""Figures as people read them: counts, shares, times, moments, and texts of others made harmless.

Knows: how many digits are worth reading.
Does not know: HTML, plots, what a figure means.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from embedq.printable import plain

#: Nothing: no value, or not known.
ABSENT: Final = "–"
#: A space at which no line ends: between a number and its unit.
_FIRM: Final = "\N{NO-BREAK SPACE}"
_TEXT_MAX: Final = 400
_UNITS: Final = ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
_SPANS: Final = {1: "second", 10: "10 seconds", 60: "minute", 600: "10 minutes", 3600: "hour"}
_DAY_S: Final = 86_400


def count(value: int) -> str:
    """Return a number with its thousands apart: "12,345"."""
    return f"{value:,}"


def share(part: float, whole: float) -> str:
    """Return a part in percent: "12 %", "0.3 %", "<0.1 %"; nothing of nothing is "–"."""
    if not whole:
        return ABSENT
    percent = 100 * part / whole
    if 0 < percent < 0.1:  # noqa: PLR2004  # one digit says no more
        return f"<0.1{_FIRM}%"
    if 99.95 <= percent < 100:  # noqa: PLR2004  # else it would be called all
        return f">99.9{_FIRM}%"
    has_digit = 0 < percent < 10 or 99 < percent < 100  # noqa: PLR2004  # where it says something
    return f"{percent:.1f}{_FIRM}%" if has_digit else f"{percent:.0f}{_FIRM}%"


def seconds(value: float | None) -> str:
    """Return a time with its two largest units: "3.4 ms", "1.25 s", "2 min 5 s", "3 d 4 h"."""
    if value is None:
        return ABSENT
    if value < 0.9995:  # noqa: PLR2004  # from here on it is read as a second, or a minute
        return f"{_digits(value * 1000)}{_FIRM}ms"
    if value < 59.95:  # noqa: PLR2004
        return f"{_digits(value)}{_FIRM}s"
    for large, name, small, rest in _UNITS:
        if round(value) >= large:
            most, left = divmod(round(value / small), large // small)
            whole = f"{most}{_FIRM}{name}"
            return f"{whole}{_FIRM}{left}{_FIRM}{rest}" if left else whole
    raise AssertionError(value)


def _digits(value: float) -> str:
    """Return a number below 1000 with three digits at most, without zeros at its end."""
    if value >= 100:  # noqa: PLR2004  # three digits
        return f"{value:.0f}"
    text = f"{value:.1f}" if value >= 10 else f"{value:.2f}"  # noqa: PLR2004  # two, one
    return text.rstrip("0").rstrip(".")


def moment(value: datetime | None) -> str:
    """Return a moment to the second: "2026-03-01 09:30:12"."""
    return ABSENT if value is None else f"{value:%Y-%m-%d %H:%M:%S}"


def span(length_s: int) -> str:
    """Return how a span is called: "hour", "day", "2 weeks"."""
    if length_s in _SPANS:
        return _SPANS[length_s]
    days = length_s // _DAY_S
    if days % 7 == 0:
        return "week" if days == 7 else f"{days // 7} weeks"  # noqa: PLR2004  # a week
    return "day" if days == 1 else f"{days} days"


def text(value: str | None, most: int = _TEXT_MAX) -> str:
    """Return a text of others in one line of at most `most` characters, nothing hidden in it."""
    if value is None:
        return ABSENT
    return lines(" ".join(value[: 2 * most].split()), most)


def lines(value: str, most: int) -> str:
    """Return the beginning of a text of several lines, with nothing hidden in it."""
    shown = plain(value[: most + 1], keep="\n")
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def ending(value: str, most: int) -> str:
    """Return the end of a text of several lines, with nothing hidden in it."""
    shown = plain(value[-most:], keep="\n")
    return shown if len(value) <= most else f"…{shown}"
