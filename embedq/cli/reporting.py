"""`embedq pipeline report`: a page on what is slow and why it fails.

Knows: what it is asked, and what is said of the result.
Does not know: how anything is computed or drawn, how Spark is started.
"""

from __future__ import annotations

from pathlib import Path

import click

from embedq.cli import output
from embedq.cli.asked import Asked, pass_asked
from embedq.cli.showing import number
from embedq.cli.spark import asks_spark, running, source_of
from embedq.printable import plain


@click.command()
@click.argument("queues", metavar="[QUEUE]...", nargs=-1)
@click.option("--to", "folder", metavar="FOLDER", required=True, help="Where the report goes.")
@click.option("--from", "source", metavar="FOLDER", help="Read this archive, not the database.")
@click.option("--title", metavar="TEXT", help="The title of the page.")
@asks_spark
@pass_asked
def report(
    asked: Asked,
    queues: tuple[str, ...],
    folder: str,
    source: str | None,
    title: str | None,
    conf: tuple[str, ...],
    *,
    quiet: bool,
) -> None:
    """Write a page that says what is slow and why it fails, with its plots and tables.

    Of QUEUE, or of all queues, which need retain=; or of an archive (--from), which `embedq
    pipeline archive` has written.

    \b
    Examples:
      embedq pipeline report --to report
      embedq pipeline report --from archive --to report
    """  # noqa: D301  # click wants that character
    from embedq.spark.pipelines import report as write  # noqa: PLC0415  # not for --help

    if source is not None and queues:
        raise click.UsageError("QUEUE and --from exclude each other: an archive is read whole")
    given = Path(source) if source is not None else source_of(asked, queues)
    more = {} if title is None else {"title": title}
    with running(asked, conf, quiet=quiet) as (spark, steps):
        done = write(spark, given, folder, progress=steps, **more)
    if asked.json:
        output.document(
            {
                "page": str(done.page),
                "plots": [str(path) for path in done.plots],
                "tables": [str(path) for path in done.tables],
                "deliveries": done.deliveries,
            }
        )
    else:
        deliveries = "delivery" if done.deliveries == 1 else "deliveries"
        output.say(f"{number(done.deliveries)} {deliveries}: {plain(str(done.page))}")
