"""The program as a whole: its table, its help, and how things that go wrong end."""

import io
import json
import re
import shlex
import subprocess

import click
import pytest
from click.testing import CliRunner

from embedq.cli import looking, output
from embedq.cli.exits import MEANINGS
from embedq.cli.output import Progress
from embedq.cli.program import COMMANDS, Lazy, dead, keys, pipeline, program, users, wants_json
from embedq.clock import VirtualClock
from embedq.errors import StoreFull


def commands(group=program, path=()):
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, Lazy):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


ALL = dict(commands())
EXAMPLES = [
    line.strip()
    for command in ALL.values()
    for line in (command.help or "").splitlines()
    # Those of pipelines start Spark: tests/spark/test_cli.py.
    if re.match(r"\s+(embedq (?!pipeline)|printf )", line)
]


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_a_line_of_the_table_is_the_first_sentence_of_the_help(path):
    groups = {"dead": dead, "keys": keys, "pipeline": pipeline, "users": users}
    table = COMMANDS if len(path) == 1 else groups[path[0]].table
    first = (ALL[path].help or "").split("\n\n")[0].replace("\n", " ")
    assert table[path[-1]].help
    assert first.endswith(".")
    assert len(table[path[-1]].help) <= 60


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_takes_json_and_every_option_is_explained(path):
    options = [p for p in ALL[path].params if isinstance(p, click.Option)]
    assert "--json" in {name for option in options for name in option.opts}
    assert all(option.help for option in options)


def test_the_examples_of_the_help_run(embedq, tmp_path):
    assert len(EXAMPLES) >= 5
    for example in EXAMPLES:
        piped, _, command = example.rpartition(" | ")
        data = subprocess.check_output(piped, shell=True) if piped else None
        words = shlex.split(command)
        assert words[0] == "embedq"
        embedq.ok(*words[1:], stdin=data)


def test_the_exit_codes_are_in_the_help(embedq):
    text = " ".join(embedq.ok("--help").split())
    for code, meaning in MEANINGS.items():
        assert f"{int(code)} {meaning}" in text


def test_options_may_stand_before_the_command_or_after_it(embedq):
    embedq.ok("put", "q", "x")
    assert json.loads(embedq.ok("--json", "queues")) is not None
    other = embedq.db.with_name("other.db")
    embedq.ok("put", "other", "x", "--db", str(other))
    assert embedq.json("queues", "--db", str(other))["queues"][0]["name"] == "other"


def test_no_command_and_an_unknown_one_are_usage(embedq):
    nothing = CliRunner().invoke(program, [], prog_name="embedq")
    assert nothing.exit_code == 2
    assert "Usage: embedq" in nothing.stderr
    assert embedq("dead").exit_code == 2
    code, error = embedq.error("frobnicate")
    assert (code, error["code"]) == (2, "usage")
    assert embedq("queues", "--wrong").exit_code == 2


def test_without_a_path_the_error_says_where_one_can_come_from(embedq, monkeypatch, tmp_path):
    found = CliRunner().invoke(program, ["queues"])
    assert found.exit_code == 2
    assert "EMBEDQ_PATH" in found.stderr
    monkeypatch.setenv("EMBEDQ_PATH", str(tmp_path / "a.db"))
    assert "a.db" in CliRunner().invoke(program, ["queues"]).stderr
    monkeypatch.delenv("EMBEDQ_PATH")
    (tmp_path / "pyproject.toml").write_text('[tool.embedq]\npath = "b.db"\n')
    assert "b.db" in CliRunner().invoke(program, ["queues"]).stderr


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (StoreFull("no\x1b room", free_bytes=1), 4, "store_full"),
        (PermissionError(13, "denied", "x"), 7, "io"),
        (output.OutputFailed("no"), 7, "io"),
        (ZeroDivisionError("odd"), 8, "defect"),
        (KeyboardInterrupt(), 130, None),
    ],
)
def test_whatever_goes_wrong_is_one_message_and_a_code(embedq, monkeypatch, error, code, told):
    embedq.ok("put", "q", "x")

    def fail(_asked):
        raise error

    monkeypatch.setattr(looking, "_census", fail)
    as_json = embedq("queues", "--json")
    for_people = embedq("queues")
    assert as_json.exit_code == for_people.exit_code == code
    assert as_json.stdout == for_people.stdout == ""
    assert "\x1b" not in for_people.stderr
    assert "Traceback" not in for_people.stderr
    if told is not None:
        assert json.loads(as_json.stderr)["error"]["code"] == told
        assert for_people.stderr.startswith("error: ")


def test_a_defect_shows_where_when_asked(embedq, monkeypatch):
    embedq.ok("put", "q", "x")
    monkeypatch.setenv("EMBEDQ_DEBUG", "1")
    monkeypatch.setattr(looking, "_census", lambda _asked: 1 / 0)
    assert isinstance(embedq("queues").exception, ZeroDivisionError)


def test_json_is_noticed_among_options_only():
    assert wants_json(["put", "q", "x", "--json"])
    assert not wants_json(["put", "q", "--", "--json"])


# ---------------------------------------------------------------------------- progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal():
    return Terminal()


def test_a_bar_is_drawn_ten_times_a_second_and_cleared(terminal):
    clock = VirtualClock()
    with Progress("purging q", as_json=False, clock=clock, stream=terminal) as bar:
        bar(1, 4)
        bar(2, 4)
        clock.advance(1)
        bar(3, 4)
    assert terminal.getvalue().count("purging") == 2
    assert "1 of 4   25%" in terminal.getvalue()
    assert "2 of 4" not in terminal.getvalue()
    assert terminal.getvalue().endswith("\r")


def test_a_bar_without_an_end_counts(terminal):
    with Progress("x", as_json=False, clock=VirtualClock(), stream=terminal) as bar:
        bar(1234, 0)
    assert "1,234" in terminal.getvalue()


def test_there_is_no_bar_with_json(terminal):
    with Progress("x", as_json=True, stream=terminal) as bar:
        bar(1, 2)
    assert terminal.getvalue() == ""
