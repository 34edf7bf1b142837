"""Calls that interrupt others: a signal handler that uses what its own thread is in the midst of.

Knows: how to see that a lock is held by the thread that asks for it.
Does not know: which locks there are, commits.
"""

from __future__ import annotations

import sys
import threading
from _thread import LockType, get_ident
from contextlib import AbstractContextManager
from types import CodeType, FrameType
from typing import Protocol, cast

from embedq.errors import UsageError


class Mine(AbstractContextManager[object], Protocol):
    """Entered before a lock, to know whose that is. Like a lock it is entered and left in C.

    There no exception from outside can strike. Threads that wait, wait here; what enters it again
    while the lock is free does no harm.
    """

    def _is_owned(self) -> bool: ...


#: Threads that have a lock which is lent to others now and then, and so has no `with` (backup.py).
#: Each enters itself before it waits for the lock, and leaves once it has given it back.
borrowers: set[int] = set()


def mine() -> Mine:
    """Return a new one."""
    return cast("Mine", threading.RLock())


def check(mine: Mine, lock: LockType, short: CodeType | None = None) -> None:
    """Raise UsageError if this thread holds the lock: it would wait for itself.

    That is a signal handler's, which has interrupted its thread there. `short`: a function that
    takes the lock alone; handlers run on the main thread, whose calls are looked through for it.
    """
    if not lock.locked():
        return
    owned = mine._is_owned() or get_ident() in borrowers  # noqa: SLF001  # Python's own name
    if owned or (short is not None and _is_in(short)):
        raise UsageError(
            "a signal handler called the broker in the midst of another call of its thread",
            hint="set a flag or an event there, or let broker.run() handle the signals",
        )


def _is_in(function: CodeType) -> bool:
    if get_ident() != threading.main_thread().ident:
        return False
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # there is no other way to ask
    while frame is not None and frame.f_code is not function:
        frame = frame.f_back
    return frame is not None
