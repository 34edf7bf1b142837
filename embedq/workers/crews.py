"""All consumers of a broker in this process: started together, drained together.

Knows: which consumer runs on threads and which on a loop, whose loop, and the watch over them.
Does not know: how a crew works, signals, the application's Broker.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from embedq.broker.host import MEMORY
from embedq.broker.port import DeskPort
from embedq.errors import StorageError, UsageError
from embedq.ipc.address import is_address
from embedq.policy import Rng
from embedq.workers.bell import Bell
from embedq.workers.drain import Drain, Report
from embedq.workers.here import is_worker
from embedq.workers.loop import LoopCrew, LoopThread
from embedq.workers.runner import Runner
from embedq.workers.spec import Companion, Consumers, ConsumerSpec
from embedq.workers.threads import ThreadCrew
from embedq.workers.watch import Watch

if TYPE_CHECKING:
    from embedq.workers.pool import Employer, ProcessCrew

#: Seconds that handlers have to finish when nothing else is said.
GRACE_S = 30.0
_LOOP_END_S = 2.0


class ConsumerRunner:
    """Runs consumers on a desk. `loop`: where `async def` handlers run; None: on an own thread.

    Every method but `adrain` may be called from any thread; `drain` must not be called on the
    thread of the loop, which it waits for.
    """

    def __init__(
        self,
        desk: DeskPort,
        specs: Iterable[ConsumerSpec] = (),
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        rng: Rng | None = None,
        employer: Employer | None = None,
    ) -> None:
        self._desk = desk
        self._waiting = list(specs)
        self._companions = list(specs.companions) if isinstance(specs, Consumers) else []
        self._loop = loop
        self._rng = rng
        self._employer = employer
        self._own: LoopThread | None = None
        self._bell = Bell()
        self.watch = Watch(self._bell, desk.monotonic)
        self.crews: list[ThreadCrew | LoopCrew | ProcessCrew] = []
        self._lock = threading.Lock()
        self._started = False
        self._drain: Drain | None = None
        self._ended = threading.Event()
        self._report: Report | None = None
        self._hurried = False

    @property
    def running(self) -> int:
        """How many messages are in handlers."""
        return sum(crew.running for crew in self.crews)

    @property
    def stuck(self) -> int:
        """How many handlers run on although nobody waits for them."""
        return sum(crew.stuck for crew in self.crews)

    # -------------------------------------------------------------------------- starting

    def start(self) -> None:
        """Start all consumers. Safe to call twice. Raises UsageError in a worker process."""
        if is_worker():
            raise UsageError(
                "this is a worker process: it runs the handler that it was started for",
                hint="start the broker in the application",
            )
        with self._lock:
            self._started = True
            specs, self._waiting = self._waiting, []
            companions = list(self._companions)
        for spec in specs:
            self._start(spec)
        for companion in companions:
            companion.start()

    def accompany(self, companion: Companion) -> None:
        """Let something start and stop with the consumers: it starts at once if they have."""
        with self._lock:
            if self._drain is not None:
                return  # it comes too late
            self._companions.append(companion)
            started = self._started
        if started:
            companion.start()

    def add(self, spec: ConsumerSpec, instead_of: Sequence[ConsumerSpec] = ()) -> None:
        """Add a consumer: it starts at once if the others have.

        Those it takes the place of claim nothing more; what they are at comes to its end.
        """
        former = {id(each) for each in instead_of}
        with self._lock:
            self._waiting = [each for each in self._waiting if id(each) not in former]
            leaving = [crew for crew in self.crews if id(crew.spec) in former]
            if not self._started:
                self._waiting.append(spec)
                return
        for crew in leaving:
            crew.close()
        self._start(spec)

    def _start(self, spec: ConsumerSpec) -> None:
        self._desk.record_crashes()
        group = self._desk.group(self._desk.declare(spec.queue, {}), spec.group)
        if spec.retry is not None:
            self._desk.bound_attempts(group, spec.retry.stored_max_attempts)
        runner = Runner(self._desk, group, spec, self._rng)
        crew = self._make(spec, runner)
        with self._lock:
            if self._drain is not None:
                return  # it comes too late
            self.crews.append(crew)
        if isinstance(crew, LoopCrew) or (isinstance(crew, ThreadCrew) and runner.is_watched):
            self.watch.add(crew, spec.timeout)
        crew.start()
        kind = "async" if spec.signature.is_async else "thread"
        runner.tell(
            "consumer_registered",
            concurrency=spec.concurrency,
            kind="process" if spec.in_process else kind,
        )

    def _make(self, spec: ConsumerSpec, runner: Runner) -> ThreadCrew | LoopCrew | ProcessCrew:
        if spec.in_process:
            return self._pool(spec, runner)
        if not spec.signature.is_async:
            return ThreadCrew(runner, self._bell, None)
        if spec.batch is None:
            return LoopCrew(runner, self._bell, self._the_loop())
        return ThreadCrew(runner, self._bell, self._the_loop())

    def _pool(self, spec: ConsumerSpec, runner: Runner) -> ProcessCrew:
        from embedq.workers.pool import ProcessCrew  # noqa: PLC0415  # loads multiprocessing

        if self._employer is None or self._employer.path == MEMORY:
            raise UsageError(
                f"{spec!r} runs in worker processes, and they cannot reach a broker in memory",
                hint="give the broker the path of a file, or leave out pool=",
            )
        if is_address(self._employer.path):
            # A death would cost every message that a worker has ahead (P5), not only the one at
            # work: what tells them apart is a file that both processes have.
            raise UsageError(
                f"{spec!r} runs in worker processes, and those need a host on their own machine",
                hint="leave out pool= and start the application several times (`embedq run`), or "
                "run the pool on the host's machine",
            )
        return ProcessCrew(runner, self._employer, self._bell)

    def _the_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is not None:
            return self._loop
        with self._lock:
            if self._own is None:
                self._own = LoopThread()
            return self._own.loop

    # ---------------------------------------------------------------------------- ending

    def check_caller(self, *, blocks: bool) -> None:
        """Raise UsageError if a drain would wait for its own caller: a handler, or their loop.

        `blocks`: whether the caller is going to block its thread.
        """
        for crew in self.crews:
            if crew.is_handling_here():
                raise UsageError(
                    f"the handler {crew.spec.name!r} is to be waited for, and waits itself",
                    hint="let it return, and stop where the broker was started; broker.stop() "
                    "in a handler is possible with broker.run()",
                )
            if blocks and crew.is_on_this_loop():
                raise UsageError(
                    f"the handlers of {crew.spec.name!r} run on this loop, which would wait",
                    hint="use `await broker.astop()`",
                )

    def drain(self, grace_s: float = GRACE_S, *, reason: str = "stop") -> Report:
        """Claim nothing more, wait up to `grace_s` for handlers, give the rest back.

        What is given back costs no attempt. A second call, from whatever thread, returns the
        report of the first.
        """
        with self._lock:
            if self._drain is None:
                drain = self._drain = Drain(self.crews, self._bell, self._desk.monotonic)
            else:
                drain = None
        if drain is None:
            self._ended.wait()
            assert self._report is not None  # noqa: S101 - set before `ended`
            return self._report
        if self._hurried:
            drain.hurry()
        for companion in self._companions:
            companion.stop()
        emit = self._desk.events.emit
        emit("drain_started", running=self.running, grace_s=grace_s, reason=reason)
        report = Report(0, 0, self.stuck, 0.0)  # should the drain itself fail
        try:
            report = drain.run(grace_s)
        finally:
            self._report = report
            self._ended.set()
            self.watch.stop()
            if self._own is not None:
                self._own.stop(_LOOP_END_S)
        emit(
            "drain_finished",
            finished=report.finished,
            released=report.released,
            stuck=report.stuck,
            seconds=round(report.seconds, 3),
        )
        return report

    async def adrain(self, grace_s: float = GRACE_S, *, reason: str = "stop") -> Report:
        """Do the same as `drain`, from a coroutine, which may run on the consumers' loop.

        If the caller is cancelled the grace is over: what still runs is given back first.
        """
        work = asyncio.get_running_loop().run_in_executor(
            None, lambda: self.drain(grace_s, reason=reason)
        )
        cancelled: asyncio.CancelledError | None = None
        while not work.done():
            try:
                await asyncio.wait([work])
            except asyncio.CancelledError as error:
                cancelled = error
                self.hurry()
        if cancelled is not None:
            raise cancelled
        return work.result()

    def hurry(self) -> None:
        """End the grace of a drain that is under way, or of the next one, at once."""
        self._hurried = True
        drain = self._drain
        if drain is not None:
            drain.hurry()

    def stop(self) -> Report:
        """Drain without a grace."""
        self.hurry()
        with suppress(StorageError):
            return self.drain(0.0)
        return Report(0, 0, self.stuck, 0.0)
