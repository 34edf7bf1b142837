"""Deliveries to clients of listeners: whoever holds one cannot have ended the host.

Knows: the session by which the next host tells them from those to consumers of the application.
Does not know: protocols, connections; how deliveries of an earlier host are found (supply.py).

A host that dies leaves its deliveries open. Handlers ran inside it: each may have been the cause,
so its message is retried alone, and after some crashes it is dead (P5). Code of a client never
ran there. Its delivery has ended without an answer: that is an attempt, and no suspicion. How far
its bytes had come nobody knows afterwards: to note that would take a commit for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from embedq.lifecycle import Outcome
from embedq.storage.ops import OpenSession

if TYPE_CHECKING:
    from embedq.broker.engine import Engine
    from embedq.broker.entry import Entry
    from embedq.broker.state import GroupState
    from embedq.storage.rows import DeliveryRow, Touched

#: One session for all hosts of a file. Those of processes have tokens of 16 bytes.
_TOKEN: Final = b"listeners"


def session(now: int) -> OpenSession:
    """Open the session of these deliveries, or take it up again: it is never long forgotten."""
    return OpenSession("listeners", now, _TOKEN)


def left_as(engine: Engine, row: DeliveryRow) -> Outcome:
    """Return what a delivery counts as that an earlier host left open."""
    return Outcome.TIMED_OUT if row.session == engine.listeners else Outcome.CRASHED


def found_open(engine: Engine, group: GroupState, touched: Touched, entry: Entry) -> None:
    """Enter what a delivery counts as that an earlier host left open. Needs the lock."""
    row = engine.store.latest(group.id, touched.seq)
    entry.died_in = touched.epoch
    if row is not None:
        entry.left_as = left_as(engine, row)
    entry.attempt = touched.attempt
    entry.crashes = touched.crashes + (entry.left_as is Outcome.CRASHED)
