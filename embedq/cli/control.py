"""`embedq pause`, `resume` and `purge`: what changes a whole queue.

Knows: that removing asks first.
Does not know: how messages are removed.
"""

from __future__ import annotations

import sys

import click

from embedq.cli import access, output
from embedq.cli.asked import Asked, asks, pass_asked
from embedq.cli.showing import counted
from embedq.printable import plain


@click.command()
@click.argument("queue")
@asks
@pass_asked
def pause(asked: Asked, queue: str) -> None:
    """Stop handing out messages of QUEUE, until `embedq resume`; puts go on.

    This survives restarts. What is being worked at is finished.
    """
    _set_paused(asked, queue, paused=True)


@click.command()
@click.argument("queue")
@asks
@pass_asked
def resume(asked: Asked, queue: str) -> None:
    """Go on handing out messages of QUEUE."""
    _set_paused(asked, queue, paused=False)


def _set_paused(asked: Asked, queue: str, *, paused: bool) -> None:
    with access.desk_of(asked) as desk:
        changed = access.queue_in(desk, queue).paused != paused
        if changed:
            desk.office.pause(queue, paused=paused)
    if asked.json:
        output.document({"queue": queue, "paused": paused, "changed": changed})
    else:
        before = "" if changed else " already"
        output.say(f"{plain(queue)} is{before} {'paused' if paused else 'running'}")


@click.command()
@click.argument("queue")
@click.option("--group", help="Only for this consumer group: the others keep what they have.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks
@pass_asked
def purge(asked: Asked, queue: str, group: str | None, *, yes: bool) -> None:
    """Remove all messages of QUEUE, or all that a group has not settled. This cannot be undone.

    Dead letters stay: see `embedq dead purge`.
    """
    what = f"of group {group!r} of {queue!r}" if group else f"of {queue!r}"
    confirm(f"Remove all messages {what}?", yes=yes)
    with (
        access.desk_of(asked) as desk,
        output.Progress(f"purging {plain(queue)}", as_json=asked.json) as bar,
    ):
        access.queue_in(desk, queue)  # refuses a wrong name, naming the others
        removed = desk.office.purge(queue, group, progress=bar)
    if asked.json:
        output.document({"queue": queue, "group": group, "removed": removed})
    else:
        output.say(f"{counted(removed, 'message')} removed")


def confirm(question: str, *, yes: bool) -> None:
    """Ask on a terminal whether to go on. Without one --yes is needed."""
    if yes:
        return
    if not _can_ask():
        raise click.UsageError("this removes messages: say --yes")
    if not click.confirm(plain(question), err=True):
        raise click.Abort


def _can_ask() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()
