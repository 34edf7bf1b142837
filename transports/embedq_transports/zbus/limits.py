"""What one zbus connection may send.

Knows: the number, the unit and the reason of each limit of the wire.
Does not know: deadlines and connection counts, which are the listener's.
"""

from dataclasses import dataclass
from typing import Final

from embedq.limits import KIB, LIMITS


@dataclass(frozen=True, slots=True)
class ZbusLimits:
    """Bounds of the readers, checked before anything is kept."""

    #: bytes: the head of an HTTP request. The original stopped at 8 KiB and went on with less.
    head_bytes: int = 16 * KIB
    #: headers: of one request. Browsers send some twenty.
    headers: int = 128
    #: bytes: the body of an HTTP request. What one message may be.
    body_bytes: int = LIMITS.body_bytes
    #: bytes: one WebSocket message, over all its frames: a body with its JSON around it.
    frame_bytes: int = LIMITS.body_bytes + 64 * KIB
    #: frames: of one WebSocket message. An endless row of empty ones has no other bound.
    fragments: int = 4096
    #: parts: of one form, of either kind.
    form_parts: int = 1000


ZBUS_LIMITS: Final = ZbusLimits()
