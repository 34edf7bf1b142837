"""Whether what a client puts is what the library would put: a host believes no frame blindly.

Knows: the bounds of each field of a message.
Does not know: queues, sessions, what is done about a refusal.

A client that is of this release has checked all of it. What one of another release, or a program
that is no client at all, sends must not reach memory and disk of the host.
"""

from __future__ import annotations

from typing import Final

from embedq.errors import InvalidOption, LimitExceeded
from embedq.ipc.frames import Put
from embedq.limits import Limits
from embedq.storage.rows import Row

_KINDS: Final = 1 << 16
_CRCS: Final = 1 << 32
_LATEST_MS: Final = 1 << 53


def check_put(put: Put) -> None:
    """Raise InvalidOption for a put that no client sends."""
    if not 0 <= put.kind < _KINDS:
        raise InvalidOption(f"kind={put.kind} is no kind of content")


def check_row(row: Row, limits: Limits) -> None:
    """Raise InvalidOption or LimitExceeded for a message that no client puts."""
    _check_range("kind", row.kind, 0, _KINDS - 1)
    _check_range("crc", row.crc, 0, _CRCS - 1)
    _check_range("priority", row.priority, 0, limits.priority_max)
    _check_range("due", row.due, 0, _LATEST_MS)
    _check_range("expires", row.expires, 0, _LATEST_MS)
    _check_range("dedup_until", row.dedup_until, 0, _LATEST_MS)
    _check_range("max_attempts", row.max_attempts, 0, limits.attempts_max)
    for name, key in (("ordering_key", row.key), ("dedup_key", row.dedup_key)):
        if key is not None and not 0 < len(key.encode()) <= limits.key_bytes:
            raise LimitExceeded(
                f"{name} has {len(key.encode())} bytes, not 1 to key_bytes={limits.key_bytes}",
                limit="key_bytes",
            )
    most = 2 * (limits.headers_bytes + 16 * limits.headers_count)
    if row.headers is not None and len(row.headers) > most:
        raise LimitExceeded(
            f"headers have {len(row.headers)} bytes encoded, more than {most}",
            limit="headers_bytes",
        )


def _check_range(name: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise InvalidOption(f"{name}={value} is not between {least} and {most}", argument=name)
