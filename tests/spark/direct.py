"""Readers and writers called as Spark calls them, in its order, but in this process: no JVM.

Knows: how a source and a sink are made from options, that a reading is planned and then done.
Does not know: what is read or written. A query through Spark costs seconds of CPU, this does not.
"""

from __future__ import annotations

from typing import Any


def schema_of(feed: str, columns: str) -> Any:
    """Return the schema that names some columns of a feed."""
    from pyspark.sql.types import StructType

    from embedq.spark import columns as known

    every = known.schema_of(feed)  # type: ignore[arg-type]
    return StructType([every[name] for name in columns.split()])


def stream_of(options: dict[str, Any], columns: str = "seq") -> Any:
    """Return the reader of a stream."""
    from embedq.spark.reading import parse
    from embedq.spark.streaming import StreamReader

    reading = parse({name: str(value) for name, value in options.items()})
    return StreamReader(reading, schema_of(reading.feed, columns))


def batch_of(options: dict[str, Any], columns: str = "seq") -> Any:
    """Return the reader of a batch."""
    from embedq.spark.batch import BatchReader
    from embedq.spark.reading import parse

    reading = parse({name: str(value) for name, value in options.items()})
    return BatchReader(reading, schema_of(reading.feed, columns))


def rows_of(reader: Any, parts: list[Any]) -> list[dict[str, Any]]:
    """Return what the tasks of a plan read, in their order."""
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def read(options: dict[str, Any], columns: str = "seq") -> list[dict[str, Any]]:
    """Plan a batch and read it."""
    reader = batch_of(options, columns)
    return rows_of(reader, reader.partitions())


def seqs(reader: Any, parts: list[Any]) -> list[int]:
    """Return the seqs that the tasks of a plan read."""
    return sorted(row["seq"] for row in rows_of(reader, parts))


def writer_of(options: dict[str, Any]) -> Any:
    """Return the writer of a batch of bodies, as its tasks and its commit get it."""
    from pyspark.sql.types import BinaryType, StructType

    from embedq.spark.sink import BatchWriter
    from embedq.spark.writing import parse

    given = {name: str(value) for name, value in options.items()}
    schema = StructType().add("body", BinaryType())
    return BatchWriter(parse(given, schema, streams=False, overwrite=False))


def bodies(*values: bytes) -> Any:
    """Return rows as a task gets them."""
    import pyarrow as pa

    return iter([pa.record_batch({"body": pa.array(values, pa.binary())})])
