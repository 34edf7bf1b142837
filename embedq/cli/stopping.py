"""Ending early in good order: SIGTERM gives back what is held, as Ctrl-C does.

Knows: the signal and the exit code that shells expect after it.
Does not know: what there is to give back.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from embedq.cli.exits import Exit


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(Exit.TERMINATED)


@contextmanager
def stop_at_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind the program instead of killing it, for as long as the block runs.

    A killed process leaves its deliveries open: that would count as a crash with the message.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def signal_is_for_consumers() -> None:
    """Let SIGTERM be what the running broker makes of it: a drain, which is no failure."""
    if signal.getsignal(signal.SIGTERM) is _stop:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
