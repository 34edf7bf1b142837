"""The moves of messages between states, each one task for the writer.

Knows: what a move needs beforehand, what it commits, what memory looks like afterwards.
Does not know: how commits are grouped, SQL, who asked.

See docs/lifecycle.md for the table of states these moves implement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from embedq.broker.leases import Lease
from embedq.broker.ready import Entry
from embedq.broker.state import GroupState, QueueState
from embedq.broker.timeline import Timeline
from embedq.lifecycle import Outcome, Reason
from embedq.storage.port import (
    Ack,
    Again,
    Bury,
    Cancel,
    Fail,
    Op,
    PutRows,
    Release,
    Row,
    Start,
    Stored,
)
from embedq.storage.writer import Task

if TYPE_CHECKING:
    from embedq.broker.engine import Engine


class PutMessages(Task):
    """Store messages of any kind."""

    __slots__ = ("_engine", "_queue", "op")

    def __init__(self, engine: Engine, queue: QueueState, rows: Sequence[Row], now: int) -> None:
        super().__init__(sum(len(row.body) for row in rows))
        self._engine = engine
        self._queue = queue
        self.op = PutRows(queue.id, now, rows)

    def prepare(self) -> Sequence[Op]:
        """Return the put."""
        return (self.op,)

    def apply(self) -> None:
        """Count the messages and offer them to every group."""
        op, queue = self.op, self._queue
        now = self._engine.now_ms()
        queue.stored += len(op.stored)
        for position in op.stored:
            seq, row = op.seqs[position], op.rows[position]
            queue.last = seq
            for group in queue.groups:
                index = group.index
                index.put_row(seq, row.priority, row.due, row.key, row.max_attempts, now)


class Claim(Task):
    """Lease the next messages of a group."""

    __slots__ = (
        "_buries",
        "_engine",
        "_group",
        "_lease_s",
        "_most",
        "_order",
        "_others",
        "_session",
        "_start",
        "found",
        "hungry",
        "leases",
    )

    _start: Start | None

    def __init__(
        self, engine: Engine, group: GroupState, most: int, lease_s: float, session: int | None
    ) -> None:
        super().__init__(most * 64)
        self._engine = engine
        self._group = group
        self._most = most
        self._lease_s = lease_s
        self._session = session
        self.leases: list[Lease] = []
        #: Whether there was anything to do;
        #: what to load: a priority, a timeline, None.
        self.found = False
        self.hungry: int | Timeline | None = None

    def prepare(self) -> Sequence[Op]:
        """Take messages out of the ready index."""
        group, engine = self._group, self._engine
        self._buries: list[tuple[Bury, Entry]] = []
        self._others: list[tuple[int, Entry]] = []
        self._start = None
        if group.queue.paused:
            return ()
        now = engine.now_ms()
        self.hungry = group.index.hungry(self._most, now)
        if self.hungry is not None:
            return ()
        fresh, others, self._order = group.index.take(self._most, now)
        if others:
            others = self._without_exhausted(others, now)
        self.found = bool(fresh or others or self._buries)
        if not fresh and not others:
            return [bury for bury, _ in self._buries]
        self._others = others
        again = [Again(seq, entry.attempt + 1, entry.crashes) for seq, entry in others]
        counter = engine.next_counter(len(fresh) + len(again))
        start = Start(group.id, now, self._session, counter, fresh, again)
        start.reads = not group.queue.large
        self._start = start
        return (self._start, *[bury for bury, _ in self._buries])

    def _without_exhausted(
        self, others: list[tuple[int, Entry]], now: int
    ) -> list[tuple[int, Entry]]:
        """Bury those whose attempts were used up by crashes; return the rest (P5)."""
        policy = self._group.queue.policy
        rest = []
        for seq, entry in others:
            most = policy.max_attempts if entry.max_attempts is None else entry.max_attempts
            crashed = bool(policy.max_crashes) and entry.crashes >= policy.max_crashes
            if crashed or (most and entry.attempt >= most):
                reason = Reason.CRASHED if entry.crashes else Reason.MAX_ATTEMPTS
                detail = f"{entry.attempt} attempts started, {entry.crashes} crashes"
                bury = Bury(self._group.id, seq, now, reason, detail, "host", Outcome.CRASHED)
                self._buries.append((bury, entry))
            else:
                rest.append((seq, entry))
        return rest

    def apply(self) -> None:
        """Register the leases."""
        group = self._group
        for bury, entry in self._buries:
            if entry.suspect:
                group.index.suspect_out = False
            self._engine.buried(group, bury, entry.key)
        start = self._start
        if start is None:
            return
        deadline = self._engine.monotonic() + self._lease_s
        counter = start.counter
        leases = [
            Lease(group, seq, 1, number, deadline)
            for number, seq in enumerate(start.fresh, counter)
        ]
        counter += len(leases)
        for number, (seq, entry) in enumerate(self._others, counter):
            lease = Lease(group, seq, entry.attempt + 1, number, deadline)
            lease.entry = entry
            leases.append(lease)
        if self._order:
            by_seq = {lease.seq: lease for lease in leases}
            leases = [by_seq[seq] for seq in self._order if seq in by_seq]
        self.leases = leases  # first: an interrupted caller gives back what it finds here
        table = group.leases
        for lease in leases:
            table[lease.seq] = lease
        self._engine.deadlines.add(deadline, leases)

    @property
    def messages(self) -> list[Stored] | None:
        """The messages, if the commit read them."""
        return None if self._start is None else self._start.messages

    def undo(self) -> None:
        """Find what was taken again, from the store."""
        self._engine.rebuild(self._group)


class Settle(Task):
    """End leases of one group that still count; the others are left in `stale`."""

    __slots__ = ("_engine", "_group", "_leases", "_valid", "stale")

    def __init__(self, engine: Engine, group: GroupState, leases: Sequence[Lease]) -> None:
        super().__init__(16 * len(leases))
        self._engine = engine
        self._group = group
        self._leases = leases
        self._valid: list[Lease] = []
        self.stale: list[Lease] = []

    def prepare(self) -> Sequence[Op]:
        """Check every lease against the table: a stale one changes nothing (P6)."""
        table = self._group.leases
        self._valid = [lease for lease in self._leases if table.get(lease.seq) is lease]
        if len(self._valid) != len(self._leases):
            self.stale = [lease for lease in self._leases if table.get(lease.seq) is not lease]
        return self.ops() if self._valid else ()

    def ops(self) -> Sequence[Op]:
        """Return what to commit for the valid leases."""
        raise NotImplementedError


class Acks(Settle):
    """The messages are done."""

    __slots__ = ("_op",)

    def ops(self) -> Sequence[Op]:
        """Return one Ack."""
        seqs = [lease.seq for lease in self._valid]
        self._op = Ack(self._group.id, self._engine.now_ms(), seqs)
        return (self._op,)

    def apply(self) -> None:
        """End the leases, count, and let the next message of each key move."""
        if not self._valid:
            return
        group = self._group
        table = group.leases
        special = []
        for lease in self._valid:
            table.pop(lease.seq, None)
            if lease.entry is not None:
                special.append(lease)
        group.count_settled(len(self._valid), self._op.removed)
        for lease in special:
            if lease.is_suspect:
                group.index.suspect_out = False
            if lease.key is not None:
                self._engine.key_settled(group, lease.key, lease.seq)


class Failures(Settle):
    """The attempts failed: each message waits for its next one, or is dead."""

    __slots__ = ("_due", "_error", "_made", "_outcome")

    def __init__(
        self,
        engine: Engine,
        group: GroupState,
        leases: Sequence[Lease],
        outcome: Outcome,
        error: bytes | None,
        delay_ms: int,
    ) -> None:
        super().__init__(engine, group, leases)
        self._outcome = outcome
        self._error = error
        self._due = delay_ms
        self._made: list[tuple[Lease, Fail | Bury]] = []

    def ops(self) -> Sequence[Op]:
        """Return a Fail, or a Bury for a message without attempts left."""
        now = self._engine.now_ms()
        group = self._group
        self._made = []
        for lease in self._valid:
            most = lease.max_attempts
            op: Fail | Bury
            if most and lease.attempt >= most:
                detail = f"attempt {lease.attempt} of {most} failed"
                op = Bury(
                    *(group.id, lease.seq, now, Reason.MAX_ATTEMPTS, detail, "host"),
                    outcome=self._outcome,
                    error=self._error,
                )
            else:
                due = now + self._due
                op = Fail(
                    *(group.id, lease.seq, lease.attempt, now, self._outcome, due, self._error)
                )
            self._made.append((lease, op))
        return [op for _, op in self._made]

    def apply(self) -> None:
        """End the leases; what may be tried again waits for its time."""
        if not self._valid:
            return
        group = self._group
        for lease, op in self._made:
            group.end(lease)
            if isinstance(op, Bury):
                self._engine.buried(group, op, lease.key)
            else:
                group.index.retry_at(op.due, lease.seq, lease.entry_at(lease.attempt))


class Timeouts(Failures):
    """The leases have ended without an answer: that was an attempt."""

    __slots__ = ()

    def __init__(self, engine: Engine, group: GroupState, leases: Sequence[Lease]) -> None:
        super().__init__(engine, group, leases, Outcome.TIMED_OUT, None, 0)

    def prepare(self) -> Sequence[Op]:
        """Look once more: a lease may have been extended since somebody found it over."""
        now = self._engine.monotonic()
        self._leases = [lease for lease in self._leases if lease.deadline <= now]
        return super().prepare()


class Rejections(Settle):
    """Dead-letter messages now, whatever attempts are left."""

    __slots__ = ("_detail", "_made", "_moved_by", "_outcome", "_reason", "cause")

    def __init__(
        self,
        engine: Engine,
        group: GroupState,
        leases: Sequence[Lease],
        reason: Reason,
        detail: str,
        moved_by: str,
    ) -> None:
        super().__init__(engine, group, leases)
        self._reason = reason
        self._detail = detail
        self._moved_by = moved_by
        self._outcome = Outcome.FAILED
        self.cause: bytes | None = None
        self._made: list[Bury] = []

    def ops(self) -> Sequence[Op]:
        """Return a Bury for each."""
        now = self._engine.now_ms()
        self._made = [
            Bury(
                *(self._group.id, lease.seq, now, self._reason, self._detail, self._moved_by),
                outcome=self._outcome,
                error=self.cause,
            )
            for lease in self._valid
        ]
        return self._made

    def apply(self) -> None:
        """End the leases and count the dead."""
        if not self._valid:
            return
        for lease, op in zip(self._valid, self._made, strict=True):
            self._group.end(lease)
            self._engine.buried(self._group, op, lease.key)


class Releases(Settle):
    """Give messages back as if they had never been delivered: no attempt is counted."""

    __slots__ = ()

    def ops(self) -> Sequence[Op]:
        """Return one Release."""
        deliveries = [(lease.seq, lease.attempt) for lease in self._valid]
        return (Release(self._group.id, deliveries),)

    def apply(self) -> None:
        """Put them back at their old places."""
        if not self._valid:
            return
        group = self._group
        for lease in self._valid:
            group.end(lease)
            entry = lease.entry_at(lease.attempt - 1)
            if lease.is_suspect:
                group.index.suspect(lease.seq, entry)
            else:
                group.index.give_back(lease.seq, entry)


class Drops(Releases):
    """End deliveries of messages that left the store meanwhile."""

    __slots__ = ()

    def apply(self) -> None:
        """End the leases; nothing comes back, and the next message of each key may move."""
        for lease in self._valid:
            self._group.end(lease)
            if lease.key is not None:
                self._engine.key_settled(self._group, lease.key, lease.seq)


class Cancels(Task):
    """Remove waiting messages of a queue for every group; leased ones stay, in `leased`."""

    __slots__ = ("_engine", "_op", "_queue", "_seqs", "_settled", "leased", "removed")

    def __init__(self, engine: Engine, queue: QueueState, seqs: Sequence[int]) -> None:
        super().__init__(16 * len(seqs))
        self._engine = engine
        self._queue = queue
        self._seqs = seqs
        self.leased: list[int] = []
        self.removed: list[int] = []

    def prepare(self) -> Sequence[Op]:
        """Leave out what is being delivered; see which groups had settled the rest."""
        groups = self._queue.groups
        self.leased = [seq for seq in self._seqs if any(seq in g.leases for g in groups)]
        kept = set(self.leased)
        free = [seq for seq in self._seqs if seq not in kept]
        self._settled: dict[int, set[int]] = {}
        if groups and not groups[0].is_sole:
            every = {group.id for group in groups}
            for seq in free:
                self._settled[seq] = every - set(self._engine.store.unsettled(seq))
        self._op = Cancel(self._queue.id, free)
        return (self._op,) if free else ()

    def apply(self) -> None:
        """Count, and let the next message of each key move."""
        self.removed = list(self._op.removed)
        queue = self._queue
        queue.stored -= len(self.removed)
        for group in queue.groups:
            for seq in self.removed:
                if group.id in self._settled.get(seq, ()):
                    group.settled -= 1
                entry = group.index.entries.get(seq)
                if entry is not None and entry.key is not None:
                    self._engine.key_settled(group, entry.key, seq)


class Change(Task):
    """Any other operations; `then` brings memory up to date."""

    __slots__ = ("_ops", "_then")

    def __init__(self, ops: Sequence[Op], then: Callable[[], object] | None = None) -> None:
        super().__init__(64 * len(ops))
        self._ops = ops
        self._then = then

    def prepare(self) -> Sequence[Op]:
        """Return the operations."""
        return self._ops

    def apply(self) -> None:
        """Call `then`."""
        if self._then is not None:
            self._then()
