"""Read the parts of a Markdown page that can be checked: code blocks, links, headings."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import sizes

ROOT = sizes.ROOT
FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^`]*)$")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")


class Block(NamedTuple):
    """A fenced code block: its info string, the line its text starts on, its text."""

    info: str
    line: int
    text: str


def pages() -> list[Path]:
    """List every page of the project."""
    tops = [path for path in ROOT.glob("*.md") if path.is_file()]
    return sorted([*tops, *(ROOT / "docs").rglob("*.md"), ROOT / "transports" / "README.md"])


def blocks(page: str) -> Iterator[Block]:
    """Find the fenced code blocks of a page."""
    opened: re.Match[str] | None = None
    text: list[str] = []
    start = 0
    for number, line in enumerate(page.split("\n"), start=1):
        fence = FENCE.match(line)
        if opened is None and fence:
            opened, text, start = fence, [], number + 1
        elif opened and fence and fence["ticks"] == opened["ticks"] and not fence["info"].strip():
            yield Block(opened["info"].strip(), start, "".join(text))
            opened = None
        elif opened:
            text.append(line.removeprefix(opened["indent"]) + "\n")


def prose(page: str) -> str:
    """Take a page without its code blocks and code spans."""
    outside: list[str] = []
    inside = False
    for line in page.split("\n"):
        if FENCE.match(line):
            inside = not inside
        elif not inside:
            outside.append(re.sub(r"`[^`]*`", "``", line))
    return "\n".join(outside)


def links(page: str) -> list[str]:
    """List the targets of a page's links."""
    return [match["target"] for match in LINK.finditer(prose(page))]


def anchors(page: str) -> set[str]:
    """List the anchors that the headings of a page make, as GitHub names them."""
    found: set[str] = set()
    inside = False
    for line in page.split("\n"):
        inside ^= bool(FENCE.match(line))
        if line.startswith("#") and not inside:
            title = line.lstrip("#").strip().lower()
            found.add(re.sub(r"[^\w\- ]", "", title).replace(" ", "-"))
    return found
