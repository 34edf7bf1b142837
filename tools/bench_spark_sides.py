"""The sides of the benchmark of Spark: reading a queue and what it is compared with.

Knows: the file with the messages, its host in a process of its own, one session, a full pass each.
Does not know: rounds, tables, goals (bench_spark.py).
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final

import pyarrow as pa

from bench_figures import Figure
from bench_spark_processes import Meter
from bench_spark_writes import Writes
from embedq import Broker
from embedq.spark import session

QUEUE: Final = "orders"
SIZE: Final = 200
LOT: Final = 10_000
SEVEN: Final = (
    "seq long, queue string, key string, kind string, body binary, priority int, put_at timestamp"
)
TWO: Final = "seq long, body binary"
BARE: Final = "seq long, put_at timestamp"
#: The columns of `SEVEN` as they lie in the file.
_RAW: Final = "seq, queue, okey, kind, body, priority, put_at"
_RAW_TYPES: Final = {
    "seq": pa.int64(),
    "queue": pa.int64(),
    "okey": pa.string(),
    "kind": pa.int8(),
    "body": pa.binary(),
    "priority": pa.int32(),
    "put_at": pa.timestamp("ms", tz="UTC"),
}
_FETCHED: Final = 8192
_PATIENCE_S: Final = 60

_HOST: Final = """
import sys
from embedq import Broker
with Broker(sys.argv[1], durability="normal"):
    print(flush=True)
    sys.stdin.read()
"""


class Bench:
    """A file with messages, a host of it, and a session: what all sides share."""

    def __init__(self, folder: Path, messages: int) -> None:
        self.messages = messages
        self._writes: Writes | None = None
        self.path = folder / "queue.db"
        self.parquet = folder / "parquet"
        with Broker(self.path, durability="normal") as broker:
            queue = broker.queue(QUEUE, bytes, retain="1d")
            for _ in range(messages // LOT):
                # No two alike: Parquet would keep one that is repeated only once.
                queue.put_many([os.urandom(SIZE) for _ in range(LOT)])
        command = [sys.executable, "-c", _HOST, str(self.path)]
        self._host = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self._host.stdout is not None:
            self._host.stdout.readline()
        scratch = {"spark.local.dir": str(folder), "spark.sql.warehouse.dir": str(folder)}
        self.spark = session("bench", **{**scratch, "spark.driver.memory": "2g"})
        self._load(SEVEN, path=self.path).write.parquet(str(self.parquet))

    def _load(self, schema: str, **place: object) -> Any:  # noqa: ANN401 - PySpark's own type
        reader = self.spark.read.format("embedq").schema(schema).option("subscribe", QUEUE)
        return reader.options(**{name: str(value) for name, value in place.items()}).load()

    def read(self, schema: str, **place: object) -> Callable[[], None]:
        """Return a full pass through the source."""
        return lambda: _pass(self._load(schema, **place))

    def read_parquet(self) -> None:
        """Read the same rows with Spark's own reader of Parquet."""
        _pass(self.spark.read.parquet(str(self.parquet)))

    def read_raw(self) -> None:
        """Read the same columns with sqlite3 into Arrow, in this process."""
        where = f"file:{self.path}?mode=ro"
        with closing(sqlite3.connect(where, uri=True, isolation_level=None)) as connection:
            cursor = connection.execute(f"SELECT {_RAW} FROM msg WHERE queue=1 ORDER BY seq")  # noqa: S608
            while rows := cursor.fetchmany(_FETCHED):
                columns = zip(*rows, strict=True)
                for values, kind in zip(columns, _RAW_TYPES.values(), strict=True):
                    pa.array(values, kind)

    def writes(self, rows: int) -> Writes:
        """Return the sides that write that many rows to the host."""
        self._writes = Writes(self.spark, self.path, rows)
        return self._writes

    def close(self) -> None:
        """End the session and the host."""
        if self._writes is not None:
            self._writes.close()
        self.spark.stop()
        self._host.communicate(timeout=_PATIENCE_S)


def _pass(frame: Any) -> None:  # noqa: ANN401 - PySpark's own type
    frame.write.format("noop").mode("overwrite").save()


def timed(
    work: Callable[[], None], messages: int, planted_s: float = 0.0, meter: Meter | None = None
) -> Figure:
    """Do a full pass and return its figure. `planted_s`: CPU burnt for it, for a test."""
    meter = meter or Meter()
    cpu, begun = meter.seconds(), perf_counter()
    work()
    until = process_time() + planted_s
    while process_time() < until:
        pass
    seconds = perf_counter() - begun
    return Figure(messages / seconds, (meter.seconds() - cpu) / messages * 1e6)
