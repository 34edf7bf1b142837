"""The program: its commands, loaded when named, and how it ends.

Knows: the table of commands, which exception means which exit code.
Does not know: what a command does.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, NamedTuple, NoReturn

import click

import embedq
from embedq.cli.asked import db_option, json_option
from embedq.cli.exits import MEANINGS, Exit, exit_of
from embedq.cli.output import OutputFailed, ReaderGone, complain, complain_of, flush, forget_output
from embedq.errors import EmbedqError

_WIDTH: Final = 100


class Place(NamedTuple):
    """Where a command is, and its line in the list of commands."""

    module: str
    name: str
    help: str


class Lazy(click.Group):
    """A group that imports a command when it is named, not to list it."""

    def __init__(self, table: Mapping[str, Place], **settings: Any) -> None:  # noqa: ANN401
        super().__init__(**settings)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        """Return the names, in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return a command, None if there is none of that name."""
        place = self.table.get(cmd_name)
        if place is None:
            return None
        command = getattr(importlib.import_module(place.module), place.name)
        assert isinstance(command, click.Command)  # noqa: S101  # the table says so
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one was probably meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = get_close_matches(args[0], self.table, 1)
            if not near:
                raise
            text = f"{error.message} did you mean {near[0]!r}?"
            raise click.UsageError(text, ctx=ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands, from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.help) for name, place in self.table.items()])


class Program(Lazy):
    """The whole program: whatever happens ends as an exit code and at most one message."""

    def main(  # type: ignore[override]  # it never returns
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        **extra: Any,  # noqa: ANN401  # click's signature
    ) -> NoReturn:
        """Run a command line and end with its exit code."""
        arguments = list(sys.argv[1:] if args is None else args)
        extra.pop("standalone_mode", None)
        _let_everything_be_printed()

        def run() -> object:
            return super(Program, self).main(
                arguments, prog_name, complete_var, standalone_mode=False, **extra
            )

        sys.exit(_ended(run, as_json=wants_json(arguments)))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the exit codes."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code.value), text) for code, text in MEANINGS.items()])


def _ended(run: Callable[[], object], *, as_json: bool) -> int:
    """Run a command; return its exit code after saying what went wrong."""
    try:
        code = run()
        flush()
    except EmbedqError as error:
        complain_of(error, as_json=as_json)
        return exit_of(error)
    except click.ClickException as error:
        _complain_of_usage(error, as_json=as_json)
        return Exit.USAGE
    except click.Abort:
        return Exit.INTERRUPTED
    except (OSError, OutputFailed, ReaderGone) as error:
        return _ended_by_io(error, as_json=as_json)
    except Exception as error:  # a defect ends as a code and a sentence, too
        if os.environ.get("EMBEDQ_DEBUG"):
            raise
        text = f"a defect of embedq: {type(error).__name__}: {error}"
        complain("defect", text, "EMBEDQ_DEBUG=1 shows where", {}, as_json=as_json)
        return Exit.DEFECT
    return code if isinstance(code, int) else Exit.OK


def _ended_by_io(error: OSError | OutputFailed | ReaderGone, *, as_json: bool) -> int:
    if isinstance(error, ReaderGone):
        forget_output()
        return Exit.PIPE
    hint = None
    if isinstance(error, OutputFailed):
        forget_output()
        hint = "what was put is stored; messages that `get` has not printed are still in the queue"
    complain("io", str(error), hint, {}, as_json=as_json)
    return Exit.IO


def _complain_of_usage(error: click.ClickException, *, as_json: bool) -> None:
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and not as_json:
        click.echo(error.format_message(), err=True)
        return
    context = getattr(error, "ctx", None)
    hint = None if context is None else f"{context.command_path} --help"
    text = error.format_message()
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        text = "there is no command"
    complain("usage", text, hint, {}, as_json=as_json)


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether --json is among the options: an error of the parser needs to know, too."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options


def _let_everything_be_printed() -> None:
    """Escape what the encoding of the output cannot express, instead of failing at it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


_DEAD: Final = {
    "list": Place("embedq.cli.letters", "list_letters", "List dead letters."),
    "show": Place("embedq.cli.letters", "show", "Show one dead letter with its attempts."),
    "redrive": Place("embedq.cli.letters", "redrive", "Put dead letters again as new messages."),
    "purge": Place("embedq.cli.letters", "purge", "Remove dead letters."),
}

