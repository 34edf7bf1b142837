#!/usr/bin/env python3
"""Run the commands of a developer's day, in an environment that is prepared first.

Knows: which Python is new enough, the commands, which command needs which packages.
Does not know: what the commands do, and nothing outside the standard library: it runs first.
"""
# This file must parse on an old Python 3, to be able to look for a newer one.

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
CANDIDATES = ("python3.14", "python3.13", "python3.12", "python3.11", "python3")


class Command(NamedTuple):
    """One word of the command line: what it does, the groups and extras it needs, its program."""

    does: str
    groups: tuple[str, ...] = ("dev",)
    program: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()


COMMANDS = {
    "demo": Command("run examples/quickstart.py", (), ("examples/quickstart.py",)),
    "test": Command(
        "run the test suite; arguments go to pytest", program=("-m", "pytest"), extras=("spark",)
    ),
    "check": Command(
        "run the gate; --fast leaves the tests out", program=("tools/check.py",), extras=("spark",)
    ),
    "bench": Command("run tools/bench.py; arguments go to it", ("bench",), ("tools/bench.py",)),
    "older-client": Command(
        "install zbuspy 1.0.20, print where; EMBEDQ_ZBUSPY tells the tests",
        program=("tools/older_client.py",),
    ),
    "env": Command("only prepare the environment; --extra NAME adds an extra to it"),
    "shell-env": Command('print what `eval "$(...)"` needs to enter the environment'),
}


def say(text: str) -> None:
    """Tell the developer something on stderr: stdout belongs to the command."""
    sys.stderr.write("dev: " + text + "\n")
    sys.stderr.flush()


def python_version(python: str) -> tuple[int, int] | None:
    """Ask a Python for its version; None if it does not run (a shim of an absent version)."""
    ask = "import sys; print(*sys.version_info[:2])"
    try:
        answer = subprocess.check_output(
            [python, "-c", ask], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60
        )
        major, minor = answer.split()
        return int(major), int(minor)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def find_python(path: str | None = None) -> str | None:
    """Find a Python that is new enough on a search path (default: PATH), the newest first."""
    for name in CANDIDATES:
        found = shutil.which(name, path=path)
        version = None if found is None else python_version(found)
        if version is not None and version >= OLDEST:
            return found
    return None


def pytest_arguments(arguments: Sequence[str]) -> list[str]:
    """Spread the tests over the cores, unless the caller decides about that or debugs."""
    decided = ("-n", "--numprocesses", "--dist", "--pdb", "--trace", "-s", "--capture")
    if any(word.startswith(decided) or word.endswith("no:xdist") for word in arguments):
        return list(arguments)
    return ["-n", "auto", "--dist", "worksteal", *arguments]


def extras_from(arguments: Sequence[str]) -> tuple[str, ...]:
    """Read `--extra NAME` (repeatable), the only option of `env`."""
    parser = argparse.ArgumentParser(prog="dev.py env", allow_abbrev=False)
    parser.add_argument("--extra", action="append", default=[], metavar="NAME")
    return tuple(parser.parse_args(list(arguments)).extra)


def usage() -> str:
    """Describe the commands."""
    width = max(map(len, COMMANDS))
    commands = [f"  {name:{width}}  {command.does}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: python3 tools/dev.py COMMAND [ARGUMENTS]",
            "",
            *commands,
            "",
            "The first use makes .venv (or the folder in EMBEDQ_VENV) and installs into it.",
        ]
    )


def become(program: Sequence[str], variables: dict[str, str]) -> NoReturn:
    """Go on as another program: exit code, signals and the last line are then its own."""
    sys.stdout.flush()
    os.execve(program[0], list(program), variables)  # noqa: S606 (no shell is wanted)


def perform(name: str, arguments: Sequence[str]) -> int:
    """Prepare the environment and run one command; returns only if that has no program."""
    # Not at the top: it needs the new Python that main() has made sure of.
    from environment import Environment, Needs, SetupError  # noqa: PLC0415

    command = COMMANDS[name]
    folder = Path(os.environ.get("EMBEDQ_VENV") or ".venv")
    environment = Environment(ROOT / folder, say)
    extras = extras_from(arguments) if name == "env" else command.extras
    try:
        environment.prepare(Needs(command.groups, extras))
    except SetupError as error:
        say(str(error))
        return 1
    if name == "shell-env":
        print(". " + shlex.quote(str(environment.folder / "bin" / "activate")))
    if not command.program:
        return 0
    if command.program[0] != "-m" and not (ROOT / command.program[0]).exists():
        say(f"{command.program[0]} does not exist in this work tree")
        return 1
    if name == "test":
        arguments = pytest_arguments(arguments)
    os.chdir(ROOT)
    become([str(environment.python), *command.program, *arguments], environment.variables())


def main(argv: Sequence[str]) -> int:
    """Run the command line and return the exit code, or go on as the command's program."""
    if not argv or argv[0] in {"-h", "--help", "help"}:
        print(usage())
        return 0 if argv else 2
    if argv[0] not in COMMANDS:
        say(f"there is no command {argv[0]!r}\n{usage()}")
        return 2
    if os.name != "posix":
        say("embedq runs on Linux, and is written for macOS")
        return 1
    if sys.version_info < OLDEST:
        found = find_python()
        if found is not None:
            become([found, str(Path(__file__).resolve()), *argv], dict(os.environ))
        here, oldest = ("{}.{}".format(*version[:2]) for version in (sys.version_info, OLDEST))
        say(f"Python {oldest} or newer is needed; this is {here}, and PATH has no newer one")
        return 1
    return perform(argv[0], argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
