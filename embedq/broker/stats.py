"""What a host can say about its queues and groups, as values.

Knows: where each number comes from, and which ones are bounds.
Does not know: how they are shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from embedq.broker.bounds import length
from embedq.broker.state import GroupState, QueueState

if TYPE_CHECKING:
    from embedq.broker.desk import Desk


class GroupStats(msgspec.Struct, frozen=True, kw_only=True):
    """One consumer group. `waiting` includes `delayed`; what is neither is ready or blocked.

    `delayed` counts what memory knows of: at least so many. `oldest_s`: seconds since the put of
    the oldest message the group is not done with. `waiters`: claims that wait for a message.
    """

    name: str
    waiting: int
    delayed: int
    leased: int
    delivered: int
    acked: int
    waiters: int
    oldest_s: float | None


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """One queue. `length`: messages that some group is not done with; `stored` all of them.

    `put` counts since the host opened; `events` are those of the queue, by name.
    """

    name: str
    paused: bool
    length: int
    stored: int
    dead: int
    max_length: int | None
    put: int
    oldest_s: float | None
    groups: tuple[GroupStats, ...]
    events: dict[str, int]

    def group(self, name: str) -> GroupStats | None:
        """Return the numbers of one group, None if there is no such group."""
        return next((group for group in self.groups if group.name == name), None)


class BrokerStats(msgspec.Struct, frozen=True, kw_only=True):
    """One host. Counts are since it opened, `uptime_s` ago.

    `exact`: the counts of messages are exact; False when counting after an unclean end has failed.
    `trouble`: what the last round of upkeep ran into, None if nothing. `running`: messages in
    handlers of this process; `stuck`: handlers that nobody waits for any more.
    """

    path: str | None
    epoch: int
    uptime_s: float
    exact: bool
    trouble: str | None
    commits: int
    running: int
    stuck: int
    queues: tuple[QueueStats, ...]
    events: dict[str, int]

    def queue(self, name: str) -> QueueStats | None:
        """Return the numbers of one queue, None if there is no such queue."""
        return next((queue for queue in self.queues if queue.name == name), None)

    def rates(self, earlier: BrokerStats) -> dict[str, float]:
        """Return what happened per second since an earlier look at the same host."""
        seconds = self.uptime_s - earlier.uptime_s
        if seconds <= 0:
            return {}
        return {
            name: (count - earlier.events.get(name, 0)) / seconds
            for name, count in self.events.items()
        }


def _count(desk: Desk) -> None:
    """Count now, should that still wait after an unclean end: who asks is told no rough numbers.

    "Nothing waits" would make a program stop that has messages left.
    """
    if not desk.counts_exact and desk.store.stopped is None:
        desk.upkeep.count()


def of_group(desk: Desk, group: GroupState) -> GroupStats:
    """Return the numbers of one group."""
    _count(desk)
    index = group.index
    return GroupStats(
        name=group.name,
        waiting=group.waiting,
        delayed=sum(len(line.heap) for line in (index.delayed, index.retries, index.held)),
        leased=len(group.leases),
        delivered=group.delivered,
        acked=group.acked,
        waiters=len(group.waiters),
        oldest_s=_oldest_s(desk, group),
    )


def _oldest_s(desk: Desk, group: GroupState) -> float | None:
    with desk.writer.entry, desk.writer.lock:
        desk.writer.settle()
        queue = group.queue
        if group.waiting + len(group.leases) <= 0:
            return None
        floor = group.index.floor(queue.last, min(group.leases, default=None))
        after = max(group.floor, floor or 0)
    for row in desk.store.range(queue.id, after, 1):
        return max(0, desk.now_ms() - row.put_at) / 1000
    return None


def of_queue(
    desk: Desk, queue: QueueState, counts: dict[tuple[str, str | None], int] | None = None
) -> QueueStats:
    """Return the numbers of one queue and its groups."""
    _count(desk)
    counts = desk.events.counts() if counts is None else counts
    groups = tuple(of_group(desk, group) for group in list(queue.groups))
    if groups:
        oldest = max((g.oldest_s for g in groups if g.oldest_s is not None), default=None)
    else:
        rows = desk.store.range(queue.id, 0, 1)
        oldest = max(0, desk.now_ms() - rows[0].put_at) / 1000 if rows else None
    return QueueStats(
        name=queue.name,
        paused=queue.paused,
        length=length(queue),
        stored=queue.stored,
        dead=queue.dead,
        max_length=queue.policy.max_length,
        put=queue.puts,
        oldest_s=oldest,
        groups=groups,
        events={name: count for (name, of), count in counts.items() if of == queue.name},
    )


def of_broker(desk: Desk, *, running: int = 0, stuck: int = 0) -> BrokerStats:
    """Return the numbers of a host; whoever runs handlers knows `running` and `stuck`."""
    _count(desk)
    counts = desk.events.counts()
    events: dict[str, int] = {}
    for (name, _), count in counts.items():
        events[name] = events.get(name, 0) + count
    trouble = desk.upkeep.trouble
    path = getattr(desk.store, "path", None)
    return BrokerStats(
        path=None if path is None else str(path),
        epoch=desk.store.epoch,
        uptime_s=desk.monotonic() - desk.opened_at,
        exact=desk.counts_exact,
        trouble=None if trouble is None else str(trouble),
        commits=desk.writer.groups,
        running=running,
        stuck=stuck,
        queues=tuple(of_queue(desk, queue, counts) for queue in list(desk.queues.values())),
        events=events,
    )
