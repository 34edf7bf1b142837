"""`embedq users`: who may use the listeners, in a file of hashed passwords.

Knows: how a password is asked for. Does not know: the format of the file (embedq.net.auth).
"""

from __future__ import annotations

import os
import sys

import click

from embedq.cli import output
from embedq.cli.asked import Asked, asks, pass_asked
from embedq.errors import InvalidOption, UsageError


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.argument("name")
@click.option("--rights", metavar="WORDS", help="Of put,consume,manage. Default: all.")
@click.option("--stdin", is_flag=True, help="Read the password from the standard input.")
@asks
@pass_asked
def add(asked: Asked, file: str, name: str, rights: str | None, *, stdin: bool) -> None:
    """Add the user NAME to FILE, or give it another password.

    FILE is made if need be, for its owner only. Listeners read it again by themselves.
    """
    from embedq.net.auth import change_user  # noqa: PLC0415  # it loads hashlib

    if stdin:
        password = sys.stdin.readline().rstrip("\n")
    elif not _someone_is_there():
        raise UsageError(
            "there is no terminal to ask for the password at",
            hint="--stdin takes it from the standard input",
        )
    else:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    if not password:
        raise InvalidOption("the password is empty", argument="password")
    change_user(file, name, password.encode(), rights)
    _tell(asked, name, file, "added")


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.argument("name")
@asks
@pass_asked
def remove(asked: Asked, file: str, name: str) -> None:
    """Remove the user NAME from FILE. What it has open stays open until it logs in again."""
    from embedq.net.auth import change_user  # noqa: PLC0415  # as above

    if not change_user(file, name, None):
        raise InvalidOption(
            f"{file} has no user {name!r}",
            hint="its lines begin with their names",
            argument="name",
        )
    _tell(asked, name, file, "removed")


def _someone_is_there() -> bool:
    """Whether a password can be asked for: at the terminal, whatever the standard input is."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return sys.stdin.isatty()
    return True


def _tell(asked: Asked, name: str, file: str, what: str) -> None:
    if asked.json:
        output.document({"user": name, "file": file, "result": what})
    else:
        output.say(f"{what}: {name}")
