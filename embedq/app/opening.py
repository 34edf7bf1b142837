"""Where a broker was made, and which ones are open: they are closed when the program ends.

Knows: processes and forked children, which brokers there are.
Does not know: consumers, when a broker is opened or closed.
"""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Protocol

from embedq.errors import ForkedBroker


class Origin:
    """The process that a broker belongs to: the one that made it, until a fork before its opening.

    Servers that load an application before they fork need that: each child then opens it anew.
    """

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._pid = os.getpid()

    @property
    def is_foreign(self) -> bool:
        """Whether this is another process: a child made by fork."""
        return os.getpid() != self._pid

    def check(self, opened: object) -> None:
        """Raise ForkedBroker in another process, if the broker was `opened` (not None) before."""
        if not self.is_foreign:
            return
        if opened is not None:
            raise ForkedBroker(f"{self._broker} was opened by the parent process, and is its own")
        self._pid = os.getpid()


class Open(Protocol):
    """What has a file open; weakly referable."""

    def close_at_exit(self) -> None:
        """Close it."""
        ...


_open: weakref.WeakSet[Open] = weakref.WeakSet()


def close_at_exit(broker: Open) -> None:
    """Let the file of a broker be closed when the program ends, should nobody do it before."""
    _open.add(broker)


def need_not_close(broker: Open) -> None:
    """Forget it again."""
    _open.discard(broker)


@atexit.register
def _close_all() -> None:
    for broker in list(_open):
        broker.close_at_exit()
