"""What staging and publishing change, in SQL, inside a transaction of the writer.

Knows: the statements about staged chunks and sinks.
Does not know: how messages are put (apply.py), transactions, who may publish.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from zlib import crc32

from embedq.errors import StageLost
from embedq.storage import statements as sql
from embedq.storage.ops import Op, PutPlain, PutRows
from embedq.storage.staged import ForgetSinks, Part, Publish, SinkRow, Stage, StageRow, Unstage


class StagedApplier:
    """Applies these operations through one connection. Used with the writer's lock held.

    `put_rows` stores messages of any kind.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        take_seqs: Callable[[int], int],
        put_rows: Callable[[PutRows], None],
    ) -> None:
        self._execute = connection.execute
        self._take_seqs = take_seqs
        self._put_rows = put_rows
        self.handlers: Mapping[type[Op], Callable[..., None]] = {
            Stage: self._stage,
            Publish: self._publish,
            Unstage: self._unstage,
            ForgetSinks: self._forget,
        }

    def _stage(self, op: Stage) -> None:
        key = (op.sink, op.token, op.number)
        if self._execute(sql.STAGED_ONE, key).fetchone() is None:
            values = (op.queue, *key, op.messages, len(op.chunk), op.at, crc32(op.chunk), op.chunk)
            self._execute(sql.STAGE_ADD, values)

    def _publish(self, op: Publish) -> None:
        op.begin()
        for part in op.parts:
            for number in range(part.chunks):
                self._publish_chunk(op, part, number)
        self._execute(sql.UNSTAGE, (op.record.name,))
        self._execute(sql.SINK_SET, op.record)

    def _publish_chunk(self, op: Publish, part: Part, number: int) -> None:
        # Chunk by chunk, and removed at once: the memory of one, and its pages for the next.
        key = (op.record.name, part.token, number)
        found = self._execute(sql.STAGED_CHUNK, key).fetchone()
        if found is None:
            raise StageLost(f"chunk {number} that task {part.token} staged is gone")
        id_, crc, data = found
        put = op.puts(data, crc, part.token)
        if isinstance(put, PutRows):
            self._put_rows(put)
        else:
            self._put_plain(put)
        op.took(put)
        self._execute(sql.UNSTAGE_ONE, (id_,))

    def _put_plain(self, op: PutPlain) -> None:
        op.first = first = self._take_seqs(op.count)
        head = (op.queue, op.put_at, op.kind)
        for start, size in sql.rungs(op.count):
            items = op.items[2 * start : 2 * (start + size)]
            self._execute(sql.insert_plain(size), (first + start, *head, *items))

    def _unstage(self, op: Unstage) -> None:
        if op.tokens is None:
            op.removed = self._execute(sql.UNSTAGE, (op.sink,)).rowcount
            return
        op.removed = 0
        for token in op.tokens:
            op.removed += self._execute(sql.UNSTAGE_TOKEN, (op.sink, token)).rowcount

    def _forget(self, op: ForgetSinks) -> None:
        op.removed = self._execute(sql.SINK_FORGET, (op.now,)).rowcount


def sink(connection: sqlite3.Connection, queue: int, name: str) -> SinkRow | None:
    """Return the newest batch that a sink has published."""
    row = connection.execute(sql.SINK_NEWEST, (queue, name)).fetchone()
    return None if row is None else SinkRow._make(row)


def staged(connection: sqlite3.Connection, name: str | None) -> list[StageRow]:
    """Return what a sink has staged; None: what all have."""
    which = (sql.STAGED_ALL, ()) if name is None else (sql.STAGED_BY, (name,))
    found = connection.execute(*which)
    return [StageRow._make(row) for row in found]
