"""Archive: the history of queues, or their messages, as Parquet that anybody can read.

Knows: one folder for each batch, written anew when the batch is repeated; how a group is moved on.
Does not know: offsets (Spark's checkpoint has them), how rows are read, reports.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from embedq.errors import InvalidOption
from embedq.spark.needs import need
from embedq.spark.pipelines.folders import local
from embedq.spark.reading import parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: What is read at once, unless the options say otherwise.
PER_BATCH: Final = 500_000
#: The options that say whose rows are read.
_CHOICE: Final = ("subscribe", "subscribepattern", "states")
#: How Spark tells that a process of its own has not come up in time, and how often that may be.
TOO_LATE: Final = "failed to connect back"
_TRIES: Final = 8

#: Called after each batch with its number and its rows.
Progress = Callable[[int, int], None]


class Archived(NamedTuple):
    """What one run has written: batches, their rows, and the offset up to which all is there."""

    batches: int
    rows: int
    offset: int


def archive(
    spark: SparkSession,
    options: Mapping[str, str],
    folder: str | Path,
    *,
    progress: Progress | None = None,
) -> Archived:
    """Write what came since the last run to Parquet below `folder`, and return what that was.

    `options`: those of the source, from `queue.spark_options(include="history")`; the default of
    `include` is `history`, and everything is read from the start. There is one folder
    `<include>/batch=<number>` for each batch; one that was interrupted is written anew by the next
    run, so that readers without Spark, too, find each row once:
    `pyarrow.dataset.dataset("<folder>/history", partitioning="hive")`. How far it is stands in
    `<folder>/_checkpoint`: back up both together. One run at a time.

    With the option `group` the group is moved up to the end of the last batch, when that is
    written (for messages; the history stays as long as `retain=` says).

    Raises MissingExtra, InvalidOption for a `folder` that is no local path, or has the archive of
    another choice of queues; and what Spark raises for errors of the source, whose text names the
    option.
    """
    need("pyspark", "pyarrow")
    from embedq.spark.ranges import commit  # noqa: PLC0415  # loads pyspark

    target = local(folder)
    given = {name.lower(): value for name, value in options.items()}
    given = {"include": "history", "startingoffsets": "earliest"} | given
    given.setdefault("maxoffsetspertrigger", str(PER_BATCH))
    _check_choice(target / "_checkpoint" / f"{given['include']}.json", given)
    into = target / given["include"]
    written: list[int] = []

    def write(batch: DataFrame, number: int) -> None:
        rows = _write(batch, into / f"batch={number:08}")
        written.append(rows)
        if progress is not None:
            progress(len(written), rows)

    def start() -> StreamingQuery:
        return (
            spark.readStream.format("embedq")
            .options(**given)
            .load()
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(target / "_checkpoint" / given["include"]))
            .trigger(availableNow=True)
            .start()
        )

    offset = _end(_finished(start))
    if offset:
        # Spark itself says so only when the next batch begins.
        commit(parse(given), offset)
    return Archived(len(written), sum(written), offset)


def _check_choice(note: Path, given: Mapping[str, str]) -> None:
    """Refuse what this folder's position says nothing about: rows would be left out unseen."""
    choice = {name: given[name] for name in _CHOICE if name in given}
    if "subscribe" in choice:
        names = sorted({name.strip() for name in choice["subscribe"].split(",")})
        choice["subscribe"] = ",".join(names)
    try:
        before = json.loads(note.read_text("utf-8"))
    except FileNotFoundError:
        note.parent.mkdir(parents=True, exist_ok=True)
        part = note.with_suffix(".part")
        part.write_text(json.dumps(choice), "utf-8")
        part.replace(note)
        return
    if before != choice:
        raise InvalidOption(
            f"the folder {str(note.parents[1])!r} has the archive of {_words(before)}: how far it "
            f"is says nothing of {_words(choice)}",
            hint="archive another choice of queues to a folder of its own",
            argument="folder",
        )


def _words(choice: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value!r}" for name, value in choice.items())


def _finished(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query and wait for its end; again, where Spark was too impatient with its start.

    Spark gives the process that plans a stream ten seconds to come up, and has no option for it:
    too few on a busy machine. A query that is started again goes on where it was.
    """
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415  # was asked for above

    for tries in range(_TRIES, 0, -1):
        query = start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if TOO_LATE not in str(error) or tries == 1:
                raise
        else:
            break
        finally:
            query.stop()
    return query


def _write(batch: DataFrame, into: Path) -> int:
    """Write one batch, replacing what an interrupted run has left of it; return its rows."""
    from pyspark.sql import Observation, functions  # noqa: PLC0415  # pyspark was asked for above

    seen = Observation()
    counted = batch.observe(seen, functions.count(functions.lit(1)).alias("rows"))
    counted.write.mode("overwrite").parquet(str(into))
    return int(seen.get["rows"])


def _end(query: StreamingQuery) -> int:
    """Return the offset up to which the query has read, 0 if there was nothing new."""
    last = query.lastProgress
    if not last:
        return 0
    end = last["sources"][0]["endOffset"]
    found = json.loads(end) if isinstance(end, str) else end
    return int(found["seq"]) if found else 0
