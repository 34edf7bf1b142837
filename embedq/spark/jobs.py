"""The Spark jobs of this process that run for messages: which there are, and their cancellation.

Knows: what people may ask of running jobs.
Does not know: how jobs are followed and cancelled.
"""

from __future__ import annotations

from dataclasses import dataclass

from embedq.clock import SystemClock
from embedq.errors import InvalidOption, shown
from embedq.spark.keeper import KEEPER


@dataclass(frozen=True, slots=True)
class RunningJob:
    """One delivery whose handler is at work with Spark.

    `done` of `tasks` known so far; `seconds` since it began; `cancelled`: why it is to end.
    """

    queue: str
    group: str
    id: str
    attempt: int
    jobs: int
    done: int
    tasks: int
    seconds: float
    cancelled: str | None


def running_jobs() -> list[RunningJob]:
    """List the deliveries that consumers with `spark=` of this process are at, oldest first.

    The numbers are those of the last look, at most two seconds old.
    """
    now = SystemClock().monotonic()
    return [
        RunningJob(
            job.queue,
            job.group,
            job.id,
            job.attempt,
            job.progress.jobs,
            job.progress.done,
            job.progress.tasks,
            max(0.0, now - job.started),
            job.cancelled,
        )
        for job in KEEPER.jobs
    ]


def cancel_job(id: str, reason: str = "") -> bool:
    """Cancel the Spark jobs of a message that a consumer of this process is at.

    The handler gets Spark's error at its next action, and the message becomes a dead letter with
    the reason. Returns at once; False: no handler is at this message here.

    Raises InvalidOption if an argument is no text.
    """
    for name, value in (("id", id), ("reason", reason)):
        if not isinstance(value, str):
            raise InvalidOption(f"cancel_job({name}={shown(value)}): it is not a text")
    found = [job for job in KEEPER.jobs if job.id == id]
    for job in found:
        KEEPER.cancel(job, "request", reason)
    return bool(found)