dead = Lazy(_DEAD, name="dead", help="Work with dead letters.", no_args_is_help=True)

_KEYS: Final = {
    "new": Place("embedq.cli.keys", "new", "Make the keys of a host or of a client."),
    "allow": Place("embedq.cli.keys", "allow", "Let a client of another machine connect."),
    "list": Place("embedq.cli.keys", "list_keys", "List the clients that may connect."),
}

keys = Lazy(_KEYS, name="keys", help="Work with keys for other machines.", no_args_is_help=True)

_USERS: Final = {
    "add": Place("embedq.cli.users", "add", "Add a user, or give it another password."),
    "remove": Place("embedq.cli.users", "remove", "Remove a user."),
}

users = Lazy(_USERS, name="users", help="Work with users of listeners.", no_args_is_help=True)

_PIPELINE: Final = {
    "archive": Place("embedq.cli.archiving", "archive", "Write the history to Parquet files."),
    "report": Place("embedq.cli.reporting", "report", "Write a page on what is slow and fails."),
    "triage": Place("embedq.cli.causes", "triage", "Count dead letters by cause."),
    "redrive": Place("embedq.cli.causes", "redrive", "Put the dead letters of causes again."),
    "replay": Place("embedq.cli.replaying", "replay", "Put messages of the past into a queue."),
}

pipeline = Lazy(
    _PIPELINE, name="pipeline", help="Compute with Spark over the past.", no_args_is_help=True
)

COMMANDS: Final = {
    "serve": Place("embedq.cli.serving", "serve", "Serve queues to clients of other protocols."),
    "run": Place(
        "embedq.cli.running", "run", "Run the consumers of an application until a signal."
    ),
    "worker": Place(
        "embedq.cli.running", "worker", "Run consumers beside the processes that are there."
    ),
    "dev": Place(
        "embedq.cli.developing", "dev", "Run an application and reload its code when it changes."
    ),
    "put": Place("embedq.cli.putting", "put", "Put messages into a queue."),
    "get": Place("embedq.cli.getting", "get", "Take messages from a queue and print them."),
    "peek": Place("embedq.cli.looking", "peek", "Print messages of a queue without taking them."),
    "queues": Place("embedq.cli.looking", "queues", "List the queues."),
    "stats": Place("embedq.cli.looking", "stats", "Count what waits in each consumer group."),
    "dead": Place("embedq.cli.program", "dead", "Work with dead letters."),
    "pause": Place("embedq.cli.control", "pause", "Stop handing out messages of a queue."),
    "resume": Place("embedq.cli.control", "resume", "Go on handing out messages of a queue."),
    "purge": Place("embedq.cli.control", "purge", "Remove all messages of a queue or a group."),
    "pipeline": Place("embedq.cli.program", "pipeline", "Compute with Spark over the past."),
    "doctor": Place("embedq.cli.doctor", "doctor", "Examine the database and what is around it."),
    "check": Place("embedq.cli.care", "check", "Check the database file from end to end."),
    "backup": Place("embedq.cli.care", "backup", "Copy the database, also while it is in use."),
    "salvage": Place("embedq.cli.care", "salvage", "Save what is readable of a damaged file."),
    "keys": Place("embedq.cli.program", "keys", "Work with keys for other machines."),
    "users": Place("embedq.cli.program", "users", "Work with users of listeners."),
    "config": Place(
        "embedq.cli.settings", "config", "Show the settings and where they come from."
    ),
}

_HELP: Final = """A durable message queue in one SQLite file.

Commands that only look (peek, queues, stats, dead list, dead show, doctor, check, backup,
pipeline archive, report and triage) work while an application has the file open. The others
work through that application, or by themselves when there is none.
"""

program = db_option(
    json_option(
        click.version_option(
            embedq.__version__, prog_name="embedq", message="%(prog)s %(version)s"
        )(
            Program(
                COMMANDS,
                name="embedq",
                help=_HELP,
                no_args_is_help=True,
                context_settings={
                    "help_option_names": ["-h", "--help"],
                    "max_content_width": _WIDTH,
                },
            )
        )
    )
)
