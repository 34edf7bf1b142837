"""Hiding secrets in texts of errors: before they are stored, and when letters are shown.

Knows: the function or the patterns an application gave for it, and that they may fail.
Does not know: what a secret looks like.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import Final

from embedq.errors import InvalidOption, shown
from embedq.message import ErrorInfo

Redact = Callable[[str], str]
#: What is shown instead of what a pattern matched.
HIDDEN: Final = "[hidden]"

_log = logging.getLogger("embedq")


class Patterns:
    """Hides what regular expressions match: a function from str to str, made of settings.

    Raises InvalidOption for one that is none.
    """

    def __init__(self, texts: Sequence[str], what: str = "redact") -> None:
        """Compile them; `what` names the setting in errors."""
        self.texts = tuple(texts)
        self._compiled = [_compiled(text, what) for text in texts]

    def __call__(self, text: str) -> str:
        """Return `text` with "[hidden]" for every match."""
        for pattern in self._compiled:
            text = pattern.sub(HIDDEN, text)
        return text

    def __repr__(self) -> str:
        return f"Patterns({list(self.texts)})"


def _compiled(text: str, what: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidOption(
            f"{what}={shown(text)} is not a regular expression: {error}",
            hint="see the module re of Python; in TOML write them in single quotes",
            argument=what,
        ) from error


def hider(redact: Redact | None) -> Redact:
    """Return a function that hides what `redact` hides, and everything should that fail."""
    if redact is None:
        return str

    def hide(text: str) -> str:
        try:
            return str(redact(text))
        except Exception:  # noqa: BLE001  # the application's code; nothing may be shown then
            _log.exception("the redact= function failed; the text is hidden whole")
            return "(hidden: the redact= function failed)"

    return hide


def redacted(error: ErrorInfo | None, redact: Redact | None) -> ErrorInfo | None:
    """Return an error with its message and traceback as `redact` leaves them."""
    if error is None or redact is None:
        return error
    hide = hider(redact)
    return ErrorInfo.capped(error.type, hide(error.message), hide(error.traceback))


def stored(error: ErrorInfo | None, redact: Redact | None) -> bytes | None:
    """Return what is stored of an error."""
    shown = redacted(error, redact)
    return None if shown is None else shown.encode()
