"""`embedq config`: what a broker would run with here, and where each value comes from.

Knows: the order in which settings win.
Does not know: what they do.
"""

from __future__ import annotations

import os

import click

from embedq.cli import access, output
from embedq.cli.asked import Asked, asks, pass_asked
from embedq.cli.showing import ABSENT, table
from embedq.errors import EmbedqError, InvalidOption
from embedq.policy import QueuePolicy

_NOWHERE = "not set"


@click.command()
@asks
@pass_asked
def config(asked: Asked) -> None:
    """Show the settings a broker would run with in this folder, and where each comes from.

    An argument wins over the environment (EMBEDQ_*), that over [tool.embedq] in the nearest
    pyproject.toml, that over the default. Settings of queues are stored in the database: those
    that are not the default are listed, too.
    """
    rows = _settings(asked)
    queues = _queues(asked)
    if asked.json:
        told = {name: {"value": value, "source": source} for name, value, source in rows}
        output.document({"settings": told, "queues": queues})
        return
    shown = [(name, ABSENT if value is None else str(value), how) for name, value, how in rows]
    for queue, stored in (queues or {}).items():
        shown += [(f"{queue}: {name}", str(value), "database") for name, value in stored.items()]
    output.say(table(("SETTING", "VALUE", "SOURCE"), shown))


def _settings(asked: Asked) -> list[tuple[str, object, str]]:
    from embedq.app.settings import resolve  # noqa: PLC0415  # not for --help
    from embedq.broker.redaction import Patterns  # noqa: PLC0415  # as above

    try:
        found = access.settings_of(asked)
        path, source = found.path, found.sources["path"]
    except InvalidOption as error:
        if error.details.get("argument") != "path":
            raise
        found = resolve({"path": "-"})  # for the sake of the other settings
        path, source = None, _NOWHERE
    if source == "argument":
        source = "--db"
    rows: list[tuple[str, object, str]] = [("path", path, source)]
    rows += [
        (name, getattr(found, name), found.sources[name])
        for name in ("durability", "role", "grace", "sidecar", "endpoint", "keys")
    ]
    hides = list(found.redact.texts) if isinstance(found.redact, Patterns) else None
    rows.append(("redact", hides, found.sources["redact"]))
    variables = [name for name in os.environ if name.startswith("EMBEDQ_")]
    unknown = sorted(set(variables) - _KNOWN)
    rows += [(name, os.environ[name], "environment, unknown: no effect") for name in unknown]
    return rows


_KNOWN = {
    "EMBEDQ_PATH",
    "EMBEDQ_DURABILITY",
    "EMBEDQ_ROLE",
    "EMBEDQ_GRACE",
    "EMBEDQ_REDACT",
    "EMBEDQ_SIDECAR",
    "EMBEDQ_ENDPOINT",
    "EMBEDQ_KEYS",
    "EMBEDQ_DEBUG",
}


def _queues(asked: Asked) -> dict[str, dict[str, object]] | None:
    """Return the settings of queues that are not the default; None if there is no database."""
    usual = QueuePolicy()
    try:
        rows, _ = access.look(asked).catalogue()
    except EmbedqError:
        return None  # the settings of a broker are what was asked; `doctor` says what is wrong
    return {
        row.name: {
            name: value
            for name in QueuePolicy.__struct_fields__
            if (value := getattr(row.policy, name)) != getattr(usual, name)
        }
        for row in rows
    }
