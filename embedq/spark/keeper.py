"""The keeper: one thread that follows the Spark jobs of this process and cancels them.

Knows: the jobs that run, how far they are, who is to be cancelled, how to see that all is over.
Does not know: what a message becomes, sessions that are gone.

Spark cancels what it knows of: a cancellation before the job was submitted, or between two jobs of
a handler, has no effect. So it is repeated until the handler has returned.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from embedq.clock import Clock, SystemClock
from embedq.spark.labels import Labels

if TYPE_CHECKING:
    from pyspark import SparkContext

#: Seconds between two looks at all jobs.
_LOOK_S: Final = 1.0
#: Seconds between two cancellations of one.
_AGAIN_S: Final = 0.2
#: Seconds that Spark's tasks get to end after a cancellation.
END_S: Final = 10.0
#: Seconds that a task's Python worker may outlive it if Spark's setting does not say.
_KILL_S: Final = 2.0
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "": 1.0}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the Spark jobs of one delivery are: tasks that are done, of those known so far."""

    jobs: int = 0
    done: int = 0
    tasks: int = 0
    active: int = 0


@dataclass(slots=True, eq=False)
class Job:
    """One run of a handler that starts Spark jobs, and what the keeper does about it."""

    context: SparkContext
    labels: Labels
    queue: str
    group: str
    id: str
    attempt: int
    started: float
    #: Whether the message still belongs to it.
    is_held: Callable[[], bool] = lambda: True
    on_progress: Callable[[Progress], None] = lambda _progress: None
    on_cancel: Callable[[str], None] = lambda _reason: None
    progress: Progress = field(default_factory=Progress)
    #: Why it is to end, once it is: "timeout", "drain", "lease_lost", "request".
    cancelled: str | None = None
    #: What was said with a request.
    detail: str = ""
    over: bool = False

    def look(self) -> Progress:
        """Ask Spark how far its jobs are."""
        tracker = self.context.statusTracker()
        done = tasks = active = 0
        jobs = tracker.getJobIdsForGroup(self.labels.group)
        for job in jobs:
            told = tracker.getJobInfo(job)
            for stage in () if told is None else told.stageIds:
                info = tracker.getStageInfo(stage)
                if info is not None:
                    done += info.numCompletedTasks
                    tasks += info.numTasks
                    active += info.numActiveTasks
        return Progress(len(jobs), done, tasks, active)

    def has_broken_off(self) -> bool:
        """Whether a job of it was cancelled, failed or runs on: its tasks may still be at work."""
        tracker = self.context.statusTracker()
        for job in tracker.getJobIdsForGroup(self.labels.group):
            told = tracker.getJobInfo(job)
            if told is not None and told.status != "SUCCEEDED":
                return True
        return False


class Keeper:
    """Follows jobs. Every method may be called from any thread."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._jobs: list[Job] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def jobs(self) -> list[Job]:
        """The jobs that run now."""
        return list(self._jobs)

    def add(self, job: Job) -> None:
        """Follow a job from now on."""
        with self._changed:
            self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="embedq-spark-jobs", daemon=True
                )
                self._thread.start()
            self._changed.notify()

    def remove(self, job: Job) -> None:
        """The handler has returned: cancel it no longer."""
        with self._changed:
            job.over = True
            self._jobs.remove(job)

    def cancel(self, job: Job, reason: str, detail: str = "") -> None:
        """Let a job end early. Returns at once; the first reason stays."""
        with self._changed:
            if job.cancelled is not None or job.over:
                return
            job.cancelled = reason
            job.detail = detail
            self._changed.notify()
        job.on_cancel(reason)

    def _run(self) -> None:
        next_look = 0.0
        while True:
            with self._changed:
                if not self._jobs:
                    self._thread = None  # the next job starts another one
                    return
                ending = any(job.cancelled is not None for job in self._jobs)
                self._changed.wait(_AGAIN_S if ending else _LOOK_S)
                jobs = list(self._jobs)
            now = self._clock.monotonic()
            looks = now >= next_look
            if looks:
                next_look = now + _LOOK_S
            for job in jobs:
                # A JVM that is gone raises here; the handler meets it, too, and says so.
                with suppress(Exception):
                    self._attend(job, looks=looks)

    def _attend(self, job: Job, *, looks: bool) -> None:
        if job.cancelled is None and not job.is_held():
            self.cancel(job, "lease_lost")
        if job.cancelled is not None and not job.over:
            job.context.cancelJobsWithTag(job.labels.tag)
        if looks and not job.over:
            progress = job.look()
            if progress != job.progress:
                job.progress = progress
                job.on_progress(progress)

    def settle_down(self, job: Job) -> None:
        """Wait until nothing of a job that broke off is at work any more; for END_S at most.

        Spark gives the thread of the driver its error at once. The tasks end a little later, and
        their Python workers are killed only `spark.python.task.killTimeout` after that: until
        then they write files, say, which another attempt writes, too. A task is over when its
        worker has been sent that signal: what stands still has to do so for a moment.
        """
        if not job.has_broken_off():
            return
        job.context.cancelJobsWithTag(job.labels.tag)
        started = self._clock.monotonic()
        sleep = threading.Event().wait
        least = started + _kill_timeout(job.context) + _AGAIN_S
        while self._clock.monotonic() < started + END_S:
            if job.look().active:
                least = max(least, self._clock.monotonic() + _AGAIN_S)
            elif self._clock.monotonic() >= least:
                break
            sleep(_AGAIN_S / 2)


def _kill_timeout(context: SparkContext) -> float:
    """Return for how long the Python worker of a killed task lives on, in seconds."""
    text = context.getConf().get("spark.python.task.killTimeout", "")
    told = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text or "")
    if told is None or told[2] not in _UNITS:
        return _KILL_S
    return int(told[1]) * _UNITS[told[2]]


#: The one of this process: there is one context for all, too.
KEEPER: Final = Keeper()
