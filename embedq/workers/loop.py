"""Consumers on an event loop: tasks that run handlers, and a pump that claims and settles.

Knows: how many tasks run, that all that ended meanwhile is settled with the next claim.
Does not know: what an ending means, SQL, threads beyond the one of its loop.

Everything of a LoopCrew happens on the thread of its loop, except where it says otherwise.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final

from embedq.broker.endings import RELEASED
from embedq.broker.leases import Lease
from embedq.broker.port import DeskPort
from embedq.workers.bell import Bell
from embedq.workers.runner import Pairs, Run, Runner, Why, released
from embedq.workers.threads import NOTICE_S, guarded, running_loop

#: Seconds without an answer after which a loop counts as blocked by a handler.
BLOCKED_S: Final = 5.0
_PAUSES_S: Final = (0.05, 5.0)
_STACK_FRAMES: Final = 12
#: Seconds after which a loop whose tasks were all cancelled is not about to end.
_TORN_DOWN_S: Final = 1.0


class LoopCrew:
    """The tasks of one `async def` consumer."""

    def __init__(self, runner: Runner, bell: Bell, loop: asyncio.AbstractEventLoop) -> None:
        self.runner = runner
        self.spec = runner.spec
        self.desk: DeskPort = runner.desk
        self.bell = bell
        self.closed = False
        self.ended = False
        self.finished = 0
        self.released = 0
        self.stuck = 0
        self.notice_s = 0.0
        self._loop = loop
        self._runs: dict[Run, asyncio.Task[None]] = {}
        self._done: Pairs = []
        self._claiming: asyncio.Task[None] | None = None
        self._pump: asyncio.Task[None] | None = None
        self._something: asyncio.Event | None = None
        self._pulse = _Pulse(loop)

    # ------------------------------------------------------------------------- the pump

    def start(self) -> None:
        """Start the pump. From any thread."""
        self._call(self._begin)

    def _begin(self) -> None:
        self._pulse.thread = threading.current_thread()
        self._something = asyncio.Event()
        self._pump = self._loop.create_task(self._serve(), name=f"embedq-{self.spec.name}")

    @property
    def busy(self) -> bool:
        """Whether handlers run."""
        return bool(self._runs)

    @property
    def running(self) -> int:
        """How many messages are in handlers."""
        return len(self._runs)

    def is_handling_here(self) -> bool:
        """Whether this is called in one of its handlers."""
        return self.is_on_this_loop() and asyncio.current_task() in self._runs.values()

    def is_on_this_loop(self) -> bool:
        """Whether its handlers run on the loop that runs on this thread."""
        return running_loop() is self._loop and not self.ended

    async def _serve(self) -> None:
        assert self._something is not None  # noqa: S101 - set by _begin
        try:
            while not (self.closed and not self._runs and not self._done):
                self._something.clear()
                free = 0 if self.closed or self._claiming else self._free()
                if self._done:
                    await self._settle_and_claim(free)
                elif free:
                    self._claiming = self._loop.create_task(self._claim(free))
                else:
                    await self._something.wait()
        except asyncio.CancelledError:
            self._loop.call_later(_TORN_DOWN_S, self._tell_cancelled)
            raise
        finally:
            if self._claiming is not None:
                self._claiming.cancel()
            # Cancelled from outside it leaves something behind, for give_back().
            self.ended = not self._runs and not self._done
            self.bell.ring()

    def _tell_cancelled(self) -> None:
        """Tell that the pump was cancelled on a loop that goes on: nobody would notice."""
        if not self.closed:
            self.runner.tell("consumer_error", error="its task was cancelled from outside")

    def _free(self) -> int:
        return self.spec.concurrency - len(self._runs)

    async def _settle_and_claim(self, free: int) -> None:
        pairs, self._done = self._done, []
        self._launch(await self._exchange(pairs, free, 0.0))

    async def _claim(self, free: int) -> None:
        """Wait for messages beside the pump, which settles meanwhile."""
        try:
            self._launch(await self._exchange([], free, None))
        finally:
            self._claiming = None
            self._wake()

    def _wake(self) -> None:
        if self._something is not None:
            self._something.set()

    async def _exchange(self, pairs: Pairs, most: int, timeout: float | None) -> Sequence[Lease]:
        """Settle and claim; what fails for a while is tried again until it is done."""
        pause = _PAUSES_S[0]
        while True:
            try:
                if most and not self.closed:
                    group = self.runner.group
                    got = await self.desk.aexchange(group, pairs, most, timeout=timeout, keep=True)
                    return got.leases
                await self.desk.asettle(pairs)
                return ()
            except Exception as error:  # noqa: BLE001 - told; the pump must survive it
                if self.runner.gone_wrong(error):
                    self.closed = True
                    return ()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSES_S[1])

    # ------------------------------------------------------------------------- the tasks

    def _launch(self, leases: Sequence[Lease]) -> None:
        if self.closed:
            self._done += [(lease, RELEASED) for lease in leases]
            self.released += len(leases)
            self._wake()
            return
        alive = self._pulse.thread.is_alive
        for lease in leases:
            self.desk.keep(lease, alive)
            run = Run((lease,))
            self._runs[run] = self._loop.create_task(self._handle(run))
        if leases:
            self.bell.wake_watch()

    async def _handle(self, run: Run) -> None:
        try:
            pairs = await self._run(run)
        except BaseException as error:  # noqa: BLE001 - a defect must not cost the slot or the loop
            pairs = self.runner.defective(run.leases, error)
        if not run.take():
            self.stuck -= 1  # it was given up, and has come back after all
            return
        del self._runs[run]
        self._ended(pairs)

    def _ended(self, pairs: Pairs) -> None:
        given_back = released(pairs)
        self.released += given_back
        self.finished += len(pairs) - given_back
        self._done += pairs
        self._wake()
        self.bell.ring_if_waited_for()

    async def _run(self, run: Run) -> Pairs:
        runner = self.runner
        arguments = runner.open(run)
        if arguments is None:
            return run.aside
        patience = self._start_patience(run)
        try:
            value, error = await guarded(runner, arguments)
        except asyncio.CancelledError as cancelled:
            if run.why == "timeout":
                return runner.given_up(run, "timeout")
            if run.why is None and not self._is_torn_down():
                # For nothing it would come again at once, and for ever.
                return runner.raised(run, RuntimeError("the handler's task was cancelled"))
            # Cancelled by a drain, or by a loop that is about to close: not the message's fault.
            run.why = "drain"
            return runner.raised(run, cancelled)
        finally:
            if patience is not None:
                patience.cancel()
        if error is not None:
            return runner.raised(run, error)
        return runner.returned(run, value)

    def _is_torn_down(self) -> bool:
        """Whether somebody cancels all tasks of the loop, the pump with them."""
        pump = self._pump
        return pump is None or pump.done() or pump.cancelling() > 0

    # ----------------------------------------------------------------- losing patience

    def _start_patience(self, run: Run) -> asyncio.TimerHandle | None:
        timeout = self.spec.timeout
        return None if timeout is None else self._loop.call_later(timeout, self._time_out, run)

    def _time_out(self, run: Run) -> None:
        task = self._runs.get(run)
        if task is None or run.why is not None:
            return
        self.runner.timed_out(run)
        run.cancel("timeout")
        task.cancel()
        self._loop.call_later(NOTICE_S, self._give_up, run, "timeout")

    def _give_up(self, run: Run, why: Why) -> None:
        """Settle what a task is at and wait for it no longer."""
        if run not in self._runs or not run.take():
            return
        del self._runs[run]
        self.stuck += 1
        pairs = self.runner.given_up(run, why)
        self.runner.stuck(run, self._pulse.thread.name)
        self._ended(pairs)

    def check(self, now: float) -> None:
        """Tell if a handler blocks the loop, and who lost a lease. Called by the watch."""
        if self.runner.is_watched:
            for run in list(self._runs):
                self.runner.look_at_leases(run)
        stack = self._pulse.check(now) if self._runs else None
        if stack is not None and not self._is_blocked_by_another():
            self.runner.tell("loop_blocked", seconds=BLOCKED_S, stack=stack)

    def _is_blocked_by_another(self) -> bool:
        """Whether the loop is held by a handler of another consumer, which tells of itself."""
        task = asyncio.current_task(self._loop)
        if task is None or task in list(self._runs.values()):
            return False
        return getattr(task.get_coro(), "cr_code", None) is LoopCrew._handle.__code__

    # -------------------------------------------------------------- ending, from any thread

    def close(self) -> None:
        """Claim nothing more; the pump ends when all tasks have ended and are settled."""
        self._call(self._close)

    def _close(self) -> None:
        self.closed = True
        if self._claiming is not None:
            self._claiming.cancel()
        self._wake()

    def cancel(self) -> None:
        """Cancel the tasks that still run."""
        self._call(self._cancel)

    def _cancel(self) -> None:
        for run, task in list(self._runs.items()):
            if run.why is None:
                run.cancel("drain")
                task.cancel()

    def abandon(self) -> None:
        """Give back what is still being handled, and wait for it no longer."""
        self._call(self._abandon)

    def _abandon(self) -> None:
        for run in list(self._runs):
            self._give_up(run, "drain")

    def give_back(self) -> None:
        """Settle from this thread what a blocked or closed loop cannot. The last resort."""
        pairs: Pairs = []
        for run in list(self._runs):
            if run.take():
                pairs += self.runner.given_up(run, "drain")
                self.stuck += not self._loop.is_closed()
        self.released += len(pairs)
        pairs += self._done
        self._done = []
        if pairs:
            self.desk.settle(pairs)
        self.ended = True

    def _call(self, function: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            self.closed = True
            self.give_back()  # the loop is closed: nobody else will


class _Pulse:
    """Whether a loop still answers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.thread = threading.current_thread()
        self._loop = loop
        self._asked_at: float | None = None
        self._told = False

    def check(self, now: float) -> str | None:
        """Ask the loop; return the stack of its thread, once, when it has not answered in time."""
        if self._asked_at is None:
            self._asked_at = now
            self._told = False
            with suppress(RuntimeError):  # it is closed
                self._loop.call_soon_threadsafe(self._answer)
        elif now - self._asked_at >= BLOCKED_S and not self._told:
            self._told = True
            frame = sys._current_frames().get(self.thread.ident or 0)  # noqa: SLF001 - public
            lines = traceback.format_stack(frame, limit=_STACK_FRAMES) if frame else []
            return "".join(lines)
        return None

    def _answer(self) -> None:
        self._asked_at = None


class LoopThread:
    """An event loop on a thread of its own, for consumers of a program without one."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="embedq-loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            while not self._ending:
                self.loop.run_forever()  # a handler may stop the loop, but it is not its own
        finally:
            self._tidy()

    def _tidy(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self._finish(_settled(tasks))
        self._finish(self.loop.shutdown_asyncgens())
        self.loop.close()

    def _finish(self, last: Coroutine[Any, Any, None]) -> None:
        self.loop.run_until_complete(asyncio.wait_for(last, NOTICE_S))

    def stop(self, timeout: float) -> bool:
        """End the loop and its thread; False: a handler blocks it, and it was left alone."""
        self._ending = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout)
        return not self._thread.is_alive()


async def _settled(tasks: set[asyncio.Task[Any]]) -> None:
    if tasks:
        await asyncio.wait(tasks, timeout=NOTICE_S / 2)
