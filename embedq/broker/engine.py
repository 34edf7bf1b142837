"""The engine: put, claim, settle, and everything a broker is made of, on one store.

Knows: queues, groups, ready indexes, leases; that memory follows what was committed.
Does not know: consumers, handlers, processes, sockets, how bodies are made.

This is the host's core. Every method is safe to call from any thread, and blocks until what it
did is durable. Promises P1 to P7 are kept here and below (docs/promises.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from typing import Self
from zlib import crc32

from embedq.broker import (
    bounds,
    changes,
    deaths,
    direct,
    handover,
    moves,
    outsiders,
    redaction,
    settling,
    supply,
)
from embedq.broker.inherited import Inheritance
from embedq.broker.intake import check_batch, row_of, too_large
from embedq.broker.leases import Deadlines, Lease, counter_before
from embedq.broker.registry import Registry
from embedq.broker.returns import Returns
from embedq.broker.state import GroupState, QueueState
from embedq.broker.telling import tell_dead
from embedq.broker.upkeep import Upkeep
from embedq.clock import Clock, SystemClock, parse_duration
from embedq.errors import ForkedBroker, StaleLease
from embedq.ids import MessageIds
from embedq.lifecycle import Outcome, Reason
from embedq.limits import LIMITS, Limits
from embedq.message import Draft, ErrorInfo, Receipt
from embedq.storage.backup import BackupReport
from embedq.storage.fork import on_fork
from embedq.storage.ops import Bury, OpenSession, PutPlain
from embedq.storage.port import Store
from embedq.storage.rows import Stored
from embedq.storage.writer import Writer


class Engine(Registry):
    """The broker's core on one store. Takes the store over: `close` closes it.

    `head_max` bounds the seqs held in memory for each group and priority, `load_chunk` how many
    are read at once.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock | None = None,
        limits: Limits = LIMITS,
        session: str | None = None,
    ) -> None:
        super().__init__()
        self.store = store
        self.limits = limits
        self.clock = clock or SystemClock()
        self.monotonic = self.clock.monotonic
        self._time = self.clock.time
        self.load_chunk = limits.load_chunk
        self.deadlines = Deadlines()
        self.ids = MessageIds(store.key)
        self.counts_exact = store.clean
        self.interruptions = 0
        self._counter = counter_before(store.epoch)
        self._closed = False
        self.writer = Writer(
            store,
            self,
            most=limits.group_max_ops,
            most_bytes=limits.group_max_bytes,
            clock=self.clock,
        )
        self.returns = Returns(self)
        self._read_catalogue()
        name = session or f"host-{os.getpid()}"
        own, others = OpenSession(name, self.now_ms()), outsiders.session(self.now_ms())
        self.writer.run(moves.Change([own, others]))
        #: Whose deliveries are: of consumers of this process, of clients of its listeners.
        self.session, self.listeners = own.id, others.id
        #: What clients of an earlier host hold, if there may be any.
        self.inheritance: Inheritance | None = None
        self.upkeep = Upkeep(self)
        on_fork(self)

    # ------------------------------------------------------------------------- small things

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds."""
        return int(self._time() * 1000)

    def next_counter(self, count: int) -> int:
        """Reserve fencing tokens; return the first. The lock is held."""
        first = self._counter + 1
        self._counter += count
        return first

    def forked_in_child(self) -> None:
        """Refuse everything in a child made by fork: the file has one host, the parent."""
        self.writer.forked(
            ForkedBroker("this broker belongs to the parent process; the fork cannot use it")
        )
        self._closed = True  # there is nothing to close here, and no thread to wait for

    # ------------------------------------------------------------------------------- put

    def put(self, queue: QueueState, body: bytes, kind: int = 0) -> int:
        """Store one message that has nothing but a body; return its seq once it is durable.

        Raises LimitExceeded, StoreFull, StoreBusy, StoreFailed.
        """
        if len(body) > self.limits.body_bytes:
            raise too_large(queue, len(body), self.limits)
        if queue.policy.max_length is not None:
            return bounds.put(self, queue, [Draft(body, kind)])[0].seq
        op = PutPlain(queue.id, int(self._time() * 1000), kind, [crc32(body), body], 1)
        if queue.attended or not self.writer.put(op, queue.put_applied):
            self.writer.run(direct.PlainPut(self, queue, op, len(body)))
        return op.first

    def put_many(self, queue: QueueState, bodies: Sequence[bytes], kind: int = 0) -> range:
        """Store messages in one transaction, in this order; return their seqs."""
        count = len(bodies)
        if not count:
            return range(0)
        check_batch(queue, list(map(len, bodies)), self.limits)
        if queue.policy.max_length is not None:
            receipts = bounds.put(self, queue, [Draft(body, kind) for body in bodies])
            return range(receipts[0].seq, receipts[0].seq + count)
        items: list[int | bytes] = [0] * (2 * count)
        items[::2] = map(crc32, bodies)
        items[1::2] = bodies
        op = PutPlain(queue.id, self.now_ms(), kind, items, count)
        if queue.attended or not self.writer.put(op, queue.put_applied):
            self.writer.run(direct.PlainPut(self, queue, op, sum(map(len, bodies))))
        return range(op.first, op.first + count)

    def put_drafts(
        self, queue: QueueState, drafts: Sequence[Draft], timeout: float | None = None
    ) -> list[Receipt]:
        """Store messages of any kind in one transaction, in this order.

        `timeout`: seconds to wait for room in a full queue, None: for ever. Raises QueueFull.
        A draft with a dedup key that is known in the queue is not stored again: its receipt names
        the earlier message.
        """
        check_batch(queue, [len(draft.body) for draft in drafts], self.limits)
        if queue.policy.max_length is not None:
            return bounds.put(self, queue, drafts, timeout)
        now = self.now_ms()
        rows = [row_of(draft, now) for draft in drafts]
        task = direct.PutMessages(self, queue, rows, now)
        self.writer.run(task)
        stored = set(task.op.stored)
        return [
            Receipt(self.ids, seq, position not in stored)
            for position, seq in enumerate(task.op.seqs)
        ]

    # ----------------------------------------------------------------------------- claim

    def claim(
        self,
        group: GroupState,
        most: int = 1,
        lease_s: float | None = None,
        session: int | None = None,
    ) -> list[Lease]:
        """Lease up to `most` of the next messages, without waiting for any to come.

        The attempt is on disk before this returns. Expired messages and those that do not match
        their checksum are dead-lettered on the way. An empty list: nothing is ready.
        """
        seconds = group.queue.policy.lease_ms / 1000 if lease_s is None else lease_s
        while True:
            task = moves.Claim(self, group, most, seconds, session or self.session)
            try:
                self.writer.run(task)
                leases = handover.with_messages(self, task)
            except BaseException:
                self.abandon(group, task)
                raise
            if leases:
                return leases
            if task.hungry is not None:
                supply.feed(self, group, task.hungry, most)
            elif not task.found:
                return []

    def abandon(self, group: GroupState, claim: moves.Claim) -> None:
        """The claim's caller was interrupted: nobody will ever settle what it got, nor wait."""
        claim.waiter = None  # the commit may be still to come
        self.returns.send(changes.Abandoned(self, group, claim))

    # ---------------------------------------------------------------------------- settle

    def ack(self, *leases: Lease) -> None:
        """Settle deliveries as done: the messages are not delivered to their groups again.

        Raises StaleLease if some no longer count; the others are settled all the same.
        """
        self._settle(settling.Acks, leases)

    def release(self, leases: Sequence[Lease]) -> None:
        """Give deliveries back: ready again at their old places, no attempt counted."""
        self._settle(settling.Releases, leases)

    def _settle(
        self, kind: type[settling.Acks | settling.Releases], leases: Sequence[Lease]
    ) -> None:
        if not leases:
            return
        group = leases[0].group
        by_group = {group: leases}
        if any(lease.group is not group for lease in leases):
            by_group = {
                member: [lease for lease in leases if lease.group is member]
                for member in {lease.group for lease in leases}
            }
        stale: list[Lease] = []
        for member, theirs in by_group.items():
            task = kind(self, member, theirs)
            self.writer.run(task)
            stale += task.stale
        _raise_stale(stale)

    def fail(
        self,
        lease: Lease,
        error: ErrorInfo | None = None,
        delay_s: float = 0.0,
        outcome: Outcome = Outcome.FAILED,
    ) -> None:
        """Close a failed attempt: the message may be tried again after `delay_s` seconds.

        Without attempts left it is dead-lettered. Raises StaleLease.
        """
        text = redaction.stored(error, self.redact)
        delay_ms = round(parse_duration(delay_s, "delay") * 1000)
        task = settling.Failures(self, lease.group, [lease], outcome, text, delay_ms)
        self.writer.run(task)
        _raise_stale(task.stale)

    def reject(
        self, lease: Lease, detail: str = "", error: ErrorInfo | None = None, by: str = ""
    ) -> None:
        """Dead-letter a message now, whatever attempts are left. Raises StaleLease."""
        task = settling.Rejections(self, lease.group, [lease], Reason.REJECTED, detail, by)
        task.cause = redaction.stored(error, self.redact)
        self.writer.run(task)
        _raise_stale(task.stale)

    def extend(self, lease: Lease, seconds: float) -> None:
        """Let a lease end `seconds` from now instead. Raises StaleLease."""
        with self.writer.entry, self.writer.lock:
            self.writer.settle()
            if lease.is_held:
                lease.deadline = self.monotonic() + seconds
                self.deadlines.add(lease.deadline, [lease])
                return
        raise StaleLease(f"{lease!r} no longer counts")

    def end_leases(self) -> int:
        """Take back the leases whose time is over; each was an attempt. Returns how many."""
        over: list[Lease] = []
        with self.writer.entry, self.writer.lock:
            self.writer.settle()
            self.writer.change(lambda: over.extend(self.deadlines.over(self.monotonic())))
        by_group: dict[int, list[Lease]] = {}
        for lease in over:
            by_group.setdefault(lease.group.id, []).append(lease)
        for leases in by_group.values():
            self.writer.run(settling.Timeouts(self, leases[0].group, leases))
        return len(over)

    # ------------------------------------------------------------------ looking and removing

    def cancel(self, queue: QueueState, *seqs: int) -> list[int]:
        """Remove messages for every group; return those that waited, none of them leased."""
        task = moves.Cancels(self, queue, seqs)
        self.writer.run(task)
        return task.removed

    def peek(self, queue: QueueState, most: int = 10, after: int = 0) -> list[Stored]:
        """Return messages of a queue in seq order without touching them."""
        return self.store.range(queue.id, after, most)

    def seq_of(self, message_id: str) -> int:
        """Return the seq inside a message id. Raises UnknownMessage for one not issued here."""
        return self.ids.decode(message_id)

    def backup(
        self,
        target: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        progress: Callable[[int, int], object] | None = None,
    ) -> BackupReport:
        """Copy the database into a new file while it is in use.

        Holds every message confirmed before the call. `progress` gets (pages done, in all).
        Raises InvalidOption for a target that exists, StoreFull, StoreBusy, StoreCorrupt.
        """
        writer = self.writer
        return self.store.backup(
            writer.lock, target, settle=writer.settle, overwrite=overwrite, progress=progress
        )

    # ------------------------------------------------------------- what moves and upkeep call

    def words_of(self, epoch: int) -> bytes | None:
        """Return what is stored of how an earlier host died; None for one that did not."""
        death = self.store.deaths.get(epoch)
        if death is None:
            return None
        return redaction.stored(deaths.describe(death), self.redact)

    def end_of(self, epoch: int) -> str:
        """Say how an earlier host died, in one line."""
        death = self.store.deaths.get(epoch)
        return "no cause is known" if death is None else deaths.summary(deaths.describe(death))

    def buried(self, group: GroupState, op: Bury, key: str | None) -> None:
        """Count a dead letter and let the next message of its key move. The lock is held."""
        if op.dead_id is not None:
            group.queue.dead += 1
            tell_dead(self, group, op)
            group.count_settled(1, op.removed)
        if key is not None:
            self.key_settled(group, key, op.seq)

    def key_settled(self, group: GroupState, key: str, seq: int) -> None:
        """Let the next message of an ordering key move. The lock is held."""
        supply.key_settled(self, group, key, seq)

    def rebuild(self, group: GroupState) -> None:
        """Forget what is ready in a group and look again. The lock is held."""
        group.rebuild(self.store.open_deliveries(group.id, group.leases))

    def interrupted(self) -> None:
        """See embedq.storage.writer.Book: counts are no longer exact, everything is read again."""
        self.counts_exact = False
        self.interruptions += 1
        for group in self.groups():
            self.rebuild(group)
        self.deadlines.watch_only(
            lease for group in self.groups() for lease in group.leases.values()
        )
        for queue in self.queues.values():
            queue.last = max(queue.last, self.store.last_seq)

    # ------------------------------------------------------------------------------ end

    def close(self, *, release: bool = True, keep: Collection[Lease] = ()) -> None:
        """Give back what is leased, save the counts, close the store. Safe to call twice.

        `keep`: leases that stay open: their holders live on and show them to the next host.
        """
        if self._closed:
            return
        self._closed = True
        self.upkeep.stop()
        clean = False
        try:
            if self.store.stopped is None:
                self.writer.close(changes.last_tasks(self, keep, release=release))
                clean = True
        finally:
            self.writer.close()
            self.store.close(clean=clean)

    def __enter__(self) -> Self:
        """Return the engine."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def _raise_stale(stale: Sequence[Lease]) -> None:
    if stale:
        names = ", ".join(str(lease.seq) for lease in stale[:5])
        raise StaleLease(f"{len(stale)} leases no longer count (messages {names})")
