"""Long Spark jobs as messages: retried, cancelled and dead-lettered like anything else."""

import logging
import tempfile
import threading
from pathlib import Path

from pyspark.sql import SparkSession

from embedq import Broker, Delivery
from embedq.spark import session

logging.getLogger("embedq").setLevel(logging.ERROR)
home = Path(tempfile.mkdtemp())
broker = Broker(home / "jobs.db")
reports = broker.queue("reports", dict)
ended = threading.Semaphore(0)
broker.on("dead", lambda _: ended.release())


def start_spark() -> SparkSession:
    """Return the session; called again if its JVM dies, which costs no message an attempt."""
    return session("reports", master="local[2,4]")


@reports.consumer(spark=start_spark, concurrency=2, timeout="10m")
def report(order: dict, spark: SparkSession, delivery: Delivery) -> None:
    """Write one report. Its folder is named by the message: a second attempt overwrites it."""
    table = spark.sql(order["query"])
    table.write.mode("overwrite").parquet(str(home / "reports" / delivery.id))
    delivery.ack()
    ended.release()


with broker:
    good = reports.put({"query": "SELECT id % 3 AS shop, count(*) AS n FROM range(99) GROUP BY 1"})
    bad = reports.put({"query": "SELECT shop FROM orders_of_nobody"})
    for _ in range(2):
        ended.acquire(timeout=300)
    table = start_spark().read.parquet(str(home / "reports" / good.id))
    print("report:", sorted((row.shop, row.n) for row in table.collect()))
    (letter,) = reports.dead.list()
    print("dead:", letter.id == bad.id, "after", len(letter.attempts), "attempt")
    print(" ", letter.detail.partition(". ")[0])
