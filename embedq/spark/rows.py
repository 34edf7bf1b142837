"""From Arrow batches to chunks of messages.

Knows: how each column becomes what is said of a message, how large chunks are.
Does not know: PySpark, options, who takes the chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from embedq.broker.chunks import PlainBodies, Wish, Wishes, encode
from embedq.errors import InvalidPayload
from embedq.limits import LIMITS
from embedq.payload import BYTES, CONTENT_TYPES, TEXT

#: Bytes of bodies in a chunk, about: enough to share a call, few to hold twice in memory.
CHUNK_BYTES: Final = 4 * 1024 * 1024


class Made(NamedTuple):
    """A chunk, encoded, and how many messages are in it."""

    data: bytes
    messages: int


def chunks(batches: Iterable[pa.RecordBatch], body: str, columns: Sequence[str]) -> Iterator[Made]:
    """Make chunks of all rows, in their order. Raises InvalidPayload for a body that is NULL."""
    plain = tuple(columns) == (body,)
    kind = BYTES
    waiting: list[Any] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        column = batch.column(columns.index(body))
        kind = (
            BYTES
            if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
            else TEXT
        )
        rows, sizes = _bodies(column, body)
        made = rows if plain else _wishes(batch, columns, rows, kind)
        total = sum(sizes)
        if size + total <= CHUNK_BYTES and len(waiting) + len(rows) <= LIMITS.batch_messages:
            waiting += made
            size += total
            continue
        for row, length in zip(made, sizes, strict=True):
            if waiting and (size + length > CHUNK_BYTES or len(waiting) == LIMITS.batch_messages):
                yield _made(waiting, kind, plain=plain)
                waiting, size = [], 0
            waiting.append(row)
            size += length
    if waiting:
        yield _made(waiting, kind, plain=plain)


def _made(rows: list[Any], kind: int, *, plain: bool) -> Made:
    return Made(encode(PlainBodies(kind, rows) if plain else Wishes(rows)), len(rows))


def _bodies(column: pa.Array, name: str) -> tuple[list[bytes], list[int]]:
    if column.null_count:
        raise InvalidPayload(
            f"{column.null_count} of {len(column)} rows have no {name} (NULL)",
            hint=f"leave them out, or say what an empty one is: coalesce({name}, '')",
        )
    lengths: list[int] = pc.binary_length(column).to_pylist()
    kind = pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary()
    found: list[bytes] = column.cast(kind).to_pylist()
    return found, lengths


def _wishes(
    batch: pa.RecordBatch, columns: Sequence[str], bodies: list[bytes], kind: int
) -> list[Wish]:
    found = {name: batch.column(place) for place, name in enumerate(columns)}
    count = len(bodies)
    kinds = _kinds(found.get("kind"), kind, count)
    priorities = _values(found.get("priority"), count)
    return [
        Wish(*fields)
        for fields in zip(
            bodies,
            kinds,
            _headers(found.get("headers"), count),
            [priority or 0 for priority in priorities],
            _delays(found.get("delay_s"), count),
            _times(found.get("due_at"), count),
            _times(found.get("expires_at"), count),
            _values(found.get("dedup_key"), count),
            _values(found.get("key"), count),
            _values(found.get("max_attempts"), count),
            strict=True,
        )
    ]


def _values(column: pa.Array | None, count: int) -> list[Any]:
    return [None] * count if column is None else column.to_pylist()


def _times(column: pa.Array | None, count: int) -> list[Any]:
    if column is None:
        return [None] * count
    micros = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return [None if value is None else value // 1000 for value in micros.to_pylist()]


def _delays(column: pa.Array | None, count: int) -> list[Any]:
    if column is None:
        return [None] * count
    return [
        None if value is None else round(value * 1000)
        for value in column.cast(pa.float64()).to_pylist()
    ]


def _headers(column: pa.Array | None, count: int) -> list[dict[str, str] | None]:
    if column is None:
        return [None] * count
    return [dict(pairs) if pairs else None for pairs in column.to_pylist()]


def _kinds(column: pa.Array | None, kind: int, count: int) -> list[int]:
    if column is None:
        return [kind] * count
    numbers: dict[str | None, int] = {name: number for number, name in CONTENT_TYPES.items()}
    numbers[None] = kind
    names = column.to_pylist()
    unknown = set(names) - numbers.keys()
    if unknown:
        raise InvalidPayload(
            f"the column kind has {min(unknown)!r}, which is no kind of content",
            hint=f"it is one of {', '.join(CONTENT_TYPES.values())}, or NULL",
        )
    return [numbers[name] for name in names]
