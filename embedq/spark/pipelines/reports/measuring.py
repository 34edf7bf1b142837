"""From deliveries, failures and dead letters to figures: what Spark computes of them.

Knows: how every figure is computed, that the deliveries are read once and kept while it lasts.
Does not know: where rows come from, what is concluded, how it is shown.

Only bounded results come to the driver. Percentiles are exact up to 10,000 values and within a
ten-thousandth of the rank beyond (Spark's percentile_approx): they merge, a sort would not.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace
from pyspark.sql import Observation, functions as f

from embedq.spark.pipelines.causes import in_order, marked, moment
from embedq.spark.pipelines.reports.evidence import Evidence
from embedq.spark.pipelines.reports.figures import (
    APART,
    ATTEMPTS,
    CAUSES,
    OTHERS,
    ROWS,
    SLOWEST,
    Attempt,
    Failure,
    Figures,
    Letters,
    Measured,
    Slow,
    Times,
    span_for,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

#: Ids that are kept of each cause, and how many of the latest deliveries are looked at for them.
_IDS: Final = 3
_LATEST: Final = 20
_MICRO: Final = 1_000_000
_SHARES: Final = (0.5, 0.9, 0.99)
_OUTCOMES: Final = ("acked", "failed", "timed_out", "crashed", "dead", "expired", "cancelled")

Progress = Callable[[str], None]


def measure(found: Evidence, tell: Progress) -> Measured:
    """Compute everything; `tell` is called with what comes next. The rows are read once each."""
    deliveries = _narrow(found.deliveries).persist()
    try:
        tell("reading the deliveries")
        total, queues = _by_queue(deliveries)
        measured = Measured(source=found.source, total=total, queues=queues)
        if queues:
            tell("by consumer, worker and time")
            measured = replace(measured, **_parts(deliveries, total, queues))
    finally:
        deliveries.unpersist()
    if total.unsuccessful:
        tell("why deliveries failed")
        measured = replace(measured, failures=_failures(found.failures))
    if found.letters is not None:
        tell("the dead letters")
        letters, letter_count = _letters(found.letters)
        measured = replace(measured, letters=letters, letter_count=letter_count)
    return measured


def _parts(rows: DataFrame, total: Figures, queues: list[Figures]) -> dict[str, Any]:
    """Return what there is to say of parts of the deliveries, as fields of Measured."""
    counts = _counts(rows)
    consumers, workers = _by_consumer(rows)
    span, spans, queue_spans = _over_time(rows, total, queues)
    runs, waits = _slowest(rows)
    return {
        "queue_count": counts["queues"],
        "consumer_count": counts["consumers"],
        "worker_count": counts["workers"],
        "consumers": consumers,
        "workers": workers,
        "span_s": span,
        "spans": spans,
        "queue_spans": queue_spans,
        "attempts": _attempts(rows, queues),
        "longest_runs": runs,
        "longest_waits": waits,
    }


def _narrow(history: DataFrame) -> DataFrame:
    """Keep what figures are made of: numbers, names, ids. Attempt 0 is no delivery."""
    started, ended = f.unix_micros("started_at"), f.unix_micros("ended_at")
    waited, ran = started - f.unix_micros("put_at"), ended - started
    zero = f.lit(0).cast("long")
    return history.select(
        "queue",
        "group",
        "worker",
        "id",
        "attempt",
        "outcome",
        started.alias("started"),
        ended.alias("ended"),
        # Clocks of two processes, or one that was set: nothing waits for less than no time.
        f.when((f.col("attempt") == 1) & (waited < 0), zero)
        .when(f.col("attempt") == 1, waited)
        .alias("wait"),
        f.when((f.col("attempt") > 0) & (ran < 0), zero)
        .when(f.col("attempt") > 0, ran)
        .alias("run"),
    )


# ------------------------------------------------------------------------------------- figures


def _columns() -> list[Column]:
    outcome, attempt = f.col("outcome"), f.col("attempt")
    return [
        f.count_if(attempt > 0).alias("deliveries"),
        f.count_if(attempt == 1).alias("messages"),
        *(f.count_if(outcome == name).alias(name) for name in _OUTCOMES),
        f.count_if((outcome == "acked") & (attempt == 1)).alias("acked_at_once"),
        f.count("wait").alias("waits"),
        *_times("wait"),
        *_times("run"),
        f.min("started").alias("first"),
        f.max("ended").alias("last"),
    ]


def _times(name: str) -> list[Column]:
    return [
        f.percentile_approx(name, list(_SHARES)).alias(f"{name}_shares"),
        f.max(name).alias(f"{name}_longest"),
        f.sum(name).alias(f"{name}_total"),
    ]


_COUNTED: Final = ("deliveries", "messages", *_OUTCOMES, "acked_at_once", "waits")


def _figures(row: Row, *keys: str) -> Figures:
    return Figures(
        **{key: row[key] for key in keys},
        **{name: row[name] for name in _COUNTED},
        since=moment(row["since"]) if "since" in row else None,
        wait=_read_times(row, "wait"),
        run=_read_times(row, "run"),
        first=_known(row["first"]),
        last=_known(row["last"]),
    )


def _read_times(row: Row, name: str) -> Times:
    if row[f"{name}_longest"] is None:
        return Times()
    p50, p90, p99 = (value / _MICRO for value in row[f"{name}_shares"])
    return Times(p50, p90, p99, row[f"{name}_longest"] / _MICRO, row[f"{name}_total"] / _MICRO)


def _by_queue(rows: DataFrame) -> tuple[Figures, list[Figures]]:
    """Return the figures of all queues together and of each, the busiest first."""
    found = (
        rows.rollup("queue")
        .agg(f.grouping_id().alias("level"), *_columns())
        .orderBy(f.desc("level"), f.desc("deliveries"), "queue")
        .limit(ROWS + 1)
        .collect()
    )
    # Of no rows at all there is no line, not even the one of all together.
    total = _figures(found[0]) if found else Figures()
    return total, [_figures(row, "queue") for row in found[1:]]


def _counts(rows: DataFrame) -> Row:
    """Count queues, consumers (groups of queues) and workers."""
    one = rows.select("queue", "group", "worker").distinct()
    two = one.groupBy("queue", "group").agg(f.count("worker").alias("workers"))
    return two.agg(
        f.count_distinct("queue").alias("queues"),
        f.count(f.lit(1)).alias("consumers"),
        f.coalesce(f.sum("workers"), f.lit(0)).alias("workers"),
    ).collect()[0]


def _by_consumer(rows: DataFrame) -> tuple[list[Figures], list[Figures]]:
    """Return the figures of groups and of their workers, those that ran longest first."""
    delivered = rows.where(f.col("attempt") > 0)

    def of(*keys: str) -> list[Figures]:
        found = (
            delivered.groupBy(*keys)
            .agg(*_columns())
            .orderBy(f.desc("run_total"), *keys)
            .limit(ROWS)
            .collect()
        )
        return [_figures(row, *keys) for row in found]

    return of("queue", "group"), of("queue", "group", "worker")


def _over_time(
    rows: DataFrame, total: Figures, queues: list[Figures]
) -> tuple[int, list[Figures], list[Figures]]:
    """Return how long a span is, and the figures of each: of all queues, and of those apart."""
    if total.first is None or total.last is None:
        return span_for(0), [], []
    span = span_for((total.last - total.first).total_seconds())
    width = f.lit(span * _MICRO).cast("long")
    spans = rows.where(f.col("attempt") > 0).withColumns(
        {"since": f.col("ended") - f.pmod("ended", width), "queue": _apart(queues)}
    )
    found = (
        spans.groupingSets([["since"], ["queue", "since"]], "queue", "since")
        .agg(f.grouping("queue").alias("together"), *_columns())
        .orderBy("since", "queue")
        .collect()
    )
    together = [_figures(row) for row in found if row["together"]]
    return span, together, [_figures(row, "queue") for row in found if not row["together"]]


def _apart(queues: list[Figures]) -> Column:
    names = [one.queue for one in queues[:APART]]
    return f.when(f.col("queue").isin(names), f.col("queue")).otherwise(f.lit(OTHERS))


def _attempts(rows: DataFrame, queues: list[Figures]) -> list[Attempt]:
    outcome = f.col("outcome")
    found = (
        rows.where(f.col("attempt") > 0)
        .groupBy(
            _apart(queues).alias("queue"),
            f.least("attempt", f.lit(ATTEMPTS)).alias("attempt"),
        )
        .agg(
            f.count_if(outcome == "acked").alias("acked"),
            f.count_if(outcome == "dead").alias("dead"),
            f.count_if(outcome.isin("failed", "timed_out", "crashed")).alias("again"),
        )
        .orderBy("queue", "attempt")
        .collect()
    )
    return [Attempt(**row.asDict()) for row in found]


def _slowest(rows: DataFrame) -> tuple[list[Slow], list[Slow]]:
    """Return the deliveries that ran longest, and those that had waited longest."""
    whole = f.struct(
        "queue", "group", "id", "worker", "attempt", "outcome", "started", "wait", "run"
    )
    ties = ("id", "group", "attempt")
    found = rows.agg(
        f.max_by(whole, in_order("run", *ties), SLOWEST).alias("runs"),
        f.max_by(whole, in_order("wait", *ties), SLOWEST).alias("waits"),
    ).collect()[0]
    return [_slow(row) for row in found["runs"] or ()], [
        _slow(row) for row in found["waits"] or ()
    ]


def _slow(row: Row) -> Slow:
    values: dict[str, Any] = row.asDict()
    for name in ("wait", "run"):
        if values[name] is not None:
            values[name] /= _MICRO
    return Slow(**{**values, "started": moment(values["started"])})


# -------------------------------------------------------------------------------------- causes


def _failures(rows: DataFrame) -> list[Failure]:
    """Return why deliveries failed, the most frequent first."""
    outcome = f.col("outcome")
    named = rows.withColumn("nothing", f.lit(None).cast("string"))
    found = (
        marked(named, "outcome", "nothing")
        .groupBy("fingerprint", "queue", "group")
        .agg(
            f.max_by(
                f.struct("type", "place", "message", "error_traceback"),
                in_order("ended_at", "id", "message"),
            ).alias("latest"),
            f.count(f.lit(1)).alias("deliveries"),
            *(f.count_if(outcome == o).alias(o) for o in ("timed_out", "crashed", "dead")),
            f.unix_micros(f.min("ended_at")).alias("first"),
            f.unix_micros(f.max("ended_at")).alias("last"),
            _ids("ended_at"),
        )
        .orderBy(f.desc("deliveries"), "fingerprint", "queue", "group")
        .limit(CAUSES)
        .collect()
    )
    return [
        Failure(
            **_cause(row),
            traceback=row["latest"]["error_traceback"] or "",
            **{name: row[name] for name in ("deliveries", "timed_out", "crashed", "dead")},
        )
        for row in found
    ]


def _letters(rows: DataFrame) -> tuple[list[Letters], int]:
    """Return why messages are dead letters, the most frequent first, and how many are."""
    seen = Observation()
    counted = rows.observe(seen, f.count(f.lit(1)).alias("letters"))
    found = (
        marked(counted, "reason", "detail")
        .groupBy("reason", "fingerprint", "queue", "group")
        .agg(
            f.max_by(f.struct("type", "place", "message"), in_order("died_at", "id")).alias(
                "latest"
            ),
            f.count(f.lit(1)).alias("letters"),
            f.unix_micros(f.min("died_at")).alias("first"),
            f.unix_micros(f.max("died_at")).alias("last"),
            _ids("died_at"),
        )
        .orderBy(f.desc("letters"), "fingerprint", "reason", "queue", "group")
        .limit(CAUSES)
        .collect()
    )
    letters = [
        Letters(**_cause(row), reason=row["reason"], letters=row["letters"]) for row in found
    ]
    return letters, int(seen.get["letters"])


def _ids(when: str) -> Column:
    """Return ids of some of the latest: a message that failed again and again counts once."""
    return f.slice(f.array_distinct(f.max_by("id", in_order(when, "id"), _LATEST)), 1, _IDS).alias(
        "ids"
    )


def _cause(row: Row) -> dict[str, Any]:
    latest = row["latest"]
    return {
        **{name: row[name] for name in ("fingerprint", "queue", "group", "ids")},
        **{name: latest[name] or "" for name in ("type", "place", "message")},
        "first": moment(row["first"]),
        "last": moment(row["last"]),
    }


def _known(micros: int | None) -> datetime | None:
    return None if micros is None else moment(micros)
