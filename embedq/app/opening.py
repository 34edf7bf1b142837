"""The brokers that are open: closed when the program ends, should nobody do it before.

Knows: which ones there are.
Does not know: consumers, when a broker is opened or closed.
"""

from __future__ import annotations

import atexit
import weakref
from typing import Protocol


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
