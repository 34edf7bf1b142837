"""`embedq pipeline archive`: the past of queues as Parquet files.

Knows: what it is asked, and what is said of the result.
Does not know: how files are written, how Spark is started.
"""

from __future__ import annotations

import os

import click

from embedq.cli import output
from embedq.cli.asked import Asked, pass_asked
from embedq.cli.showing import counted
from embedq.cli.spark import asks_spark, running, source_of
from embedq.printable import plain

_FEEDS = ("history", "messages", "dead")


@click.command()
@click.argument("queues", metavar="[QUEUE]...", nargs=-1)
@click.option("--to", "folder", metavar="FOLDER", required=True, help="Where the files go.")
@click.option(
    "--include",
    type=click.Choice(_FEEDS),
    multiple=True,
    default=("history",),
    show_default=True,
    help="What is written: deliveries, messages with their bodies, dead letters. May be repeated.",
)
@asks_spark
@pass_asked
def archive(
    asked: Asked,
    queues: tuple[str, ...],
    folder: str,
    include: tuple[str, ...],
    conf: tuple[str, ...],
    *,
    quiet: bool,
) -> None:
    """Write what came since the last run to Parquet files in FOLDER/history (messages, dead).

    Of QUEUE, or of all queues. The queues need retain=; dead letters do not. Interrupted, the
    same command goes on; each row is there once. It reads the file beside an application.

    \b
    Examples:
      embedq pipeline archive orders --to archive
      embedq pipeline archive --include history --include messages --to archive
    """  # noqa: D301  # click wants that character
    from embedq.spark.pipelines import archive as write  # noqa: PLC0415  # not for --help

    options = source_of(asked, queues)
    done = {}
    with running(asked, conf, quiet=quiet) as (spark, steps):
        for feed in dict.fromkeys(include):
            doing = f"archiving {feed}: rows"
            steps(doing)
            rows = 0

            def show(_: int, more: int, doing: str = doing) -> None:
                nonlocal rows
                rows += more
                steps(doing, rows)

            done[feed] = write(spark, {**options, "include": feed}, folder, progress=show)
    if asked.json:
        told = {feed: {"batches": one.batches, "rows": one.rows} for feed, one in done.items()}
        output.document({"folder": os.path.abspath(folder), "written": told})  # noqa: PTH100
        return
    for feed, one in done.items():
        where = plain(os.path.join(folder, feed))  # noqa: PTH118  # as it was written
        output.say(f"{counted(one.rows, 'new row')} in {where}")
