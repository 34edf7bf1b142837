"""A program whose JVM is killed under two consumers at work: what it prints is what came of it.

Run by test_jvm_death.py: `python jvm_death.py DATABASE SETTINGS` (JSON). It prints one JSON line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

from embedq import Broker, Delivery
from embedq.events import Notice
from embedq.spark import session

SOON = 120.0


def main(path: str, settings: dict[str, str]) -> None:
    """Kill the JVM while a job of each queue runs in it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    made: list[int] = []

    def factory() -> SparkSession:
        spark = session("jvm-death", master="local[2,4]", **settings)
        gateway = SparkContext._gateway
        assert gateway is not None
        made.append(gateway.proc.pid)
        return spark

    broker = Broker(path)
    lost: list[str] = []

    def note(notice: Notice) -> None:
        lost.append(str(notice.fields["queue"]))

    broker.on("spark_lost", note)
    inside, ends = threading.Barrier(3), threading.Semaphore(0)
    attempts: list[tuple[str, int]] = []
    first = {"a", "b"}

    def handle(body: str, spark: SparkSession, delivery: Delivery[str]) -> None:
        attempts.append((body, delivery.attempt))
        if body in first:
            first.discard(body)
            inside.wait(SOON)
            # In the JVM alone: nothing in Python notices its end but the call that waits.
            spark.range(1 << 60, numPartitions=2).selectExpr("sum(id * id % 7)").collect()
            raise AssertionError("that job ends with its JVM only")
        assert spark.range(10).count() == 10
        ends.release()

    for name in ("a", "b"):
        broker.queue(name, str).consumer(spark=factory)(handle)
    with broker:
        for name in ("a", "b"):
            broker.queue(name, str).put(name)
        inside.wait(SOON)
        os.kill(made[0], signal.SIGKILL)
        for _ in range(2):
            assert ends.acquire(timeout=SOON)
    json.dump(
        {"attempts": sorted(attempts), "lost": sorted(lost), "made": len(set(made))}, sys.stdout
    )


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
