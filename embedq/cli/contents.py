"""What the doctor thinks of the content: leases, waiting and dead messages, structure.

Knows: what is unusual for a queue, and what to do about it.
Does not know: files, disks, processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from shlex import quote
from typing import Final

from embedq.cli.showing import age, counted, iso
from embedq.storage.census import STRANDED_MAX, Census, GroupCount, QueueCount
from embedq.storage.inspect import Finding, Severity
from embedq.storage.onlooker import Onlooker
from embedq.storage.owners import Owner

Facts = list[tuple[str, str]]

#: A delivery that runs for longer is either a very long job or a stuck one.
_LONG_S: Final = 600.0
_MANY_DEAD: Final = 5
_NEARLY_FULL: Final = 0.9
#: With this begin the names of queues in which transports keep their own: nobody consumes them.
_BOOK: Final = "@"


def structure(found: Iterable[str]) -> Iterator[Finding]:
    """Go through what SQLite's check says."""
    for line in found:
        yield Finding(
            Severity.DAMAGE,
            f"SQLite finds: {line}",
            "stop the host and `embedq salvage` the file into a new one, or restore a backup",
        )


def examine(
    onlooker: Onlooker, owner: Owner | None, census: Census, facts: Facts
) -> Iterator[Finding]:
    """Go through the findings about queues and groups; add the facts."""
    alive = owner is not None and owner.alive
    clean = bool(onlooker.meta.get("clean"))
    facts.append(("epoch", str(onlooker.meta.get("epoch"))))
    facts.append(("counts", "noted at a clean close" if clean else "counted just now"))
    messages = sum(queue.length for queue in census.queues)
    dead = sum(queue.dead for queue in census.queues)
    content = f"{counted(messages, 'message')}, {counted(dead, 'dead letter')}"
    facts.append(("content", f"{content} in {counted(len(census.queues), 'queue')}"))
    oldest = min((q for q in census.queues if q.oldest_at is not None), key=_at, default=None)
    if oldest is not None:
        seconds = (census.at_ms - _at(oldest)) / 1000
        text = f"{age(seconds)} in {oldest.name}, put {iso(oldest.oldest_at)}"
        facts.append(("oldest message", text))
    for queue in census.queues:
        yield from _queue(queue)
        for group in queue.groups:
            yield from _group(queue, group, census, alive=alive)


def _at(queue: QueueCount) -> int:
    return queue.oldest_at or 0


def _queue(queue: QueueCount) -> Iterator[Finding]:
    if queue.dead:
        many = queue.dead > max(_MANY_DEAD, queue.stored // 10)
        yield Finding(
            Severity.WARNING if many else Severity.NOTE,
            f"queue {queue.name!r} has {counted(queue.dead, 'dead letter')}",
            f"embedq dead list {quote(queue.name)}; then redrive or purge them",
        )
    if queue.paused:
        yield Finding(
            Severity.NOTE,
            f"queue {queue.name!r} is paused: {counted(queue.length, 'message')} wait",
            f"embedq resume {quote(queue.name)}",
        )
    bound = queue.policy.max_length
    if bound is not None and queue.length >= bound * _NEARLY_FULL:
        yield Finding(
            Severity.WARNING,
            f"queue {queue.name!r} holds {queue.length:,} of at most {bound:,} messages",
            "more or faster consumers, or a larger max_length",
        )
    if queue.stranded:
        more = " or more" if queue.stranded == STRANDED_MAX else ""
        yield Finding(
            Severity.WARNING,
            f"queue {queue.name!r} has {counted(queue.stranded, 'message')}{more} for nobody: put "
            "before its first group, which began at the end",
            'a group declared with start="beginning" gets them; a purge removes them',
        )
    if queue.length and not queue.groups and not queue.name.startswith(_BOOK):
        yield Finding(
            Severity.NOTE,
            f"nobody has ever consumed queue {queue.name!r}: "
            f"{counted(queue.length, 'message')} wait",
            "register a consumer, or purge the queue",
        )


def _group(
    queue: QueueCount, group: GroupCount, census: Census, *, alive: bool
) -> Iterator[Finding]:
    name = f"{queue.name!r}/{group.name!r}"
    if group.leased and group.leased_at is not None:
        seconds = (census.at_ms - group.leased_at) / 1000
        if seconds > max(_LONG_S, 4 * queue.policy.lease_ms / 1000):
            yield Finding(
                Severity.WARNING,
                f"group {name}: a delivery has been running for {age(seconds)}",
                "look for a stuck handler; timeout= ends one, a restart delivers again",
            )
    if group.interrupted:
        deliveries = (
            "1 delivery" if group.interrupted == 1 else f"{group.interrupted:,} deliveries"
        )
        who = "" if alive else " by the next host"
        yield Finding(
            Severity.NOTE,
            f"group {name}: {deliveries} broken off when a host died",
            f"delivered again{who}, one at a time",
        )
    ready = group.waiting - group.delayed
    if len(queue.groups) > 1 and ready and not group.leased and alive and not queue.paused:
        yield Finding(
            Severity.NOTE,
            f"group {name} takes nothing: {counted(ready, 'message')} wait for it",
            "an abandoned group keeps messages: consume them, or purge the group",
        )
