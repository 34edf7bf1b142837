"""Open the file of a broker and declare what was said about its queues.

Knows: that a folder may be missing, that what is not said about a queue stays as it is, and
which files are to be closed when the program ends.
Does not know: consumers, when a broker is opened or closed.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from embedq.app.settings import Settings
from embedq.broker.desk import Desk
from embedq.broker.host import MEMORY, open_engine
from embedq.broker.state import QueueState
from embedq.clock import Clock
from embedq.limits import Limits
from embedq.policy import QueuePolicy


def open_desk(settings: Settings, clock: Clock | None, limits: Limits) -> Desk:
    """Become the host of the file; its folder is made if it is missing."""
    if settings.path != MEMORY:
        Path(settings.path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return open_engine(settings.path, durability=settings.durability, clock=clock, limits=limits)


def declare(desk: Desk, name: str, changes: Mapping[str, object]) -> QueueState:
    """Create a queue, or change what is said about it."""
    known = desk.queues.get(name)
    policy = QueuePolicy() if known is None else known.policy
    return desk.queue(name, policy.changed(**changes) if changes else None)


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
