"""The questions half of the SQLite store: which connection answers what.

Knows: that reads use short snapshots of their own, and what must be read under the lock.
Does not know: how answers are found (reads.py), what commits change.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import TypeVar

from embedq.errors import EmbedqError, GroupNotFound, StorageError
from embedq.policy import QueuePolicy
from embedq.storage import apply_held, apply_staged, departed, reads, statements as sql
from embedq.storage.apply import Applier
from embedq.storage.connection import DAMAGED, ERRORS, meaning
from embedq.storage.port import Load, LoadDue, Tally
from embedq.storage.readers import Readers
from embedq.storage.rows import (
    Chunk,
    DeadRow,
    DeliveryRow,
    DueChunk,
    GroupRow,
    QueueRow,
    Stored,
    Waiting,
)
from embedq.storage.staged import SinkRow, StageRow

T = TypeVar("T")


class Questions:
    """What SqliteStore answers. `read` may be called from any thread, `ask` under the lock."""

    connection: sqlite3.Connection
    path: str
    epoch: int
    last_seq: int
    _readers: Readers
    _applier: Applier
    _stopped: EmbedqError | None
    _ceiling: int

    def stop(self, reason: StorageError) -> None:
        """Stop serving: every later call raises `reason`, or the one that came first."""
        if self._stopped is None:
            self._stopped = reason
        self._ceiling = -1  # so that the short way of a put ends here, too

    def read(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """Answer from one short snapshot, on a connection that can only read."""
        if self._stopped is not None:
            raise self._stopped
        try:
            return self._readers.run(question)
        except ERRORS as error:
            raise self._meaning(error) from error
        except DAMAGED as error:  # one row is: the store goes on for the others
            raise meaning(error, self.path) from error

    def ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """Answer from the writing connection: the newest state, while the caller has the lock."""
        if self._stopped is not None:
            raise self._stopped
        try:
            return question(self.connection)
        except ERRORS as error:
            raise self._meaning(error) from error
        except DAMAGED as error:
            raise meaning(error, self.path) from error

    def _meaning(self, error: Exception) -> StorageError:
        what = meaning(error, self.path)
        if what.code in {"store_corrupt", "store_failed"}:
            self.stop(what)
        return what

    def _group(self, group: int) -> GroupRow:
        try:
            return self._applier.catalogue.groups[group]
        except KeyError:
            raise GroupNotFound(f"{self.path} has no consumer group number {group}") from None

    def catalogue(self) -> tuple[list[QueueRow], list[GroupRow]]:
        """See the port."""
        return self.ask(lambda db: reads.catalogue(db, self.last_seq, QueuePolicy.decode))

    def load(self, request: Load) -> Chunk:
        """See the port. Long stretches are looked at in snapshots of their own."""
        group = self._group(request.group)
        fresh: list[int] = []
        others: list[Waiting] = []
        after = request.after
        while after < request.upto and len(fresh) + len(others) < request.limit:
            part = request._replace(after=after, limit=request.limit - len(fresh) - len(others))
            chunk = self.read(lambda db, part=part: reads.load(db, part, group.queue, group.floor))  # type: ignore[misc]
            fresh += chunk.fresh
            others += chunk.others
            after = chunk.after
        return Chunk(fresh, others, max(after, request.after))

    def load_due(self, request: LoadDue) -> DueChunk:
        """See the port."""
        group = self._group(request.group)
        return self.read(lambda db: reads.load_due(db, request, group.queue, group.floor))

    def next_of_key(self, group: int, key: str, after: int) -> Waiting | None:
        """See the port."""
        row = self._group(group)
        lowest = max(after, row.floor)
        return self.ask(lambda db: reads.next_of_key(db, group, row.queue, key, lowest))

    def latest(self, group: int, seq: int) -> DeliveryRow | None:
        """See the port."""
        row = self._group(group)
        return self.ask(lambda db: reads.latest(db, group, seq, row.queue, row.floor))

    def open_deliveries(self, group: int, seqs: Iterable[int]) -> dict[int, int]:
        """See the port."""
        wanted = list(seqs)
        return self.ask(lambda db: reads.open_among(db, group, self.epoch, wanted))

    def messages(self, seqs: Sequence[int]) -> list[Stored]:
        """See the port."""
        return self.read(lambda db: reads.messages(db, seqs))

    def expired(self, now: int, limit: int) -> list[tuple[int, int]]:
        """See the port."""
        return self.read(lambda db: db.execute(sql.EXPIRED, (now, limit)).fetchall())

    def unsettled(self, seq: int) -> list[int]:
        """See the port."""
        rows = self.read(lambda db: db.execute(sql.UNSETTLED_GROUPS, (seq,)).fetchall())
        return [row[0] for row in rows]

    def put_before(self, queue: int, after: int, upto: int, time_ms: int) -> int | None:
        """See the port."""
        return self.read(lambda db: apply_held.put_before(db, queue, after, upto, time_ms))

    def range(self, queue: int, after: int, limit: int) -> list[Stored]:
        """See the port."""
        return self.read(lambda db: reads.message_range(db, queue, after, limit))

    def deliveries(self, seq: int) -> list[DeliveryRow]:
        """See the port."""
        return self.read(lambda db: reads.deliveries(db, seq))

    def dead(self, queue: int, after: int, limit: int) -> list[DeadRow]:
        """See the port."""
        return self.read(lambda db: reads.dead(db, queue, after, limit))

    def dead_letter(self, seq: int, group: int) -> DeadRow | None:
        """See the port."""
        return self.read(lambda db: reads.dead_letter(db, seq, group))

    def sink(self, queue: int, name: str) -> SinkRow | None:
        """See the port."""
        return self.ask(lambda db: apply_staged.sink(db, queue, name))

    def staged(self, name: str | None = None) -> list[StageRow]:
        """See the port."""
        return self.read(lambda db: apply_staged.staged(db, name))

    def begin_tally(self) -> Callable[[], Tally]:
        """See the port. The snapshot pins the log while it is being counted."""
        if self._stopped is not None:
            raise self._stopped
        try:
            snapshot = self._readers.snapshot()
        except ERRORS as error:
            raise self._meaning(error) from error

        def count() -> Tally:
            with closing(snapshot):
                try:
                    groups = [GroupRow(*row) for row in snapshot.execute(sql.GROUPS)]
                    tally = reads.tally(snapshot, groups, 0, reads.EVERYTHING)
                    dead = dict(snapshot.execute(sql.DEAD_COUNTS).fetchall())
                except ERRORS as error:
                    raise self._meaning(error) from error
            return tally._replace(dead=dead)

        return count

    def find_sessions(self, tokens: Iterable[bytes]) -> dict[bytes, int]:
        """See the port."""
        wanted = list(tokens)
        return self.read(lambda db: reads.find_sessions(db, wanted))

    def closed_sessions(self) -> set[int]:
        """See the port."""
        return self.read(lambda db: departed.closed(db, self.epoch))

    def named_sessions(self) -> set[int]:
        """See the port."""
        return self.read(departed.named)

    def session_names(self, ids: Iterable[int]) -> dict[int, str]:
        """See the port."""
        wanted = list(ids)
        return self.read(lambda db: reads.session_names(db, wanted))
