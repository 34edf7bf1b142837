"""Replay: messages of the past put once more, into another queue.

Knows: how they are cut into batches, that a batch is put once, what a copy keeps of its origin.
Does not know: how messages are chosen (selecting.py), how a batch is published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from embedq.clock import Clock, SystemClock
from embedq.errors import InvalidOption, NotRetained
from embedq.spark.needs import need
from embedq.spark.pipelines.selecting import Choice, Moment, Past, Source, select

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The header that says where a copy comes from: queue/id.
ORIGIN: Final = "replayed-from"
#: Messages of a batch, and bytes: everybody else waits while one is published.
PER_BATCH: Final = 50_000
BATCH_BYTES: Final = 64 << 20
#: What a row takes beside its body and headers, about.
_ROW_BYTES: Final = 200
#: Positions that are counted together before batches are cut.
_TOGETHER: Final = 1_000

#: Called after each batch with the messages that are put, and those that will be.
Progress = Callable[[int, int], None]


class Replayed(NamedTuple):
    """What one run has done.

    `found`: messages that were chosen; `put`: how many of them were new, in how many `batches`;
    `gone`: those of which only the history is left. `name`: under which they were put.
    """

    found: int
    put: int
    batches: int
    gone: int
    name: str


class _Batch(NamedTuple):
    """Messages with a position in (after, through]."""

    after: int
    through: int
    messages: int


def replay(
    spark: SparkSession,
    source: Source,
    to: Mapping[str, str],
    *,
    queues: Sequence[str] = (),
    since: Moment | None = None,
    until: Moment | None = None,
    dead: bool = False,
    outcomes: Sequence[str] = (),
    fingerprints: Sequence[str] = (),
    name: str | None = None,
    same_queue: bool = False,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> Replayed:
    """Put messages of the past into another queue; return how many.

    `source`: options, from `queue.spark_options()`, for what the file holds (with retain= also
    what is settled), or the folder of an archive with `messages`. `to`: options of the queue that
    gets them. `queues`: only of these. `since`, `until`: put then or later, and before; a
    timedelta is so long ago. `dead`: dead letters, which stay. `outcomes`: messages with a
    delivery that ended so, as the history says ("failed", "timed_out", …). `fingerprints`: of
    causes, as `triage` gives them; with `outcomes` of the errors of those deliveries.

    A copy has the body, the kind, the headers, the key and the priority of its origin, and the
    header `replayed-from`: queue/id. Delays, expiry and dedup keys stay behind. Copies come in
    the order of the originals: of their puts, deaths, or first such endings.

    The same call again puts only what has come since, also when a run was interrupted between two
    batches: what was put under a `name` is remembered for a year by the queue `to`. The name
    stands for what was said here, unless one is given: another name puts all of it again. One run
    at a time under one name.

    Raises MissingExtra; InvalidOption, also for a queue that would get its own messages, unless
    `same_queue` says that this is meant (copies are not copied again then); QueueNotFound for
    either queue; NotRetained where nothing is kept to choose from; NoHost where no process hosts
    the queue `to`; QueueFull, and what Spark raises.
    """
    need("pyspark", "pyarrow")
    from embedq.spark.life import make_active  # noqa: PLC0415  # was asked for

    choice = Choice.of(
        queues, since, until, dead=dead, outcomes=outcomes, fingerprints=fingerprints
    )
    into = _Target(to, name or "")
    past = Past(spark, source)
    into.name = name or choice.name(past.place)
    reached = into.reached()
    read = past.queues(choice)
    if into.queue in read and not same_queue:
        raise InvalidOption(
            f"queue {into.queue!r} would get its own messages again",
            hint="name another queue, or say same_queue=True (--same-queue) if that is meant",
            argument="same_queue",
        )
    make_active(spark)
    now = datetime.fromtimestamp((clock or SystemClock()).time(), UTC)
    chosen = _copies(select(past, choice, now), again=into.queue not in read).persist()
    try:
        found, gone = _count(chosen)
        if not found and reached < 0 and choice.feed == "messages" and past.fleeting == read != []:
            raise NotRetained(
                f"there is no message to replay: queue {read[0]!r} keeps none that is settled",
                hint="give the queue retain= for the next time; dead letters (dead=True, --dead) "
                "and archives have others",
            )
        whole = chosen.where((chosen.position > reached) & chosen.body.isNotNull())
        batches = list(_cut(whole))
        total = sum(batch.messages for batch in batches)
        put = 0
        for batch in batches:
            into.write(whole, batch)
            put += batch.messages
            if progress is not None:
                progress(put, total)
    finally:
        chosen.unpersist()
    return Replayed(found, put, len(batches), gone, into.name)


class _Target:
    """The queue that gets the copies, and the name under which it knows them."""

    def __init__(self, options: Mapping[str, str], name: str) -> None:
        self._options = {key.lower(): value for key, value in options.items()}
        self.queue = self._options.get("queue", "")
        self.name = name
        if not self.queue or not (self._options.get("endpoint") or self._options.get("path")):
            raise InvalidOption(
                "to= does not say which queue gets the messages",
                hint="give broker.queue(…).spark_options() of that queue",
                argument="to",
            )

    @property
    def _sink(self) -> str:
        return f"replay:{self.name}"

    def reached(self) -> int:
        """Return the position up to which it has the copies. Raises QueueNotFound, NoHost."""
        from embedq.ipc.errands import open_office  # noqa: PLC0415  # a choice needs no ZeroMQ

        given = self._options
        place = given.get("endpoint") or given["path"]
        with open_office(place, given.get("keys") or None, name="spark-replay") as office:
            office.info(self.queue)
            newest = office.newest_batch(self.queue, self._sink)
        return -1 if newest is None else newest

    def write(self, rows: DataFrame, batch: _Batch) -> None:
        """Put one batch, in the order of the positions, unless that was done before."""
        part = rows.where((rows.position > batch.after) & (rows.position <= batch.through))
        # The number of a batch is the position up to which it goes: numbers rise, and the newest
        # one says where the next run begins.
        (
            part.orderBy("position", "id")
            .select("body", "kind", "headers", "key", "priority")
            .write.format("embedq")
            .mode("append")
            .options(**self._options, sinkid=self._sink, batchid=str(batch.through))
            .option("olderbatches", "skip")
            .save()
        )


def _copies(chosen: DataFrame, *, again: bool) -> DataFrame:
    """Add the origin to the headers, and what a row takes. `again`: copies are copied, too."""
    from pyspark.sql import functions as f  # noqa: PLC0415  # was asked for

    headers = f.coalesce("headers", f.expr("cast(map() AS map<string,string>)"))
    if not again:
        chosen = chosen.where(~f.map_contains_key(headers, ORIGIN))
    others = f.map_filter(headers, lambda header, _: header != ORIGIN)
    origin = f.create_map(f.lit(ORIGIN), f.concat_ws("/", "queue", "id"))
    size = f.coalesce(f.octet_length("body"), f.lit(0)) + f.octet_length(f.to_json("headers"))
    return chosen.withColumn("headers", f.map_concat(others, origin)).withColumn(
        "size", size + _ROW_BYTES
    )


def _count(chosen: DataFrame) -> tuple[int, int]:
    from pyspark.sql import functions as f  # noqa: PLC0415  # was asked for

    row = chosen.agg(f.count(f.lit(1)), f.count("body")).head()
    assert row is not None  # noqa: S101  # an aggregate without groups has one row
    return row[0], row[0] - row[1]


def _cut(rows: DataFrame) -> Iterator[_Batch]:
    """Cut rows into batches, between positions: a position is in one batch, whole."""
    from pyspark.sql import functions as f  # noqa: PLC0415  # was asked for

    def counted(some: DataFrame, by: str) -> list[tuple[int, int, int, int]]:
        sums = some.groupBy(by).agg(
            f.max("position").alias("last"), f.count(f.lit(1)), f.sum("size")
        )
        return [(row[0], row[1], row[2], row[3]) for row in sums.orderBy("last").collect()]

    bands = rows.withColumn("band", f.floor(rows.position / _TOGETHER))
    parts = counted(bands, "band")
    large = [band for band, _, count, size in parts if count > PER_BATCH or size > BATCH_BYTES]
    if large:
        parts = [part for part in parts if part[0] not in large]
        parts += counted(bands.where(bands.band.isin(large)), "position")
        parts.sort(key=lambda part: part[1])
    ends = [-1]
    counts: list[int] = []
    bytes_in = 0
    for _, last, count, size in parts:
        if counts and counts[-1] + count <= PER_BATCH and bytes_in + size <= BATCH_BYTES:
            ends[-1] = last
            counts[-1] += count
            bytes_in += size
        else:
            ends.append(last)
            counts.append(count)
            bytes_in = size
    for (after, through), messages in zip(pairwise(ends), counts, strict=True):
        yield _Batch(after, through, messages)
