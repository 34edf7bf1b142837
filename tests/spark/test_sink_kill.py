"""A batch that was published before its JVM was killed is written again, and adds nothing."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from embedq import Broker
from embedq.broker.desk import Desk
from tests import processes
from tests.spark.patience import finished

PROGRAM = Path(__file__).with_name("sinks.py")
BATCHES, ROWS = 4, 50


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_batch_whose_jvm_died_after_its_publishing_is_repeated_and_adds_nothing(
    tmp_path, spark, spark_settings, spark_java
):
    from tests.spark import sinks

    source = tmp_path / "in"
    source.mkdir()
    for batch in range(BATCHES):
        lines = "".join(f"{batch}-{row}\n" for row in range(ROWS))
        (source / f"{batch}.txt").write_text(lines)
        os.utime(source / f"{batch}.txt", (batch, batch))  # the stream reads the oldest first
    broker = Broker(tmp_path / "q.db")
    queue = broker.queue("orders", str)
    with broker:
        queue.put("before")
        died = processes.run(
            [sys.executable, str(PROGRAM), str(tmp_path), json.dumps(spark_settings)],
            env={
                **os.environ,
                "JAVA_HOME": spark_java,
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": str(PROGRAM.parents[2]),
            },
            capture_output=True,
            text=True,
            timeout=400,
        )
        assert died.returncode != 0
        assert notes(tmp_path) == [[0, False, ROWS], [1, False, ROWS]], died.stderr[-3000:]
        # The repetition that follows is real: Spark has no record of the batch.
        assert sorted(path.name for path in commits(tmp_path)) == ["0"]
        assert queue.stats().stored == 1 + 2 * ROWS

        finished(lambda: sinks.stream(spark, tmp_path))
        told = notes(tmp_path)[2:]
        assert told == [[1, True, 0], [2, False, ROWS], [3, False, ROWS]]
        bodies = [message.body for message in queue.peek(1000)]
        wanted = [f"{batch}-{row}" for batch in range(BATCHES) for row in range(ROWS)]
        assert sorted(bodies) == sorted(body.encode() for body in ["before", *wanted])
        assert isinstance(broker.desk, Desk)
        assert broker.desk.store.staged() == []


def notes(folder: Path) -> list[list[object]]:
    return [json.loads(line) for line in (folder / "notes").read_text().splitlines()]


def commits(folder: Path) -> list[Path]:
    return [path for path in (folder / "checkpoint" / "commits").iterdir() if path.suffix == ""]
