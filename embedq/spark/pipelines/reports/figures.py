"""The values of a report: figures of queues, consumers and times, causes of failures, slow ones.

Knows: what each figure means and its unit, how many of each kind are kept.
Does not know: Spark, where they come from, how they are shown.

Everything here is small, however long the history is.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

#: Rows of a table at most, the most important first.
ROWS: Final = 10_000
#: Causes of failures, and of dead letters.
CAUSES: Final = 1_000
#: Queues with a line of their own over time and by attempts; all others are one.
APART: Final = 12
#: The slowest deliveries of each kind.
SLOWEST: Final = 20
#: Attempts that are told apart; the last stands for itself and all further ones.
ATTEMPTS: Final = 10
#: The name of all queues that have no line of their own. No queue has it: names are not empty.
OTHERS: Final = ""


class Times(msgspec.Struct, frozen=True):
    """How long something took, in seconds: percentiles, the longest, and all together.

    None where nothing was measured.
    """

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    longest: float | None = None
    total: float = 0.0


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Deliveries of a queue, a group, a worker or a span of time; what is not said is all.

    `since`: the beginning of the span, UTC. `deliveries`: those that were started; `messages`:
    first attempts among them. The outcomes count those, too, that ended without a delivery.
    `wait`: from the put to the first start; `waits`: of how many that is known. `run`: from the
    start of a delivery to its end.
    """

    queue: str | None = None
    group: str | None = None
    worker: str | None = None
    since: datetime | None = None
    deliveries: int = 0
    messages: int = 0
    acked: int = 0
    acked_at_once: int = 0
    failed: int = 0
    timed_out: int = 0
    crashed: int = 0
    dead: int = 0
    expired: int = 0
    cancelled: int = 0
    waits: int = 0
    wait: Times = Times()
    run: Times = Times()
    first: datetime | None = None
    last: datetime | None = None

    @property
    def unsuccessful(self) -> int:
        """Deliveries that failed, whether or not the message came again."""
        return self.failed + self.timed_out + self.crashed + self.dead


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the n-th attempts of a queue: done, dead, or to be tried again."""

    queue: str
    attempt: int
    acked: int
    dead: int
    again: int


class Slow(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery that took long, or whose message had waited long; seconds, UTC."""

    queue: str
    group: str | None
    id: str
    worker: str | None
    attempt: int
    outcome: str | None
    started: datetime
    wait: float | None
    run: float | None


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Deliveries of a queue that failed of the same; `message` and `traceback`: of the latest.

    `fingerprint`: as `triage` says it. `ids`: some of the latest messages. Times are UTC.
    """

    fingerprint: str
    queue: str
    group: str | None
    type: str
    place: str
    message: str
    traceback: str
    deliveries: int
    timed_out: int
    crashed: int
    dead: int
    first: datetime
    last: datetime
    ids: list[str]


class Letters(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of a queue with one reason and one fingerprint; otherwise like Failure."""

    reason: str
    fingerprint: str
    queue: str
    group: str | None
    type: str
    place: str
    message: str
    letters: int
    first: datetime
    last: datetime
    ids: list[str]


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a report is made of.

    `source`: what was read, in words. `queue_count`, `consumer_count`, `worker_count`: how many
    there are, as the lists are bounded. `span_s`: how long a span of `spans` and `queue_spans`
    is; in the latter, queues beyond the first are OTHERS. `letters` None: nobody has looked.
    """

    source: str
    total: Figures
    queues: list[Figures] = []
    consumers: list[Figures] = []
    workers: list[Figures] = []
    queue_count: int = 0
    consumer_count: int = 0
    worker_count: int = 0
    span_s: int = 3600
    spans: list[Figures] = []
    queue_spans: list[Figures] = []
    attempts: list[Attempt] = []
    longest_runs: list[Slow] = []
    longest_waits: list[Slow] = []
    failures: list[Failure] = []
    letters: list[Letters] | None = None
    letter_count: int = 0


#: Spans of time that figures are given for, in seconds, each with how many of them are too many.
_SPANS: Final = ((1, 200), (10, 200), (60, 200), (600, 100), (3600, 800), (86_400, 800))


def span_for(seconds: float) -> int:
    """Return how long one span is where all of them take `seconds`: an hour for most."""
    for span, most in _SPANS:
        if seconds < span * most:
            return span
    weeks, most = 7 * 86_400, 800
    return weeks * max(1, -(-int(seconds) // (weeks * most)))
