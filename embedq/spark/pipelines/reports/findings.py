"""What a report says first: what is slow, and why deliveries fail, in a few sentences.

Knows: which figures matter most, and how they are put in words.
Does not know: how the rest is shown, where figures come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from embedq.spark.pipelines.reports.figures import Failure, Figures, Measured
from embedq.spark.pipelines.reports.wording import count, moment, seconds, share, span, text

#: A queue stands out with this share of all, and this many times its equal share.
_MUCH: Final = 0.2
_MORE: Final = 1.5
#: How much slower a span must be than all together to be named.
_WORSE: Final = 1.5
_NAME: Final = 60
_MESSAGE: Final = 140


class Finding(NamedTuple):
    """One sentence: what is found, what it is about in few words, and more about it.

    `about` is a name or a text of others, shown as such between `before` and `after`.
    """

    before: str
    about: str = ""
    after: str = ""
    more: str = ""


def slow(measured: Measured) -> list[Finding]:
    """Return what is slow, what matters most first; one sentence at least."""
    total = measured.total
    if not total.deliveries:
        return [Finding("Nothing was delivered, so nothing was slow.")]
    found = [_waiting_or_running(total)]
    found += _most(measured, "waiting", _wait_total, _wait_detail)
    found += _most(measured, "run time", _run_total, _run_detail)
    found += _worst_span(measured)
    return found


def _waiting_or_running(total: Figures) -> Finding:
    wait, run = total.wait, total.run
    if wait.p99 is None or run.p99 is None or not total.waits:
        return Finding(
            f"Half of the deliveries run {seconds(run.p50)} or less, "
            f"1 of 100 longer than {seconds(run.p99)}.",
            more="How long messages waited is not known: they are gone from the queue.",
        )
    # Means: what a message costs in each.
    waits, runs = wait.total / total.waits, run.total / total.deliveries
    which = "Messages wait longer than they run." if waits > runs else "Running takes longest."
    return Finding(
        which,
        more=f"Waiting: half up to {seconds(wait.p50)}, 1 of 100 over {seconds(wait.p99)}, the "
        f"longest {seconds(wait.longest)}. Running: half up to {seconds(run.p50)}, 1 of 100 over "
        f"{seconds(run.p99)}, the longest {seconds(run.longest)}.",
    )


def _most(
    measured: Measured,
    what: str,
    of: Callable[[Figures], float],
    detail: Callable[[Figures], str],
) -> list[Finding]:
    """Name the queue that has the most of something, if there are several."""
    whole = of(measured.total)
    if not whole or measured.queue_count < 2:  # noqa: PLR2004  # one has all of it
        return []
    worst = max(measured.queues, key=of)
    if of(worst) < max(_MUCH, _MORE / measured.queue_count) * whole:
        return [
            Finding(
                f"No queue stands out in {what}: the first has {share(of(worst), whole)} of it."
            )
        ]
    return [
        Finding(
            f"{share(of(worst), whole)} of all {what} is in",
            text(worst.queue, _NAME),
            f": {detail(worst)}.",
        )
    ]


def _wait_total(figures: Figures) -> float:
    return figures.wait.total


def _run_total(figures: Figures) -> float:
    return figures.run.total


def _wait_detail(figures: Figures) -> str:
    wait = figures.wait
    return f"half wait up to {seconds(wait.p50)}, 1 of 100 over {seconds(wait.p99)}"


def _run_detail(figures: Figures) -> str:
    run = figures.run
    return f"half run up to {seconds(run.p50)}, 1 of 100 over {seconds(run.p99)}"


def _worst_span(measured: Measured) -> list[Finding]:
    spans = [one for one in measured.spans if one.wait.p50 is not None]
    usual = measured.total.wait.p50
    if len(spans) < 3 or not usual:  # noqa: PLR2004  # of two, one is always worse
        return []
    worst = max(spans, key=lambda one: one.wait.total)
    if (worst.wait.p50 or 0) < _WORSE * usual:
        return []
    return [
        Finding(
            f"Most was waited in the {span(measured.span_s)} from {moment(worst.since)} UTC: half "
            f"over {seconds(worst.wait.p50)}, while {count(worst.deliveries)} deliveries ended."
        )
    ]


def failing(measured: Measured) -> list[Finding]:
    """Return why deliveries fail, what matters most first; one sentence at least."""
    total = measured.total
    found = [_rate(total)] if total.unsuccessful else []
    found += [_cause(one, total.unsuccessful) for one in measured.failures[:2]]
    found += _ended(measured)
    if measured.letter_count:
        found.append(_dead(measured))
    if found:
        return found
    if not total.deliveries:
        return [Finding("Nothing was delivered, so nothing failed.")]
    return [Finding(f"Nothing failed in {count(total.deliveries)} deliveries.")]


def _rate(total: Figures) -> Finding:
    tried = max(total.deliveries, total.unsuccessful)
    once = share(total.acked_at_once, total.messages)
    died = f"{count(total.dead)} died" if total.dead else "none died"
    return Finding(
        f"{share(total.unsuccessful, tried)} of the deliveries fail "
        f"({count(total.unsuccessful)} of {count(tried)}).",
        more=f"{once} of the messages are done at the first attempt; {died}.",
    )


def _cause(cause: Failure, all_of_them: int) -> Finding:
    where = f" in {text(cause.place, _NAME)}" if cause.place else ""
    return Finding(
        f"{share(cause.deliveries, all_of_them)} of the failures:",
        text(cause.type, _NAME),
        f"{where}, queue {text(cause.queue, _NAME)}; last at {moment(cause.last)} UTC.",
        more=text(cause.message, _MESSAGE) if cause.message else "",
    )


def _ended(measured: Measured) -> list[Finding]:
    """Say what was not an error of a handler: workers that died, leases that ran out."""
    total = measured.total
    parts: Iterable[tuple[int, str]] = (
        (total.crashed, "ended with their worker or host"),
        (total.timed_out, "were not answered in time"),
    )
    said = " and ".join(f"{count(number)} {what}" for number, what in parts if number)
    return [Finding(f"{said[0].upper()}{said[1:]}.")] if said else []


def _dead(measured: Measured) -> Finding:
    first = (measured.letters or [])[0]
    return Finding(
        f"{count(measured.letter_count)} dead letters are kept, "
        f"{share(first.letters, measured.letter_count)} of them as",
        text(first.reason, _NAME),
        f" in queue {text(first.queue, _NAME)}.",
    )
