"""What every pipeline needs: the queues it reads, a Spark that lives as long as it runs.

Knows: how queues of a command line become options of the source; that Spark starts only when all
that can be wrong without it has been looked at.
Does not know: PySpark, what a pipeline computes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import click

from embedq.cli import access
from embedq.cli.asked import Asked, asks
from embedq.cli.looking import find_queue
from embedq.cli.output import Steps
from embedq.cli.stopping import stop_at_sigterm
from embedq.errors import InvalidOption
from embedq.ipc.address import is_address

F = TypeVar("F", bound=Callable[..., Any])


def asks_spark(command: F) -> F:
    """Add --conf and --quiet, and what every command is asked."""
    for option in (
        click.option("--quiet", is_flag=True, help="Show no progress."),
        click.option(
            "--conf",
            metavar="NAME=VALUE",
            multiple=True,
            help="A setting of Spark: spark.driver.memory=4g. May be repeated.",
        ),
    ):
        command = option(command)
    return asks(command)


class Running(NamedTuple):
    """A session of Spark, which is for the pipelines, and where is shown how far they are."""

    spark: Any
    steps: Steps


@contextmanager
def running(asked: Asked, conf: Sequence[str], *, quiet: bool) -> Iterator[Running]:
    """Start Spark for a block. Ctrl-C and SIGTERM end the block, and what was started with it."""
    from embedq.spark.passing import passing_session  # noqa: PLC0415  # --help needs no Spark

    settings = _settings(conf)
    with stop_at_sigterm(), Steps(as_json=asked.json or quiet) as steps:
        steps("starting Spark")
        with passing_session("embedq pipeline", settings) as spark:
            yield Running(spark, steps)


def _settings(conf: Sequence[str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for each in conf:
        name, equals, value = each.partition("=")
        if not equals or not name.startswith("spark."):
            raise InvalidOption(
                f"--conf {each!r} is no setting of Spark",
                hint="write --conf spark.driver.memory=4g",
                argument="conf",
            )
        settings[name] = value
    return settings


def source_of(asked: Asked, queues: Sequence[str]) -> dict[str, str]:
    """Return options of the source for queues that exist; for all queues if there is no name.

    Raises MissingExtra, QueueNotFound, InvalidOption.
    """
    from embedq.spark.needs import need  # noqa: PLC0415  # --help needs no Spark

    need("pyspark", "pyarrow")
    return {**_place(asked, queues), **_subscribed(queues)}


def _place(asked: Asked, queues: Sequence[str]) -> dict[str, str]:
    settings = access.settings_of(asked)
    if not is_address(settings.path):
        onlooker = access.look(asked)
        for name in queues:
            find_queue(onlooker, name)
        return {"path": os.path.realpath(access.path_of(asked))}
    with access.desk_of(asked) as desk:
        for name in queues:
            access.queue_in(desk, name)
    return {"endpoint": settings.path, "keys": os.path.realpath(settings.keys or "")}


def _subscribed(queues: Sequence[str]) -> dict[str, str]:
    if queues and all("," not in name and name == name.strip() for name in queues):
        return {"subscribe": ",".join(queues)}
    return {"subscribePattern": "|".join(map(re.escape, queues)) or "(?s:.*)"}
