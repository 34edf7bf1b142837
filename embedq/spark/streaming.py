"""Reading on and on: `spark.readStream.format("embedq")`.

Knows: offsets, how much a trigger takes, what is told to the group of a query.
Does not know: how ranges are read. Spark's checkpoint knows how far a query is, this does not.

An offset `{"v": 1, "seq": n}` says that everything up to n has been read. A batch is the range
between two of them, and a range is the same each time it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from embedq.errors import InvalidOption, NotRetained
from embedq.spark.batch import committed, since
from embedq.spark.places import Place, open_host, open_place
from embedq.spark.ranges import (
    Chosen,
    Stretch,
    check_start,
    choose,
    commit,
    cut,
    held_by,
    lost,
    owners,
    read,
)
from embedq.spark.reading import Reading

if TYPE_CHECKING:
    import pyarrow as pa

_VERSION = 1


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The offsets of one query, in one process beside the driver; reading in others."""

    def __init__(self, reading: Reading, schema: StructType) -> None:
        self._reading = reading
        self._schema = schema
        self._known: set[str] = set()  # queues in which the group is registered
        self._goal: int | None = None  # where a query that takes what is available now ends

    # ------------------------------------------------------------------------------ offsets

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return where a new query starts. Raises NotRetained."""
        reading = self._reading
        with open_place(reading) as place:
            chosen = self._look(place)
            if reading.since_ms is not None:
                return _offset(since(place, chosen, reading, reading.since_ms))
            if isinstance(reading.start, int):
                return _offset(reading.start)
            if reading.start == "earliest":
                return _offset(0)
            if reading.start == "committed" or (reading.start is None and reading.group):
                return _offset(committed(chosen, reading))
            return _offset(chosen.survey.extent.head)

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, int]:
        """Return where the next batch ends: at the head, or where its limit says."""
        with open_place(self._reading) as place:
            after = _seq(start)
            chosen = self._look(place, after)
            head = self._head(chosen)
            check_start(self._reading, chosen, after)
            if isinstance(limit, ReadMaxRows):
                head = min(head, self._ahead(place, chosen, after, limit.max_rows))
            return _offset(max(after, head))

    def _ahead(self, place: Place, chosen: Chosen, after: int, rows: int) -> int:
        """Return the offset up to which there are about `rows`: seqs are counted as rows."""
        low = max(after, chosen.survey.extent.first - 1)
        if self._reading.feed == "messages":
            return low + rows
        found = [
            place.nth_after(self._reading.feed, of, after, rows)
            for of in owners(chosen, self._reading)
        ]
        known = [one for one in found if one is not None]
        return min(known, default=chosen.survey.extent.head)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return what the option maxOffsetsPerTrigger says."""
        most = self._reading.per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return the head, by which Spark shows how far behind a query is."""
        with open_place(self._reading) as place:
            return _offset(self._look(place).survey.extent.head)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember the head: the query ends there."""
        with open_place(self._reading) as place:
            self._goal = self._look(place).survey.extent.head

    def _head(self, chosen: Chosen) -> int:
        head = chosen.survey.extent.head
        return head if self._goal is None else min(head, self._goal)

    def _look(self, place: Place, after: int = 0) -> Chosen:
        """Return what there is. `after`: where a query goes on; 0: it has read nothing yet."""
        chosen = choose(place, self._reading)
        if self._reading.group is not None:
            self._check_group(chosen, after)
            chosen = self._registered(place, chosen)
        survey = chosen.survey
        bare = [survey.queues[n] for n in chosen.queues if n not in survey.retained]
        if bare and self._reading.group is None and self._reading.feed != "dead":
            raise NotRetained(
                f"nothing keeps the messages of {', '.join(map(repr, bare))} until a stream has "
                "read them: an acked message is gone"
            )
        return chosen

    def _check_group(self, chosen: Chosen, after: int) -> None:
        """See that nobody has removed the group of a query. Raises MessagesGone, as `lost` says.

        A checkpoint shows that it was there, unless retain= has kept what the query reads, or the
        queues have come since then.
        """
        queues, group = chosen.survey.queues, self._reading.group
        there = {chosen.survey.groups[number].queue for number in held_by(chosen, group)}
        gone = {queues[number] for number in chosen.queues if number not in there} & self._known
        if after and self._reading.names and not self._known and not there:
            gone = {queues[n] for n in chosen.queues if n not in chosen.survey.retained}
        self._known -= gone
        if gone:
            of = ", ".join(map(repr, sorted(gone)))
            lost(self._reading, f"group {group!r} of {of} was removed: what it held may be gone")

    def _registered(self, place: Place, chosen: Chosen) -> Chosen:
        """See that the group of the query exists in every queue, queues made meanwhile, too."""
        names = {chosen.survey.queues[number] for number in chosen.queues} - self._known
        if not names:
            return chosen
        reading, group = self._reading, self._reading.group or ""
        start = "end" if reading.start == "latest" else "beginning"
        with open_host(reading) as office:
            for name in sorted(names):
                office.feed_register(name, group, start, reading.max_hold_s)
        self._known |= names
        return choose(place, reading)

    # ------------------------------------------------------------------------------- batches

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Cut a batch into tasks. Raises MessagesGone if it is not there any more."""
        after, through = _seq(start), _seq(end)
        with open_place(self._reading) as place:
            chosen = self._look(place, after)
            check_start(self._reading, chosen, after)
            if through > after:
                check_start(self._reading, chosen, through)
            return cut(place, chosen, self._reading, after, through)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the rows of one task."""
        return read(self._reading, self._schema, cast("Stretch", partition))

    def commit(self, end: dict[str, Any]) -> None:
        """Let go what the group has held up to here. Spark calls it when the next batch begins."""
        commit(self._reading, _seq(end))


def _offset(seq: int) -> dict[str, int]:
    return {"v": _VERSION, "seq": seq}


def _seq(offset: dict[str, Any]) -> int:
    seq = offset.get("seq")
    if offset.get("v") != _VERSION or not isinstance(seq, int):
        raise InvalidOption(
            f"the checkpoint has the offset {offset!r}, which is none of this release",
            hint="upgrade embedq, or start with a new checkpointLocation",
            argument="checkpointLocation",
        )
    return seq
