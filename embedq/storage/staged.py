"""Staged messages: written in parts by many, published by one in one transaction.

Knows: how a chunk of staged messages is stored, what staging, publishing and removing change.
Does not know: who writes, which batch may be published, SQL, the ready index.

A chunk is checked when it is staged and only inserted when it is published, as then everybody
else waits. Times that count from the put are resolved by `Publish`. See docs/decisions/0027.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

import msgspec

from embedq.errors import StageLost
from embedq.storage.ops import Op, PutPlain, PutRows
from embedq.storage.rows import Row


class StagedRow(NamedTuple):
    """A message that uses more than body and kind. `delay`, `window`: ms from the put on."""

    kind: int
    crc: int
    priority: int
    due: int | None
    delay: int | None
    expires: int | None
    key: str | None
    max_attempts: int | None
    headers: bytes | None
    body: bytes
    dedup_key: str | None = None
    window: int = 0

    def at(self, now: int) -> Row:
        """Return what is stored if it is put at `now` (ms)."""
        due = self.due if self.delay is None else now + self.delay
        return Row(
            kind=self.kind,
            crc=self.crc,
            priority=self.priority,
            due=due if due is not None and due > now else None,
            expires=self.expires,
            key=self.key,
            max_attempts=self.max_attempts,
            headers=self.headers,
            body=self.body,
            dedup_key=self.dedup_key,
            dedup_until=0 if self.dedup_key is None else now + self.window,
        )


class PlainChunk(msgspec.Struct, frozen=True, array_like=True, tag=0, gc=False):
    """Messages that have nothing but a body. `items` is flat: crc, body, crc, body and so on."""

    kind: int
    items: list[int | bytes]


class RowChunk(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """Messages of any kind."""

    rows: list[StagedRow]


Chunk = PlainChunk | RowChunk

encode_chunk = msgspec.msgpack.Encoder().encode
_decode_chunk = msgspec.msgpack.Decoder(Chunk).decode


def decode_chunk(data: bytes, crc: int, token: str) -> Chunk:
    """Return the messages of a stored chunk. Raises StageLost for a damaged one."""
    if crc32(data) == crc:
        try:
            chunk: Chunk = _decode_chunk(data)
        except msgspec.MsgspecError as error:
            cause: Exception | None = error
        else:
            return chunk
    else:
        cause = None
    message = f"a chunk that task {token} staged is damaged: nothing was published"
    raise StageLost(message) from cause


class StageRow(NamedTuple):
    """What is known of a staged chunk without reading it. `at`: ms."""

    sink: str
    token: str
    number: int
    queue: int
    messages: int
    size: int
    at: int


class SinkRow(NamedTuple):
    """The newest batch that a sink has published into a queue. `expires`: ms."""

    queue: int
    name: str
    batch: int
    messages: int
    at: int
    expires: int


class Part(NamedTuple):
    """What one task has staged: its token, how many chunks, how many messages in them."""

    token: str
    chunks: int
    messages: int


class Stage(Op, msgspec.Struct):
    """Keep a chunk of messages for a later `Publish`. One that is there already stays as it is."""

    queue: int
    sink: str
    token: str
    number: int
    messages: int
    at: int
    chunk: bytes

    @property
    def pages(self) -> int:
        """Roughly how many pages of the log this takes."""
        return 3 + (len(self.chunk) >> 12)


class Fresh(NamedTuple):
    """A published message that the ready index must know more of than its number."""

    seq: int
    priority: int
    due: int | None
    key: str | None
    max_attempts: int | None


class Publish(Op, msgspec.Struct):
    """Put everything that `parts` have staged, in their order, and remember the batch.

    The caller has seen that it is all there. Everything the sink has staged is removed, whatever
    task wrote it: what is not in `parts` belongs to attempts that failed. Raises StageLost for a
    damaged chunk; then nothing happened.
    Out: `stored` messages, `last` seq; what is new in the order of the seqs: `runs` of plain ones
    (first seq, count) and `others`; `size` of the chunks.
    """

    record: SinkRow
    parts: Sequence[Part]
    now: int
    stored: int = 0
    last: int = 0
    runs: list[tuple[int, int]] = msgspec.field(default_factory=list)
    others: list[Fresh] = msgspec.field(default_factory=list)
    size: int = 0

    def begin(self) -> None:
        """Set what it answers to nothing. For stores."""
        self.stored = self.last = self.size = 0
        self.runs, self.others = [], []

    def puts(self, data: bytes, crc: int, token: str) -> PutPlain | PutRows:
        """Return what must be put of a chunk. For stores."""
        self.size += len(data)
        chunk = decode_chunk(data, crc, token)
        queue = self.record.queue
        if isinstance(chunk, PlainChunk):
            return PutPlain(queue, self.now, chunk.kind, chunk.items, len(chunk.items) // 2)
        now = self.now
        return PutRows(queue, now, [row.at(now) for row in chunk.rows])

    def took(self, put: PutPlain | PutRows) -> None:
        """Note what a put of a chunk has stored. For stores."""
        if isinstance(put, PutPlain):
            self.stored += put.count
            self.last = put.first + put.count - 1
            self.runs.append((put.first, put.count))
            return
        for position in put.stored:
            row = put.rows[position]
            seq = put.seqs[position]
            self.others.append(Fresh(seq, row.priority, row.due, row.key, row.max_attempts))
            self.last = seq
        self.stored += len(put.stored)

    @property
    def pages(self) -> int:
        """Roughly how many pages of the log this took."""
        return 3 + (self.size >> 11)


class Unstage(Op, msgspec.Struct):
    """Remove staged chunks: of a sink, or of these tokens of it.

    Out: `removed`, how many there were.
    """

    sink: str
    tokens: Sequence[str] | None = None
    removed: int = 0


class ForgetSinks(Op, msgspec.Struct):
    """Remove the records of sinks that ended at `now` or before. Out: `removed`."""

    now: int
    removed: int = 0


#: Operations that need room on the disk and free none: refused when it is full.
STORING = (PutPlain, PutRows, Stage, Publish)
