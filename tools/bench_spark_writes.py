"""The writing sides of the benchmark of Spark: the sink, and what it is compared with.

Knows: rows that are ready, a queue of its own for each pass, a client that puts without Spark.
Does not know: the file and its host (bench_spark_sides.py), rounds, tables, goals.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Final

from embedq import Broker

#: So many of the messages are written in a pass: one atomic batch has a bound of bytes.
PART: Final = 10
LOT: Final = 10_000
TASKS: Final = 4


class Writes:
    """The same rows for everybody, written to the host that has the file open."""

    def __init__(self, spark: Any, path: Path, rows: int) -> None:  # noqa: ANN401 - PySpark's own type
        self.rows = rows
        self._client = Broker(path)  # a client of that host, as any other process is
        self._numbers = count()
        self._bodies = [os.urandom(200) for _ in range(rows)]
        made = spark.createDataFrame([(body,) for body in self._bodies], "body binary")
        self._frame = made.repartition(TASKS).cache()
        self._frame.count()

    def _queue(self) -> Any:  # noqa: ANN401 - a queue of bytes
        queue = self._client.queue(f"written-{next(self._numbers)}", bytes)
        queue.stats()  # the sink wants a queue that is there
        return queue

    def by_spark(self, mode: str) -> Callable[[], None]:
        """Return a pass through the sink in this mode."""

        def write() -> None:
            options = self._queue().spark_options(mode=mode)
            self._frame.write.format("embedq").mode("append").options(**options).save()

        return write

    def by_client(self) -> None:
        """Put the same bodies in lots, as a client without Spark does."""
        queue = self._queue()
        for at in range(0, self.rows, LOT):
            queue.put_many(self._bodies[at : at + LOT])

    def close(self) -> None:
        """End the client."""
        self._client.stop()
