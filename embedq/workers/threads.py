"""Consumers on threads: slots that claim, run the handler, and settle with the next claim.

Knows: one thread for each slot, how slots end, how a stuck one is replaced.
Does not know: what an ending means, SQL; asyncio only through a coroutine handed to a loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from embedq.broker.endings import RELEASED
from embedq.broker.leases import Lease
from embedq.broker.port import DeskPort
from embedq.broker.waiting import Waiter
from embedq.workers.bell import Bell
from embedq.workers.runner import Pairs, Run, Runner, Why, released

#: Seconds that a handler with a Delivery has to notice that it was cancelled.
NOTICE_S: Final = 1.0
#: Threads of one consumer that may be stuck before slots are no longer replaced.
STUCK_MAX: Final = 100
_PAUSES_S: Final = (0.05, 5.0)
#: How often settling is tried again once the crew is to end.
_LAST_TRIES: Final = 10


class Slot:
    """One thread of a consumer, and what it is at."""

    __slots__ = ("run", "thread", "waiter")

    def __init__(self, work: Callable[[Slot], object], name: str) -> None:
        self.run: Run | None = None
        self.waiter = Waiter()
        context = contextvars.copy_context()
        self.thread = threading.Thread(
            target=context.run, args=(work, self), name=name, daemon=True
        )


class ThreadCrew:
    """The slots of one consumer. `loop`: where the coroutines of an async batch handler run."""

    def __init__(
        self, runner: Runner, bell: Bell, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self.runner = runner
        self.spec = runner.spec
        self.desk: DeskPort = runner.desk
        self.bell = bell
        #: Messages whose handlers have ended, and messages given back unfinished.
        self.finished = 0
        self.released = 0
        self.stuck = 0
        self.notice_s = 0.0 if runner.spec.harness is None else runner.spec.harness.notice_s
        self._loop = loop
        self._is_watched = runner.is_watched
        self._slots: list[Slot] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._never = threading.Event()
        self._number = 0

    # ------------------------------------------------------------------------ slots

    def start(self) -> None:
        """Start the threads."""
        with self._lock:
            for _ in range(self.spec.concurrency):
                self._add_slot()

    def _add_slot(self) -> None:
        self._number += 1
        name = f"embedq-{self.spec.name}-{self._number}"
        slot = Slot(self._work, name)
        self._slots.append(slot)
        try:
            slot.thread.start()
        except BaseException:
            self._slots.remove(slot)  # nobody would ever take it out again
            raise

    @property
    def closed(self) -> bool:
        """Whether nothing more is claimed."""
        return self._closing.is_set()

    @property
    def busy(self) -> bool:
        """Whether a handler runs."""
        return any(slot.run is not None for slot in list(self._slots))

    @property
    def running(self) -> int:
        """How many messages are in handlers."""
        runs = [slot.run for slot in list(self._slots)]
        return sum(len(run.leases) for run in runs if run is not None)

    @property
    def ended(self) -> bool:
        """Whether all slots have ended; stuck ones do not count."""
        return not self._slots

    def is_handling_here(self) -> bool:
        """Whether this thread runs one of its handlers."""
        here = threading.current_thread()
        return any(slot.thread is here and slot.run is not None for slot in list(self._slots))

    def is_on_this_loop(self) -> bool:
        """Whether its handlers run on the loop that runs on this thread."""
        return self._loop is not None and running_loop() is self._loop and not self.ended

    def _work(self, slot: Slot) -> None:
        pairs: Pairs = []
        try:
            while not self._closing.is_set():
                leases = self._next(slot, pairs)
                pairs = []
                if self.closed:
                    pairs = [(lease, RELEASED) for lease in leases]
                    self._count_ended(pairs)
                elif leases:
                    pairs = self._handle(slot, leases)
                    if slot.run is None:
                        return  # it was given up, and another thread has taken its place
                    slot.run = None
        except BaseException as error:  # noqa: BLE001 - see _lost
            self._lost(slot, pairs, error)
        else:
            self._leave(slot, pairs)

    def _leave(self, slot: Slot, pairs: Pairs) -> None:
        try:
            if pairs:
                self._exchange(slot, pairs, 0)
        finally:
            with self._lock:
                if slot in self._slots:
                    self._slots.remove(slot)
            self.bell.ring()

    def _lost(self, slot: Slot, pairs: Pairs, error: BaseException) -> None:
        """Go on without a thread that was ended beside its handler.

        Libraries end what takes too long with an exception in its thread, and may be too late.
        """
        self.runner.gone_wrong(RuntimeError(f"a thread was ended from outside by {error!r}"))
        self._closing.wait(_PAUSES_S[0])
        with self._lock:
            if slot in self._slots and not self.closed:
                self._add_slot()
        self._leave(slot, pairs)

    def _handle(self, slot: Slot, leases: Sequence[Lease]) -> Pairs:
        """Run the handler. The slot has no run afterwards if it was given up meanwhile."""
        timeout = self.spec.timeout
        deadline = None if timeout is None else self.desk.monotonic() + timeout
        run = Run(leases, deadline)
        for lease in leases:
            self.desk.keep(lease, slot.thread.is_alive)
        slot.run = run
        if self._is_watched:
            self.bell.wake_watch()
        context = contextvars.copy_context()
        # A context for each message: what a handler sets there must not reach the next one.
        work = self.runner.run if self._loop is None else self._run_on_loop
        try:
            pairs = context.run(work, run)
        except BaseException as error:  # noqa: BLE001 - a defect of ours must not cost the slot
            pairs = self.runner.defective(leases, error)
        if not run.take():
            slot.run = None
            self._came_back()
            return []
        self._count_ended(pairs)
        return pairs

    def _count_ended(self, pairs: Pairs) -> None:
        given_back = released(pairs)
        with self._lock:
            self.released += given_back
            self.finished += len(pairs) - given_back

    def _run_on_loop(self, run: Run) -> Pairs:
        """Run the coroutine of an async batch handler, and wait for it here."""
        arguments = self.runner.open(run)
        if arguments is None:
            return run.aside
        assert self._loop is not None  # noqa: S101 - else run() is called
        try:
            future = asyncio.run_coroutine_threadsafe(guarded(self.runner, arguments), self._loop)
            run.on_cancel = future.cancel
            if run.why is not None:
                future.cancel()
            value, error = future.result()
        except BaseException as cancelled:  # noqa: BLE001 - cancelled, or the loop is gone
            return self.runner.raised(run, cancelled)
        if error is not None:
            return self.runner.raised(run, error)
        return self.runner.returned(run, value)

    # --------------------------------------------------------------------- claiming

    def _next(self, slot: Slot, pairs: Pairs) -> Sequence[Lease]:
        """Settle `pairs` and wait for the next messages; empty when the crew is closed."""
        batch = self.spec.batch
        leases = self._exchange(slot, pairs, batch or 1)
        if batch is None or not leases:
            return leases
        suspect = next((lease for lease in leases if lease.is_suspect), None)
        if suspect is not None and len(leases) > 1:
            # It may have ended the last host: alone it takes no others with it (P5).
            rest: Pairs = [(lease, RELEASED) for lease in leases if lease is not suspect]
            self._exchange(slot, rest, 0)
            return [suspect]
        if self.spec.linger and suspect is None:
            return self._gather(slot, list(leases), batch)
        return leases

    def _gather(self, slot: Slot, leases: list[Lease], batch: int) -> list[Lease]:
        """Wait for more messages of a batch, for as long as it may linger."""
        for lease in leases:
            self.desk.keep(lease, slot.thread.is_alive)
        until = self.desk.monotonic() + self.spec.linger
        while len(leases) < batch and not self.closed:
            left = until - self.desk.monotonic()
            if left <= 0:
                break
            more = self._exchange(slot, [], batch - len(leases), timeout=left)
            for lease in more:
                self.desk.keep(lease, slot.thread.is_alive)
            leases += more
        return leases

    def _exchange(
        self, slot: Slot, pairs: Pairs, most: int, timeout: float | None = None
    ) -> Sequence[Lease]:
        """Settle and claim; what fails for a while is tried again until it is done."""
        desk, pause, last_tries = self.desk, _PAUSES_S[0], _LAST_TRIES
        while True:
            try:
                if most and not self.closed:
                    got = desk.exchange(
                        *(self.runner.group, pairs, most),
                        timeout=timeout,
                        waiter=slot.waiter,
                        keep=True,
                    )
                    return got.leases
                if pairs:
                    desk.settle(pairs)
                return ()
            except Exception as error:  # noqa: BLE001 - told; a slot must survive it
                if self.runner.gone_wrong(error):
                    self._closing.set()
                    return ()
            if not self._closing.wait(pause):
                pause = min(2 * pause, _PAUSES_S[1])
            elif last_tries:
                last_tries -= 1
                self._never.wait(_PAUSES_S[0])
            else:
                return ()  # the broker gives them back when it closes

    # ----------------------------------------------------------------- losing patience

    def check(self, now: float) -> None:
        """End what has run for longer than its timeout, in two steps; see who lost a lease.

        Called by the watch.
        """
        for slot in list(self._slots):
            run = slot.run
            if run is None:
                continue
            self.runner.look_at_leases(run)
            if run.deadline is None or run.deadline > now:
                continue
            if run.why is None:
                self.runner.timed_out(run)
                run.cancel("timeout")
                can_notice = run.deliveries or run.on_cancel is not None
                notice_s = NOTICE_S if run.notice_s is None else run.notice_s
                run.deadline = now + (notice_s if can_notice else 0.0)
            if run.deadline <= now:
                self._give_up(slot, run, "timeout")

    def _give_up(self, slot: Slot, run: Run, why: Why) -> bool:
        """Settle what a slot is at and go on without its thread. False: it has just ended."""
        if not run.take():
            return False
        pairs = self.runner.given_up(run, why)
        with self._lock:
            self._slots.remove(slot)
            self.stuck += 1
            stuck = self.stuck
        self.runner.stuck(run, slot.thread.name)
        if not self.closed:
            self._replace(stuck)
        self._count_ended(pairs)
        self._exchange(slot, pairs, 0)
        self.bell.ring()
        return True

    def _replace(self, stuck: int) -> None:
        """Start a thread in the place of one that was given up, unless too many were."""
        error = RuntimeError(f"{stuck} threads are stuck, and the last ones are not replaced")
        if stuck <= STUCK_MAX:
            try:
                with self._lock:
                    self._add_slot()
            except RuntimeError as refused:  # the system gives no more threads
                error = refused
            else:
                self.runner.tell("slot_replaced", stuck=stuck)
                return
        self.runner.gone_wrong(error)

    def _came_back(self) -> None:
        """A thread that was given up has returned after all: it ends here."""
        with self._lock:
            self.stuck -= 1

    # ------------------------------------------------------------------------- ending

    def close(self) -> None:
        """Claim nothing more; slots end when their handlers do."""
        self._closing.set()
        with self._lock:
            waiters = [slot.waiter for slot in self._slots]
        self.desk.cancel_wait(*waiters)

    def cancel(self) -> None:
        """Ask the handlers that still run to end early."""
        for slot in list(self._slots):
            run = slot.run
            if run is not None and run.why is None:
                run.cancel("drain")

    def abandon(self) -> None:
        """Give back what is still being handled, and wait for it no longer."""
        for slot in list(self._slots):
            run = slot.run
            if run is not None:
                self._give_up(slot, run, "drain")

    def give_back(self) -> None:
        """Nothing is left: `abandon` has settled what the slots were at."""


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the loop that runs on this thread, if any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def guarded(runner: Runner, arguments: tuple[Any, Any]) -> tuple[Any, BaseException | None]:
    """Await an async handler; return its value, or what it raised.

    SystemExit and KeyboardInterrupt would leave the loop with everything else that runs on it.
    """
    try:
        return await runner.awaitable(arguments), None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return None, RuntimeError("the handler awaited something that was cancelled")
    except BaseException as error:  # noqa: BLE001 - it is the message's failure
        return None, error
