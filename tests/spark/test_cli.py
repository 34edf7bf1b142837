"""`embedq pipeline`: what each command prints and leaves, in the session that the tests share."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from embedq.broker.host import open_engine
from embedq.cli.program import program
from embedq.message import ErrorInfo
from embedq.policy import QueuePolicy
from tests.processes import PATIENCE_S, patience

ROOT = Path(__file__).parents[2]
FRAME = 'File "/srv/app.py", line 7, in ship\n'


@pytest.fixture
def pipeline(spark, tmp_path, monkeypatch):
    """Run a pipeline on a file with two queues: three messages acked, two dead, one waiting."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMBEDQ_PATH", "q.db")
    with open_engine(tmp_path / "q.db", upkeep=False) as desk:
        desk.queue("a, b", QueuePolicy(retain_ms=86_400_000))
        queue = desk.queue("orders", QueuePolicy(retain_ms=86_400_000))
        desk.put_many(queue, [b"%d" % n for n in range(6)])
        for n, lease in enumerate(desk.claim(desk.group(queue), 5)):
            if n < 3:
                desk.ack(lease)
            else:
                desk.reject(lease, "no", ErrorInfo("ValueError", f"order {n} \x1b[2J", FRAME))

    def run(*words: str, code: int = 0):
        done = CliRunner().invoke(program, ["pipeline", *words], prog_name="embedq")
        assert done.exit_code == code, (done.output, done.exception)
        assert done.stderr == "" or code
        return json.loads(done.stdout) if "--json" in words else done.stdout

    return run


def test_an_archive_is_written_once_and_reported_on(pipeline):
    assert pipeline("archive", "--to", "archive") == "5 new rows in archive/history\n"
    told = pipeline("archive", "--to", "archive", "--include", "history", "--json")
    assert told["written"] == {"history": {"batches": 0, "rows": 0}}
    told = pipeline("report", "--from", "archive", "--to", "report", "--title", "Ours", "--json")
    assert told["deliveries"] == 5
    assert "<title>Ours" in Path(told["page"]).read_text(encoding="utf-8")


def test_causes_are_listed_copied_and_put_again(pipeline):
    listed = pipeline("triage")
    assert "ValueError: order 3 \\x1b[2J" in listed
    (cause,) = pipeline("triage", "orders", "--json")["causes"]
    assert (cause["letters"], cause["place"], len(cause["ids"])) == (2, "app:ship", 2)
    mark = ["--fingerprint", cause["fingerprint"]]
    told = pipeline("replay", "orders", "--to", "again", *mark, "--json")
    assert (told["queue"], told["found"], told["put"]) == ("again", 2, 2)
    assert pipeline("redrive", "orders", *mark) == "2 dead letters put again into orders\n"
    assert pipeline("redrive", "orders", *mark, "--json", code=1)["redriven"] == 0
    assert pipeline("triage", "a, b") == "no dead letters\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_command_and_the_spark_it_was_starting(tmp_path, number, code):
    """A Spark that never comes up; it ends with its standard input, as the real one does."""
    with open_engine(tmp_path / "q.db", upkeep=False) as desk:
        desk.queue("orders")
    program = tmp_path / "home" / "bin" / "spark-submit"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho noise >&2\n: > "$STARTED"\nexec cat > /dev/null\n')
    program.chmod(0o755)
    started = tmp_path / "started"
    environment = {"SPARK_HOME": str(tmp_path / "home"), "STARTED": str(started)}
    command = [
        sys.executable,
        "-m",
        "embedq",
        "--db",
        str(tmp_path / "q.db"),
        "pipeline",
        "triage",
    ]
    with (
        subprocess.Popen(
            command,
            env={**os.environ, **environment},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process,
        patience(process),
    ):
        while not started.exists() and process.poll() is None:
            time.sleep(0.02)
        os.killpg(process.pid, number)
        said, trouble = process.communicate()
    assert (process.returncode, said, trouble.strip()) == (code, "", "")
    assert_gone(process.pid)


def assert_gone(group: int) -> None:
    """Wait until no process of a group is left."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    raise AssertionError("something is still running")
