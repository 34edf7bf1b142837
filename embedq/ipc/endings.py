"""How deliveries end, on the wire and off it.

Knows: the four endings and their fields.
Does not know: leases beyond their tokens, what an ending does.
"""

from __future__ import annotations

from typing import assert_never

from embedq.broker import redaction
from embedq.broker.endings import (
    DONE,
    RELEASED,
    RELEASED_TO_TAIL,
    Done,
    Ending,
    Failed,
    Rejected,
    Released,
)
from embedq.broker.leases import Lease
from embedq.broker.redaction import Redact
from embedq.ipc.frames import ProtocolError, WireEnding
from embedq.lifecycle import Outcome, Reason
from embedq.message import ErrorInfo

_DONE, _FAILED, _REJECTED, _RELEASED = range(4)


def to_wire(lease: Lease, ending: Ending, redact: Redact | None) -> WireEnding:
    """Return what tells the host how a delivery ended; secrets are hidden on this side."""
    token = (lease.group.id, lease.seq, lease.counter)
    match ending:
        case Done():
            return WireEnding(*token)
        case Released():
            return WireEnding(*token, _RELEASED, tail=ending.tail)
        case Failed():
            return WireEnding(
                *(*token, _FAILED, redaction.stored(ending.error, redact)),
                delay_ms=round(ending.delay_s * 1000),
                outcome=int(ending.outcome),
                tail=ending.tail,
            )
        case Rejected():
            return WireEnding(
                *(*token, _REJECTED, redaction.stored(ending.error, redact)),
                outcome=int(ending.outcome),
                reason=str(ending.reason),
                detail=ending.detail,
                by=ending.by,
            )
        case _:
            assert_never(ending)


def from_wire(told: WireEnding) -> Ending:
    """Return how a client says a delivery ended. Raises ProtocolError for what cannot be."""
    if told.what == _DONE:
        return DONE
    if told.what == _RELEASED:
        return RELEASED_TO_TAIL if told.tail else RELEASED
    try:
        error = None if told.error is None else ErrorInfo.decode(told.error)
        outcome = Outcome(told.outcome)
        if told.what == _FAILED:
            return Failed(error, max(0, told.delay_ms) / 1000, outcome, told.tail)
        if told.what == _REJECTED:
            return Rejected(Reason(told.reason), told.detail, error, told.by, outcome)
    except ValueError as wrong:
        raise ProtocolError(f"an ending that cannot be: {wrong}") from wrong
    raise ProtocolError(f"an ending of unknown kind {told.what}")
