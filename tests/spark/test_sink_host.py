"""A host that is killed under a running write, and comes back, is asked again."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import pytest

from embedq import Broker
from embedq.spark import register
from tests import processes

#: A host of its own: it prints a line when it serves.
HOST = """
import sys, threading
from embedq import Broker
from embedq.spark import register
broker = Broker(sys.argv[1])
with broker:
    broker.queue("orders").put("before") if not broker.queue("orders").stats().stored else None
    print("serving", flush=True)
    threading.Event().wait()
"""


@pytest.fixture
def host(tmp_path):
    running: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOST, str(tmp_path / "q.db")]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        processes.lines_until(running[-1], "serving")
        return running[-1]

    yield start
    for process in running:
        processes.kill(process)
        process.communicate()


def wait_for(flag):
    """Return a function for mapInArrow that lets its second partition wait for a file."""

    def run(batches):
        import time
        from pathlib import Path
        from threading import Event

        from pyspark import TaskContext

        yield from batches
        context = TaskContext.get()
        until = time.monotonic() + 300
        waits = context is not None and context.partitionId() == 1
        while waits and not Path(flag).exists():
            if time.monotonic() > until:
                raise TimeoutError
            Event().wait(0.05)

    return run


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["atomic", "direct"])
def test_a_write_goes_on_with_the_host_that_comes_after_the_one_that_was_killed(
    spark, tmp_path, host, mode
):
    path, flag = tmp_path / "q.db", tmp_path / "go"
    first = host()
    rows = spark.range(0, 8_000, 1, 2).selectExpr("cast(id as string) as body")
    rows = rows.mapInArrow(wait_for(str(flag)), "body string")
    options = {"endpoint": str(path), "queue": "orders", "mode": mode}
    failed: list[Exception] = []

    def write() -> None:
        try:
            register(spark)
            rows.write.format("embedq").mode("append").options(**options).save()
        except Exception as error:  # noqa: BLE001  # told at the end
            failed.append(error)

    writing = threading.Thread(target=write)
    writing.start()
    table = "stage" if mode == "atomic" else "msg"
    until, pause = time.monotonic() + 240, threading.Event()
    while count(path, table) < (1 if mode == "atomic" else 4_001):
        assert not failed
        assert time.monotonic() < until
        pause.wait(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    host()
    flag.touch()
    writing.join(300)
    assert not failed
    with Broker(path, role="client") as broker:
        bodies = [int(message.body) for message in broker.queue("orders").peek(10_000)[1:]]
    assert sorted(bodies) == list(range(8_000))
    assert count(path, "stage") == 0


def count(path, table: str) -> int:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
