"""From a draft to what is stored of it: encoded headers, checksum, times.

Knows: the checksum rule, how headers are encoded, the size of a body.
Does not know: queues beyond their names, the store, leases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from zlib import crc32

import msgspec

from embedq.errors import LimitExceeded
from embedq.limits import LIMITS, Limits
from embedq.message import Draft
from embedq.storage.rows import Row

_encode_headers = msgspec.msgpack.Encoder().encode


class Named(Protocol):
    """A queue, here or at the host."""

    @property
    def name(self) -> str:
        """Its name, for errors."""
        ...


def checksum(headers: bytes | None, body: bytes) -> int:
    """Return the CRC-32 that is stored with a message."""
    return crc32(body) if headers is None else crc32(body, crc32(headers))


def row_of(draft: Draft, now: int) -> Row:
    """Return what is stored of a draft that is put at `now` (ms)."""
    headers = None if draft.headers is None else _encode_headers(dict(draft.headers))
    until = 0 if draft.dedup_key is None else now + draft.dedup_window_ms
    due = draft.available_at_ms
    return Row(
        kind=draft.kind,
        crc=checksum(headers, draft.body),
        priority=draft.priority,
        due=due if due is not None and due > now else None,
        expires=draft.expires_at_ms,
        key=draft.ordering_key,
        max_attempts=draft.max_attempts,
        headers=headers,
        body=draft.body,
        dedup_key=draft.dedup_key,
        dedup_until=until,
    )


def too_large(queue: Named, size: int, limits: Limits) -> LimitExceeded:
    """Return the error for a body over the limit."""
    return LimitExceeded(
        f"queue {queue.name!r}: a body of {size} bytes is more than "
        f"body_bytes={limits.body_bytes}",
        limit="body_bytes",
    )


def check_batch(queue: Named, sizes: Sequence[int], limits: Limits) -> None:
    """Raise LimitExceeded if a batch, or a body in it, is over a limit. `sizes` are in bytes."""
    if len(sizes) > limits.batch_messages:
        raise LimitExceeded(
            f"queue {queue.name!r}: {len(sizes)} messages in one put are more than "
            f"batch_messages={limits.batch_messages}",
            hint="put them in several calls",
            limit="batch_messages",
        )
    largest = max(sizes, default=0)
    if largest > limits.body_bytes:
        raise too_large(queue, largest, limits)
    total = sum(sizes)
    if total > limits.batch_bytes:
        raise LimitExceeded(
            f"queue {queue.name!r}: {total} bytes in one put are more than "
            f"batch_bytes={limits.batch_bytes}",
            hint="put them in several calls",
            limit="batch_bytes",
        )


def shortened(text: str, most: int = LIMITS.error_bytes) -> str:
    """Return the beginning of somebody's words: `most` characters, and fit to be stored."""
    return text[:most].encode("utf-8", "backslashreplace").decode()
