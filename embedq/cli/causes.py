"""`embedq pipeline triage` and `redrive`: dead letters by what they died of.

Knows: how causes are laid out, and that a host is asked only when letters are moved.
Does not know: how causes are found, how letters are moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from embedq.cli import access, output
from embedq.cli.asked import Asked, pass_asked
from embedq.cli.showing import ABSENT, counted, cut, iso, number, table, when
from embedq.cli.spark import asks_spark, running, source_of
from embedq.lifecycle import Reason
from embedq.printable import plain

if TYPE_CHECKING:
    from embedq.message import Receipt
    from embedq.spark.pipelines import Cause

_BY = "command line"


@click.command()
@click.argument("queues", metavar="[QUEUE]...", nargs=-1)
@click.option(
    "--reason", type=click.Choice([str(reason) for reason in Reason]), help="Only these."
)
@click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, help="So many causes."
)
@asks_spark
@pass_asked
def triage(
    asked: Asked,
    queues: tuple[str, ...],
    reason: str | None,
    limit: int,
    conf: tuple[str, ...],
    *,
    quiet: bool,
) -> None:
    """Count the dead letters of QUEUE, or of all queues, by cause: the most frequent first.

    Letters with one type of error, raised in the same functions, have one fingerprint. With it
    `embedq pipeline redrive` puts them again, and `replay` copies them.
    """
    from embedq.spark.pipelines import triage as find  # noqa: PLC0415  # not for --help

    options = source_of(asked, queues)
    if reason is not None:
        options["states"] = reason
    with running(asked, conf, quiet=quiet) as (spark, steps):
        steps("reading dead letters")
        causes = find(spark, options)
    shown = causes[:limit]
    if asked.json:
        letters = sum(cause.letters for cause in causes)
        told = [_json_cause(cause) for cause in shown]
        output.document({"letters": letters, "count": len(causes), "causes": told})
    elif not causes:
        output.say("no dead letters")
    else:
        output.say(_listing(shown))
        if len(causes) > limit:
            left = causes[limit:]
            rest = counted(sum(cause.letters for cause in left), "dead letter")
            output.say(f"and {counted(len(left), 'cause')} more, of {rest}")


def _listing(causes: Sequence[Cause]) -> str:
    rows = [
        (
            cause.fingerprint,
            number(cause.letters),
            cause.queue,
            cause.group or ABSENT,
            when(_ms(cause.last)),
            cut(f"{cause.type}: {cause.message}".partition("\n")[0]),
            cause.place or ABSENT,
        )
        for cause in causes
    ]
    head = ("FINGERPRINT", "LETTERS", "QUEUE", "GROUP", "LAST DIED", "ONE OF THEM", "RAISED IN")
    return table(head, rows, right="LETTERS")


def _json_cause(cause: Cause) -> dict[str, object]:
    return {**cause._asdict(), "first": iso(_ms(cause.first)), "last": iso(_ms(cause.last))}


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


class _AtTheHost:
    """The dead letters of a queue, whose host is asked, or replaced, only while they are moved."""

    def __init__(self, asked: Asked, queue: str) -> None:
        self._asked = asked
        self._queue = queue

    def redrive(self, *ids: str, group: str | None = None, by: str = _BY) -> Sequence[Receipt]:
        """See DeadLetters."""
        from embedq.app.letters import DeadLetters  # noqa: PLC0415  # not for --help

        with access.desk_of(self._asked) as desk:
            letters = DeadLetters(desk, access.queue_in(desk, self._queue))
            return letters.redrive(*ids, group=group, by=by)


@click.command()
@click.argument("queue")
@click.option(
    "--fingerprint",
    "fingerprints",
    multiple=True,
    required=True,
    help="A cause, as `triage` shows it. May be repeated.",
)
@asks_spark
@pass_asked
def redrive(
    asked: Asked,
    queue: str,
    fingerprints: tuple[str, ...],
    conf: tuple[str, ...],
    *,
    quiet: bool,
) -> int:
    """Put the dead letters of QUEUE that died of some causes again, as new messages.

    They have the header redriven-from. Exit code 1: there is no letter with these fingerprints.
    `embedq dead redrive` chooses letters by id, reason, age and text, without Spark.
    """
    from embedq.spark.pipelines import redrive as move  # noqa: PLC0415  # not for --help

    options = source_of(asked, [queue])
    with running(asked, conf, quiet=quiet) as (spark, steps):
        steps(f"redriving {plain(queue)}")
        moved = move(spark, options, _AtTheHost(asked, queue), fingerprints, by=_BY)
    if asked.json:
        output.document({"queue": queue, "redriven": moved})
    else:
        output.say(f"{counted(moved, 'dead letter')} put again into {plain(queue)}")
    return 0 if moved else 1
