"""Dead letters as a workbench: list, show, redrive, purge.

Knows: filters, that every part of a long move is one transaction, what is hidden when shown.
Does not know: why a message died, who asks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from embedq.broker.purge import Progress
from embedq.broker.redaction import hider, redacted
from embedq.broker.state import QueueState
from embedq.broker.twins import twin
from embedq.clock import parse_duration
from embedq.errors import InvalidOption, UnknownMessage, shown
from embedq.lifecycle import Reason
from embedq.message import AttemptRecord, DeadLetter, Receipt
from embedq.storage.ops import Op, PurgeDead, Redrive
from embedq.storage.rows import DeadRow
from embedq.storage.writer import Task

if TYPE_CHECKING:
    from embedq.broker.desk import Desk

#: Letters in one transaction, and the bytes after which one ends sooner.
CHUNK: Final = 100
_CHUNK_BYTES: Final = 4 << 20
_PAGE: Final = 200

T = TypeVar("T")
_Rows = list[DeadRow]
_Receipts = list[Receipt]
Since = str | float | timedelta | datetime
_log = logging.getLogger("embedq")
_decode_attempts = msgspec.msgpack.Decoder(list[AttemptRecord]).decode
_decode_headers = msgspec.msgpack.Decoder(dict[str, str]).decode


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


class DeadLetters:
    """The dead letters of one queue. Filters: all that are given must fit.

    `reason`: one of lifecycle.Reason. `since`: not before a datetime, or at most so long ago
    ("2h", seconds). `group`: a group's name. `error`: part of the type or text of the last error.
    """

    def __init__(self, desk: Desk, queue: QueueState) -> None:
        self._desk = desk
        self._queue = queue

    def __len__(self) -> int:
        """How many there are."""
        return self._queue.dead

    def list(
        self,
        *,
        reason: str | None = None,
        since: Since | None = None,
        group: str | None = None,
        error: str | None = None,
        limit: int = 100,
        after: int = 0,
    ) -> list[DeadLetter]:
        """Return letters in the order of dying; `after` is the `number` of the last one seen."""
        _check_limit(limit)
        found: list[DeadLetter] = []
        for row in self._matching(_Filter(self._desk, reason, since, group, error), after):
            found.append(self._shown(row))
            if len(found) == limit:
                break
        return found

    def show(self, message_id: str, group: str | None = None) -> DeadLetter:
        """Return one letter, of any group unless named. Raises UnknownMessage."""
        return self._shown(self._by_id(message_id, group)[0])

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
        moved: _Receipts = []

        def part(rows: _Rows) -> int:
            task = RedriveChunk(self._desk, self._queue, rows)
            self._desk.writer.run(task)
            seqs = [seq for seq in task.op.seqs if seq is not None]
            moved.extend(Receipt(self._desk.ids, seq) for seq in seqs)
            return len(seqs)

        rows = self._chosen(ids, _Filter(self._desk, reason, since, group, error), limit)
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

        def part(rows: _Rows) -> int:
            task = PurgeDeadChunk(self._queue, rows)
            self._desk.writer.run(task)
            return task.op.removed

        rows = self._chosen(ids, _Filter(self._desk, reason, since, group, error), limit)
        removed = self._in_parts(rows, part, progress)
        self._desk.events.emit(
            "purged", queue=self._queue.name, group=group, what="dead letters", count=removed
        )
        return removed

    alist = twin(list)  # noqa: A003  # the method, on purpose
    ashow = twin(show)
    aredrive = twin(redrive)
    apurge = twin(purge)

    # -------------------------------------------------------------------------- choosing

    def _matching(self, wanted: _Filter, after: int = 0) -> Iterator[DeadRow]:
        while rows := self._desk.store.dead(self._queue.id, after, _PAGE):
            yield from filter(wanted.fits, rows)
            after = rows[-1].id

    def _chosen(self, ids: Sequence[str], wanted: _Filter, limit: int | None) -> Iterator[DeadRow]:
        if limit is not None:
            _check_limit(limit)
        if ids:
            found = {row.id: row for each in ids for row in self._by_id(each, wanted.group)}
            return iter([row for row in found.values() if wanted.fits(row)][:limit])
        return self._until_now(wanted, limit)

    def _until_now(self, wanted: _Filter, limit: int | None) -> Iterator[DeadRow]:
        """Go through those that are dead now: what is redriven may die again meanwhile."""
        now = self._desk.now_ms()
        for count, row in enumerate(self._matching(wanted)):
            if count == limit or row.died > now:
                return
            yield row

    def _by_id(self, message_id: str, group: str | None) -> _Rows:
        seq = self._desk.seq_of(message_id)
        rows = [
            row
            for known in list(self._queue.groups)
            if group in {None, known.name}
            and (row := self._desk.store.dead_letter(seq, known.id)) is not None
        ]
        if not rows:
            raise UnknownMessage(
                f"queue {self._queue.name!r} has no dead letter {message_id}",
                hint="it was redriven or purged, or is in another queue or group",
            )
        return rows

    @staticmethod
    def _in_parts(
        rows: Iterator[DeadRow],
        part: Callable[[_Rows], int],
        progress: Progress | None,
    ) -> int:
        done = 0
        chunk: _Rows = []
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

    # --------------------------------------------------------------------------- showing

    def _shown(self, row: DeadRow) -> DeadLetter:
        desk = self._desk
        hide = hider(desk.redact)
        names = {group.id: group.name for group in self._queue.groups}
        none: dict[str, str] = {}
        headers = None if row.headers is None else _readable(row.headers, _decode_headers, none)
        return DeadLetter(
            desk.ids,
            row.seq,
            queue=self._queue.name,
            group=names.get(row.group, f"(removed group {row.group})"),
            reason=row.reason,
            detail=hide(row.detail),
            died_ms=row.died,
            put_at_ms=row.put_at,
            moved_by=row.moved_by,
            body=row.body,
            kind=row.kind,
            headers=None if headers is None else {n: hide(v) for n, v in headers.items()},
            priority=row.priority,
            ordering_key=row.key,
            attempts=tuple(
                msgspec.structs.replace(record, error=redacted(record.error, desk.redact))
                for record in attempts_of(row)
            ),
            number=row.id,
        )


class _Filter:
    """What letters must be like."""

    def __init__(
        self,
        desk: Desk,
        reason: str | None,
        since: Since | None,
        group: str | None,
        error: str | None,
    ) -> None:
        if reason is not None and reason not in list(Reason):
            raise InvalidOption(
                f"reason={shown(reason)} is no reason of dead letters",
                hint=f"reasons are {', '.join(Reason)}",
                argument="reason",
            )
        self.group = group
        self._reason = reason
        self._since = None if since is None else _moment(since, desk.now_ms())
        self._groups = None
        if group is not None:
            queues = desk.queues.values()
            self._groups = {g.id for q in queues for g in q.groups if g.name == group}
        self._error = error

    def fits(self, row: DeadRow) -> bool:
        """Whether a letter is wanted."""
        return (
            (self._reason is None or row.reason == self._reason)
            and (self._since is None or row.died >= self._since)
            and (self._groups is None or row.group in self._groups)
            and (self._error is None or _last_error_has(row, self._error))
        )


def attempts_of(row: DeadRow) -> list[AttemptRecord]:
    """Return the attempts kept with a letter; none if what was kept cannot be read."""
    return [] if row.attempts is None else _readable(row.attempts, _decode_attempts, [])


def _readable(data: bytes, decode: Callable[[bytes], T], otherwise: T) -> T:
    try:
        return decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        # A damaged part must not hide the letter it belongs to.
        _log.warning("part of a dead letter cannot be read: %s", error)
        return otherwise


def _last_error_has(row: DeadRow, text: str) -> bool:
    attempts = attempts_of(row)
    error = attempts[-1].error if attempts else None
    return error is not None and (text in error.type or text in error.message)


def _moment(since: Since, now_ms: int) -> int:
    if isinstance(since, datetime):
        return round(since.timestamp() * 1000)
    return now_ms - round(parse_duration(since, "since") * 1000)


def _check_limit(limit: int) -> None:
    if type(limit) is not int or limit < 1:
        raise InvalidOption(f"limit={shown(limit)} is not 1 or more", argument="limit")
