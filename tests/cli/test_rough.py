"""Rough handling: closed streams, folders and devices for files, no rights, names of any bytes."""

import json
import os
import shutil
import sys
from pathlib import Path

import click
import pytest

from embedq.cli.program import COMMANDS, Lazy, program
from embedq.net import auth
from tests import processes

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60

#: What can be said after each command, and what is wrong with it.
WORDS = {
    "put": (["q", "x"], ["q"]),
    "get": (["q"], ["q", "--count", "0"]),
    "peek": (["q"], ["q", "--after", "x"]),
    "queues": ([], ["q"]),
    "stats": (["q"], ["nobody"]),
    "dead list": (["q"], ["q", "--reason", "bored"]),
    "dead show": (["q", "ID"], ["q", "0" * 32]),
    "dead redrive": (["q", "--all"], ["q"]),
    "dead purge": (["q", "--all", "--yes"], ["q", "--all"]),
    "pause": (["q"], ["nobody"]),
    "resume": (["q"], ["nobody"]),
    "purge": (["q", "--yes"], ["q"]),
    "doctor": ([], ["--what"]),
    "check": ([], ["--what"]),
    "backup": (["copy.db"], ["no/copy.db"]),
    "salvage": (["q.db", "new.db"], ["none.db", "new.db"]),
    "keys new": (["ada"], ["a/b"]),
    "keys allow": (["ada", "0" * 64], ["ada", "12"]),
    "keys list": (["--keys", "."], ["--keys", "none", "x"]),
    "users remove": (["users", "anna"], ["users", "nobody"]),
    "config": ([], ["--what"]),
}


def test_every_command_is_handled_here():
    context = click.Context(program)
    groups = {name: program.get_command(context, name) for name in COMMANDS}
    names = {name for name, command in groups.items() if not isinstance(command, Lazy)}
    for group, command in groups.items():
        if isinstance(command, Lazy):
            names |= {f"{group} {name}" for name in command.table}
    # They print lines until a signal, or ask for a password: tests of their own.
    others = {"dev", "run", "worker", "serve", "users add"}
    # These start Spark: test_pipelines.py here, and tests/spark/test_cli.py.
    others |= {f"pipeline {name}" for name in "archive report triage redrive replay".split()}
    assert set(WORDS) == names - others


@pytest.mark.parametrize("command", WORDS)
def test_with_json_all_output_is_json_and_so_is_every_error(embedq, command):
    embedq.bury("q", "\x1b[2J\u202e漢".encode(), b"\xff\x00")
    embedq.ok("put", "q", "alive")
    letter = embedq.json("dead", "list", "q")["letters"][0]["id"]
    if command == "users remove":
        auth.change_user(embedq.db.parent / "users", "anna", b"x")
    good, bad = WORDS[command]
    told = embedq(*command.split(), *[letter if word == "ID" else word for word in good], "--json")
    assert told.exit_code == 0, told.output
    assert told.stderr == ""
    assert told.stdout.isascii()
    assert isinstance(json.loads(told.stdout), dict)
    refused = embedq(*command.split(), *bad, "--json")
    assert refused.exit_code in {1, 2}
    assert refused.stdout == ""
    assert {"code", "message"} <= set(json.loads(refused.stderr)["error"])


def test_no_command_at_all_is_json_too(embedq):
    for words in (["--json"], ["--json", "dead"]):
        refused = embedq(*words)
        assert refused.exit_code == 2
        assert json.loads(refused.stderr)["error"]["code"] == "usage"


def test_a_mistyped_command_is_answered_with_the_likely_one(embedq):
    assert "did you mean 'queues'?" in embedq("queus").stderr
    assert "did you mean 'redrive'?" in embedq("dead", "redriv").stderr
    assert "did you mean" not in embedq("frobnicate").stderr


def test_an_empty_answer_of_a_paused_queue_says_that_it_is_paused(embedq):
    embedq.ok("put", "q", "x")
    embedq.ok("pause", "q")
    code, error = embedq.error("get", "q")
    assert (code, error["code"]) == (1, "empty")
    assert "embedq resume q" in error["hint"]


def test_commands_in_hints_can_be_copied_whatever_the_name(embedq):
    embedq.ok("put", "my queue; $x", "y")
    embedq.ok("pause", "my queue; $x")
    assert "embedq resume 'my queue; $x'" in embedq.ok("doctor")
    assert "embedq resume 'my queue; $x'" in embedq("get", "my queue; $x").stderr


# ------------------------------------------------------------------------------- places


