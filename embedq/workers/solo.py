"""One handler at a time on the thread that runs it: the consumer inside a worker process.

Knows: how many messages to fetch ahead, what is noted before a handler starts.
Does not know: processes, who ends the worker, sockets.

Messages are fetched ahead for as long as handlers are quick: as many as take about AHEAD_S. One
that was fetched and not started costs nothing if the worker dies, as starts are noted first. Where
handlers are very quick, half of them are on their way while the other half is handled: host and
workers compute at the same time instead of waiting for each other.
"""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Protocol

from embedq.broker.endings import RELEASED
from embedq.broker.leases import Lease
from embedq.broker.waiting import Waiter
from embedq.ipc.handles import RemoteGroup
from embedq.ipc.remote import RemoteDesk
from embedq.ipc.traffic import Fetch
from embedq.workers.runner import Pairs, Run, Runner, released

if TYPE_CHECKING:
    import asyncio

#: Seconds of work that are fetched ahead.
AHEAD_S: Final = 0.02
#: Messages that are asked for at once, at most.
AHEAD_MOST: Final = 512
#: From how many messages in AHEAD_S on half of them are fetched while the others are handled.
_HALVES: Final = 32
#: How much one batch changes what is known of the pace.
_WEIGHT: Final = 0.3
_PAUSES_S: Final = (0.05, 5.0)


class Sheet(Protocol):
    """Where a worker notes what it is at, for those who look at it from outside."""

    def started(self, leases: Sequence[Lease], deadline: float | None) -> None:
        """A handler is about to get these messages; it must end by then (monotonic seconds)."""
        ...

    def ended(self, pairs: Pairs) -> None:
        """A handler has ended, and so its messages will."""
        ...


