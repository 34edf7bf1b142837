"""A queue and a cluster: executors of their own write to it and read from it over tcp://, by key.

Knows: how a driver that hosts the queue and a cluster on this machine are made.
Does not know: what is to come of it.

Run by test_cluster.py: `python -m tests.spark.cluster FOLDER SETTINGS` (JSON) prints what it saw.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from embedq import Broker
from embedq.ipc import keys
from embedq.spark.pipelines.archiving import TOO_LATE
from tests.ipc.abroad import free_port, make_keys

ROWS = 4_000
RESULTS = 300
TURNS = 8
MASTER = "local-cluster[2,1,1024]"


def look(spark: Any, options: dict[str, str]) -> dict[str, object]:
    """Write rows from the executors, and read them there."""
    rows = spark.range(0, ROWS, 1, 4).selectExpr("CAST(id AS STRING) AS body")
    rows.write.format("embedq").mode("append").options(**options).save()
    found = spark.read.format("embedq").schema("seq long, body binary").options(**options)
    read = found.option("maxRecordsPerPartition", 1_000).load()
    bodies = {int(bytes(row.body)) for row in read.collect()}
    parents = spark.sparkContext.range(0, 40, 1, 4).map(lambda _: os.getppid()).distinct()
    return {
        "written": len(bodies),
        "whole": bodies == set(range(ROWS)),
        "tasks": read.rdd.getNumPartitions(),
        "executors": sorted(parents.collect()),
    }


def flow(spark: Any, options: dict[str, str], folder: Path) -> int:
    """Stream results into Parquet, as examples/spark_pipeline.py does; return how many are there.

    Again where Spark was too impatient: a query that is started again goes on where it was.
    """
    from pyspark.errors import StreamingQueryException

    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    to_parquet = importlib.import_module("spark_pipeline_lake").to_parquet

    for turn in range(TURNS, 0, -1):
        try:
            rows: int = to_parquet(spark, options, folder).where("functions = 1").count()
        except StreamingQueryException as error:
            if TOO_LATE not in str(error) or turn == 1:
                raise
        else:
            return rows
    raise AssertionError("unreachable")


def refused(spark: Any, options: dict[str, str]) -> str:
    """Return what reading with these options fails with."""
    try:
        spark.read.format("embedq").options(**options).load().collect()
    except Exception as error:  # noqa: BLE001 - whatever it is, its text is looked at
        return str(error)
    return ""


def main(folder: Path, settings: dict[str, str]) -> None:
    """Host a queue, start a cluster, print what came of it."""
    from embedq.spark import session

    made = make_keys(folder / "keys", "executors")
    keys.new_pair(made, "stranger")
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    with Broker(folder / "q.db", endpoint=endpoint, keys=made, role="host") as broker:
        queue = broker.queue("orders")
        abroad = {"endpoint": endpoint, "keys": made / "executors.secret", "path": None}
        options = queue.spark_options(**abroad)
        spark = session("cluster", master=MASTER, **settings)
        try:
            told = look(spark, options)
            results = broker.queue("results", dict, retain="1d")
            results.put_many([{"file": str(n), "functions": 1} for n in range(RESULTS)])
            given = results.spark_options(startingOffsets="earliest", **abroad)
            told["flowed"] = flow(spark, given, folder / "lake")
            told["stored"] = queue.stats().stored
            told["stranger"] = refused(spark, {**options, "keys": str(made / "stranger.secret")})
            told["elsewhere"] = refused(
                spark, {"path": str(folder / "not-there" / "q.db"), "subscribe": "orders"}
            )
        finally:
            spark.stop()
    sys.stdout.write(f"{json.dumps(told)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
