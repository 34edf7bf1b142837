"""The benchmark of Spark: its rows name cells that are measured, its meter sees what is burnt."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

import bench
import bench_spark
from bench_figures import Figure, Row, Value
from bench_run import Options
from embedq.errors import MissingExtra

CELLS = {
    bench_spark.PATH7,
    bench_spark.PATH2,
    bench_spark.PATH11,
    bench_spark.BARE2,
    bench_spark.HOST7,
    bench_spark.PARQUET,
    bench_spark.RAW,
    bench_spark.DIRECT,
    bench_spark.ATOMIC,
    bench_spark.CLIENT,
}


def test_every_row_compares_two_cells_that_are_measured():
    for row in bench_spark.ROWS:
        assert {row.cell, row.against} <= CELLS
        assert row.key in bench_spark.KEYS


def test_the_goals_are_those_that_were_promised():
    goals = {row.title: row.goal for row in bench_spark.ROWS if row.goal}
    assert goals == {
        "read by path / Parquet": 0.35,
        "read by path / sqlite3 to Arrow": 0.75,
        "read by endpoint / by path": 0.7,
        "2 columns / 7 columns": 1.5,
        "direct write / bulk put of a client": 0.5,
        "atomic / direct write": 0.7,
    }


def test_the_report_has_every_row_and_says_which_goal_is_missed(tmp_path):
    run = bench_spark.SparkRun(bench_spark.QUICK, bench_spark.KEYS, tmp_path)
    run.look_at_machine(1)
    run.look_at_machine(1)
    run.results = {name: [Figure(1000.0, 5.0)] for name in CELLS}
    run.values = [Value("pipelines", "archive, 20,000 deliveries", "3 s")]
    text = run.report()
    for row in bench_spark.ROWS:
        assert row.title in text
    assert "**no**" in text  # 2 columns are no quicker than 7 here
    assert "20,000 messages" in text
    assert re.search(r"archive, 20,000 deliveries \|\s+3 s \|", text)


def test_without_pyspark_it_says_what_to_install(monkeypatch, tmp_path):
    def missing(*packages: str) -> None:
        raise MissingExtra(f"embedq.spark needs {packages[0]}")

    monkeypatch.setattr("embedq.spark.needs.need", missing)
    with pytest.raises(SystemExit, match="needs pyspark"):
        bench_spark.measure(Options(bench_spark.KEYS, tmp_path, quick=True), print)


def test_the_command_line_knows_it():
    assert bench.BENCHMARKS["spark"] is bench_spark.SPARK
    assert isinstance(bench_spark.ROWS[0], Row)


@pytest.mark.spark
def test_the_self_test_sees_time_that_is_burnt():
    assert bench_spark.meter_test(rounds=1).seen


def test_the_row_of_cancellations_is_judged_by_the_slowest():
    from bench_spark_cancel import cancel_value

    good, bad = cancel_value([0.2, 0.1, 1.0]), cancel_value([0.1, 0.1, 1.01])
    assert (good.reached, bad.reached) == (True, False)
    assert good.text == "p50 0.20 s, max 1.00 s of 3 requests"
    assert good.key in bench_spark.KEYS


def burn(seconds: float) -> list[str]:
    code = f"import time\nwhile time.process_time() < {seconds}: pass"
    return [sys.executable, "-c", code]


@pytest.mark.spark
def test_the_meter_counts_processes_that_have_ended():
    from bench_spark_processes import Meter

    meter = Meter()
    before = meter.seconds()
    subprocess.run(burn(0.3), check=True, timeout=120)
    assert meter.seconds() - before >= 0.25


@pytest.mark.spark
def test_the_meter_never_runs_backwards_when_a_parent_ignores_its_children_ends():
    from bench_spark_processes import Meter

    # Its child burns, says so, and ends when it is told to; nobody gets its CPU then.
    child = "import time, sys\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    code = (
        "import signal, subprocess, sys\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        f"one = subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        "one.wait()\nprint('gone', flush=True)\nsys.stdin.read()"
    )
    meter = Meter()
    before = meter.seconds()
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdout.readline()
        burnt = meter.seconds()
        parent.stdin.write(b"\n")
        parent.stdin.flush()
        assert parent.stdout.readline() == b"gone\n"
        assert meter.seconds() >= burnt >= before + 0.25
        parent.stdin.close()


@pytest.mark.spark
def test_memory_that_a_process_below_takes_is_seen():
    from bench_spark_processes import memory_of_tree

    before = memory_of_tree()
    code = 'taken = b"x" * (1 << 26)\nprint(flush=True)\ninput()'
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert memory_of_tree() - before >= 1 << 26
        child.communicate(b"\n", 60)


@pytest.mark.spark
def test_the_history_of_the_pipelines_has_a_failure_in_twenty(tmp_path):
    from bench_spark_pipelines import make_history

    make_history(tmp_path / "q.db", 2_000)
    with closing(sqlite3.connect(tmp_path / "q.db")) as connection:
        rows = connection.execute("SELECT count(*), count(error) FROM delivery").fetchone()
    assert rows == (2_000, 100)
