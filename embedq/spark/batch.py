"""Reading once: `spark.read.format("embedq")`.

Knows: where a batch starts and ends, as its options say.
Does not know: streams, how ranges are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from embedq.spark.places import Place, open_place
from embedq.spark.ranges import Chosen, Stretch, check_start, choose, cut, held_by, owners, read
from embedq.spark.reading import Reading

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """Reads a range once. Planned in one process, read in others."""

    def __init__(self, reading: Reading, schema: StructType) -> None:
        self._reading = reading
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Cut what is there now into tasks."""
        reading = self._reading
        with open_place(reading) as place:
            chosen = choose(place, reading)
            after = self._after(place, chosen)
            through = self._through(place, chosen)
            return cut(place, chosen, reading, after, max(after, through))

    def _after(self, place: Place, chosen: Chosen) -> int:
        reading = self._reading
        if reading.since_ms is not None:
            return since(place, chosen, reading, reading.since_ms)
        if isinstance(reading.start, int):
            check_start(reading, chosen, reading.start)
            return reading.start
        if reading.start == "latest":
            return chosen.survey.extent.head
        if reading.start == "committed":
            return committed(chosen, reading)
        return 0

    def _through(self, place: Place, chosen: Chosen) -> int:
        reading, head = self._reading, chosen.survey.extent.head
        if reading.until_ms is not None:
            return min(since(place, chosen, reading, reading.until_ms), head)
        return head if reading.end is None else min(reading.end, head)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the rows of one task."""
        return read(self._reading, self._schema, cast("Stretch", partition))


def since(place: Place, chosen: Chosen, reading: Reading, moment_ms: int) -> int:
    """Return the offset after which rows are of a time or later: the head if none is."""
    found = [place.first_since(reading.feed, of, moment_ms) for of in owners(chosen, reading)]
    return min((one - 1 for one in found if one is not None), default=chosen.survey.extent.head)


def committed(chosen: Chosen, reading: Reading) -> int:
    """Return up to where the groups of a query have released what was before, 0 if none is."""
    numbers = held_by(chosen, reading.group)
    return min((chosen.survey.groups[number].floor for number in numbers), default=0)