class SoloCrew:
    """Runs the handler of one consumer on the thread that calls `serve`.

    `after` is called there after each batch of messages, before they are settled.
    """

    def __init__(
        self,
        runner: Runner,
        group: RemoteGroup,
        desk: RemoteDesk,
        sheet: Sheet,
        *,
        after: Callable[[], object] = lambda: None,
    ) -> None:
        self.runner = runner
        self.spec = runner.spec
        self.desk = desk
        self.finished = 0
        self.released = 0
        self.closed = False
        self._group = group
        self._sheet = sheet
        self._after = after
        self._waiter = Waiter()
        self._run: Run | None = None
        self._pace_s: float | None = None
        self._fetch: Fetch | None = None
        self._is_async = self.spec.signature.is_async
        self._loop: asyncio.AbstractEventLoop | None = None

    # ------------------------------------------------------------------------- serving

    def serve(self) -> None:
        """Handle messages until `close`."""
        with ExitStack() as stack:
            if self._is_async:
                import asyncio  # noqa: PLC0415  # most handlers are none

                self._loop = stack.enter_context(asyncio.Runner()).get_loop()
            pairs: Pairs = []
            while not self.closed:
                leases = self._next(pairs)
                if leases and self.spec.linger:
                    leases = self._gather(leases)
                pairs = self._handle(leases)
                self._after()
            self._leave(pairs)

    def _next(self, pairs: Pairs) -> Sequence[Lease]:
        """Settle what has ended, and return the next messages; those after them may be fetched."""
        most, halves = self._ahead()
        fetch, self._fetch = self._fetch, None
        leases = () if fetch is None else self._fetched(fetch)
        asked = 0 if fetch is None else fetch.most
        if not leases:
            asked = most
            leases, pairs = self._exchange(pairs, most), []
        if halves and not self.closed and (pairs or len(leases) >= asked):
            self._fetch = self._begin(pairs, most)
        elif pairs:
            self._exchange(pairs, 0)
        return leases

    def _ahead(self) -> tuple[int, bool]:
        """Return how many messages to ask for, and whether others are fetched meanwhile.

        As many as are done in AHEAD_S, and one of what is slow.
        """
        if self.spec.batch is not None:
            return self.spec.batch, False
        pace = self._pace_s
        if pace is None:
            return 1, False
        most = max(1, int(AHEAD_S / max(pace, 1e-6)))
        halves = most >= _HALVES
        return min(AHEAD_MOST, most // 2 if halves else most), halves

    def _handle(self, leases: Sequence[Lease]) -> Pairs:
        if not leases:
            return []
        pairs: Pairs = []
        began = self.desk.monotonic()
        waiting = deque(self._calls(leases))
        while waiting and not self.closed:
            ended = self._call(waiting.popleft())
            self._sheet.ended(ended)
            pairs += ended
        rest = [(lease, RELEASED) for call in waiting for lease in call]
        given_back = released(pairs) + len(rest)
        self.released += given_back
        self.finished += len(pairs) + len(rest) - given_back
        if not rest:
            self._note_pace((self.desk.monotonic() - began) / len(leases))
        return [*pairs, *rest]

    def _calls(self, leases: Sequence[Lease]) -> list[Sequence[Lease]]:
        """Return what goes into one call each. A suspect goes alone, and the others wait (P5)."""
        if self.spec.batch is None:
            return [(lease,) for lease in leases]
        suspects = [(lease,) for lease in leases if lease.is_suspect]
        others = [lease for lease in leases if not lease.is_suspect]
        return [*([others] if others else []), *suspects]

    def _note_pace(self, seconds: float) -> None:
        pace = self._pace_s
        if pace is None or seconds > pace:
            self._pace_s = seconds  # slower: nothing may wait behind it
        else:
            self._pace_s = pace + _WEIGHT * (seconds - pace)

    # ------------------------------------------------------------------------- one call

    def _call(self, leases: Sequence[Lease]) -> Pairs:
        timeout = self.spec.timeout
        deadline = None if timeout is None else self.desk.monotonic() + timeout
        self._sheet.started(leases, deadline)
        run = Run(leases, deadline)
        try:
            return self._interruptible(run)
        except (HandlerTimeout, WorkerStopped):  # it struck just behind the handler
            self._run = None
            return self.runner.given_up(run, run.why or "drain")

    def _interruptible(self, run: Run) -> Pairs:
        """Call the handler. From here on exceptions may strike anywhere, until there is no run."""
        context = contextvars.copy_context()
        self._run = run
        try:
            return context.run(self._run_async if self._is_async else self._run_here, run)
        except (HandlerTimeout, WorkerStopped):
            raise
        except BaseException as error:  # noqa: BLE001 - a defect of ours must not end the worker
            return self.runner.defective(run.leases, error)
        finally:
            self._run = None

    def _run_here(self, run: Run) -> Pairs:
        return self.runner.run(run)

    def _run_async(self, run: Run) -> Pairs:
        from asyncio import CancelledError  # noqa: PLC0415  # loaded by serve

        loop = self._loop
        assert loop is not None  # noqa: S101 - set by serve
        arguments = self.runner.open(run)
        if arguments is None:
            return run.aside
        task = loop.create_task(self._guarded(arguments))
        run.on_cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            value, error = loop.run_until_complete(task)
        except CancelledError as cancelled:
            if run.why == "timeout":
                return self.runner.given_up(run, "timeout")
            run.why = "drain"
            return self.runner.raised(run, cancelled)
        if error is not None:
            return self.runner.raised(run, error)
        return self.runner.returned(run, value)

    def _guarded(
        self, arguments: tuple[Any, Any]
    ) -> Coroutine[Any, Any, tuple[Any, BaseException | None]]:
        from embedq.workers.threads import guarded  # noqa: PLC0415  # it loads asyncio

        return guarded(self.runner, arguments)

    # ------------------------------------------------------------- asked from outside

    def expire(self) -> None:
        """End the handler that runs, as its time is over. On its own thread: raises in it."""
        run = self._run
        if run is None or run.why is not None or run.deadline is None:
            return
        if self.desk.monotonic() < run.deadline:
            return  # the one that was meant has ended, and this is the next one
        self.runner.timed_out(run)
        run.cancel("timeout")
        if not self._is_async:
            seconds = self.spec.timeout or 0.0
            raise HandlerTimeout(f"the handler ran for longer than {seconds:g} seconds")

    def interrupt(self) -> None:
        """End the handler that runs: the worker has to go. On its own thread: raises in it."""
        self.close()
        run = self._run
        if run is None:
            return
        if run.why is None:
            run.cancel("drain")
        elif self._is_async:
            run.cancel(run.why)
        if not self._is_async:
            if self.is_late:
                seconds = self.spec.timeout or 0.0
                raise StillLate(f"the handler ran for longer than {seconds:g} seconds, twice")
            raise WorkerStopped("the worker process is being stopped")

    @property
    def is_late(self) -> bool:
        """Whether the handler that runs was told that its time is over."""
        run = self._run
        return run is not None and run.why == "timeout"

    def close(self) -> None:
        """Claim nothing more; `serve` returns after the handler that runs. From any thread."""
        self.closed = True
        self.desk.cancel_wait(self._waiter)

    # ------------------------------------------------------------------------ claiming

    def _gather(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Wait for more messages of a batch, for as long as it may linger."""
        found = list(leases)
        until = self.desk.monotonic() + self.spec.linger
        most = self.spec.batch or 1
        while len(found) < most and not self.closed and not found[-1].is_suspect:
            left = until - self.desk.monotonic()
            if left <= 0:
                break
            found += self._exchange([], most - len(found), left)
        return found

    def _begin(self, pairs: Pairs, most: int) -> Fetch | None:
        """Settle, and let the messages after the next ones come meanwhile."""
        try:
            return self.desk.fetch(self._group, pairs, most)
        except Exception as error:  # noqa: BLE001 - as below
            if self.runner.gone_wrong(error):
                self.closed = True
            else:
                self._exchange(pairs, 0)
            return None

    def _fetched(self, fetch: Fetch) -> Sequence[Lease]:
        """Return what has come; what it was to settle is settled, in this way or another."""
        try:
            return fetch.result()
        except Exception as error:  # noqa: BLE001 - as below
            if self.runner.gone_wrong(error):
                self.closed = True
                return ()
            return self._exchange(fetch.pairs, 0)

    def _leave(self, pairs: Pairs) -> None:
        """Settle the last messages, and give back what was fetched and not begun."""
        fetch, self._fetch = self._fetch, None
        rest = () if fetch is None else self._fetched(fetch)
        self.released += len(rest)
        pairs = [*pairs, *((lease, RELEASED) for lease in rest)]
        if pairs:
            self._exchange(pairs, 0)

    def _exchange(self, pairs: Pairs, most: int, timeout: float | None = None) -> Sequence[Lease]:
        """Settle and claim; what fails for a while is tried again until it is done."""
        pause = _PAUSES_S[0]
        while True:
            try:
                if most and not self.closed:
                    got = self.desk.exchange(
                        *(self._group, pairs, most),
                        timeout=timeout,
                        waiter=self._waiter,
                        keep=True,
                        ahead=True,
                    )
                    return got.leases
                if pairs:
                    self.desk.settle(pairs)
                return ()
            except Exception as error:  # noqa: BLE001 - told; the worker must survive it
                if self.runner.gone_wrong(error):
                    self.closed = True
                    return ()
            self._waiter.wait(pause)
            pause = min(2 * pause, _PAUSES_S[1])


class HandlerTimeout(TimeoutError):
    """Raised in a handler whose time is over. People see a Timeout, whatever ends the handler."""

    __module__ = "builtins"
    __qualname__ = "Timeout"


class WorkerStopped(BaseException):
    """Raised in a handler whose worker has to go; the message is given back."""


class StillLate(WorkerStopped):
    """Raised in a handler that has swallowed its HandlerTimeout. The same for people."""

    __module__ = "builtins"
    __qualname__ = "Timeout"
