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
    """The process in which a broker was made: it is nobody else's."""

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._pid = os.getpid()

    @property
    def is_foreign(self) -> bool:
        """Whether this is another process: a child made by fork."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """Raise ForkedBroker in another process."""
        if self.is_foreign:
            raise ForkedBroker(f"{self._broker} belongs to the parent process")


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
