"""Calls that interrupt others: a signal handler that uses what its own thread is in the midst of.

Knows: how to see that, on the main thread, where such handlers run.
Does not know: locks, commits.
"""

from __future__ import annotations

import sys
import threading
from _thread import get_ident
from collections.abc import Collection
from types import CodeType, FrameType

from embedq.errors import UsageError


def check(functions: Collection[CodeType]) -> None:
    """Raise UsageError if the main thread, and this is it, is in a call of one of the functions.

    What it would wait for goes on only once the handler has returned.
    """
    if get_ident() != threading.main_thread().ident:
        return
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # there is no other way to ask
    while frame is not None:
        if frame.f_code in functions:
            raise UsageError(
                "a signal handler called the broker in the midst of another call of its thread",
                hint="set a flag or an event there, or let broker.run() handle the signals",
            )
        frame = frame.f_back
