"""Batches of Spark: tasks stage chunks of messages, a driver publishes them in one transaction.

Knows: which batch of a sink is new, which one a repetition; what a publishing does to memory.
Does not know: Spark, how calls travel, SQL.

A sink is whoever publishes batches into a queue under one name, one after another. Its newest
batch is remembered in the commit that published it: the same batch again adds nothing. Whatever
else it has staged then belongs to attempts that failed, and goes. See docs/decisions/0027.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from embedq.broker import bounds, chunks, moves
from embedq.broker.state import QueueState
from embedq.errors import InvalidOption, LimitExceeded, QueueFull, StageLost, shown
from embedq.names import check_key
from embedq.storage.ops import Op
from embedq.storage.staged import (
    Fresh,
    Part,
    Publish,
    SinkRow,
    Stage,
    StageRow,
    Unstage,
    encode_chunk,
)
from embedq.storage.writer import Task

if TYPE_CHECKING:
    from embedq.broker.engine import Engine

#: Sinks of such a name publish one batch in their life.
ONCE: Final = "once:"

#: Milliseconds for which a sink's newest batch is remembered: a year, and a day where a batch of
#: another number cannot follow.
SINK_KEPT_MS: Final = 365 * 24 * 3600 * 1000
ONCE_KEPT_MS: Final = 24 * 3600 * 1000


class Published(msgspec.Struct, frozen=True):
    """The answer to a publishing. `rows`: messages of the batch; `stored`: how many are new.

    `repeated`: the batch had been published before, and nothing was added.
    """

    repeated: bool
    rows: int
    stored: int


class Staging(Task):
    """Keep a chunk."""

    __slots__ = ("_op",)

    def __init__(self, op: Stage) -> None:
        super().__init__(len(op.chunk))
        self._op = op

    def prepare(self) -> Sequence[Op]:
        """Return the operation."""
        return (self._op,)

    def apply(self) -> None:
        """Do nothing: memory knows nothing of what is staged."""

    def undo(self) -> None:
        """Do nothing."""


class Publishing(Task):
    """Put what a batch has staged, unless it was published before.

    `late`: staged in the same commit.
    """

    __slots__ = ("_drop", "_engine", "_late", "_parts", "_queue", "_record", "full", "op")

    alone = True  # `prepare` asks the store what is there, and which messages are the oldest

    def __init__(
        self,
        engine: Engine,
        queue: QueueState,
        record: SinkRow,
        parts: Sequence[Part],
        late: Stage | None = None,
    ) -> None:
        super().__init__(64)
        self._late: list[Op] = [] if late is None else [late]
        self._engine = engine
        self._queue = queue
        self._record = record
        self._parts = parts
        self._drop: moves.Cancels | None = None
        self.op: Publish | None = None
        self.full: QueueFull | None = None

    def prepare(self) -> Sequence[Op]:
        """See whether the batch is new, whole, and has room."""
        self._drop = self.op = self.full = None
        earlier = self._engine.store.sink(self._queue.id, self._record.name)
        if earlier is not None and self._record.batch <= earlier.batch:
            return (Unstage(self._record.name),)
        missing = self._missing()
        if missing > 0 and self._queue.policy.when_full != "drop_oldest":
            self.full = bounds.full(self._queue)
            return ()
        self.op = Publish(self._record, self._parts, self._record.at)
        if missing <= 0:
            return (*self._late, self.op)
        oldest = bounds.oldest(self._engine, self._queue, missing)
        self._drop = moves.Cancels(self._engine, self._queue, oldest)
        return [*self._drop.prepare(), *self._late, self.op]

    def _missing(self) -> int:
        bound = self._queue.policy.max_length
        if bound is None:
            return 0
        queue = self._queue
        return bounds.length(queue) + queue.taken + self._record.messages - bound

    def apply(self) -> None:
        """Count, offer the messages to every group, and wake who waits for them."""
        if self._drop is not None:
            self._drop.apply()
            count, name = len(self._drop.removed), self._queue.name
            self._engine.events.emit("dropped", times=count, queue=name, count=count)
        op, queue = self.op, self._queue
        if op is None or not op.stored:
            return  # repeated, full, or all of it was known by dedup keys
        queue.stored += op.stored
        queue.puts += op.stored
        queue.last = op.last
        now = self._engine.now_ms()
        news: list[Fresh | tuple[int, int]] = [*op.runs, *op.others]
        news.sort(key=_first)  # an index takes them in their order
        for group in queue.groups:
            index = group.index
            for new in news:
                if isinstance(new, Fresh):
                    index.put_row(*new, now)
                else:
                    index.put_plain(*new)
            if group.waiters:
                group.waiters.wake(op.stored)
                self._engine.upkeep.expect(index.next_due())

    def undo(self) -> None:
        """Nothing was stored."""


def _first(new: Fresh | tuple[int, int]) -> int:
    return new[0]


def stage_put(
    engine: Engine, queue: QueueState, sink: str, token: str, number: int, data: bytes
) -> None:
    """Keep a chunk until it is published. Staged again, it stays as it was.

    Raises InvalidPayload, InvalidOption, InvalidName, LimitExceeded, StoreFull.
    """
    check_key(sink, "sink")
    check_key(token, "token")
    if number < 0:
        raise InvalidOption(f"number={shown(number)} of a chunk is below 0", argument="number")
    now = engine.now_ms()
    wanted, count = chunks.checked(queue, data, now, engine.limits)
    chunk = encode_chunk(chunks.staged(wanted))
    _check_room(engine, queue, sink, len(chunk))
    op = Stage(queue.id, sink, token, number, count, now, chunk)
    engine.writer.run(Staging(op))


def put_through(
    engine: Engine, queue: QueueState, token: str, number: int, data: bytes
) -> Published:
    """Put a chunk of a task at once; the same number again adds nothing. Numbers only rise.

    Raises what `stage_put` raises, and QueueFull.
    """
    sink = f"{ONCE}{token}"
    check_key(sink, "token")
    now = engine.now_ms()
    wanted, count = chunks.checked(queue, data, now, engine.limits)
    record = SinkRow(queue.id, sink, number, count, now, now + ONCE_KEPT_MS)
    chunk = encode_chunk(chunks.staged(wanted))
    late = Stage(queue.id, sink, token, 0, count, now, chunk)
    _count_if_bounded(engine, queue)
    bounds.check_fits(queue, count)
    return _run(engine, Publishing(engine, queue, record, [Part(token, 1, count)], late), count)


def _count_if_bounded(engine: Engine, queue: QueueState) -> None:
    if queue.policy.max_length is not None and not engine.counts_exact:
        engine.upkeep.count()


def _run(engine: Engine, task: Publishing, count: int) -> Published:
    engine.writer.run(task)
    if task.full is not None:
        raise task.full
    if task.op is None:
        return Published(repeated=True, rows=count, stored=0)
    return Published(repeated=False, rows=count, stored=task.op.stored)


def _check_room(engine: Engine, queue: QueueState, sink: str, size: int) -> None:
    limits = engine.limits
    rows = engine.store.staged()
    mine = sum(row.size for row in rows if row.sink == sink)
    if mine + size > 2 * limits.publish_bytes:  # twice: attempts that failed are in it, too
        raise _too_large(queue, sink, mine + size, 2 * limits.publish_bytes)
    if sum(row.size for row in rows) + size > limits.stage_bytes:
        raise LimitExceeded(
            f"queue {queue.name!r}: what sinks have staged would be more than "
            f"stage_bytes={limits.stage_bytes}",
            hint="write smaller batches, fewer at once, or with mode=direct; what writers that "
            f"are gone have staged leaves after {limits.stage_kept_s:.0f} s",
            limit="stage_bytes",
        )


def _too_large(queue: QueueState, sink: str, size: int, most: int) -> LimitExceeded:
    return LimitExceeded(
        f"queue {queue.name!r}: sink {sink!r} has staged {size} bytes, more than the {most} that "
        "one batch may have, as everybody waits while it is published",
        hint="write smaller batches (streams: maxOffsetsPerTrigger), or with mode=direct",
        limit="publish_bytes",
    )


def stage_publish(
    engine: Engine,
    queue: QueueState,
    sink: str,
    batch: int,
    parts: Sequence[Part],
    older: str = "error",
) -> Published:
    """Put what the tasks of a batch have staged, in one transaction, in the order of the parts.

    A batch that the sink has published already adds nothing. One that is older than its newest
    raises InvalidOption, or with older="skip" adds nothing; so does the newest with another number
    of messages. Raises StageLost, QueueFull, LimitExceeded, StoreFull; then nothing was put.
    """
    check_key(sink, "sink")
    if older not in {"error", "skip"}:
        raise InvalidOption(
            f"older={shown(older)} is neither 'error' nor 'skip'", argument="older"
        )
    if batch < 0:
        raise InvalidOption(f"batch={shown(batch)} is below 0", argument="batch")
    count = sum(part.messages for part in parts)
    _count_if_bounded(engine, queue)
    now = engine.now_ms()
    kept = SINK_KEPT_MS if not sink.startswith(ONCE) else ONCE_KEPT_MS
    record = SinkRow(queue.id, sink, batch, count, now, now + kept)
    earlier = _newest(engine, queue, sink)
    if earlier is None or batch > earlier.batch:
        bounds.check_fits(queue, count)
        _check_whole(engine, queue, sink, parts)
    else:
        _check_same(queue, earlier, record, older)
    return _run(engine, Publishing(engine, queue, record, parts), count)


def newest_batch(engine: Engine, queue: QueueState, sink: str) -> int | None:
    """Return the number of the newest batch that a sink has published, None: there is none."""
    check_key(sink, "sink")
    newest = _newest(engine, queue, sink)
    return None if newest is None else newest.batch


def _newest(engine: Engine, queue: QueueState, sink: str) -> SinkRow | None:
    with engine.writer.entry, engine.writer.lock:
        engine.writer.settle()
        return engine.store.sink(queue.id, sink)


def _check_whole(engine: Engine, queue: QueueState, sink: str, parts: Sequence[Part]) -> None:
    """Raise StageLost unless everything of the parts is there, LimitExceeded if it is too much."""
    found: dict[str, list[StageRow]] = {}
    for row in engine.store.staged(sink):
        if row.queue == queue.id:
            found.setdefault(row.token, []).append(row)
    size = 0
    for part in parts:
        rows = found.get(part.token, [])
        if [row.number for row in rows] != list(range(part.chunks)) or part.messages != sum(
            row.messages for row in rows
        ):
            raise StageLost(
                f"queue {queue.name!r}: sink {sink!r} has {len(rows)} of the {part.chunks} chunks "
                f"that task {part.token} has staged; nothing was published"
            )
        size += sum(row.size for row in rows)
    if size > engine.limits.publish_bytes:
        raise _too_large(queue, sink, size, engine.limits.publish_bytes)


def _check_same(queue: QueueState, earlier: SinkRow, record: SinkRow, older: str) -> None:
    if older == "skip":
        return
    name = f"queue {queue.name!r}: sink {record.name!r}"
    if record.batch < earlier.batch:
        raise _other_batch(f"{name} is at batch {earlier.batch} already, this is {record.batch}")
    if record.messages != earlier.messages:
        raise _other_batch(
            f"{name} has published batch {record.batch} with {earlier.messages} messages, and now "
            f"it has {record.messages}"
        )


def _other_batch(message: str) -> InvalidOption:
    return InvalidOption(
        message,
        hint="with a new checkpoint use a new sinkId; to go on with an older checkpoint, whose "
        "batches are in the queue, set olderBatches=skip",
        argument="sinkId",
    )


def stage_abort(engine: Engine, sink: str, tokens: Sequence[str] | None = None) -> int:
    """Remove what a sink has staged, or these tasks of it; return how many chunks there were."""
    op = Unstage(sink, tokens)
    engine.writer.run(moves.Change([op]))
    return op.removed


def sweep(engine: Engine) -> None:
    """Remove what was staged long ago and never published."""
    over = engine.now_ms() - round(engine.limits.stage_kept_s * 1000)
    newest: dict[tuple[str, str], list[StageRow]] = {}
    for row in engine.store.staged():
        newest.setdefault((row.sink, row.token), []).append(row)
    old: dict[str, list[StageRow]] = {}
    for (sink, _), rows in newest.items():
        if max(row.at for row in rows) < over:
            old.setdefault(sink, []).extend(rows)
    names = {queue.id: queue.name for queue in list(engine.queues.values())}
    for sink, rows in old.items():
        op = Unstage(sink, sorted({row.token for row in rows}))
        engine.writer.run(moves.Change([op]))
        engine.events.emit(
            "stage_swept",
            queue=names.get(rows[0].queue, str(rows[0].queue)),
            sink=sink,
            count=sum(row.messages for row in rows),
        )
