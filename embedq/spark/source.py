"""The data source `embedq`: queues as DataFrames.

Knows: the name of the format, which of its halves reads and which writes, its schema.
Does not know: offsets, partitions, the sink.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from embedq.spark.columns import check_schema, schema_of
from embedq.spark.reading import parse

if TYPE_CHECKING:
    from embedq.spark.batch import BatchReader
    from embedq.spark.sink import BatchWriter, StreamWriter
    from embedq.spark.streaming import StreamReader


class EmbedqDataSource(DataSource):
    """`spark.read.format("embedq")` and its kin. Spark makes one for each plan."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "embedq"

    def schema(self) -> StructType:
        """Return all columns of what the option `include` names. Raises InvalidOption."""
        return schema_of(parse(self.options).feed)

    def reader(self, schema: StructType) -> BatchReader:
        """Return what reads the columns of a schema, once. Raises InvalidOption."""
        from embedq.spark.batch import BatchReader  # noqa: PLC0415  # the sink needs none of it

        reading = parse(self.options)
        check_schema(reading.feed, schema)
        return BatchReader(reading, schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        """Return what reads the columns of a schema as a stream. Raises InvalidOption."""
        from embedq.spark.streaming import StreamReader  # noqa: PLC0415  # as above

        reading = parse(self.options)
        check_schema(reading.feed, schema)
        return StreamReader(reading, schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: FBT001
        """Return what writes rows of a schema. Raises InvalidOption, InvalidPayload."""
        from embedq.spark import sink, writing  # noqa: PLC0415  # the source needs none of it

        return sink.BatchWriter(
            writing.parse(self.options, schema, streams=False, overwrite=overwrite)
        )

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> StreamWriter:
        """Return what writes rows of a schema batch by batch. Raises as `writer` does."""
        from embedq.spark import sink, writing  # noqa: PLC0415  # as above

        return sink.StreamWriter(
            writing.parse(self.options, schema, streams=True, overwrite=overwrite)
        )
