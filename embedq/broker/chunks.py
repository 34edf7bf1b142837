"""Chunks of messages on their way to a stage: made where tasks run, checked where they are kept.

Knows: what may be said of a message that is staged, and that a host believes no chunk blindly.
Does not know: who sends a chunk, how it travels, when it is published.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

import msgspec

from embedq.broker.intake import Named, check_batch, checksum
from embedq.errors import EmbedqError, InvalidOption, InvalidPayload
from embedq.limits import LIMITS, Limits
from embedq.message import draft
from embedq.storage.staged import Chunk, PlainChunk, RowChunk, StagedRow

_WINDOW_MS = round(LIMITS.dedup_window_s * 1000)


class PlainBodies(msgspec.Struct, frozen=True, array_like=True, tag=0, gc=False):
    """Messages that have nothing but a body, all of one kind (embedq.payload)."""

    kind: int
    bodies: list[bytes]


class Wish(NamedTuple):
    """A message as a task wants it. Times are ms; `delay` counts from the publishing on."""

    body: bytes
    kind: int = 0
    headers: dict[str, str] | None = None
    priority: int = 0
    delay: int | None = None
    due: int | None = None
    expires: int | None = None
    dedup_key: str | None = None
    ordering_key: str | None = None
    max_attempts: int | None = None


class Wishes(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """Messages of any kind."""

    rows: list[Wish]


encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(PlainBodies | Wishes).decode


def checked(
    queue: Named, data: bytes, now: int, limits: Limits = LIMITS
) -> tuple[PlainBodies | Wishes, int]:
    """Return the messages of a chunk, and how many they are.

    Raises InvalidPayload for what is no chunk, and what `draft` and `check_batch` raise; the text
    says which message of the chunk it is about.
    """
    try:
        chunk = _decode(data)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise InvalidPayload(
            f"queue {queue.name!r}: what was sent is no chunk of messages: {error}",
            hint="write with the same release of embedq that hosts the queue",
        ) from error
    if isinstance(chunk, PlainBodies):
        check_batch(queue, list(map(len, chunk.bodies)), limits)
        if chunk.bodies:
            draft(b"", chunk.kind, limits=limits)
        return chunk, len(chunk.bodies)
    check_batch(queue, [len(wish.body) for wish in chunk.rows], limits)
    for number, wish in enumerate(chunk.rows):
        try:
            _check(wish, now, limits)
        except EmbedqError as error:
            error.args = (f"queue {queue.name!r}, row {number} of a chunk: {error.message}",)
            raise
    return chunk, len(chunk.rows)


def _check(wish: Wish, now: int, limits: Limits) -> None:
    due = wish.due
    if wish.delay is not None:
        if wish.delay < 0:
            raise InvalidOption(f"a delay of {wish.delay} ms is below 0", argument="delay")
        due = now + wish.delay
    draft(
        wish.body,
        wish.kind,
        wish.headers,
        priority=wish.priority,
        available_at_ms=due,
        expires_at_ms=wish.expires,
        dedup_key=wish.dedup_key,
        ordering_key=wish.ordering_key,
        max_attempts=wish.max_attempts,
        now_ms=now,
        limits=limits,
    )


def staged(chunk: PlainBodies | Wishes) -> Chunk:
    """Return a checked chunk as it is stored: with checksums, and headers encoded."""
    if isinstance(chunk, PlainBodies):
        items: list[int | bytes] = [0] * (2 * len(chunk.bodies))
        items[::2] = map(crc32, chunk.bodies)
        items[1::2] = chunk.bodies
        return PlainChunk(chunk.kind, items)
    return RowChunk([_row(wish) for wish in chunk.rows])


def _row(wish: Wish) -> StagedRow:
    headers = encode(wish.headers) if wish.headers else None
    return StagedRow(
        *(
            wish.kind,
            checksum(headers, wish.body),
            wish.priority,
            wish.due,
            wish.delay,
            wish.expires,
        ),
        *(wish.ordering_key, wish.max_attempts, headers, wish.body),
        *(wish.dedup_key, 0 if wish.dedup_key is None else _WINDOW_MS),
    )
