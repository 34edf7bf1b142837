"""Emptying a queue, or what one group has of it, in parts.

Knows: that running deliveries find their lease stale, that others may put meanwhile.
Does not know: who asked, dead letters (deadletters.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from embedq.broker import feeds
from embedq.broker.byid import ById
from embedq.broker.endings import DONE, AllAlone
from embedq.broker.leases import Lease
from embedq.broker.moves import Cancels
from embedq.broker.state import GroupState, QueueState
from embedq.errors import InvalidOption, shown
from embedq.storage.ops import Cancel, Op

if TYPE_CHECKING:
    from embedq.broker.desk import Desk

#: Messages in one commit: others are served between two.
CHUNK: Final = 200

#: Called with (messages done, messages in all) after every part.
Progress = Callable[[int, int], object]


class PurgeChunk(Cancels):
    """Remove messages for every group, those that are being delivered, too."""

    __slots__ = ("_ended",)

    def prepare(self) -> Sequence[Op]:
        """See who is working at them, and which groups had settled the rest."""
        super().prepare()
        queue = self._queue
        self._ended: list[Lease] = [
            group.leases[seq]
            for group in queue.groups
            for seq in self._seqs
            if seq in group.leases
        ]
        every = {group.id for group in queue.groups}
        for seq in self.leased:
            self._settled[seq] = every - set(self._engine.store.unsettled(seq))
        self.leased = []
        self._op = Cancel(queue.id, list(self._seqs))
        return (self._op,)

    def apply(self) -> None:
        """End the leases, and count."""
        for lease in self._ended:
            lease.group.end(lease)
            if lease.key is not None:
                self._engine.key_settled(lease.group, lease.key, lease.seq)
        super().apply()


def check_progress(progress: object) -> None:
    """Raise InvalidOption for what cannot be called: before anything is removed."""
    if progress is not None and not callable(progress):
        raise InvalidOption(
            f"progress={shown(progress)} is not a function",
            hint="give a function of two numbers: done, and in all",
            argument="progress",
        )


def purge_queue(desk: Desk, queue: QueueState, progress: Progress | None = None) -> int:
    """Remove all messages that are in a queue now; return how many there were.

    Interrupted, it has removed some; called again, it removes the rest.
    """
    check_progress(progress)
    with desk.writer.entry, desk.writer.lock:
        desk.writer.settle()
        upto, total = queue.last, queue.stored
    removed = after = 0
    try:
        while seqs := _seqs(desk, queue, after, upto):
            task = PurgeChunk(desk, queue, seqs)
            desk.writer.run(task)
            removed += len(task.removed)
            after = seqs[-1]
            if progress is not None:
                progress(removed, max(total, removed))
    finally:
        with desk.writer.entry, desk.writer.lock:
            desk.writer.settle()
            for group in queue.groups:
                desk.rebuild(group)
        desk.events.emit("purged", queue=queue.name, group=None, what="messages", count=removed)
    return removed


def purge_group(desk: Desk, group: GroupState, progress: Progress | None = None) -> int:
    """Settle everything a group has not settled now, delivered or not; others keep it."""
    check_progress(progress)
    queue = group.queue
    with desk.writer.entry, desk.writer.lock:
        desk.writer.settle()
        upto, total = queue.last, group.waiting + len(group.leases)
    settled = after = 0
    try:
        if group.hold_ms is not None:  # a reader's: there are no deliveries to settle
            settled, after = feeds.move(desk, group, upto), upto
        while seqs := _seqs(desk, queue, after, upto):
            tasks = [ById(desk, group, seq, DONE) for seq in seqs]
            desk.writer.run(AllAlone(tasks))
            settled += sum(not task.missing for task in tasks)
            after = seqs[-1]
            if progress is not None:
                progress(settled, max(total, settled))
    finally:
        name = group.name
        desk.events.emit("purged", queue=queue.name, group=name, what="messages", count=settled)
    return settled


def _seqs(desk: Desk, queue: QueueState, after: int, upto: int) -> list[int]:
    return [row.seq for row in desk.store.range(queue.id, after, CHUNK) if row.seq <= upto]