@pytest.mark.parametrize(
    ("db", "said"),
    [("folder", "is a folder"), ("/dev/null", "is not a file"), (":memory:", "in memory")],
)
def test_what_is_no_file_is_named_as_what_it_is(embedq, tmp_path, db, said):
    (tmp_path / "folder").mkdir()
    for command in (["queues"], ["get", "q"], ["put", "q", "x"], ["doctor"], ["check"]):
        code, error = embedq.error(*command, "--db", db)
        assert code == 2, command
        assert said in error["message"] or "not a regular file" in error["message"]
        assert "put a message" not in error["hint"]


def test_names_of_any_bytes_name_a_database(embedq, tmp_path):
    db = os.fsdecode(os.fsencode(tmp_path) + b"/\xff %?#.db")
    embedq.ok("put", "q", "x", "--db", db)
    for command in (["queues"], ["peek", "q"], ["doctor"], ["check"], ["config"]):
        told = embedq(*command, "--db", db, "--json")
        assert told.exit_code == 0, (command, told.output)
        json.loads(told.stdout)
        assert embedq(*command, "--db", db).exit_code == 0
    embedq.ok("backup", db + ".copy", "--db", db)
    embedq.ok("salvage", db, db + ".new")
    assert embedq.ok("get", "q", "--db", db + ".copy") == "x"
    assert embedq.ok("get", "q", "--db", db + ".new") == "x"


@pytest.fixture
def powerless(tmp_path):
    """Run a command as a user whom permissions stop: root is stopped by none."""
    tool = shutil.which("setpriv")
    if os.geteuid() == 0 and tool is None:
        pytest.skip("only on machines where setpriv can take the powers of root away")
    less = "--bounding-set=-dac_override,-dac_read_search"
    prefix = [str(tool), less] if os.geteuid() == 0 else []
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EMBEDQ_")}

    def run(*args):
        return processes.run(
            [*prefix, sys.executable, "-m", "embedq", *args],
            env={**kept, "PYTHONPATH": str(ROOT), "EMBEDQ_PATH": str(tmp_path / "in" / "q.db")},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )

    (tmp_path / "in").mkdir(mode=0o700)
    assert run("put", "q", "x").returncode == 0
    yield run
    (tmp_path / "in").chmod(0o700)


def test_in_a_read_only_folder_everything_that_looks_works(powerless, tmp_path):
    (tmp_path / "in").chmod(0o500)
    for command in (["queues"], ["peek", "q"], ["check"], ["backup", "copy.db"]):
        done = powerless(*command)
        assert done.returncode == 0, (command, done.stderr)
    assert "cannot write the folder" in powerless("doctor").stdout
    done = powerless("put", "q", "y")
    assert done.returncode == 4
    assert "cannot be written" in done.stderr
    assert f"write the folder {tmp_path / 'in'}" in done.stderr


def test_a_read_only_file_is_a_finding(powerless, tmp_path):
    (tmp_path / "in" / "q.db").chmod(0o400)
    assert "has mode 0400: no host can write it" in powerless("doctor").stdout


def test_a_folder_that_may_not_be_searched_is_not_an_absent_file(powerless, tmp_path):
    (tmp_path / "in").chmod(0)
    for command in (["queues"], ["get", "q"], ["doctor"]):
        done = powerless(*command)
        assert done.returncode == 2, done.stderr
        assert "Permission denied" in done.stderr
        assert "no database file" not in done.stderr


# ------------------------------------------------------------------------------ streams


def shell(tmp_path, line):
    """Run a line of shell in which `$E` is the program; bash can close streams."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EMBEDQ_")}
    return processes.run(
        ["bash", "-c", line],
        env={
            **kept,
            "PYTHONPATH": str(ROOT),
            "EMBEDQ_PATH": str(tmp_path / "q.db"),
            "E": f"{sys.executable} -m embedq",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


@pytest.mark.parametrize("more", ["", " --lines"])
def test_a_closed_standard_input_is_usage(tmp_path, more):
    done = shell(tmp_path, f"$E put q -{more} <&-")
    assert done.returncode == 2, done.stderr
    assert "standard input is closed" in done.stderr
    assert not (tmp_path / "q.db").exists()


def test_a_closed_standard_output_is_an_error_and_a_message_is_given_back(tmp_path):
    assert shell(tmp_path, "$E put q x").returncode == 0
    for command in ("get q", "get q --json", "queues", "queues --json", "doctor"):
        done = shell(tmp_path, f"$E {command} >&-")
        assert done.returncode == 7, (command, done.stderr)
        assert "the output cannot be written" in done.stderr
    assert shell(tmp_path, "$E get q").stdout == "x"


def test_a_closed_standard_error_takes_nothing_away(tmp_path):
    assert shell(tmp_path, "$E put q x 2>&-").returncode == 0
    assert shell(tmp_path, "$E get nobody 2>&-").returncode == 1
    assert shell(tmp_path, "$E purge q --yes 2>&-").returncode == 0
