"""How deliveries end: acks, failures, rejections, releases, each one task for the writer.

Knows: that only a lease in the group's table counts, what each ending commits and leaves behind.
Does not know: how commits are grouped, SQL, who asked.

See docs/lifecycle.md for the table of states these moves implement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from embedq.broker.intake import shortened
from embedq.broker.leases import Lease
from embedq.broker.redaction import hider
from embedq.broker.state import GroupState
from embedq.broker.telling import name_of, tell
from embedq.lifecycle import Outcome, Reason
from embedq.storage.ops import Ack, Bury, Fail, Op, Release
from embedq.storage.tail import ToTail
from embedq.storage.writer import Task

if TYPE_CHECKING:
    from embedq.broker.engine import Engine


class Settle(Task):
    """End leases of one group that still count; the others are left in `stale`."""

    __slots__ = ("_engine", "_group", "_leases", "_valid", "stale")

    def __init__(self, engine: Engine, group: GroupState, leases: Sequence[Lease]) -> None:
        super().__init__(16 * len(leases))
        self._engine = engine
        self._group = group
        # A lease named twice is settled, and counted, once.
        self._leases = leases if len(leases) == 1 else list(dict.fromkeys(leases))
        self._valid: list[Lease] = []
        self.stale: list[Lease] = []

    def prepare(self) -> Sequence[Op]:
        """Take every lease out of the table: a stale one changes nothing (P6).

        So of two settlements that meet in one commit the second finds its lease stale.
        """
        table = self._group.leases
        leases = self._leases
        self._valid = [lease for lease in leases if table.get(lease.seq) is lease]
        self.stale = []  # an earlier try, whose commit failed, may have found others
        if len(self._valid) != len(leases):
            self.stale = [lease for lease in leases if table.get(lease.seq) is not lease]
        for lease in self._valid:
            del table[lease.seq]
        return self.ops() if self._valid else ()

    def undo(self) -> None:
        """Put the leases back: they still count."""
        for lease in self._valid:
            self._group.hold(lease)

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
        special = [lease for lease in self._valid if lease.entry is not None]
        group.acked += len(self._valid)
        group.count_settled(len(self._valid), self._op.removed)
        for lease in special:
            if lease.is_suspect:
                group.suspect_ended()
            if lease.key is not None:
                self._engine.key_settled(group, lease.key, lease.seq)
        if group.index.suspects:
            group.waiters.wake()  # one may have waited for the last of the others to end


class Failures(Settle):
    """The attempts failed: each message waits for its next one, or is dead.

    With `tail` the next one comes behind all that wait now; a message with an ordering key keeps
    its place, as it must not be overtaken by later ones of its key.
    """

    __slots__ = ("_due", "_error", "_made", "_outcome", "_tail")

    def __init__(
        self,
        engine: Engine,
        group: GroupState,
        leases: Sequence[Lease],
        outcome: Outcome,
        error: bytes | None,
        delay_ms: int,
        *,
        tail: bool = False,
    ) -> None:
        super().__init__(engine, group, leases)
        self._outcome = outcome
        self._error = error
        self._due = 0 if tail else delay_ms
        self._tail = tail
        self._made: list[tuple[Lease, Fail | Bury | ToTail]] = []

    def ops(self) -> Sequence[Op]:
        """Return a Fail, or a Bury for a message without attempts left."""
        now = self._engine.now_ms()
        group = self._group
        self._made = []
        for lease in self._valid:
            most = lease.max_attempts
            op: Fail | Bury | ToTail
            if most and lease.attempt >= most:
                detail = f"attempt {lease.attempt} of {most} failed"
                op = Bury(
                    *(group.id, lease.seq, now, Reason.MAX_ATTEMPTS, detail, "host"),
                    outcome=self._outcome,
                    error=self._error,
                )
            elif self._tail and lease.key is None:
                op = _to_tail(group, lease, now)
                op.outcome, op.error = self._outcome, self._error
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
            elif isinstance(op, ToTail):
                _to_place(group, lease, op, lease.attempt)
                self._told(lease)
            else:
                group.index.retry_at(op.due, lease.seq, lease.entry_at(lease.attempt))
                self._told(lease)
        if group.waiters:
            if self._due:
                self._engine.upkeep.expect(group.index.next_due())
            else:
                group.waiters.wake(len(self._made))

    def _told(self, lease: Lease) -> None:
        engine, group = self._engine, self._group
        wanted = engine.events.wanted("retried")
        tell(
            *(engine, "retried", group, lease.seq),
            attempt=lease.attempt,
            delay_s=self._due / 1000,
            error=name_of(self._error) if wanted else "",
        )


class Timeouts(Failures):
    """The leases have ended without an answer: that was an attempt."""

    __slots__ = ()

    def __init__(self, engine: Engine, group: GroupState, leases: Sequence[Lease]) -> None:
        super().__init__(engine, group, leases, Outcome.TIMED_OUT, None, 0)

    def apply(self) -> None:
        """Tell, and go on as with any failure."""
        for lease in self._valid:
            tell(self._engine, "lease_expired", self._group, lease.seq, attempt=lease.attempt)
        super().apply()

    def prepare(self) -> Sequence[Op]:
        """Look once more: a lease may have been extended since somebody found it over."""
        now = self._engine.monotonic()
        self._leases = [lease for lease in self._leases if lease.deadline <= now]
        return super().prepare()


class Rejections(Settle):
    """Dead-letter messages now, whatever attempts are left."""

    __slots__ = ("_detail", "_made", "_moved_by", "_reason", "cause", "outcome")

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
        # Written by handlers and clients: any text may come, of any size.
        self._detail = shortened(hider(engine.redact)(detail))
        self._moved_by = shortened(moved_by)
        self.outcome = Outcome.FAILED
        self.cause: bytes | None = None
        self._made: list[Bury] = []

    def ops(self) -> Sequence[Op]:
        """Return a Bury for each."""
        now = self._engine.now_ms()
        self._made = [
            Bury(
                *(self._group.id, lease.seq, now, self._reason, self._detail, self._moved_by),
                outcome=self.outcome,
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
        """Put them back, wake who waits, tell."""
        if not self._valid:
            return
        group = self._group
        for lease in self._valid:
            group.end(lease)
            self._put_back(lease)
        count = len(self._valid)
        if group.waiters:
            group.waiters.wake(count)
        self._engine.events.emit(
            "released", times=count, queue=group.queue.name, group=group.name, count=count
        )

    def _put_back(self, lease: Lease) -> None:
        """Put one back at its old place."""
        entry = lease.entry_at(lease.attempt - 1)
        if lease.is_suspect:
            self._group.index.suspect(lease.seq, entry)
        else:
            self._group.index.give_back(lease.seq, entry)


class TailReleases(Releases):
    """Give messages back behind all that wait now, in this order; no attempt is counted.

    One with an ordering key keeps its place among its key, and one that was being delivered when
    its host died waits for its turn to be tried alone.
    """

    __slots__ = ("_moved",)

    def ops(self) -> Sequence[Op]:
        """Return one operation for each that moves, and one Release for the others."""
        group, now = self._group, self._engine.now_ms()
        self._moved: dict[Lease, ToTail] = {}
        stay: list[tuple[int, int]] = []
        for lease in self._valid:
            if lease.key is None and not lease.is_suspect:
                self._moved[lease] = _to_tail(group, lease, now)
            else:
                stay.append((lease.seq, lease.attempt))
        release = [Release(group.id, stay)] if stay else []
        return [*self._moved.values(), *release]

    def _put_back(self, lease: Lease) -> None:
        """Put one where it belongs."""
        op = self._moved.get(lease)
        if op is None:
            super()._put_back(lease)
        else:
            _to_place(self._group, lease, op, lease.attempt - 1)


class Drops(Releases):
    """End deliveries of messages that left the store meanwhile."""

    __slots__ = ()

    def apply(self) -> None:
        """End the leases; nothing comes back, and the next message of each key may move."""
        for lease in self._valid:
            self._group.end(lease)
            if lease.key is not None:
                self._engine.key_settled(self._group, lease.key, lease.seq)


def _to_tail(group: GroupState, lease: Lease, now: int) -> ToTail:
    priority = 0 if lease.entry is None else lease.entry.priority
    return ToTail(group.id, lease.seq, lease.attempt, priority, now)


def _to_place(group: GroupState, lease: Lease, op: ToTail, attempt: int) -> None:
    """Make a message ready at the place it got; at its old one if the store did not know of it."""
    entry = lease.entry_at(attempt)
    if op.due is None:
        group.index.give_back(lease.seq, entry)
    else:
        group.index.to_tail(op.due, lease.seq, entry)
