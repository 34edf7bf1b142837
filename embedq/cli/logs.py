"""What the engine logs, as notes of the command line.

Knows: that warnings are for people, and that --json prints nothing but JSON.
Does not know: what is logged.
"""

from __future__ import annotations

import logging

from embedq.cli import output


class _Notes(logging.Handler):
    """Prints warnings and worse on standard error."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__(logging.WARNING)
        self._as_json = as_json

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record, in one line."""
        text = f"{record.levelname.lower()}: {record.getMessage()}"
        output.note(text, as_json=self._as_json)


def show_warnings(*, as_json: bool) -> None:
    """Let what the engine warns of be seen; only for a process that is this program."""
    logger = logging.getLogger("embedq")
    logger.addHandler(_Notes(as_json=as_json))
    logger.propagate = False


def leave_to_application(*, always: bool = False) -> None:
    """Let an application that was imported log what embedq tells, if it has set up logging.

    `always`: also where nobody has; whoever asks tells the events otherwise.
    """
    logger = logging.getLogger("embedq")
    notes = [handler for handler in logger.handlers if isinstance(handler, _Notes)]
    if always:
        logger.addHandler(logging.NullHandler())
    if logging.getLogger().handlers or len(logger.handlers) > len(notes):
        for handler in notes:
            logger.removeHandler(handler)
        logger.propagate = True
