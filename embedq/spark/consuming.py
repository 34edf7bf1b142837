"""Consumers whose handlers start Spark jobs: what surrounds each call of such a handler.

Knows: the session and its loss, the cap, what cancels the jobs, what each end means for a message.
Does not know: how a crew runs handlers, how a message is settled, how Spark is asked things.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from embedq.broker.endings import Ending, Failed, Rejected
from embedq.lifecycle import Reason
from embedq.spark.blame import is_death, is_final
from embedq.spark.keeper import END_S, KEEPER, Job, Progress
from embedq.spark.labels import labelled, labels_for
from embedq.spark.life import Sessions, SessionUnavailable, is_alive, make_active
from embedq.spark.needs import need
from embedq.workers.runner import Pairs, Run, Runner
from embedq.workers.verdict import describe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Handlers at work at once, for each core of the session; others wait for their turn. Tiny jobs
#: gain nothing beyond the cores, and long ones do not fill them all the time.
_PER_CORE: Final = 4
#: How often a JVM may die under one message before that counts as its failure.
_DEATHS: Final = 3
_REMEMBERED: Final = 1_000
#: Seconds to wait after a session could not be had, the first time and at most.
_PAUSES_S: Final = (1.0, 30.0)
#: The parameter of a handler that gets the session.
_NAME: Final = "spark"
_DETAIL: Final = 500


class Cap:
    """How many handlers use Spark at once in this process."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._running = 0

    def enter(self, most: int, given_up: Callable[[], bool]) -> bool:
        """Wait for a turn. False if it was given up before it came."""
        with self._turn:
            while self._running >= most:
                if given_up():
                    return False
                self._turn.wait(0.2)
            self._running += 1
            return True

    def leave(self) -> None:
        """Let the next one have its turn."""
        with self._turn:
            self._running -= 1
            self._turn.notify()


CAP: Final = Cap()


class SparkHarness:
    """Calls the handlers of one consumer with a living session, under labels, watched over."""

    #: How long a handler may take to notice that it is to end: its jobs are cancelled, and what
    #: they leave behind is waited for.
    notice_s: float = END_S + 2

    def __init__(self, factory: Callable[[], SparkSession]) -> None:
        """Keep the factory; nothing is started. Raises MissingExtra."""
        need("pyspark", "pyarrow")
        self.sessions = Sessions(factory)
        self._here = threading.local()
        self._deaths: OrderedDict[int, int] = OrderedDict()
        self._pause = _PAUSES_S[0]

    def adapt(self, function: Callable[..., object]) -> Callable[..., object]:
        """Return a handler without its parameter `spark`, which gets the session at each call."""
        parameters = list(inspect.signature(function).parameters.values())
        names = [parameter.name for parameter in parameters]
        if _NAME not in names:
            return function
        place = names.index(_NAME)
        rest = [parameter for parameter in parameters if parameter.name != _NAME]
        takes_place = parameters[place].kind is not inspect.Parameter.KEYWORD_ONLY

        @functools.wraps(function)
        def with_session(*args: Any, **kwargs: Any) -> object:  # noqa: ANN401 - the handler's own
            session = self._here.session
            if takes_place and len(args) >= place:
                return function(*args[:place], session, *args[place:], **kwargs)
            return function(*args, **{_NAME: session}, **kwargs)

        with_session.__signature__ = inspect.Signature(rest)  # type: ignore[attr-defined]
        return with_session

    # ---------------------------------------------------------------------------- a run

    def call(self, runner: Runner, run: Run, handler: Callable[[], object]) -> Pairs:
        """Call the handler for one run and return how its messages end."""
        # The time until it can begin is not the handler's.
        timeout, run.deadline = runner.spec.timeout, None
        try:
            session = self.sessions.get()
            cores = session.sparkContext.defaultParallelism
            self._pause = _PAUSES_S[0]
        except SessionUnavailable as error:
            return self._unavailable(runner, run, error)
        except Exception as error:
            if not is_death(error):
                raise
            return self._unavailable(runner, run, error)
        if not CAP.enter(_PER_CORE * cores, lambda: run.why is not None or run.taken):
            return runner.given_up(run, "drain")
        try:
            if timeout is not None:
                run.deadline = runner.desk.monotonic() + timeout
            return self._call(runner, run, handler, session)
        finally:
            CAP.leave()

    def _call(
        self, runner: Runner, run: Run, handler: Callable[[], object], session: SparkSession
    ) -> Pairs:
        job = _job_of(runner, run, session)
        run.notice_s = self.notice_s
        run.on_cancel = lambda: KEEPER.cancel(job, run.why or "drain")
        if run.why is not None:
            KEEPER.cancel(job, run.why)  # it came before anybody could be told
        self._here.session = session
        KEEPER.add(job)
        failure: BaseException | None = None
        value: object = None
        try:
            make_active(session)
            with labelled(session.sparkContext, job.labels):
                value = handler()
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its message's
            failure = error
        finally:
            KEEPER.remove(job)
            self._here.session = None
        if failure is None:
            return runner.returned(run, value)
        return self._failed(runner, run, job, failure)

    # -------------------------------------------------------------------------- its end

    def _failed(self, runner: Runner, run: Run, job: Job, error: BaseException) -> Pairs:
        # What a handler raises may hide that the JVM is gone.
        if is_death(error) or not is_alive(job.context):
            return self._died(runner, run, error)
        with suppress(Exception):  # it dies meanwhile: then nothing of the job is at work
            KEEPER.settle_down(job)
        if job.cancelled is not None:
            _tell_of(runner, job, "job_cancelled", reason=job.cancelled)
        if job.cancelled == "request":
            pairs = runner.raised(run, error)
            return [(lease, _withdrawn(ending, job.detail)) for lease, ending in pairs]
        if job.cancelled == "timeout" and run.batch is None and not _settled(run):
            return runner.given_up(run, "timeout")
        pairs = runner.raised(run, error)
        if is_final(error) and not _is_retried(runner, error):
            return [(lease, _rejected(ending, error)) for lease, ending in pairs]
        return pairs

    def _died(self, runner: Runner, run: Run, error: BaseException) -> Pairs:
        """The JVM was lost under the job: not the message's fault, unless it happens again."""
        _tell_lost(runner, error)
        seq = run.leases[0].seq
        deaths = self._deaths.pop(seq, 0) + 1
        if deaths >= _DEATHS:
            return runner.raised(run, error)
        self._deaths[seq] = deaths
        while len(self._deaths) > _REMEMBERED:
            self._deaths.popitem(last=False)
        return runner.given_up(run, "drain")

    def _unavailable(self, runner: Runner, run: Run, error: Exception) -> Pairs:
        """Give the messages back after a pause: others of this consumer would fare no better."""
        _tell_lost(runner, error)
        asleep = threading.Event()
        run.on_cancel = asleep.set
        if run.why is None:
            asleep.wait(self._pause)
        self._pause = min(2 * self._pause, _PAUSES_S[1])
        return runner.given_up(run, "drain")


