"""What sessions are told of failures: always an error of embedq.

Knows: that anything else is a defect, which is logged. Does not know: who asked for what.
"""

from __future__ import annotations

import logging

from embedq.errors import EmbedqError, NotRunning

_log = logging.getLogger("embedq.net")


def as_error(error: BaseException | None) -> EmbedqError:
    """Return an error for a session. None: it was cancelled, because the listener stops."""
    if isinstance(error, EmbedqError):
        return error
    if error is None:
        return NotRunning("the listener is stopping")
    _log.error("an operation of a listener failed", exc_info=error)
    return EmbedqError(f"an operation failed: {type(error).__name__}")
