"""The same for coroutines: tasks are committed by the writing thread, answers come to the loop.

Knows: event loops, that a cancelled coroutine must leave nothing behind.
Does not know: what the tasks do.

Nothing here commits on the loop's thread: a sync there would stop every other coroutine.
"""

from __future__ import annotations

import asyncio
from _thread import allocate_lock
from collections import deque
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary, ref

from embedq.broker import direct, handover, supply
from embedq.broker.port import Exchanged
from embedq.broker.waiting import Waiter, Waiters
from embedq.storage.writer import Task, Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from embedq.broker.desk import Desk, Round
    from embedq.broker.leases import Lease

T = TypeVar("T")


class Bridge:
    """Brings answers to one loop: one wake-up for all that are answered together."""

    __slots__ = ("__weakref__", "_answered", "_lock", "_loop", "_scheduled")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # Weakly: `_bridges` keeps a bridge for as long as its loop is there, and no longer.
        self._loop = ref(loop)
        self._lock = allocate_lock()
        self._answered: deque[asyncio.Future[None]] = deque()
        self._scheduled = False

    def answer(self, future: asyncio.Future[None]) -> None:
        """Complete a future of the loop soon. Called from any thread; never fails."""
        self._answered.append(future)
        with self._lock:
            if self._scheduled:
                return
            loop = self._loop()
            try:
                if loop is not None:
                    loop.call_soon_threadsafe(self._complete)
            except RuntimeError:
                loop = None
            if loop is None:
                # The loop is closed: whoever waited there is gone, too.
                self._answered.clear()
                return
            self._scheduled = True  # last: interrupted before, the next answer schedules again

    def _complete(self) -> None:
        with self._lock:
            self._scheduled = False
        while self._answered:
            future = self._answered.popleft()
            if not future.done():
                future.set_result(None)


_bridges: WeakKeyDictionary[asyncio.AbstractEventLoop, Bridge] = WeakKeyDictionary()


def bridge() -> tuple[asyncio.AbstractEventLoop, Bridge]:
    """Return the running loop and its bridge."""
    loop = asyncio.get_running_loop()
    found = _bridges.get(loop)
    if found is None:
        found = _bridges[loop] = Bridge(loop)
    return loop, found


async def commit(writer: Writer, task: Task) -> None:
    """Commit a task; raises what the store raised. Cancelled, the task is committed all the same.

    A cancelled caller gets its CancelledError at once, and cannot know the outcome (P10).
    """
    loop, to_loop = bridge()
    future: asyncio.Future[None] = loop.create_future()
    writer.send(task, lambda: to_loop.answer(future))
    await future
    if task.error is not None:
        raise task.error


class LoopWaiter(Waiter):
    """A coroutine that waits."""

    __slots__ = ("_bridge", "_future", "_loop")

    def __init__(self) -> None:
        super().__init__()
        self._loop, self._bridge = bridge()
        self._future: asyncio.Future[None] = self._loop.create_future()

    @property
    def is_gone(self) -> bool:  # type: ignore[override]  # it is read only
        """Whether its loop was closed while it waited."""
        return self._loop.is_closed()

    def signal(self) -> None:
        """Let `arrived` return."""
        self._bridge.answer(self._future)

    async def arrived(self, timeout: float | None) -> bool:
        """Wait to be woken; False: `timeout` seconds are over."""
        done, _ = await asyncio.wait([self._future], timeout=timeout)
        return bool(done)

    def again(self) -> None:
        """Be ready for another wait. The lock is held, or the waiter is not enlisted."""
        self._future = self._loop.create_future()


async def wait_in(desk: Desk, waiters: Waiters, waiter: LoopWaiter, until: float | None) -> bool:
    """Wait, enlisted in `waiters`, to be woken. False: the time is over."""
    try:
        left = None if until is None else max(0.0, until - desk.monotonic())
        if await waiter.arrived(left):
            waiter.again()
            return True
    except BaseException:
        pass_on(desk, waiters, waiter)
        raise
    with desk.writer.entry, desk.writer.lock:
        waiters.leave(waiter)
        waiter.again()
    return False


def pass_on(desk: Desk, waiters: Waiters, waiter: LoopWaiter) -> None:
    """A waiter gives up: what it was woken for, or handed, is for the next one."""
    direct.leave(desk, waiters, waiter)


async def exchange(
    step: Round, timeout: float | None, waiter: LoopWaiter | None = None
) -> Exchanged:
    """See Desk.exchange."""
    desk, group = step.desk, step.group
    waits = timeout is None or timeout > 0
    waiter = (waiter or LoopWaiter()) if waits else None
    until = None if timeout is None else desk.monotonic() + timeout
    waiting = waiter
    while True:
        if waiter is not None and waiter.cancelled:
            await _settle_only(step, waiter)
            return Exchanged([], step.stale)
        step.check()
        leases = await _go(step, waiting)
        if leases:
            return Exchanged(leases, step.stale)
        claim = step.claim
        if claim.hungry is not None:
            await _elsewhere(supply.feed, desk, group, claim.hungry, step.most)
        elif claim.found:
            continue
        elif not claim.waits or waiter is None:
            return Exchanged([], step.stale)
        else:
            in_time = await wait_in(desk, group.waiters, waiter, until)
            leases = waiter.handed()
            if leases:
                waiter.got = ()
                return Exchanged(leases, step.stale)
            if not in_time:
                waiting = None


async def _settle_only(step: Round, waiter: LoopWaiter) -> None:
    if step.settlement is not None:
        await commit(step.desk.writer, step.settlement)
        step.committed()
    pass_on(step.desk, step.group.waiters, waiter)


async def _go(step: Round, waiter: LoopWaiter | None) -> list[Lease]:
    desk = step.desk
    task = step.task(waiter)
    try:
        await commit(desk.writer, task)
        step.committed()
        claim = step.claim
        if claim.leases and claim.messages is None:
            return await _elsewhere(handover.with_messages, desk, claim)
        good, bad = handover.check_messages(desk, claim)
        for lease, message in bad:
            await _elsewhere(handover.turn_away, desk, lease, message)
        return good
    except BaseException:
        desk.abandon(step.group, step.claim)
        if waiter is not None:
            pass_on(desk, step.group.waiters, waiter)
        raise


async def _elsewhere(function: Callable[..., T], *arguments: object) -> T:
    """Call what reads or writes the file on another thread."""
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)
