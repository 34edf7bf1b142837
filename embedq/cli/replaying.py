"""`embedq pipeline replay`: messages of the past once more, into another queue.

Knows: how times are written, that a host must serve Spark while it writes.
Does not know: how messages are chosen and put.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click

from embedq.cli import access, output
from embedq.cli.asked import Asked, pass_asked, seconds
from embedq.cli.showing import counted
from embedq.cli.spark import asks_spark, running, source_of
from embedq.errors import InvalidOption
from embedq.lifecycle import Outcome
from embedq.names import check_queue_name
from embedq.printable import plain

_OUTCOMES = [outcome.name.lower() for outcome in Outcome]


@click.command()
@click.argument("queues", metavar="QUEUE...", nargs=-1, required=True)
@click.option("--to", "target", metavar="QUEUE", required=True, help="The queue that gets them.")
@click.option("--from", "source", metavar="FOLDER", help="Read this archive, not the database.")
@click.option(
    "--since", metavar="TIME", help="Only what was put then or later: 2027-01-31T08:00, or 1h ago."
)
@click.option("--until", metavar="TIME", help="Only what was put before.")
@click.option("--dead", is_flag=True, help="Dead letters, which stay where they are.")
@click.option(
    "--outcome",
    "outcomes",
    type=click.Choice(_OUTCOMES),
    multiple=True,
    help="Only messages with a delivery that ended so. May be repeated.",
)
@click.option(
    "--fingerprint",
    "fingerprints",
    multiple=True,
    help="Only those with this cause, as `triage` shows it. May be repeated.",
)
@click.option("--name", help="The name of the replay: under a new one everything is put again.")
@click.option("--same-queue", is_flag=True, help="Let a queue get its own messages again.")
@asks_spark
@pass_asked
def replay(
    asked: Asked,
    /,
    queues: tuple[str, ...],
    target: str,
    source: str | None,
    conf: tuple[str, ...],
    *,
    quiet: bool,
    **choice: Any,  # noqa: ANN401  # what is chosen, as click read it
) -> None:
    """Put messages of QUEUE that the database still has, or an archive, into another queue.

    With retain= that is what is settled, too. Copies have the header replayed-from, and body,
    headers, key and priority of the original, but no delay. The queue is created if need be. The
    same command again puts only what has come since.

    \b
    Examples:
      embedq pipeline replay orders --to orders-again --since 1h
      embedq pipeline replay orders --to orders-again --outcome failed --outcome timed_out
      embedq pipeline replay orders --to orders-again --from archive
    """  # noqa: D301  # click wants that character
    from embedq.spark.pipelines import replay as put  # noqa: PLC0415  # not for --help

    check_queue_name(target)
    for name in ("since", "until"):
        choice[name] = _moment(choice[name], f"--{name}")
    if target in queues and not choice["same_queue"]:
        raise InvalidOption(
            f"queue {target!r} would get its own messages again",
            hint="name another queue, or say --same-queue if that is meant",
            argument="to",
        )
    given = Path(source) if source is not None else source_of(asked, queues)
    with (
        _served(asked, target) as to,
        running(asked, conf, quiet=quiet) as (spark, steps),
    ):
        doing = f"replaying into {plain(target)}"
        steps(doing)
        done = put(
            spark,
            given,
            to,
            queues=queues,
            **choice,
            progress=lambda now, total: steps(doing, now, total),
        )
    if asked.json:
        output.document({"queue": target, **done._asdict()})
        return
    output.say(f"{counted(done.put, 'message')} put into {plain(target)}")
    before = done.found - done.gone - done.put
    if before:
        output.note(
            f"{before:,} were put by an earlier run under the name {done.name}: --name NAME puts "
            "everything again",
            as_json=False,
        )
    if done.gone:
        output.note(f"{done.gone:,} are not kept any more", as_json=False)


def _moment(text: str | None, option: str) -> datetime | timedelta | None:
    """Return a moment, or how long ago. Raises InvalidOption."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        pass
    try:
        return timedelta(seconds=seconds(text, option))
    except (InvalidOption, OverflowError) as error:
        raise InvalidOption(
            f"{option} {text!r} is no time",
            hint="write 1h or 30m: so long ago; or 2027-01-31T08:00, local unless it has a zone",
            argument=option,
        ) from error


@contextmanager
def _served(asked: Asked, queue: str) -> Iterator[Mapping[str, str]]:
    """Give the options of a queue, whose host serves Spark's processes while the block runs."""
    from embedq.app.broker import Broker  # noqa: PLC0415  # not for --help

    settings = access.settings_of(asked)
    broker = Broker(settings.path, keys=settings.keys, redact=settings.redact)
    try:
        yield broker.queue(queue).spark_options()
    finally:
        broker.stop()
