"""Filters of tags: `;` between alternatives, `.` between segments, `*` for one, `#` for the rest.

Knows: the grammar.
Does not know: messages and channels.
"""

from __future__ import annotations

from typing import Final

#: bytes: of a filter or a tag.
MOST_BYTES: Final = 127


class BadFilter(ValueError):
    """A filter cannot be meant."""


class Filter:
    """What tags somebody wants. An empty filter wants everything, also what has no tag."""

    __slots__ = ("_alternatives", "text")

    def __init__(self, text: str) -> None:
        """Read a filter. Raises BadFilter if it is too long."""
        if len(text.encode("utf-8", "surrogatepass")) > MOST_BYTES:
            raise BadFilter(f"the filter has more than {MOST_BYTES} bytes")
        self.text = text
        self._alternatives = [part.split(".") for part in text.split(";") if part]

    def wants(self, tag: str | None) -> bool:
        """Whether a message of this tag is wanted; one without a tag is by empty filters only."""
        if not self._alternatives:
            return True
        if tag is None:
            return False
        segments = tag.split(".")
        return any(_fits(pattern, segments) for pattern in self._alternatives)


def _fits(pattern: list[str], segments: list[str]) -> bool:
    """Whether segments fit: `#` takes this and all that follow, none of them too."""
    for at, wanted in enumerate(pattern):
        if wanted == "#":
            return True
        if at == len(segments) or wanted not in ("*", segments[at]):
            return False
    return len(pattern) == len(segments)
