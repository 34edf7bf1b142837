"""Jobs with a task that does not come to its end, so that Spark starts it a second time beside it.

Knows: how a task straggles until Spark gives it up, how often each message has been written then.
Does not know: the cluster, how often it should be.

Run by test_speculation.py: `python -m tests.spark.straggling FOLDER MASTER SETTINGS` (JSON) prints
what it saw.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from embedq import Broker, Queue
from tests.spark.patience import finished

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Messages for each of two tasks: several chunks, so that a task has written before its end.
TASK: Final = 40_000
#: How rows are written. `careless` is the planted bug: all that was staged counts, whoever won.
WAYS: Final = ("atomic", "stream", "direct", "careless")
#: A task that fails fails its job: a second attempt is one that was started beside the first.
#: Small batches: what fills no buffer between two Python workers waits in it for more.
SETTINGS: Final = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "1.1",
    "spark.task.maxFailures": "1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
}
_STAGED: Final = (
    "SELECT total(messages) FROM stage WHERE queue=(SELECT id FROM queue WHERE name=?)"
)
_TOKENS: Final = "SELECT token, count(*), sum(messages) FROM stage WHERE sink=? GROUP BY token"


def looking(path: str) -> closing[sqlite3.Connection]:
    """Open the file beside its host, to look."""
    return closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True))


def straggling(marks: str) -> Any:
    """Return a function for mapInArrow that hands its rows on.

    The first attempt of the second task never ends by itself. The next one begins when it is let,
    and notes whether the first is still there.
    """

    def run(batches: Any) -> Any:
        import os
        from pathlib import Path as File
        from threading import Event

        from pyspark import TaskContext

        task = TaskContext.get()
        attempt = task.attemptNumber() if task is not None and task.partitionId() == 1 else None
        folder, pause, turns = File(marks), Event(), 6_000
        if attempt is not None:
            (folder / f"attempt-{attempt}").write_text(str(os.getpid()))
        while attempt and turns and not (folder / "go").exists():
            turns -= 1
            pause.wait(0.05)
        if attempt:
            first = (folder / "attempt-0").read_text()
            beside = bool(turns) and File("/proc", first).exists()
            (folder / "beside").write_text(str(beside))
        yield from batches
        if attempt == 0:
            pause.wait(600)

    return run


def careless_source() -> Any:
    """Return the planted bug: a data source that publishes what every attempt has staged."""
    from embedq.spark import writing
    from embedq.spark.sink import BatchWriter, Written
    from embedq.spark.source import EmbedqDataSource
    from embedq.storage.staged import Part

    class CarelessWriter(BatchWriter):
        def commit(self, messages: Any) -> None:
            sink = messages[0].sink
            with closing(
                sqlite3.connect(f"file:{self._writing.endpoint}?mode=ro", uri=True)
            ) as db:
                found = db.execute(
                    "SELECT token, count(*), sum(messages) FROM stage WHERE sink=? GROUP BY token",
                    (sink,),
                ).fetchall()
            super().commit([Written(sink, Part(*row)) for row in found])

    class CarelessSource(EmbedqDataSource):
        @classmethod
        def name(cls) -> str:
            return "embedq_careless"

        def writer(self, schema: Any, overwrite: bool) -> CarelessWriter:  # noqa: FBT001
            return CarelessWriter(
                writing.parse(self.options, schema, streams=False, overwrite=overwrite)
            )

    return CarelessSource


@contextmanager
def letting_go(path: str, copies: Queue[Any], marks: Path) -> Iterator[None]:
    """Let the second attempt begin when more rows were written than the other task has."""
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            with looking(path) as db:
                (staged,) = db.execute(_STAGED, (copies.name,)).fetchone()
            if staged + copies.stats().stored > TASK:
                (marks / "go").touch()
                return
            over.wait(0.05)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


def write(frame: DataFrame, way: str, options: dict[str, Any]) -> None:
    """Write rows in one of the ways."""
    if way == "careless":
        frame.sparkSession.dataSource.register(careless_source())
    name = "embedq_careless" if way == "careless" else "embedq"
    given = {**options, "mode": "direct" if way == "direct" else "atomic"}
    frame.write.format(name).mode("append").options(**given).save()


def start(frame: DataFrame, options: dict[str, Any], folder: Path) -> Callable[[], StreamingQuery]:
    """Return what starts a stream that writes what is there now."""
    writer = frame.writeStream.format("embedq").options(**options)
    return writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start


def copy(spark: SparkSession, broker: Broker, way: str, folder: Path) -> dict[str, Any]:
    """Write what one queue has to another with a task that straggles; return what came of it."""
    marks = folder / way
    marks.mkdir()
    path = str(folder / "q.db")
    copies = broker.queue(f"copies-{way}", bytes)
    reader = spark.readStream if way == "stream" else spark.read
    frame = (
        reader.format("embedq")
        .schema("body binary")
        .options(endpoint=path, subscribe="orders", startingOffsets="earliest")
        .options(maxRecordsPerPartition=TASK)
        .load()
        .mapInArrow(straggling(str(marks)), "body binary")
    )
    options = {"endpoint": path, "queue": copies.name}
    with letting_go(path, copies, marks):
        if way == "stream":
            finished(start(frame, options, folder / "checkpoint"))
        else:
            write(frame, way, options)
    return {"beside": (marks / "beside").read_text(), **judged(copies)}


def judged(copies: Queue[Any]) -> dict[str, int]:
    """Return how many messages of the first queue are missing in a copy, or there twice."""
    found: Counter[bytes] = Counter()
    last = 0
    while page := copies.peek(10_000, last):
        found.update(message.body for message in page)
        last = page[-1].seq
    wanted = {b"%d" % number for number in range(2 * TASK)}
    again = [int(body) for body, count in found.items() if count > 1]
    return {
        "missing": len(wanted - found.keys()),
        "strange": len(found.keys() - wanted),
        "again": len(again),
        "first_again": min(again, default=-1),
    }


def main(folder: Path, master: str, settings: dict[str, str]) -> None:
    """Copy a queue in each of the ways, and print what came of it."""
    from embedq.spark import session

    with Broker(folder / "q.db", role="host") as broker:
        orders = broker.queue("orders", bytes, retain="1d")
        for low in range(0, 2 * TASK, 10_000):
            orders.put_many([b"%d" % number for number in range(low, low + 10_000)])
        spark = session("straggling", master=master, **settings, **SETTINGS)
        try:
            told = {way: copy(spark, broker, way, folder) for way in WAYS}
        finally:
            spark.stop()
    sys.stdout.write(f"{json.dumps(told)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))
