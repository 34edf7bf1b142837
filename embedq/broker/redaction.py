"""Hiding secrets in texts of errors: before they are stored, and when letters are shown.

Knows: the function an application gave for it, and that it may fail.
Does not know: what a secret looks like.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from embedq.message import ErrorInfo

Redact = Callable[[str], str]
_log = logging.getLogger("embedq")


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