def _job_of(runner: Runner, run: Run, session: SparkSession) -> Job:
    spec, first = runner.spec, run.leases[0]
    id = runner.desk.ids.encode(first.seq)
    leases = list(run.leases)

    def on_progress(progress: Progress) -> None:
        for delivery in run.deliveries:
            delivery.progress = (progress.done, progress.tasks)
        _tell_of(runner, job, "job_progress", done=progress.done, tasks=progress.tasks)

    def on_cancel(reason: str) -> None:
        for delivery in run.deliveries:
            delivery.cancelled.set(reason)

    job = Job(
        context=session.sparkContext,
        labels=labels_for(spec.queue, spec.group, id, first.attempt),
        queue=spec.queue,
        group=spec.group,
        id=id,
        attempt=first.attempt,
        started=runner.desk.monotonic(),
        is_held=lambda: any(lease.is_held for lease in leases) or _settled(run),
        on_progress=on_progress,
        on_cancel=on_cancel,
    )
    return job


def _settled(run: Run) -> bool:
    """Whether the handler has settled a message of the run itself: it may go on without it."""
    return any(delivery.settled for delivery in run.deliveries)


def _is_retried(runner: Runner, error: BaseException) -> bool:
    """Whether the retry policy names an error as one that is worth a repetition."""
    named = runner.judge.policy.retry_on
    return bool(named) and isinstance(error, named)


def _rejected(ending: Ending, error: BaseException) -> Ending:
    if not isinstance(ending, Failed):
        return ending
    told = describe(error)
    detail = f"{told.type} would fail the same way again: {told.message}"
    return Rejected(Reason.REJECTED, detail[:_DETAIL], told, "consumer")


def _withdrawn(ending: Ending, why: str) -> Ending:
    if not isinstance(ending, Failed | Rejected):
        return ending
    detail = f"its job was cancelled{': ' + why if why else ''}"
    return Rejected(Reason.REJECTED, detail[:_DETAIL], ending.error, "operator")


def _tell_of(runner: Runner, job: Job, event: str, **fields: object) -> None:
    seq = runner.desk.ids.decode(job.id)
    runner.tell(event, id=job.id, seq=seq, attempt=job.attempt, **fields)


def _tell_lost(runner: Runner, error: BaseException) -> None:
    told = describe(error)
    runner.tell("spark_lost", error=f"{told.type}: {told.message}"[:200])
