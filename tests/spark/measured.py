"""Figures for tests of what a report shows: of nothing, of many queues, of hostile texts."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from embedq.spark.pipelines.reports.figures import (
    APART,
    OTHERS,
    Attempt,
    Failure,
    Figures,
    Letters,
    Measured,
    Slow,
    Times,
)

START = datetime(2026, 3, 1, 8, tzinfo=UTC)
#: What a message or its error may say.
HOSTILE = (
    "</td><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)" x="',
    "{{ 7*7 }}{% raw %}",
    '=HYPERLINK("http://x.invalid";"y")',
    r"$\frac{1}{0$ and \alpha",
    "\x1b[31mred\x07 \u202etxet denrut\u200b",
    "名前 🎉 \x00 end",
    "a" * 255,
)


def nothing():
    """A history without a delivery."""
    return Measured(source="queue orders in shop.db", total=Figures(), letters=[])


def figures(made, deliveries, **more):
    """Some deliveries, of which a few failed."""
    bad = deliveries // 8
    wait, run = made.uniform(0.01, 30), made.uniform(0.005, 3)
    return Figures(
        deliveries=deliveries,
        messages=deliveries - bad // 2,
        acked=deliveries - bad,
        acked_at_once=deliveries - bad - bad // 3,
        failed=bad - bad // 2,
        timed_out=bad // 4,
        dead=bad // 2 - bad // 4,
        waits=deliveries,
        wait=Times(wait / 3, wait, 4 * wait, 9 * wait, total=deliveries * wait / 2),
        run=Times(run / 4, run, 3 * run, 20 * run, total=deliveries * run / 2),
        first=START,
        last=START + timedelta(hours=30),
        **more,
    )


def _sum(parts, **more):
    """All of some figures together; of times the longest."""
    counted = "deliveries messages acked acked_at_once failed timed_out dead waits".split()
    summed = {name: sum(getattr(one, name) for one in parts) for name in counted}
    for kind in ("wait", "run"):
        times = [getattr(one, kind) for one in parts]
        longest = {n: max(getattr(one, n) for one in times) for n in Times.__struct_fields__}
        summed[kind] = replace(Times(**longest), total=sum(one.total for one in times))
    return Figures(**summed, first=START, last=START + timedelta(hours=30), **more)


def many(names, hours=30, seed=1):
    """A history of queues with these names, the busiest first."""
    made = random.Random(seed)
    sizes = sorted((made.randrange(20, 5000) for _ in names), reverse=True)
    queues = [figures(made, n, queue=name) for name, n in zip(names, sizes, strict=True)]
    apart = [one.queue for one in queues[:APART]] + [OTHERS] * (len(queues) > APART)
    since = [START + timedelta(hours=n) for n in range(hours)]
    total = _sum(queues)
    causes = [_failure(made, name, n, total.unsuccessful) for n, name in enumerate(names[:14])]
    queue_spans = [
        figures(made, made.randrange(1, 90), since=at, queue=name)
        for at in since
        for name in apart
    ]
    return Measured(
        source="the archive shop",
        total=total,
        queues=queues,
        consumers=[replace(one, group="default") for one in queues],
        workers=[
            replace(one, group="default", worker=f"host {n} {one.queue}")
            for n, one in enumerate(queues)
        ],
        queue_count=len(names),
        consumer_count=len(names),
        worker_count=len(names),
        spans=[_sum([s for s in queue_spans if s.since == at], since=at) for at in since],
        queue_spans=queue_spans,
        attempts=[
            Attempt(queue=name, attempt=n, acked=400 // n, dead=n, again=120 // n)
            for name in apart
            for n in range(1, 6)
        ],
        longest_runs=[_slow(made, name, n) for n, name in enumerate(names[:20])],
        longest_waits=[_slow(made, name, n) for n, name in enumerate(names[:20])],
        failures=causes,
        letters=[_letters(one) for one in causes],
        letter_count=sum(one.dead for one in causes),
    )


def _failure(made, name, n, of):
    return Failure(
        fingerprint=f"{made.getrandbits(48):012x}",
        queue=name,
        group="default" if n % 2 else name,
        type=("ConnectionError", "ValueError", "TimeoutError", name)[n % 4],
        place="shop:charge" if n % 3 else "",
        message=f"no answer from {name}",
        traceback=f'  File "/srv/shop.py", line {n}, in charge\n    pay({name!r})\n' * 4,
        deliveries=of // 2 ** (n + 1) or 1,
        timed_out=n % 2 * 10,
        crashed=3 if n == 2 else 0,
        dead=of // 2 ** (n + 3),
        first=START,
        last=START + timedelta(hours=20),
        ids=[f"{made.getrandbits(128):032x}" for _ in range(3)],
    )


def _letters(one):
    return Letters(
        reason="max_attempts",
        letters=one.dead,
        **{
            key: getattr(one, key)
            for key in ("fingerprint queue group type place message first last ids".split())
        },
    )


def _slow(made, name, n):
    return Slow(
        queue=name,
        group="default",
        id=f"{made.getrandbits(128):032x}",
        worker=f"host {n}",
        attempt=1,
        outcome="timed_out",
        started=START + timedelta(minutes=n),
        wait=made.uniform(10, 4000) / (n + 1),
        run=made.uniform(10, 4000) / (n + 1),
    )
