"""What one TMQ connection may send.

Knows: the number, the unit and the reason of each limit of the wire.
Does not know: deadlines and connection counts, which are the listener's.
"""

from dataclasses import dataclass
from typing import Final

from embedq.limits import KIB, LIMITS

ID_BYTES: Final = 255
"""Longest message id, source or target: one byte counts them (docs/protocols/tmq.md, frame)."""


@dataclass(frozen=True, slots=True)
class TmqLimits:
    """Bounds of the reader, checked before anything is kept."""

    #: bytes: payload of one frame. What one message may be; the original had no bound.
    payload_bytes: int = LIMITS.body_bytes
    #: bytes: payload of the Hello. Nobody has logged in yet.
    hello_bytes: int = 64 * KIB


TMQ_LIMITS: Final = TmqLimits()
