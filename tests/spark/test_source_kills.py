"""Exactly once, whoever is killed: by Spark's reading, and by anybody's of an archive's folders.

One kill of everything at once by default; EMBEDQ_TEST_LONG=1 kills each party at random points.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import processes
from tests.spark import endless
from tests.spark.patience import finished

ROOT = Path(endless.__file__).parents[2]
MESSAGES = 3_000
LONG = os.environ.get("EMBEDQ_TEST_LONG") == "1"
#: Who is killed, one after the other, and a seed for when.
STORIES: list[tuple[tuple[str, ...], int]] = [(("both", "host"), 1)]
if LONG:
    STORIES += [(("driver",), 2), (("jvm",), 3), (("host",), 4), (("both",), 5), (("jvm",), 6)]


class Stage:
    """The processes of a story: a host, and a program that streams."""

    def __init__(self, folder: Path, settings: dict[str, str], java: str) -> None:
        self.path = str(folder / "q.db")
        self.folder = folder
        self._settings = settings
        self._env = {**os.environ, "JAVA_HOME": java}
        self._started: list[subprocess.Popen[str]] = []
        self.jvm = 0

    def _start(self, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.endless", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=self._env,
            cwd=ROOT,
        )
        self._started.append(process)
        return process

    def host(self) -> subprocess.Popen[str]:
        """Start the host and wait until everything is put."""
        host = self._start("host", self.path, str(MESSAGES))
        assert processes.line_of(host, 120) == "hosted\n"
        return host

    def stream(self) -> subprocess.Popen[str]:
        """Start the stream and wait for its JVM."""
        stream = self._start("stream", self.path, str(self.folder), json.dumps(self._settings))
        self.jvm = int(processes.line_of(stream, 180))
        return stream

    def end(self) -> None:
        """Kill what is left, and wait until no JVM writes any more."""
        for process in self._started:
            processes.kill(process)
            process.communicate()
        wait_for_end(self.jvm)


def wait_for_end(pid: int) -> None:
    """Wait until a process is gone: a JVM whose driver was killed ends its jobs first."""
    until = time.monotonic() + processes.PATIENCE_S
    while pid and time.monotonic() < until and Path(f"/proc/{pid}").exists():
        time.sleep(0.05)


@pytest.mark.reliability
@pytest.mark.timeout(900)  # two JVMs start, on a machine that may be busy
@pytest.mark.parametrize(("killed", "seed"), STORIES)
def test_every_message_is_in_the_files_once_after_a_kill(
    spark, spark_settings, spark_java, tmp_path, killed, seed
):
    chance = random.Random(seed)
    stage = Stage(tmp_path, spark_settings, spark_java)
    with ExitStack() as stack:
        stack.callback(stage.end)
        host, stream = stage.host(), stage.stream()
        for _ in range(chance.randrange(3, 9)):
            assert processes.line_of(stream, 180)
        if LONG:
            threading.Event().wait(
                chance.random()
            )  # somewhere within a batch; else at its beginning
        if "host" in killed:
            os.kill(host.pid, signal.SIGKILL)
            host.communicate()
        if "driver" in killed or "both" in killed:
            os.kill(stream.pid, signal.SIGKILL)
        if "jvm" in killed or "both" in killed:
            os.kill(stage.jvm, signal.SIGKILL)
        if "host" in killed:
            host = stage.host()
        if killed == ("host",):  # the stream goes on, and is killed later
            for _ in range(3):
                assert processes.line_of(stream, 180)
        processes.kill(stream)
        stream.communicate()
        wait_for_end(stage.jvm)
        before = spark.read.parquet(str(tmp_path / "sink")).count()
        assert 0 < before < MESSAGES  # it was killed within its work
        for name in endless.QUERIES:
            finished(endless.writer_of(spark, name, stage.path, tmp_path, ends=True).start)
        check(spark, tmp_path)


def check(spark, folder: Path) -> None:
    """See that each message is there once, for Spark and for others."""
    import pyarrow.dataset as ds

    expected = list(range(1, MESSAGES + 1))
    by_spark = spark.read.parquet(str(folder / "sink")).select("seq").collect()
    assert sorted(row.seq for row in by_spark) == expected
    table = ds.dataset(str(folder / "archive"), format="parquet").to_table(["seq", "body"])
    assert sorted(table.column("seq").to_pylist()) == expected
    assert sorted(map(int, table.column("body").to_pylist())) == list(range(MESSAGES))


def test_the_check_sees_a_batch_that_was_written_twice_and_one_that_is_missing(spark, tmp_path):
    frame = spark.range(1, MESSAGES + 1).selectExpr(
        "id as seq", "CAST(CAST(id - 1 AS STRING) AS BINARY) AS body"
    )
    frame.write.parquet(str(tmp_path / "sink"))
    frame.write.parquet(str(tmp_path / "archive" / "batch=00000000"))
    check(spark, tmp_path)
    frame.limit(10).write.parquet(str(tmp_path / "archive" / "batch=00000001"))
    with pytest.raises(AssertionError):
        check(spark, tmp_path)
    frame.where("seq > 1").write.mode("overwrite").parquet(str(tmp_path / "sink"))
    with pytest.raises(AssertionError):
        check(spark, tmp_path)
