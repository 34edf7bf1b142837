"""The Spark stream of spark_pipeline.py: what is in a queue of results goes to Parquet."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, functions as f

ROW = "file STRING, functions INT, classes INT"


def to_parquet(spark: SparkSession, options: dict[str, str], folder: Path) -> DataFrame:
    """Write the results that came since the last time, and return all of them.

    Each result is there once, whatever is killed on the way: Spark's checkpoint says how far the
    stream is, and Spark reads only files that a finished batch has written.
    """
    messages = spark.readStream.format("embedq").schema("body BINARY").options(**options).load()
    rows = messages.select(f.from_json(f.col("body").cast("STRING"), ROW).alias("row"))
    query = (
        rows.select("row.*")
        .writeStream.format("parquet")
        .option("path", str(folder / "results"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return spark.read.schema(ROW).parquet(str(folder / "results"))
