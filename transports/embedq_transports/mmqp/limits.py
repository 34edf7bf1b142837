"""What one MMQP connection may send.

Knows: the number, the unit and the reason of each limit of the wire.
Does not know: deadlines and connection counts, which are the listener's.
"""

from dataclasses import dataclass
from typing import Final

from embedq.limits import KIB, LIMITS, MIB


@dataclass(frozen=True, slots=True)
class MmqpLimits:
    """Bounds of the readers, checked before anything is kept."""

    #: bytes: body of one message in UTF-8. What one message may be; the original lost larger ones.
    body_bytes: int = LIMITS.body_bytes
    #: bytes: user, password, queue and group in UTF-8, each. What a name may be.
    text_bytes: int = LIMITS.name_bytes
    #: bytes: an HTTP request up to its empty line. A health check has a few hundred.
    http_bytes: int = 8 * KIB
    #: bytes: one answer, for those who read answers; a server stops adding records there.
    answer_bytes: int = LIMITS.body_bytes + MIB


MMQP_LIMITS: Final = MmqpLimits()
