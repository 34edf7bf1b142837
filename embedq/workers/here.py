"""What this process is: an application, or a worker process that one of them has started.

Knows: how a worker recognises itself before any other module runs, the desk it works at.
Does not know: how workers are started, what they do.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from embedq.ipc.remote import RemoteDesk

#: How the names of worker processes begin.
PREFIX: Final = "embedq-worker-"


def is_worker() -> bool:
    """Whether this process was started to run handlers; true while it still imports them."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    return multiprocessing is not None and str(multiprocessing.current_process().name).startswith(
        PREFIX
    )


class _Here:
    """The desk of a worker process, for the handlers that put and get themselves."""

    def __init__(self) -> None:
        self.desk: RemoteDesk | None = None


HERE: Final = _Here()
