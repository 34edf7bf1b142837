"""Dead letters as a workbench: redrive, purge; letters.py lists and shows them.

Knows: that every part of a long move is one transaction.
Does not know: why a message died, who asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from embedq.broker.letters import Filter, Letters, Rows, Since, check_limit
from embedq.broker.purge import Progress, check_progress
from embedq.broker.state import QueueState
from embedq.errors import InvalidOption, shown
from embedq.message import Receipt
from embedq.storage.ops import Op, PurgeDead, Redrive
from embedq.storage.rows import DeadRow
from embedq.storage.writer import Task

if TYPE_CHECKING:
    from embedq.broker.desk import Desk

#: Letters in one transaction, and the bytes after which one ends sooner.
CHUNK: Final = 100
_CHUNK_BYTES: Final = 4 << 20

_Receipts = list[Receipt]


class RedriveChunk(Task):
    """Put dead letters again as new messages."""

    __slots__ = ("_desk", "_queue", "_rows", "op")

    def __init__(self, desk: Desk, queue: QueueState, rows: Sequence[DeadRow]) -> None:
        super().__init__(sum(len(row.body) for row in rows))
        self._desk = desk
        self._queue = queue
        self._rows = rows
        origins = [desk.ids.encode(row.seq) for row in rows]
        self.op = Redrive(queue.id, [row.id for row in rows], origins, desk.now_ms())

    def prepare(self) -> Sequence[Op]:
        """Return the operation."""
        for group in self._queue.groups:
            group.filled_in = self._desk.writer.groups  # see direct.py
        return (self.op,)

    def apply(self) -> None:
        """Count, and offer the messages to every group."""
        queue = self._queue
        now = self._desk.now_ms()
        for row, seq in zip(self._rows, self.op.seqs, strict=True):
            if seq is None:
                continue
            queue.dead -= 1
            queue.stored += 1
            queue.puts += 1
            queue.last = seq
            for group in queue.groups:
                group.index.put_row(seq, row.priority, None, row.key, row.max_attempts, now)
                group.waiters.wake()


class PurgeDeadChunk(Task):
    """Remove dead letters."""

    __slots__ = ("_queue", "op")

    def __init__(self, queue: QueueState, rows: Sequence[DeadRow]) -> None:
        super().__init__(64)
        self._queue = queue
        self.op = PurgeDead(queue.id, [row.id for row in rows])

    def prepare(self) -> Sequence[Op]:
        """Return the operation."""
        return (self.op,)

    def apply(self) -> None:
        """Count."""
        self._queue.dead -= self.op.removed


class DeadLetters(Letters):
    """The dead letters of one queue at their host; embedq.app.letters is what applications see."""

    def __init__(self, desk: Desk, queue: QueueState) -> None:
        super().__init__(queue, desk.store, desk.ids, desk.now_ms, lambda: desk.redact)
        self._desk = desk
        self._queue = queue

    def __len__(self) -> int:
        """How many there are."""
        return self._queue.dead

    def redrive(
        self,
        *ids: str,
        reason: str | None = None,
        since: Since | None = None,
        group: str | None = None,
        error: str | None = None,
        limit: int | None = None,
        by: str = "program",
        progress: Progress | None = None,
    ) -> _Receipts:
        """Put letters again as new messages: those of `ids`, or all that fit; return receipts.

        Many are moved in parts, each one transaction; interrupted, some are moved and the rest
        is where it was: the same call goes on. Letters that come meanwhile stay. Raises
        UnknownMessage for an id that is no dead letter; then nothing was moved.
        """
        if not isinstance(by, str):
            raise InvalidOption(f"by={shown(by)} is not a text", argument="by")
        check_progress(progress)
        moved: _Receipts = []

        def part(rows: Rows) -> int:
            task = RedriveChunk(self._desk, self._queue, rows)
            self._desk.writer.run(task)
            seqs = [seq for seq in task.op.seqs if seq is not None]
            moved.extend(Receipt(self._desk.ids, seq) for seq in seqs)
            return len(seqs)

        rows = self._chosen(ids, self._filter(reason, since, group, error), limit)
        try:
            self._in_parts(rows, part, progress)
        finally:
            count = len(moved)
            if count:
                queue = self._queue.name
                self._desk.events.emit("redriven", times=count, queue=queue, count=count, by=by)
        return moved

    def purge(
        self,
        *ids: str,
        reason: str | None = None,
        since: Since | None = None,
        group: str | None = None,
        error: str | None = None,
        limit: int | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Remove letters: those of `ids`, or all that fit; return how many. See `redrive`."""
        check_progress(progress)

        def part(rows: Rows) -> int:
            task = PurgeDeadChunk(self._queue, rows)
            self._desk.writer.run(task)
            return task.op.removed

        rows = self._chosen(ids, self._filter(reason, since, group, error), limit)
        removed = self._in_parts(rows, part, progress)
        self._desk.events.emit(
            "purged", queue=self._queue.name, group=group, what="dead letters", count=removed
        )
        return removed

    # -------------------------------------------------------------------------- choosing

    def _chosen(self, ids: Sequence[str], wanted: Filter, limit: int | None) -> Iterator[DeadRow]:
        if limit is not None:
            check_limit(limit)
        if ids:
            found = {row.id: row for each in ids for row in self._by_id(each, wanted.group)}
            return iter([row for row in found.values() if wanted.fits(row)][:limit])
        return self._until_now(wanted, limit)

    def _until_now(self, wanted: Filter, limit: int | None) -> Iterator[DeadRow]:
        """Go through those that are dead now: what is redriven may die again meanwhile."""
        now = self._now_ms()
        for count, row in enumerate(self._matching(wanted)):
            if count == limit or row.died > now:
                return
            yield row

    @staticmethod
    def _in_parts(
        rows: Iterator[DeadRow],
        part: Callable[[Rows], int],
        progress: Progress | None,
    ) -> int:
        done = 0
        chunk: Rows = []
        size = 0
        for row in rows:
            chunk.append(row)
            size += len(row.body)
            if len(chunk) == CHUNK or size >= _CHUNK_BYTES:
                done += part(chunk)
                chunk, size = [], 0
                if progress is not None:
                    progress(done, done)
        if chunk:
            done += part(chunk)
            if progress is not None:
                progress(done, done)
        return done
