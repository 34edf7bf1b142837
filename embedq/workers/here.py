"""What this process is: an application, or a worker process that one of them has started.

Knows: how a worker recognises itself before any other module runs, the desk it works at.
Does not know: how workers are started, what they do.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from embedq.ipc.remote import RemoteDesk

#: The exit code of a worker whose program opens a broker while it is imported.
UNGUARDED: Final = 72
#: How the names of worker processes begin.
PREFIX: Final = "embedq-worker-"


def is_worker() -> bool:
    """Whether this process was started to run handlers; true while it still imports them."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    return multiprocessing is not None and str(multiprocessing.current_process().name).startswith(
        PREFIX
    )


def check_opening() -> None:
    """End a worker process that would open a broker although it still imports its handlers.

    Its program starts again in every worker: it would put its messages again and again. No
    exception and no traceback: the application says once what is wrong (pool.py).
    """
    if HERE.desk is None and is_worker():
        raise SystemExit(UNGUARDED)


class _Here:
    """The desk of a worker process, for the handlers that put and get themselves."""

    def __init__(self) -> None:
        self.desk: RemoteDesk | None = None


HERE: Final = _Here()
