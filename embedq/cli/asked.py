"""What every command is asked: which database, and whether for people or for programs.

Knows: --db and --json, which may stand before the command or after it.
Does not know: what the command does with them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True)
class Asked:
    """The answers. `db`: None leaves the path to the environment and pyproject.toml."""

    db: str | None = None
    json: bool = False


#: Gives a command its `asked` as the first argument.
pass_asked = click.make_pass_decorator(Asked, ensure=True)


def _note(context: click.Context, parameter: click.Parameter, value: object) -> object:
    if value is not None and value is not False and parameter.name is not None:
        setattr(context.ensure_object(Asked), parameter.name, value)
    return value


def db_option(command: F) -> F:
    """Add --db."""
    return click.option(
        "--db",
        metavar="PATH",
        expose_value=False,
        callback=_note,
        help="The database file. Default: EMBEDQ_PATH, then path in [tool.embedq].",
    )(command)


def json_option(command: F) -> F:
    """Add --json."""
    return click.option(
        "--json", is_flag=True, expose_value=False, callback=_note, help="Print JSON."
    )(command)


def asks(command: F) -> F:
    """Add --db and --json."""
    return db_option(json_option(command))


def seconds(text: str, name: str) -> float:
    """Return a duration in seconds, written as "30s", "5m" or "1.5" (seconds).

    Raises InvalidOption.
    """
    from embedq.clock import parse_duration  # noqa: PLC0415  # only where there is a duration
    from embedq.errors import InvalidOption  # noqa: PLC0415  # as above

    value: str | float = text
    with suppress(ValueError):
        value = float(text)
    try:
        return parse_duration(value, name)
    except InvalidOption as error:
        error.hint = 'write "200ms", "30s", "5m", "1h30m", "7d", or a number of seconds'
        raise
