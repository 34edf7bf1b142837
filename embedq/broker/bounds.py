"""Queues of bounded length: puts that wait, are refused, or push the oldest messages out.

Knows: how many messages a queue holds and may hold, who waits for room.
Does not know: bodies, why messages leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from embedq.broker import direct, moves
from embedq.broker.intake import row_of
from embedq.broker.state import QueueState
from embedq.broker.waiting import Waiter
from embedq.errors import QueueFull
from embedq.message import Draft, Receipt
from embedq.storage.ops import Op
from embedq.storage.rows import Row

if TYPE_CHECKING:
    from embedq.broker.desk import Desk
    from embedq.broker.engine import Engine


def length(queue: QueueState) -> int:
    """Return how many messages a queue holds that some group is not done with."""
    if queue.policy.retain_ms is None or not queue.groups:
        return queue.stored
    return queue.stored - min(group.settled for group in queue.groups)


class BoundedPut(direct.PutMessages):
    """Store messages if there is room for all of them."""

    __slots__ = ("_taken", "full", "waiter", "waits")

    def __init__(
        self,
        engine: Engine,
        queue: QueueState,
        rows: Sequence[Row],
        now: int,
        waiter: Waiter | None = None,
    ) -> None:
        super().__init__(engine, queue, rows, now)
        #: Who waits if there is no room. None: nobody, or somebody who has given up meanwhile.
        self.waiter = waiter
        self._taken = 0
        #: Nothing was stored: there was no room.
        self.full = False
        #: And there still was none when the commit was over: the waiter was enlisted.
        self.waits = False

    def _missing(self) -> int:
        bound = self._queue.policy.max_length
        if bound is None:
            return 0
        return length(self._queue) + self._queue.taken + len(self.op.rows) - bound

    def prepare(self) -> Sequence[Op]:
        """Take places, so that puts of the same commit do not count on the same ones."""
        queue = self._queue
        missing = self._missing()
        self.full = self.waits = False
        ops = self._make_room(missing) if missing > 0 else []
        if self.full:
            return ()
        self._taken = len(self.op.rows)
        queue.taken += self._taken
        return [*ops, *super().prepare()]

    def _make_room(self, missing: int) -> list[Op]:  # noqa: ARG002  # the one who drops needs it
        """Find no room."""
        self.full = True
        return []

    def apply(self) -> None:
        """Give the places back: the messages count by themselves now."""
        if self.full:
            # One look: `give_up` may clear it meanwhile, and then lets it leave.
            waiter = self.waiter
            if waiter is not None and self._missing() > 0:
                self.waits = self._queue.space.enlist(waiter)
            return
        self._give_back()
        super().apply()

    def undo(self) -> None:
        """Nothing was stored."""
        self._give_back()
        super().undo()

    def _give_back(self) -> None:
        self._queue.taken -= self._taken
        self._taken = 0


class DroppingPut(BoundedPut):
    """Store messages; the oldest ones make room."""

    __slots__ = ("_drop",)

    _drop: moves.Cancels | None

    alone = True  # `prepare` asks the store which ones are the oldest

    def prepare(self) -> Sequence[Op]:
        """See what must go."""
        self._drop = None
        return super().prepare()

    def _make_room(self, missing: int) -> list[Op]:
        self._drop = moves.Cancels(
            self._engine, self._queue, oldest(self._engine, self._queue, missing)
        )
        return list(self._drop.prepare())

    def apply(self) -> None:
        """Count what went and what came."""
        if self._drop is not None:
            self._drop.apply()
            count, name = len(self._drop.removed), self._queue.name
            self._engine.events.emit("dropped", times=count, queue=name, count=count)
        super().apply()


def oldest(engine: Engine, queue: QueueState, count: int) -> list[int]:
    """Find messages to push out: the oldest ones that nobody is working at."""
    leased = {seq for group in queue.groups for seq in group.leases}
    sole = len(queue.groups) < 2 and queue.policy.retain_ms is None  # noqa: PLR2004
    found: list[int] = []
    after = 0
    while len(found) < count:
        rows = engine.store.range(queue.id, after, count + len(leased))
        if not rows:
            break
        after = rows[-1].seq
        found += [
            row.seq
            for row in rows
            if row.seq not in leased and (sole or engine.store.unsettled(row.seq))
        ]
    return found[:count]


class Step:
    """One put into a bounded queue: what sync and async callers share."""

    __slots__ = ("_engine", "_now", "_rows", "queue")

    def __init__(self, engine: Engine, queue: QueueState, drafts: Sequence[Draft]) -> None:
        self._engine = engine
        self.queue = queue
        self._now = engine.now_ms()
        self._rows = [row_of(draft, self._now) for draft in drafts]
        check_fits(queue, len(drafts))

    def task(self, waiter: Waiter | None) -> BoundedPut:
        """Return the next task."""
        drops = self.queue.policy.when_full == "drop_oldest"
        kind = DroppingPut if drops else BoundedPut
        return kind(self._engine, self.queue, self._rows, self._now, waiter)

    def receipts(self, task: BoundedPut) -> list[Receipt]:
        """Return the answers to what was stored."""
        stored = set(task.op.stored)
        ids = self._engine.ids
        return [Receipt(ids, seq, n not in stored) for n, seq in enumerate(task.op.seqs)]

    def may_wait(self, timeout: float | None) -> bool:
        """Whether the put waits for room."""
        return self.queue.policy.when_full == "block" and (timeout is None or timeout > 0)


def check_fits(queue: QueueState, count: int) -> None:
    """Raise QueueFull for a put of more messages than the queue may ever hold."""
    bound = queue.policy.max_length
    if bound is not None and count > bound:
        raise QueueFull(
            f"queue {queue.name!r}: {count} messages in one put are more than max_length={bound}",
            hint="put them in parts, or raise max_length",
        )


def full(queue: QueueState) -> QueueFull:
    """Return the error for a queue without room."""
    policy = queue.policy
    return QueueFull(
        f"queue {queue.name!r} holds {length(queue)} messages, max_length={policy.max_length}"
    )


def put(
    engine: Engine, queue: QueueState, drafts: Sequence[Draft], timeout: float | None = None
) -> list[Receipt]:
    """Store messages in one transaction; wait up to `timeout` seconds (None: ever) for room.

    Raises QueueFull: no room, and the queue does not block, or the time is over.
    """
    if not engine.counts_exact:
        engine.upkeep.count()
    step = Step(engine, queue, drafts)
    waiter = Waiter() if step.may_wait(timeout) else None
    until = None if timeout is None else engine.monotonic() + timeout
    while True:
        task = step.task(waiter)
        try:
            engine.writer.run(task)
        except BaseException:
            give_up(engine, queue, task)
            raise
        if not task.full:
            return step.receipts(task)
        if waiter is None:
            raise full(queue)
        if task.waits and not _wait(engine, queue, waiter, until):
            waiter = None  # one more look, without waiting


def give_up(engine: Engine, queue: QueueState, task: BoundedPut) -> None:
    """A put was interrupted in its commit, which may be still to come: nobody waits for room."""
    waiter, task.waiter = task.waiter, None
    if waiter is not None:
        direct.leave(engine, queue.space, waiter)


def _wait(engine: Engine, queue: QueueState, waiter: Waiter, until: float | None) -> bool:
    try:
        if waiter.wait(None if until is None else until - engine.monotonic()):
            return True
    except BaseException:
        direct.leave(engine, queue.space, waiter)
        raise
    with engine.writer.entry, engine.writer.lock:
        queue.space.leave(waiter)
    return False


async def acount(desk: Desk) -> None:
    """Count, if that still waits after a crash: old counts would refuse, or drop, without need."""
    if not desk.counts_exact:
        import asyncio  # noqa: PLC0415  # loaded already, by those who use coroutines

        await asyncio.to_thread(desk.upkeep.count)


async def aput(
    desk: Desk,
    queue: QueueState,
    drafts: Sequence[Draft],
    timeout: float | None = None,
) -> list[Receipt]:
    """Do the same as `put`, from a coroutine."""
    from embedq.broker import awaiting  # noqa: PLC0415  # asyncio only where it is used

    await acount(desk)
    step = Step(desk, queue, drafts)
    waiter = awaiting.LoopWaiter() if step.may_wait(timeout) else None
    until = None if timeout is None else desk.monotonic() + timeout
    while True:
        task = step.task(waiter)
        try:
            await awaiting.commit(desk.writer, task)
        except BaseException:
            give_up(desk, queue, task)
            raise
        if not task.full:
            return step.receipts(task)
        if waiter is None:
            raise full(queue)
        if task.waits and not await awaiting.wait_in(desk, queue.space, waiter, until):
            waiter = None
