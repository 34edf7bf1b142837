"""The gate lets nothing through: each rule it relies on catches a planted fault."""

import shutil
import sys
from pathlib import Path

import pytest

import check
import dev
from check import Result, Step
from tests import processes

ROOT = check.ROOT


def test_every_script_and_program_of_the_gate_exists() -> None:
    for step in check.STEPS:
        for word in step.command:
            if word.startswith(("tools/", "/")):
                assert (ROOT / word).exists(), f"{step.name}: {word}"


def test_a_failing_step_shows_its_output_and_how_to_mend_it(capsys) -> None:
    step = Step("toy", (sys.executable, "-c", "print('it hurts here'); raise SystemExit(3)"), "x")
    result = check.perform(step, show=False)
    assert result.code == 3
    assert "it hurts here" in capsys.readouterr().out
    passed = Result(Step("fine", (), "y"), 0, 0.1)
    first, second = check.table([passed, result]).splitlines()
    assert "ok" in first
    assert "mend" not in first
    assert "FAILED" in second
    assert "mend: x" in second


def test_a_passing_step_is_quiet_and_a_missing_program_fails(capsys) -> None:
    quiet = Step("toy", (sys.executable, "-c", "print('noise')"), "x")
    assert check.perform(quiet, show=False).code == 0
    assert capsys.readouterr().out == ""
    assert check.perform(Step("toy", ("/no/such/program",), "x"), show=False).code == 127


def test_one_failure_fails_the_gate(monkeypatch, capsys) -> None:
    good = Step("good", (sys.executable, "-c", ""), "")
    bad = Step("bad", (sys.executable, "-c", "raise SystemExit(1)"), "")
    monkeypatch.setattr(check, "STEPS", (bad, good))
    assert check.main(["--fast"]) == 1
    assert "good       ok" in capsys.readouterr().out
    assert check.main(["--fast", "good"]) == 0


#: Ends once both files are there, of which it makes one.
MEETS = """
import pathlib, sys, time
mine, other = map(pathlib.Path, sys.argv[1:])
mine.touch()
until = time.monotonic() + 60
while not other.exists():
    assert time.monotonic() < until
    time.sleep(0.02)
"""


def test_steps_run_beside_the_longest_one(monkeypatch, tmp_path: Path, capsys) -> None:
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    first = Step("first", (sys.executable, "-c", MEETS, one, two), "")
    last = Step("last", (sys.executable, "-c", MEETS, two, one), "")
    monkeypatch.setattr(check, "STEPS", (first, last))
    assert check.main(["--fast"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["first", "last"]


def test_ci_runs_the_gate_and_then_the_tests_last() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    commands = [line for line in script.read_text().splitlines() if "tools/dev.py" in line]
    assert [line.split("tools/dev.py ")[1].split()[0] for line in commands] == [
        "check",
        "older-client",
        "test",
    ]
    assert script.read_text().rstrip().splitlines()[-1] == commands[-1]
    assert {"check", "test"} <= set(dev.COMMANDS)


@pytest.mark.parametrize(
    ("path", "source", "rule"),
    [
        ("embedq/payload.py", "import pickle\n", "TID251"),
        ("embedq/broker/put.py", "import time\n\nNOW = time.time()\n", "TID251"),
        ("tests/domain/test_x.py", "import transports\n", None),
        ("embedq/net/listener.py", "import transports.embedq_transports\n", "TID251"),
        ("embedq/storage/x.py", "def f(a, b, c, d, e, f, g):\n    pass\n", "PLR0917"),
        ("embedq/broker/x.py", "X = 1  # TODO: finish\n", "FIX002"),
        ("embedq/broker/x.py", "try:\n    X = 1\nexcept Exception:\n    pass\n", "S110"),
    ],
)
def test_ruff_knows_our_rules(path: str, source: str, rule: str | None) -> None:
    ruff = [sys.executable, "-m", "ruff", "check", "--output-format=concise", "--no-cache"]
    done = processes.run(
        [*ruff, "--stdin-filename", path, "-"],
        cwd=ROOT,
        input=source,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    found = f" {rule} " in done.stdout if rule else "TID251" not in done.stdout
    assert found, done.stdout


@pytest.mark.parametrize(
    ("path", "planted"),
    [
        ("embedq/names.py", "import embedq.storage\n"),
        ("embedq/errors.py", "import embedq.clock\n"),
        ("embedq/surplus.py", '"""A module that no layer names."""\n'),
        ("embedq/storage/__init__.py", "import embedq_transports\n"),
        ("embedq/app/queue.py", "import embedq.spark\n"),
        ("embedq/broker/host.py", "import pyarrow\n"),
        ("transports/embedq_transports/__init__.py", "import sqlite3\n"),
        ("transports/embedq_transports/tmq/wire.py", "import asyncio\n"),
        ("transports/embedq_transports/tmq/answers.py", "import time\n"),
    ],
)
def test_an_import_that_points_up_is_caught(tmp_path: Path, path: str, planted: str) -> None:
    for name in ("embedq", "pyspark_embedq", "transports"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.pyc"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "embedq" / "storage").mkdir(exist_ok=True)
    (tmp_path / "embedq" / "storage" / "__init__.py").touch()
    target = tmp_path / path
    target.touch()
    target.write_text(target.read_text() + planted)
    done = processes.run(
        [str(check.BIN / "lint-imports"), "--no-cache"],
        cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": f"{tmp_path}:{tmp_path / 'transports'}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "BROKEN" in done.stdout
