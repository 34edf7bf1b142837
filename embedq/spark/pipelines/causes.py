"""Triage: why messages have died, cause by cause; and redrive of those that died of some.

Knows: how failures are marked and dead letters counted by fingerprint, what is kept as a sample.
Does not know: how fingerprints are made, how letters are moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from embedq.errors import InvalidOption
from embedq.spark.needs import need
from embedq.spark.pipelines.fingerprints import fingerprint, place

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from embedq.message import Receipt

#: Ids that are kept of each cause.
SAMPLES: Final = 3
_COLUMNS: Final = (
    "queue string, id string, `group` string, died_at timestamp, reason string, detail string, "
    "error_type string, error_message string, error_traceback string"
)


class Cause(NamedTuple):
    """Dead letters that died of the same. `message`, `ids`: of some of them; times are UTC."""

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


class Letters(Protocol):
    """The dead letters of a queue: `queue.dead`."""

    def redrive(self, *ids: str, group: str | None = None, by: str = ...) -> Sequence[Receipt]:
        """Put letters again as new messages."""
        ...


def triage(spark: SparkSession, options: Mapping[str, str]) -> list[Cause]:
    """Return why messages have died, the most frequent cause first.

    `options`: those of the source, from `queue.spark_options()`; with `states` only letters of
    those reasons. Letters with one type of error, raised in the same functions, are one cause;
    without an error the reason and its detail count. Bodies are not read.
    Raises MissingExtra, and what Spark raises for errors of the source.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415  # asked for in _letters

    first = f.min_by(f.struct("type", "place", "message"), in_order("died_at", "id"))
    rows = (
        _letters(spark, options)
        .groupBy("fingerprint", "queue", "group")
        .agg(
            first.alias("one"),
            f.count(f.lit(1)).alias("letters"),
            f.unix_micros(f.min("died_at")).alias("first"),
            f.unix_micros(f.max("died_at")).alias("last"),
            f.slice(f.sort_array(f.collect_set("id")), 1, SAMPLES).alias("ids"),
        )
        .orderBy(f.desc("letters"), "fingerprint", "queue", "group")
        .select("fingerprint", "queue", "group", "one.*", "letters", "first", "last", "ids")
        .collect()
    )
    return [
        Cause(**{**row.asDict(), "first": moment(row["first"]), "last": moment(row["last"])})
        for row in rows
    ]


def redrive(
    spark: SparkSession,
    options: Mapping[str, str],
    letters: Letters,
    fingerprints: Sequence[str],
    *,
    by: str = "pipeline",
) -> int:
    """Put the letters of one queue that died of some causes again; return how many.

    `letters`: `queue.dead` of the queue that the options name. Only ids go back: the host moves
    the messages with what they were put with, and gives them the header `redriven-from`. Raises
    InvalidOption without fingerprints, UnknownMessage where somebody else has moved a letter
    meanwhile (then triage again), and as `triage` does.
    """
    if not fingerprints:
        raise InvalidOption(
            "no fingerprint says which letters are put again",
            hint="give some of those that triage() returns",
            argument="fingerprints",
        )
    found = _letters(spark, options)
    chosen = found.where(found.fingerprint.isin(list(fingerprints))).select("id", "group")
    by_group: dict[str | None, list[str]] = {}
    for row in chosen.collect():
        by_group.setdefault(row["group"], []).append(row["id"])
    return sum(len(letters.redrive(*ids, group=group, by=by)) for group, ids in by_group.items())


def _letters(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Return the dead letters with their fingerprints; `type` and `message` are never NULL."""
    need("pyspark", "pyarrow")
    given = {name.lower(): value for name, value in options.items()} | {"include": "dead"}
    read = spark.read.format("embedq").options(**given).schema(_COLUMNS).load()
    return marked(read, "reason", "detail")


def marked(failed: DataFrame, otherwise: str, words: str) -> DataFrame:
    """Add `type`, `message`, `place` and `fingerprint` to rows with the columns of an error.

    `otherwise`, `words`: columns that stand in for the type and the message where there was no
    error; `type` is NULL only where the former is.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415  # whoever has rows has pyspark

    mark = f.udf(fingerprint, "string", useArrow=False)
    where = f.udf(place, "string", useArrow=False)
    return (
        failed.withColumn("type", f.coalesce("error_type", otherwise))
        .withColumn("message", f.coalesce("error_message", words))
        .withColumn("fingerprint", mark("type", "message", "error_traceback"))
        .withColumn("place", where("error_traceback"))
    )


def in_order(by: str, *then: str) -> Column:
    """Return what orders rows by one column, and those that are equal in it by others.

    Without the others Spark takes whichever of them its tasks bring first. Rows where `by` is NULL
    have no place.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415  # whoever has rows has pyspark

    return f.when(f.col(by).isNotNull(), f.struct(by, *then))


def moment(micros: int) -> datetime:
    """Return the moment so many microseconds after 1970, exactly."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
