"""The writing half of the data source: tasks stage rows, one commit publishes them.

Knows: what Spark calls where: `write` in tasks, each of their attempts; `commit` and `abort` once,
in a process of the driver's machine.
Does not know: options (writing.py), columns (rows.py), what a host does with a batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from embedq.broker.staging import Published
from embedq.clock import SystemClock
from embedq.errors import InvalidOption, QueueFull
from embedq.spark import rows
from embedq.spark.writing import Writing
from embedq.storage.staged import Part

if TYPE_CHECKING:
    import pyarrow as pa

    from embedq.broker.office import Office

#: Seconds between two tries at a queue that has no room.
_AGAIN_S: Final = 0.5
#: Where Spark tells the tasks of a stream which query they belong to.
_QUERY: Final = "sql.streaming.queryId"


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task tells the commit: the sink it has staged for, and what; None for no rows."""

    sink: str | None
    part: Part | None


class Sink:
    """What batches and streams have in common."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def _office(self, what: str) -> AbstractContextManager[Office]:
        from embedq.ipc.errands import open_office  # noqa: PLC0415  # planning needs no ZeroMQ

        writing = self._writing
        return open_office(writing.endpoint, writing.keys, name=f"spark-{what}")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage, or with mode=direct put, the rows of a task. Called for each of its attempts."""
        writing = self._writing
        sink = writing.sink or _query()
        token = uuid4().hex
        made = rows.chunks(iterator, writing.body, writing.columns)
        first = next(made, None)
        if first is None:
            return Written(sink, None)
        count = number = 0
        with self._office("task") as office:
            for number, chunk in enumerate(_and_rest(first, made)):
                if writing.direct:
                    self._put(office, token, number, chunk.data)
                else:
                    office.stage_put(writing.queue, sink, token, number, chunk.data)
                count += chunk.messages
        return Written(sink, None if writing.direct else Part(token, number + 1, count))

    def _put(self, office: Office, token: str, number: int, data: bytes) -> Published:
        queue = self._writing.queue
        return self._patiently(office, lambda: office.put_through(queue, token, number, data))

    def _patiently(self, office: Office, call: Any) -> Published:  # noqa: ANN401
        """Repeat a call while the queue is full, if its puts wait for room."""
        clock = SystemClock()
        until = clock.monotonic() + self._writing.timeout_s
        while True:
            try:
                published: Published = call()
            except QueueFull:
                blocks = office.info(self._writing.queue).policy.when_full == "block"
                if not blocks or clock.monotonic() > until:
                    raise
                time.sleep(_AGAIN_S)
            else:
                return published

    def _publish(
        self, batch: int, messages: Sequence[WriterCommitMessage | None]
    ) -> Published | None:
        """Publish a batch; return the host's answer. None: there is nothing to publish."""
        writing = self._writing
        written = [message for message in messages if isinstance(message, Written)]
        sink = writing.sink or next((each.sink for each in written if each.sink), None)
        if writing.direct or sink is None:
            return None
        parts = [each.part for each in written if each.part is not None]
        with self._office("commit") as office:
            return self._patiently(
                office,
                lambda: office.stage_publish(writing.queue, sink, batch, parts, writing.older),
            )

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what tasks have staged. Of those that failed Spark has no message to give."""
        written = [message for message in messages if isinstance(message, Written)]
        sink = self._writing.sink or next((each.sink for each in written if each.sink), None)
        if self._writing.direct or sink is None:
            return
        with self._office("abort") as office:
            office.stage_abort(sink)


class BatchWriter(Sink, DataSourceArrowWriter):
    """What one `df.write` does."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what the tasks have staged."""
        self._publish(self._writing.batch or 0, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Forget what the tasks have staged."""
        self._abort(messages)


class StreamWriter(Sink, DataSourceStreamArrowWriter):
    """What one streaming query does, batch after batch."""

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Publish what the tasks of a batch have staged, unless it was published before."""
        self._publish(batchId, messages)

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Forget what the tasks of a batch have staged."""
        del batchId
        self._abort(messages)


def _and_rest(first: rows.Made, rest: Iterator[rows.Made]) -> Iterator[rows.Made]:
    yield first
    yield from rest


def _query() -> str:
    """Return the name of the sink of a stream that was given none: the id of its query."""
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(_QUERY)
    if not query:
        raise InvalidOption(
            "no task knows the id of the query, by which the batches of a stream are known",
            hint="set the option sinkId to a name of your own",
            argument="sinkId",
        )
    return f"query:{query}"
