"""Ranges of a feed: which queues they are of, how they are cut for tasks, how a task reads one.

Knows: surveys, owners of rows, the size of a task, that a range is read part by part.
Does not know: options other than those, where a query starts, offsets as Spark keeps them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from embedq.errors import MessagesGone, QueueNotFound
from embedq.spark.columns import Batches, Names, raw_columns
from embedq.spark.places import HostPlace, Place, open_host, open_place
from embedq.spark.reading import Reading
from embedq.storage.feed import Survey, Wanted

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("embedq.spark")

#: Columns of messages that have one value in all rows of a part so rarely that none is looked for.
_VARYING: Final = ("put_at", "body")


@dataclass
class Stretch(InputPartition):
    """What one task reads: the rows of `of` with a position in (after, through].

    `held`: the groups that hold these rows for the query.
    """

    of: tuple[int, ...]
    after: int
    through: int
    names: Names
    held: tuple[int, ...] = ()


@dataclass
class Chosen:
    """The queues that a reading is about, and the groups whose deliveries they have."""

    survey: Survey
    queues: tuple[int, ...]
    groups: tuple[int, ...]


def choose(place: Place, reading: Reading) -> Chosen:
    """Look at what there is. Raises QueueNotFound for a queue that was named and is not there."""
    survey = place.survey(reading.feed)
    queues = tuple(number for number, name in survey.queues.items() if reading.chooses(name))
    missing = set(reading.names) - {survey.queues[number] for number in queues}
    if missing:
        raise QueueNotFound(
            f"there is no queue {', '.join(map(repr, sorted(missing)))}",
            hint="correct the option `subscribe`, or declare the queue first; subscribePattern "
            "takes queues as they come",
        )
    groups = tuple(number for number, group in survey.groups.items() if group.queue in queues)
    return Chosen(survey, queues, groups)


def held_by(chosen: Chosen, group: str | None) -> tuple[int, ...]:
    """Return the numbers of a query's own groups, one in each queue."""
    groups = chosen.survey.groups
    return tuple(number for number in chosen.groups if groups[number].name == group)


def _holding(chosen: Chosen, reading: Reading) -> tuple[int, ...]:
    """Return the groups that hold rows: only of messages are their floors positions."""
    return held_by(chosen, reading.group) if reading.feed == "messages" else ()


def owners(chosen: Chosen, reading: Reading) -> list[tuple[int, ...]]:
    """Return whose rows can be read together: queues, or one group of the history at a time."""
    if reading.feed == "messages":
        return [chosen.queues] if chosen.queues else []
    if reading.feed == "dead":
        return [(queue,) for queue in chosen.queues]
    return [(group,) for group in chosen.groups]


def cut(
    place: Place, chosen: Chosen, reading: Reading, after: int, through: int
) -> list[InputPartition]:
    """Cut a range into tasks of about `maxRecordsPerPartition` rows, at least `minPartitions`.

    There is always one: Spark would make one without a range.
    """
    held = _holding(chosen, reading)
    found: list[InputPartition] = []
    for of in owners(chosen, reading):
        names = _names(chosen, reading, of)
        if reading.feed == "messages":
            edges = _even(after, through, chosen, reading)
        else:
            edges = _counted(place, reading, of, after, through)
        found += [
            Stretch(of, low, high, names, held) for low, high in pairwise(edges) if low < high
        ]
    empty = Stretch((), through, through, _names(chosen, reading, ()), held)
    return found or [empty]


def _even(after: int, through: int, chosen: Chosen, reading: Reading) -> list[int]:
    """Seqs are dense: equal shares of them."""
    low = max(after, chosen.survey.extent.first - 1)
    span = max(through - low, 0)
    parts = max(-(-span // reading.per_partition), reading.min_partitions)
    return [low + span * n // parts for n in range(parts + 1)]


def _counted(
    place: Place, reading: Reading, of: tuple[int, ...], after: int, through: int
) -> list[int]:
    """Positions with gaps: as many rows for each."""
    edges = [after]
    while edges[-1] < through:
        edge = place.nth_after(reading.feed, of, edges[-1], reading.per_partition)
        edges.append(through if edge is None else min(edge, through))
    return edges


def _names(chosen: Chosen, reading: Reading, of: tuple[int, ...]) -> Names:
    survey = chosen.survey
    queues = {number: survey.queues[number] for number in chosen.queues}
    groups = {number: survey.groups[number].name for number in chosen.groups}
    queue = ""
    if reading.feed == "history" and of:
        queue = queues[survey.groups[of[0]].queue]
    return Names(queues, groups, survey.key, queue)


def read(reading: Reading, schema: StructType, stretch: Stretch) -> Iterator[pa.RecordBatch]:
    """Give the rows of a stretch as Arrow batches, each from a snapshot of its own."""
    if stretch.after >= stretch.through:
        return
    batches = Batches(reading.feed, schema, stretch.names)
    wanted = Wanted(
        reading.feed,
        stretch.of,
        stretch.after,
        stretch.through,
        raw_columns(reading.feed, schema),
        states=reading.states,
        varying=_VARYING if reading.feed == "messages" else None,
    )
    held = stretch.held if reading.fails_on_loss else ()
    with open_place(reading) as place:
        while wanted.after < wanted.through:
            part = place.read(wanted, held)
            if part.rows:
                yield batches.batch(part)
            wanted = wanted.going_on(part)


def check_start(reading: Reading, chosen: Chosen, start: int) -> None:
    """See that what comes after an offset is still there, and is of this file.

    Raises MessagesGone, unless failOnDataLoss=false: then only the log says so.
    """
    extent = chosen.survey.extent
    if start > extent.ceiling:
        lost(
            reading,
            f"offset {start} is beyond everything that this file ever had (up to "
            f"{extent.ceiling}): it is an older copy, or another file than the one that the "
            "checkpoint belongs to",
        )
    floors = {chosen.survey.groups[n].floor for n in _holding(chosen, reading)}
    if floors and max(floors) > start:
        lost(
            reading,
            f"the query is to go on after offset {start}, but its group {reading.group!r} has "
            f"released everything up to {max(floors)}",
        )


def commit(reading: Reading, seq: int) -> None:
    """Let go what the group of a reading has held up to `seq`, in each of its queues.

    Positions in the history are none of messages: its retention is left to retain=.
    """
    if reading.group is None or reading.feed != "messages":
        return
    with open_host(reading) as office:
        chosen = choose(HostPlace(office), reading)
        for number in chosen.queues:
            office.feed_commit(chosen.survey.queues[number], reading.group, seq)


def lost(reading: Reading, what: str) -> None:
    """Raise MessagesGone, unless failOnDataLoss=false: then only the log says so."""
    if reading.fails_on_loss:
        raise MessagesGone(what)
    _log.warning("%s; failOnDataLoss=false: the query goes on with what there is", what)
