"""Rarer tasks for the writer: new queues and groups, counts, expiry, retention, lost claims.

Knows: what these commit and what memory looks like afterwards.
Does not know: when they are due (upkeep.py), SQL.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from embedq.broker.leases import Lease
from embedq.broker.moves import Claim
from embedq.broker.settling import Releases
from embedq.broker.state import GroupState, QueueState
from embedq.broker.telling import tell
from embedq.lifecycle import Outcome, Reason
from embedq.policy import QueuePolicy
from embedq.storage.ops import (
    Bury,
    Cancel,
    CloseSession,
    DeclareGroup,
    DeclareQueue,
    Op,
    Retire,
    Save,
)
from embedq.storage.tail import SetExpiry
from embedq.storage.writer import Task

if TYPE_CHECKING:
    from embedq.broker.engine import Engine
    from embedq.broker.registry import Registry


class NewQueue(Task):
    """Create a queue, or change its settings; without a policy, only if it is not there yet."""

    __slots__ = ("_name", "_op", "_policy", "_registry")

    alone = True  # settings decide what a settlement of the same commit would leave behind

    def __init__(self, registry: Registry, name: str, policy: QueuePolicy | None) -> None:
        super().__init__(64)
        self._registry = registry
        self._name = name
        self._policy = policy

    def prepare(self) -> Sequence[Op]:
        """Look again: somebody else may have created it, with settings of its own."""
        self._op = DeclareQueue(self._name, self._policy or QueuePolicy())
        if self._policy is None and self._name in self._registry.queues:
            return ()
        return (self._op,)

    def apply(self) -> None:
        """Tell the registry."""
        if self._op.row is not None:
            self._registry.declared(self._op.row)


class NewGroup(Task):
    """Create a consumer group, unless somebody else just did."""

    __slots__ = ("_op", "_queue", "_registry", "_start")

    alone = True  # the number of groups decides what an ack of the same commit leaves behind

    def __init__(self, registry: Registry, queue: QueueState, name: str, start: str) -> None:
        super().__init__(64)
        self._registry = registry
        self._queue = queue
        self._start = start
        self._op = DeclareGroup(queue.id, name, 0)

    def prepare(self) -> Sequence[Op]:
        """Fix the end of the queue: under the lock nothing can be put in between."""
        # Readers (feeds.py) are no consumers: the first of those gets all that is still there.
        others = any(group.hold_ms is None for group in self._queue.groups)
        at_end = self._start == "end" or (self._start == "auto" and others)
        self._op.floor = self._registry.store.last_seq if at_end else 0
        return (self._op,)

    def apply(self) -> None:
        """Add the group to its queue."""
        row = self._op.row
        queue = self._queue
        if row is not None and all(known.id != row.id for known in queue.groups):
            store, head_max = self._registry.store, self._registry.limits.head_max
            if row.floor and queue.stored and not queue.groups:
                events, count = self._registry.events, queue.stored
                events.emit("stranded", queue=queue.name, group=row.name, count=count)
            queue.groups.append(GroupState(row, queue, store, head_max))


class NewExpiry(Task):
    """Change when a message expires. Who holds it keeps it."""

    __slots__ = ("_op",)

    def __init__(self, queue: QueueState, seq: int, expires: int | None) -> None:
        super().__init__(64)
        self._op = SetExpiry(queue.id, seq, expires)

    @property
    def found(self) -> bool:
        """Whether the message was there."""
        return self._op.found

    def prepare(self) -> Sequence[Op]:
        """Return the operation."""
        return (self._op,)

    def apply(self) -> None:
        """Nothing in memory knows of it."""


class Abandoned(Releases):
    """Release what a claim got whose caller was interrupted."""

    __slots__ = ("_claim",)

    def __init__(self, engine: Engine, group: GroupState, claim: Claim) -> None:
        super().__init__(engine, group, ())
        self._claim = claim

    def prepare(self) -> Sequence[Op]:
        """Look at the claim only now: it may have been waiting for the writer."""
        self._leases: Sequence[Lease] = self._claim.leases
        return super().prepare()


class SaveCounts(Task):
    """Write counts, bounds and floors, so that the next opening need not look for them.

    `closes`: the host does nothing after it.
    """

    __slots__ = ("_closes", "_engine", "_exact", "_op")

    alone = True  # the floor must know what every other task leaves waiting

    def __init__(self, engine: Engine, *, exact: bool, closes: bool = False) -> None:
        super().__init__(64)
        self._engine = engine
        self._exact = exact
        self._closes = closes

    def prepare(self) -> Sequence[Op]:
        """Take the counts as they are now."""
        queues = []
        groups = []
        for queue in self._engine.queues.values():
            queues.append((queue.id, queue.stored, queue.dead, queue.last))
            for group in queue.groups:
                if group.hold_ms is not None:  # what is there says nothing of what was read
                    groups.append((group.id, group.floor, group.settled))
                    continue
                lowest = min(group.leases, default=None)
                floor = group.index.floor(queue.last, lowest)
                groups.append((group.id, max(group.floor, floor or 0), group.settled))
        self._op = Save(queues, groups, self._exact)
        return (CloseSession(self._engine.session), self._op) if self._closes else (self._op,)

    def apply(self) -> None:
        """Remember the floors."""
        floors = {id_: floor for id_, floor, _ in self._op.groups}
        for group in self._engine.groups():
            group.floor = max(group.floor, floors.get(group.id, 0))


def last_tasks(engine: Engine, keep: Collection[Lease], *, release: bool) -> Iterator[Task]:
    """Return what is committed at the end, once nobody else commits any more.

    Else a claim that came behind the releases would be found open, and count as an attempt; and
    whatever came behind the counts would let the next host look for a crash.
    """
    for group in engine.groups() if release else ():
        held = [lease for lease in group.leases.values() if lease not in keep]
        yield Releases(engine, group, held)
    yield SaveCounts(engine, exact=engine.counts_exact, closes=True)


class Expire(Task):
    """Dead-letter messages whose time is over, in every group that waits for them."""

    __slots__ = ("_buries", "_cancels", "_engine", "_over")

    alone = True  # `prepare` asks the store who waits for what

    def __init__(self, engine: Engine, over: Sequence[tuple[QueueState, int]]) -> None:
        super().__init__(64 * len(over))
        self._engine = engine
        self._over = over

    def prepare(self) -> Sequence[Op]:
        """See who waits for each. Where one is leased the consumer may still finish."""
        now = self._engine.now_ms()
        self._cancels: list[tuple[QueueState, Cancel]] = []
        self._buries: list[tuple[GroupState, Bury]] = []
        for queue, seq in self._over:
            if not queue.groups:  # nobody has ever asked for it
                self._cancels.append((queue, Cancel(queue.id, [seq])))
                continue
            waiting = set(self._engine.store.unsettled(seq))
            for group in queue.groups:
                if group.hold_ms is not None:
                    continue  # a reader sees it all the same: a range is the same every time
                if group.id in waiting and seq not in group.leases:
                    bury = Bury(group.id, seq, now, Reason.EXPIRED, "its time to live is over")
                    bury.moved_by = "host"
                    bury.outcome = Outcome.EXPIRED
                    self._buries.append((group, bury))
        return [op for _, op in (*self._cancels, *self._buries)]

    def apply(self) -> None:
        """Count, and let the next message of each key move."""
        for queue, cancel in self._cancels:
            queue.stored -= len(cancel.removed)
            queue.space.wake(len(cancel.removed))
        for group, bury in self._buries:
            tell(self._engine, "expired", group, bury.seq)
            entry = group.index.entries.get(bury.seq)
            self._engine.buried(group, bury, None if entry is None else entry.key)


class RetireHistory(Task):
    """Remove messages of a group's queue whose retention is over."""

    __slots__ = ("_engine", "_group", "op")

    def __init__(self, engine: Engine, group: GroupState, limit: int) -> None:
        super().__init__(64)
        self._engine = engine
        self._group = group
        retain = group.queue.policy.retain_ms or 0
        self.op = Retire(group.id, engine.now_ms() - retain, group.retired, limit)

    def prepare(self) -> Sequence[Op]:
        """Return the operation."""
        return (self.op,)

    def apply(self) -> None:
        """Count, and go on from there next time."""
        if self.op.removed:
            self._group.queue.removed(self.op.removed)
        if self.op.reached is not None:
            self._group.retired = self.op.reached
