"""`embedq peek`, `queues` and `stats`: what is in the store, seen from outside.

Knows: that nothing is changed, and that numbers say how exact they are.
Does not know: what only the memory of a host knows, like rates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from embedq.cli import access, output
from embedq.cli.asked import Asked, asks, pass_asked
from embedq.cli.messages import json_message
from embedq.cli.showing import ABSENT, age, iso, number, preview, table, when

if TYPE_CHECKING:
    from embedq.storage.census import Census, GroupCount, QueueCount
    from embedq.storage.onlooker import Onlooker
    from embedq.storage.owners import Owner
    from embedq.storage.rows import QueueRow

_MOST: Final = 1000


@click.command()
@click.argument("queue")
@click.option(
    "--count",
    type=click.IntRange(1, _MOST),
    default=10,
    show_default=True,
    help="Print up to so many.",
)
@click.option("--after", metavar="ID", help="Only what was put after this message.")
@click.option("--full", is_flag=True, help="Print whole bodies, not their beginnings.")
@asks
@pass_asked
def peek(asked: Asked, queue: str, count: int, after: str | None, *, full: bool) -> None:
    """Print messages of QUEUE in the order they were put, without taking them.

    Every stored message is shown, also one that is leased, delayed, or settled and retained.
    """
    onlooker = access.look(asked)
    row = find_queue(onlooker, queue)
    first = 0 if after is None else onlooker.ids.decode(after)
    messages = onlooker.range(row.id, first, count)
    if asked.json:
        told = [json_message(onlooker.ids, queue, message) for message in messages]
        output.document({"queue": queue, "messages": told})
        return
    if not messages:
        output.say("no messages")
        return
    now = onlooker.now_ms()
    output.say(
        table(
            ("ID", "AGE", "PRIORITY", "BYTES", "BODY"),
            [
                (
                    onlooker.ids.encode(message.seq),
                    age((now - message.put_at) / 1000),
                    str(message.priority),
                    number(len(message.body)),
                    preview(message.body, len(message.body) * 10 if full else 60),
                )
                for message in messages
            ],
            right="AGE PRIORITY BYTES",
        )
    )


def find_queue(onlooker: Onlooker, name: str) -> QueueRow:
    """Return a queue that exists. Raises QueueNotFound."""
    rows, _ = onlooker.catalogue()
    for row in rows:
        if row.name == name:
            return row
    raise access.not_found(name, [row.name for row in rows])


@click.command()
@asks
@pass_asked
def queues(asked: Asked) -> None:
    """List the queues: how much is in them, and how old the oldest message is.

    MESSAGES: stored and not settled by every group.
    """
    census, owner = _census(asked)
    if asked.json:
        told = [_json_queue(queue, census) for queue in census.queues]
        output.document({**_json_head(census, owner), "queues": told})
        return
    rows = [
        (
            queue.name,
            number(queue.length),
            number(sum(group.leased for group in queue.groups)),
            number(queue.dead),
            str(len(queue.groups)),
            age(_age(queue.oldest_at, census)),
            _remark(queue),
        )
        for queue in census.queues
    ]
    head = ("QUEUE", "MESSAGES", "LEASED", "DEAD", "GROUPS", "OLDEST", "")
    output.say(table(head, rows, right="MESSAGES LEASED DEAD GROUPS OLDEST"))
    output.say(_footer(census, owner))


def _remark(queue: QueueCount) -> str:
    stranded = f"{number(queue.stranded)} for nobody" if queue.stranded else ""
    return ", ".join(filter(None, ["paused" if queue.paused else "", stranded]))


@click.command()
@click.argument("queue", required=False)
@asks
@pass_asked
def stats(asked: Asked, queue: str | None) -> None:
    """Count what waits, is delayed and is leased in each consumer group of QUEUE, or of all.

    WAITING includes DELAYED (not yet deliverable) and BROKEN OFF (in delivery when their host
    died: they are delivered again). LEASED are in delivery now.
    """
    census, owner = _census(asked)
    chosen = [each for each in census.queues if queue in {None, each.name}]
    if queue is not None and not chosen:
        raise access.not_found(queue, [each.name for each in census.queues])
    if asked.json:
        told = [_json_queue(each, census) for each in chosen]
        output.document({**_json_head(census, owner), "queues": told})
        return
    rows = []
    for each in chosen:
        rows += [_group_row(each.name, group, census) for group in each.groups]
        if not each.groups:
            count = number(each.length)
            rows.append((each.name, ABSENT, count, "", "", "", age(_age(each.oldest_at, census))))
    head = ("QUEUE", "GROUP", "WAITING", "DELAYED", "LEASED", "BROKEN-OFF", "OLDEST")
    output.say(table(head, rows, right="WAITING DELAYED LEASED BROKEN-OFF OLDEST"))
    output.say(_footer(census, owner))


def _group_row(queue: str, group: GroupCount, census: Census) -> tuple[str, ...]:
    return (
        queue,
        group.name,
        number(group.waiting),
        number(group.delayed),
        number(group.leased),
        number(group.interrupted),
        age(_age(group.oldest_at, census)),
    )


def _census(asked: Asked) -> tuple[Census, Owner | None]:
    from embedq.storage.census import take  # noqa: PLC0415  # peek needs none
    from embedq.storage.owners import owner_of  # noqa: PLC0415  # as above

    onlooker = access.look(asked)
    owner = owner_of(onlooker.path)
    alive = owner is not None and owner.alive
    return take(onlooker, alive=alive), owner


def _age(at: int | None, census: Census) -> float | None:
    return None if at is None else max(0, census.at_ms - at) / 1000


def host_for_json(owner: Owner | None) -> dict[str, object] | None:
    """Return who has the file open, None for nobody."""
    if owner is None or not owner.alive:
        return None
    return {"pid": owner.pid, "since": iso(owner.started_ms), "version": owner.version}


def host_text(owner: Owner | None) -> str:
    """Say who has the file open."""
    if owner is None or not owner.alive:
        return "no host"
    who = "of another container" if owner.pid is None else f"{owner.pid}"
    since = "" if owner.started_ms is None else f", since {when(owner.started_ms)}"
    return f"host: process {who}{since}"


def _json_head(census: Census, owner: Owner | None) -> dict[str, object]:
    return {"at": iso(census.at_ms), "exact": census.exact, "host": host_for_json(owner)}


def _json_queue(queue: QueueCount, census: Census) -> dict[str, object]:
    return {
        "name": queue.name,
        "paused": queue.paused,
        "length": queue.length,
        "stored": queue.stored,
        "dead": queue.dead,
        "max_length": queue.policy.max_length,
        "stranded": queue.stranded,
        "oldest_s": _age(queue.oldest_at, census),
        "groups": [
            {
                "name": group.name,
                "waiting": group.waiting,
                "delayed": group.delayed,
                "leased": group.leased,
                "interrupted": group.interrupted,
                "oldest_s": _age(group.oldest_at, census),
            }
            for group in queue.groups
        ],
    }


def _footer(census: Census, owner: Owner | None) -> str:
    if census.exact:
        how = "exact at that moment"
    else:
        how = "counted in steps while the host went on: about"
    text = f"{when(census.at_ms)}, {how}; {host_text(owner)}"
    if owner is not None and owner.alive:
        text += "; deliveries per second are known to the host only"
    return f"\n{text}"
