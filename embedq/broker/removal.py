"""Removing a consumer group: its claims end, and what only it waited for leaves.

Knows: that leases end, that memory and counts follow.
Does not know: who asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from embedq.broker.ready import ReadyIndex
from embedq.broker.state import GroupState, QueueState
from embedq.storage.held import Unhold
from embedq.storage.ops import Collect, Op, RemoveGroup
from embedq.storage.writer import Task

if TYPE_CHECKING:
    from embedq.broker.desk import Desk
    from embedq.broker.engine import Engine

#: Seqs looked through in one commit.
STRETCH: Final = 5_000


class Remove(Task):
    """Forget a group."""

    __slots__ = ("_group",)

    alone = True  # the number of groups decides what an ack of the same commit leaves behind

    def __init__(self, group: GroupState) -> None:
        super().__init__(64)
        self._group = group

    def prepare(self) -> Sequence[Op]:
        """Return the operation, unless somebody else was quicker."""
        group = self._group
        if group not in group.queue.groups:
            return ()
        forget = () if group.hold_ms is None else (Unhold(group.id),)
        return (RemoveGroup(group.id), *forget)

    def apply(self) -> None:
        """Take it out of its queue; its leases count no more."""
        group = self._group
        if group in group.queue.groups:
            group.queue.groups.remove(group)
            for other in group.queue.groups:
                other.retired = 0  # what was passed over for this one's sake may go now
        group.leases = {}
        _forget(group.index, group.queue.last)
        group.waiters.wake_all()


def _forget(index: ReadyIndex, last: int) -> None:
    """Have nothing to give from now on, and nothing to look for in the store."""
    index.reset(last)
    for stream in index.streams:
        stream.live = True
    index.delayed.complete = index.retries.complete = True


class CollectStretch(Task):
    """Remove the messages of a stretch that every group has settled."""

    __slots__ = ("_op", "_queue")

    def __init__(self, queue: QueueState, after: int, upto: int) -> None:
        super().__init__(64)
        self._queue = queue
        self._op = Collect(queue.id, after, upto)

    def prepare(self) -> Sequence[Op]:
        """Return the operation."""
        return (self._op,)

    def apply(self) -> None:
        """Count."""
        if self._op.removed:
            self._queue.removed(self._op.removed)


def remove_group(desk: Desk, group: GroupState) -> None:
    """Forget a group; then remove, in parts, what only it waited for."""
    desk.writer.run(Remove(group))
    collect(desk, group.queue)


def collect(engine: Engine, queue: QueueState) -> None:
    """Remove what every group has settled and nothing retains, in parts.

    Acks do that as they go. It is needed when a group is gone, when a queue no longer retains,
    and after a host that may have died in the middle of this.
    """
    with engine.writer.entry, engine.writer.lock:
        engine.writer.settle()
        queue.untidy = False
        upto = queue.last
    if queue.policy.retain_ms is not None or not queue.groups:
        return
    first = engine.store.range(queue.id, 0, 1)
    after = first[0].seq - 1 if first else upto
    while after < upto:
        until = min(after + STRETCH, upto)
        engine.writer.run(CollectStretch(queue, after, until))
        after = until
