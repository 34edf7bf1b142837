"""What the Spark jobs of one delivery are called: group, tag, description, pool.

Knows: Spark's local properties of a thread, and how they are set and taken away again.
Does not know: who cancels by these names, what a delivery is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark import SparkContext

_NUMBERS: Final = itertools.count(1)
_CLEARED: Final = (
    "spark.jobGroup.id",
    "spark.job.description",
    "spark.job.interruptOnCancel",
    "spark.scheduler.pool",
)


@dataclass(frozen=True, slots=True)
class Labels:
    """The names of all jobs that one run of a handler starts.

    `group` and `description` are for people: the web page, the event log. `tag` is what is
    cancelled by: no other run of this process ever has the same. `pool`: the share of the cores,
    one for each queue.
    """

    group: str
    tag: str
    description: str
    pool: str


def labels_for(queue: str, group: str, id: str, attempt: int) -> Labels:
    """Make the names for one attempt of one message."""
    return Labels(
        group=f"embedq/{queue}/{group}/{id}/{attempt}",
        # A late cancellation of attempt 1 must not reach attempt 2. No comma: it separates tags.
        tag=f"embedq-{id}-{attempt}-{next(_NUMBERS)}",
        description=f"queue={queue} group={group} message={id} attempt={attempt}",
        pool=queue,
    )


@contextmanager
def labelled(context: SparkContext, labels: Labels) -> Iterator[None]:
    """Let all jobs that this thread starts in the block bear the labels."""
    context.setJobGroup(labels.group, labels.description, interruptOnCancel=True)
    context.setLocalProperty("spark.scheduler.pool", labels.pool)
    context.addJobTag(labels.tag)
    try:
        yield
    finally:
        _clear(context, labels)


def _clear(context: SparkContext, labels: Labels) -> None:
    """Take the labels away: the thread goes on with other messages."""
    try:
        context.removeJobTag(labels.tag)
        for name in _CLEARED:
            context.setLocalProperty(name, None)  # type: ignore[arg-type]  # None takes it away
    except Exception:  # noqa: BLE001, S110 - the JVM is gone, and the labels with it
        pass
