"""The data source `embedq`: queues as DataFrames.

Knows: the name of the format, and which of its halves reads and which writes.
Does not know: offsets, partitions, the sink.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource


class EmbedqDataSource(DataSource):
    """`spark.read.format("embedq")` and its kin. Spark makes one for each plan."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "embedq"
