"""The desk: the engine with what those need who handle messages: waiting, settling, renewal.

Knows: how a claim waits, that settling and claiming share a commit, who keeps a lease alive.
Does not know: handlers, threads of consumers, asyncio (awaiting.py), sockets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from embedq.broker import bounds, byid, direct, handover, moves, supply
from embedq.broker.endings import DONE, Ending, Settlement, Together
from embedq.broker.engine import Engine
from embedq.broker.leases import Lease
from embedq.broker.port import Exchanged, Pairs
from embedq.broker.state import GroupState, QueueState
from embedq.broker.waiting import Waiter
from embedq.clock import Clock
from embedq.errors import GroupNotFound, UnknownMessage
from embedq.events import Counts
from embedq.limits import LIMITS, Limits
from embedq.message import Draft, Receipt
from embedq.policy import QueuePolicy
from embedq.storage.port import Store
from embedq.storage.writer import Task

if TYPE_CHECKING:
    from embedq.broker.awaiting import LoopWaiter
    from embedq.broker.office import Office


class Round:
    """One go at settling and claiming in one commit: what sync and async callers share.

    `task` is what to commit; `outcome` then says what came of it.
    """

    __slots__ = ("claim", "desk", "group", "most", "seconds", "session", "settlement", "stale")

    def __init__(
        self,
        desk: Desk,
        group: GroupState,
        pairs: Pairs,
        most: int,
        lease_s: float | None,
        session: int | None,
    ) -> None:
        self.desk = desk
        self.group = group
        self.most = most
        self.seconds = group.queue.policy.lease_ms / 1000 if lease_s is None else lease_s
        self.session = session or desk.session
        self.settlement: Settlement | None = Settlement(desk, pairs) if pairs else None
        self.stale: list[Lease] = []

    def check(self) -> None:
        """Raise GroupNotFound if the group was removed."""
        group = self.group
        if group not in group.queue.groups:
            raise GroupNotFound(f"group {group.name!r} of queue {group.queue.name!r} was removed")

    def task(self, waiter: Waiter | None) -> Task:
        """Return the next task: the first one settles, too."""
        claim = moves.Claim(
            *(self.desk, self.group, self.most, self.seconds, self.session), waiter=waiter
        )
        self.claim = claim
        return claim if self.settlement is None else Together([*self.settlement.tasks, claim])

    def committed(self) -> None:
        """The task is committed: what was to be settled is settled."""
        if self.settlement is not None:
            self.stale = self.settlement.stale
            self.settlement = None


class Desk(Engine):
    """The engine, and how its messages are waited for, settled and kept.

    Every method is safe to call from any thread. The `a…` and `await_…` methods are for
    coroutines; they never block the loop.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock | None = None,
        limits: Limits = LIMITS,
        session: str | None = None,
    ) -> None:
        super().__init__(store, clock=clock, limits=limits, session=session)
        self.opened_at = self.monotonic()
        self._office: Office | None = None
        self._aput: Callable[[QueueState, bytes, int], Awaitable[int]] | None = None
        self.events.clock = self.clock
        self.events.add_source(self._counted)

    def _counted(self) -> Counts:
        counts: Counts = {}
        for queue in list(self.queues.values()):
            counts["put", queue.name] = queue.puts
            counts["delivered", queue.name] = sum(group.delivered for group in queue.groups)
            counts["acked", queue.name] = sum(group.acked for group in queue.groups)
        return counts

    def aput(self, queue: QueueState, body: bytes, kind: int = 0) -> Awaitable[int]:
        """Do the same as `put`, from a coroutine. Those of one turn of the loop go together."""
        put = self._aput
        if put is None:
            from embedq.broker import gathering  # noqa: PLC0415  # asyncio only where it is used

            put = self._aput = gathering.Gathering(self).put
        return put(queue, body, kind)

    async def aput_drafts(
        self, queue: QueueState, drafts: Sequence[Draft], timeout: float | None = None
    ) -> list[Receipt]:
        """Do the same as `put_drafts`, from a coroutine."""
        return await bounds.aput(self, queue, drafts, timeout)

    # ------------------------------------------------- what a desk elsewhere can do, too

    @property
    def office(self) -> Office:
        """Everything but the handling of messages, asked with plain values."""
        office = self._office
        if office is None:
            from embedq.broker.office import Office  # noqa: PLC0415  # it knows the desk

            office = self._office = Office(self)
        return office

    def declare(self, name: str, changes: Mapping[str, object]) -> QueueState:
        """Create a queue, or change what is said about it; the rest stays as it is."""
        known = self.queues.get(name)
        policy = QueuePolicy() if known is None else known.policy
        return self.queue(name, policy.changed(**changes) if changes else None)

    def bound_attempts(self, group: GroupState, most: int) -> None:
        """Bound the attempts of messages of a group that do not say; 0 is endless."""
        group.most = most

    # ------------------------------------------------------------------------- settling

    def settle(self, pairs: Pairs) -> list[Lease]:
        """Settle deliveries of any groups, each in its own way, in one commit.

        Returns the leases that no longer counted: for these nothing was changed. Raises what the
        store raises; then nothing was changed at all.
        """
        task = Settlement(self, pairs)
        if task.tasks:
            self.writer.run(task)
        return task.stale

    async def asettle(self, pairs: Pairs) -> list[Lease]:
        """Do the same as `settle`, from a coroutine."""
        task = Settlement(self, pairs)
        if task.tasks:
            await self.arun(task)
        return task.stale

    def settle_by_id(self, group: GroupState, seq: int, ending: Ending = DONE) -> None:
        """Settle a message for a group by its seq, whoever holds it, and if nobody does.

        Done and Rejected also end a message that waits; Failed and Released then change nothing.
        Raises UnknownMessage if the group has no such message, or is done with it.
        """
        task = byid.ById(self, group, seq, ending)
        self.writer.run(task)
        if task.missing:
            raise UnknownMessage(
                f"group {group.name!r} of queue {group.queue.name!r} has no message "
                f"{self.ids.encode(seq)} left to settle"
            )

    async def arun(self, task: Task) -> None:
        """Commit a task, from a coroutine; raises what the store raised."""
        from embedq.broker import awaiting  # noqa: PLC0415  # asyncio only where it is used

        await awaiting.commit(self.writer, task)

    # -------------------------------------------------------------------------- waiting

    def wait_claim(
        self,
        group: GroupState,
        most: int = 1,
        timeout: float | None = None,
        lease_s: float | None = None,
        *,
        waiter: Waiter | None = None,
    ) -> list[Lease]:
        """Lease up to `most` messages; wait for the first one for `timeout` seconds (None: ever).

        Empty: the time is over, or the waiter was cancelled.
        """
        return self.exchange(
            group, (), most, lease_s=lease_s, timeout=timeout, waiter=waiter
        ).leases

    def exchange(
        self,
        group: GroupState,
        pairs: Pairs = (),
        most: int = 1,
        *,
        lease_s: float | None = None,
        timeout: float | None = 0.0,
        waiter: Waiter | None = None,
        session: int | None = None,
        keep: bool = False,  # noqa: ARG002  # for desks of other processes: see `keep`
    ) -> Exchanged:
        """Settle deliveries and claim the next ones in one commit; then wait as `wait_claim`.

        With a cancelled waiter it settles and claims nothing; one that is cancelled meanwhile may
        still get something. Raises what the store raises; then nothing was settled.
        """
        step = Round(self, group, pairs, most, lease_s, session)
        if waiter is None and (timeout is None or timeout > 0):
            waiter = Waiter()
        until = None if timeout is None else self.monotonic() + timeout
        try:
            leases = self._take(step, timeout, until, waiter)
        except BaseException:
            if waiter is not None:
                direct.leave(self, group.waiters, waiter)
            raise
        if waiter is not None:
            waiter.woken = False
            waiter.got = ()
        return Exchanged(leases, step.stale)

    def _take(
        self, step: Round, timeout: float | None, until: float | None, waiter: Waiter | None
    ) -> list[Lease]:
        """Settle and claim until there is something, or the time is over."""
        group = step.group
        waiting = waiter if timeout is None or timeout > 0 else None
        while True:
            if waiter is not None and waiter.cancelled:
                return self._settle_only(step, waiter)
            step.check()
            leases = self._go(step, waiting)
            if leases:
                return leases
            claim = step.claim
            if claim.hungry is not None:
                supply.feed(self, group, claim.hungry, step.most)
            elif claim.found:
                continue
            elif not claim.waits or waiter is None:
                return []
            else:
                in_time = self._wait(group, waiter, until)
                if leases := waiter.handed():
                    return leases
                if not in_time:
                    waiting = None  # woken at the last moment: one more look, without waiting

    def _settle_only(self, step: Round, waiter: Waiter) -> list[Lease]:
        settlement = step.settlement
        if settlement is not None:
            self.writer.run(settlement)
            step.committed()
        direct.leave(self, step.group.waiters, waiter)
        return []

    def _go(self, step: Round, waiter: Waiter | None) -> list[Lease]:
        task = step.task(waiter)
        try:
            self.writer.run(task)
            step.committed()
            return handover.with_messages(self, step.claim)
        except BaseException:
            self.abandon(step.group, step.claim)
            raise

    def _wait(self, group: GroupState, waiter: Waiter, until: float | None) -> bool:
        """Wait to be woken. False: the time is over."""
        if waiter.wait(None if until is None else until - self.monotonic()):
            return True
        with self.writer.entry, self.writer.lock:
            if not group.waiters.leave(waiter):
                waiter.reset()  # takes the signal back that came too late
        return False

    def cancel_wait(self, *waiters: Waiter) -> None:
        """Let waiters wait no more: their claims return at once, now and in future."""
        with self.writer.entry, self.writer.lock:
            for waiter in waiters:
                waiter.cancelled = True
                for group in self.groups():
                    if group.waiters.leave(waiter):
                        break
                waiter.signal()

    async def await_claim(
        self,
        group: GroupState,
        most: int = 1,
        timeout: float | None = None,
        lease_s: float | None = None,
    ) -> list[Lease]:
        """Do the same as `wait_claim`, from a coroutine. Cancelling it loses nothing."""
        done = await self.aexchange(group, (), most, lease_s=lease_s, timeout=timeout)
        return done.leases

    async def aexchange(
        self,
        group: GroupState,
        pairs: Pairs = (),
        most: int = 1,
        *,
        lease_s: float | None = None,
        timeout: float | None = 0.0,
        session: int | None = None,
        keep: bool = False,  # noqa: ARG002  # as above
        waiter: LoopWaiter | None = None,
    ) -> Exchanged:
        """Do the same as `exchange`, from a coroutine. Cancelling it loses nothing.

        `cancel_wait` with the waiter ends the wait; what was to be settled is settled.
        """
        from embedq.broker import awaiting  # noqa: PLC0415  # asyncio only where it is used

        step = Round(self, group, pairs, most, lease_s, session)
        return await awaiting.exchange(step, timeout, waiter)

    # -------------------------------------------------------------------------- keeping

    def keep(self, lease: Lease, alive: Callable[[], bool]) -> None:
        """Renew a lease whenever it would end, for as long as `alive()` says so.

        `alive` is called under the broker's lock: it answers at once and calls nothing here.
        `Thread.is_alive` will do. Settling a lease ends this; `unkeep` does so before.
        """
        lease.keeper = alive

    def unkeep(self, lease: Lease) -> None:
        """Renew a lease no more: it ends when its time is over."""
        lease.keeper = None

    # ------------------------------------------------------------------------------ end

    @property
    def path(self) -> str:
        """Where the database is."""
        return str(getattr(self.store, "path", ":memory:"))

    def record_crashes(self) -> None:
        """Let Python write down a crash of this process for the next host, if nobody else does.

        Consumers do so when they start; a program that claims by itself may.
        """
        self.store.record_crashes()

    def announce(self) -> None:
        """Tell that the host is open, and if its last one did not close the file."""
        epoch = self.store.epoch
        self.events.emit("started", path=self.path, epoch=epoch)
        # Not by `clean`: a host that was short and ended well may have had no time to count.
        if epoch - 1 in self.store.deaths:
            cause = self.end_of(epoch - 1)
            self.events.emit("unclean_start", path=self.path, epoch=epoch, cause=cause)

    def close(self, *, release: bool = True, keep: Collection[Lease] = ()) -> None:
        """Close the engine; those who wait get StoreClosed. Safe to call twice.

        Raises what the last commits raise: everything is closed all the same, and the file is
        free, but its next host finds no clean end.
        """
        closing = not self._closed
        try:
            super().close(release=release, keep=keep)
        finally:
            self._ended(tell=closing)

    def _ended(self, *, tell: bool) -> None:
        """Let nobody wait any longer for what will not come."""
        with self.writer.entry, self.writer.lock:
            for group in self.groups():
                group.waiters.wake_all()
            for queue in self.queues.values():
                queue.space.wake_all()
        if tell:
            self.events.emit("stopped", path=self.path)
            self.events.close()
