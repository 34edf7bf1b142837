"""A program that streams a queue to Parquet until it is killed, and the host of that queue.

`python endless.py host PATH MESSAGES` hosts the file and puts what is missing, then says so.
`python endless.py stream PATH FOLDER SETTINGS` (JSON) says the process id of its JVM, then a line
for each batch that is done. The test goes on with the same queries in its own session.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from embedq import Broker
from embedq.spark import session
from embedq.spark.pipelines.archiving import TOO_LATE
from tests.spark.patience import RACE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

QUEUE, GROUP = "orders", "lake"
QUERIES = ("sink", "archive")


def say(*words: object) -> None:
    """Tell the test."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def host(path: str, messages: int) -> None:
    """Host the file until the end of standard input."""
    with Broker(path) as broker:
        queue = broker.queue(QUEUE, bytes, retain="1d")
        stored = queue.stats().stored
        queue.put_many([b"%d" % n for n in range(stored, messages)])
        say("hosted")
        sys.stdin.read()


def writer_of(
    spark: SparkSession, name: str, path: str, folder: Path, *, ends: bool
) -> DataStreamWriter:
    """Return one of the two queries: Spark's own sink for Parquet, or an archive of folders.

    `ends`: it stops when it has what is there now; else it takes a little at a time.
    """
    options = {"path": path, "endpoint": path, "subscribe": QUEUE, "startingOffsets": "earliest"}
    if not ends:
        options["maxOffsetsPerTrigger"] = "150"

    def archive(frame: DataFrame, number: int) -> None:
        frame.write.mode("overwrite").parquet(str(folder / "archive" / f"batch={number:08d}"))

    frame = (
        spark.readStream.format("embedq")
        .schema("seq long, body binary")
        .options(group=f"{GROUP}-{name}", **options)
        .load()
    )
    writer = frame.writeStream.option("checkpointLocation", str(folder / f"{name}-checkpoint"))
    if name == "sink":
        writer = writer.format("parquet").option("path", str(folder / "sink"))
    else:
        writer = writer.foreachBatch(archive)
    return writer.trigger(availableNow=True) if ends else writer


def stream(path: str, folder: Path, settings: dict[str, str]) -> None:
    """Run both queries until the end, which comes from outside."""
    from pyspark import SparkContext

    spark = session("endless", master="local[2,4]", **settings)
    gateway = SparkContext._gateway
    assert gateway is not None
    say(gateway.proc.pid)
    told: set[tuple[str, int]] = set()
    running = {name: writer_of(spark, name, path, folder, ends=False).start() for name in QUERIES}
    while True:
        for name, query in running.items():
            for progress in query.recentProgress:
                one = (name, progress.batchId)
                if progress.numInputRows and one not in told:
                    told.add(one)
                    say(*one)
            if not query.isActive:
                error = str(query.exception())
                if TOO_LATE not in error and RACE not in error:
                    raise SystemExit(error)
                running[name] = writer_of(spark, name, path, folder, ends=False).start()
        threading.Event().wait(0.05)


if __name__ == "__main__":
    if sys.argv[1] == "host":
        host(sys.argv[2], int(sys.argv[3]))
    else:
        stream(sys.argv[2], Path(sys.argv[3]), json.loads(sys.argv[4]))
