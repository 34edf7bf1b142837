"""What failures have in common: a fingerprint of the type of an error and of where it was raised.

Knows: how Python writes tracebacks, which parts of a text differ from message to message.
Does not know: Spark, queues, what is done with those that failed alike.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from pathlib import PurePath
from typing import Final

#: Innermost frames that count: the callers further out are the same for everything.
FRAMES: Final = 3
#: Characters of a fingerprint: 48 bits, short enough to be typed.
LENGTH: Final = 12
_TEXT_MAX: Final = 300

_FRAME: Final = re.compile(r'^\s*File "(?P<file>[^"]*)", line \d+, in (?P<name>.+)$', re.MULTILINE)
_VARYING: Final = (
    (re.compile(r"'[^']*'|\"[^\"]*\""), "'…'"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "#"),
    (re.compile(r"\b(?=[0-9a-fA-F-]*\d)[0-9a-fA-F]{8}[0-9a-fA-F-]*\b"), "#"),
    (re.compile(r"\d+"), "#"),
)


def place(traceback: str | None) -> str:
    """Return where an error was raised: `module:function` of the innermost frame, "" if unknown.

    Lines are left out: they move with every release.
    """
    frames = _frames(traceback)
    return frames[-1] if frames else ""


def alike(message: str | None) -> str:
    """Return a message without what differs from one to the next: numbers, ids, quotes."""
    text = (message or "").strip()[:_TEXT_MAX]
    for pattern, instead in _VARYING:
        text = pattern.sub(instead, text)
    return text


@lru_cache(maxsize=4096)
def fingerprint(kind: str | None, message: str | None, traceback: str | None) -> str:
    """Return 12 hex characters, the same for errors of one type that were raised at one place.

    `kind`: the type of the error, or the outcome or reason where there was none. Without a
    traceback the message counts instead, as far as it is alike.
    """
    frames = _frames(traceback)[-FRAMES:]
    parts = [kind or "", *(frames or [alike(message)])]
    return sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:LENGTH]


def _frames(traceback: str | None) -> list[str]:
    found = _FRAME.finditer(traceback or "")
    return [f"{PurePath(each['file']).stem}:{each['name'].strip()}" for each in found]
