"""The life cycle of a message in a group: one table, from which docs/lifecycle.md is rendered.

Knows: the states, the events, which event leads where, what counts as an attempt, the outcomes.
Does not know: when an event happens, and where states are kept.
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

from embedq.errors import UsageError


class State(StrEnum):
    """Where a message stands in one group. A message that is gone has no state (None)."""

    #: stored, its time has not come
    DELAYED = "delayed"
    #: the next claim may take it
    READY = "ready"
    #: handed to a consumer that holds the token
    LEASED = "leased"
    #: done; kept only with retain= or until every group is done
    ACKED = "acked"
    #: kept with its reason, for people to look at
    DEAD = "dead"
    #: its time to live ended first; kept like a dead letter
    EXPIRED = "expired"


class Event(StrEnum):
    """What can happen to a message."""

    PUT = "put"
    PUT_LATER = "put_later"
    DUE = "due"
    CLAIM = "claim"
    EXTEND = "extend"
    ACK = "ack"
    SETTLE_BY_ID = "settle_by_id"
    NACK = "nack"
    NACK_LATER = "nack_later"
    RELEASE = "release"
    LEASE_EXPIRED = "lease_expired"
    WORKER_DIED = "worker_died"
    HOST_DIED = "host_died"
    EXHAUST = "exhaust"
    REJECT = "reject"
    DAMAGE = "damage"
    MOVE = "move"
    EXPIRE = "expire"
    CANCEL = "cancel"
    PURGE = "purge"
    REDRIVE = "redrive"
    FORGET = "forget"


#: Outcomes from here on end the message in its group; smaller ones lead to another attempt.
FINAL: Final = 10


class Outcome(IntEnum):
    """How a delivery was closed. The numbers are stored: never change or reuse one."""

    #: the handler said so
    FAILED = 1
    #: the lease ended without an answer
    TIMED_OUT = 2
    #: the worker, its connection or the host ended
    CRASHED = 3
    #: done
    ACKED = 10
    #: became a dead letter
    DEAD = 11
    #: its time to live ended
    EXPIRED = 12
    #: withdrawn by its producer or purged by an operator
    CANCELLED = 13

    @property
    def is_final(self) -> bool:
        """Whether the message is over in its group."""
        return self >= FINAL


class Reason(StrEnum):
    """Why a message became a dead letter. The texts are stored: never change one."""

    #: the last attempt failed
    MAX_ATTEMPTS = "max_attempts"
    #: a handler or a client rejected it
    REJECTED = "rejected"
    #: expires_at came before it was done
    EXPIRED = "expired"
    #: the checksum of what is stored does not fit the body
    CORRUPT = "corrupt"
    #: max_crashes deaths of the worker or the host under it
    CRASHED = "crashed"
    #: the body is not what the handler's annotation asks for
    UNDECODABLE = "undecodable"
    #: it failed when it was older than max_age
    AGE = "age"
    #: an operator moved it
    MOVED = "moved"


@dataclass(frozen=True, slots=True)
class Transition:
    """One row: in `source`, `event` leads to `target`. None as a state means not there."""

    event: Event
    source: State | None
    target: State | None
    counts_attempt: bool
    note: str
    outcome: Outcome | None = None


_E, _S, _O = Event, State, Outcome
_PURGED: Final = "an operator emptied the queue; a running delivery finds its lease stale"
_CANCELLED: Final = "the producer withdrew the message"
_BY_ID: Final = "acked by id without a lease, the way of one wire protocol"
_DAMAGED: Final = "the checksum or the decoding failed: dead as corrupt or undecodable"
_MOVED: Final = "an operator moved it to the dead letters"
_UNANSWERED: Final = "nobody answered in time, or a client of a listener when its host died"
_TOO_LATE: Final = "expires_at has come: kept as a dead letter with the reason expired"
_REDRIVEN: Final = "gone here; put again as a new message with the header redriven-from"

TRANSITIONS: Final[tuple[Transition, ...]] = (
    Transition(_E.PUT, None, _S.READY, False, "stored and deliverable at once"),
    Transition(_E.PUT_LATER, None, _S.DELAYED, False, "stored with available_at in the future"),
    Transition(_E.DUE, _S.DELAYED, _S.READY, False, "available_at has come"),
    Transition(_E.CLAIM, _S.READY, _S.LEASED, False, "handed over; counted by how it ends"),
    Transition(_E.EXTEND, _S.LEASED, _S.LEASED, False, "the deadline moves, the token stays"),
    Transition(_E.ACK, _S.LEASED, _S.ACKED, True, "done", _O.ACKED),
    Transition(_E.SETTLE_BY_ID, _S.LEASED, _S.ACKED, True, _BY_ID, _O.ACKED),
    Transition(_E.SETTLE_BY_ID, _S.READY, _S.ACKED, False, _BY_ID, _O.ACKED),
    Transition(_E.SETTLE_BY_ID, _S.DELAYED, _S.ACKED, False, _BY_ID, _O.ACKED),
    Transition(_E.NACK, _S.LEASED, _S.READY, True, "failed, again at once", _O.FAILED),
    Transition(_E.NACK_LATER, _S.LEASED, _S.DELAYED, True, "failed, again later", _O.FAILED),
    Transition(_E.RELEASE, _S.LEASED, _S.READY, False, "given back, or never started: free"),
    Transition(_E.LEASE_EXPIRED, _S.LEASED, _S.READY, True, _UNANSWERED, _O.TIMED_OUT),
    Transition(
        _E.WORKER_DIED, _S.LEASED, _S.READY, True, "its process or connection ended", _O.CRASHED
    ),
    Transition(
        _E.HOST_DIED, _S.LEASED, _S.READY, True, "found started by the next host", _O.CRASHED
    ),
    Transition(
        _E.EXHAUST,
        _S.LEASED,
        _S.DEAD,
        True,
        "a failed ending with nothing left: max_attempts, max_crashes (crashed) or max_age (age)",
        _O.DEAD,
    ),
    Transition(_E.REJECT, _S.LEASED, _S.DEAD, True, "dead now, whatever is left", _O.DEAD),
    Transition(_E.DAMAGE, _S.LEASED, _S.DEAD, False, _DAMAGED, _O.DEAD),
    Transition(_E.DAMAGE, _S.READY, _S.DEAD, False, _DAMAGED, _O.DEAD),
    Transition(_E.DAMAGE, _S.DELAYED, _S.DEAD, False, _DAMAGED, _O.DEAD),
    Transition(_E.MOVE, _S.READY, _S.DEAD, False, _MOVED, _O.DEAD),
    Transition(_E.MOVE, _S.DELAYED, _S.DEAD, False, _MOVED, _O.DEAD),
    Transition(_E.EXPIRE, _S.READY, _S.EXPIRED, False, _TOO_LATE, _O.EXPIRED),
    Transition(_E.EXPIRE, _S.DELAYED, _S.EXPIRED, False, _TOO_LATE, _O.EXPIRED),
    Transition(_E.CANCEL, _S.READY, None, False, _CANCELLED, _O.CANCELLED),
    Transition(_E.CANCEL, _S.DELAYED, None, False, _CANCELLED, _O.CANCELLED),
    Transition(_E.CANCEL, _S.LEASED, None, False, _CANCELLED, _O.CANCELLED),
    Transition(_E.PURGE, _S.READY, None, False, _PURGED, _O.CANCELLED),
    Transition(_E.PURGE, _S.DELAYED, None, False, _PURGED, _O.CANCELLED),
    Transition(_E.PURGE, _S.LEASED, None, False, _PURGED, _O.CANCELLED),
    Transition(_E.PURGE, _S.DEAD, None, False, "an operator emptied the dead letters"),
    Transition(_E.PURGE, _S.EXPIRED, None, False, "an operator emptied the dead letters"),
    Transition(_E.REDRIVE, _S.DEAD, None, False, _REDRIVEN),
    Transition(_E.REDRIVE, _S.EXPIRED, None, False, _REDRIVEN),
    Transition(_E.FORGET, _S.ACKED, None, False, "retain= is over and every group is done"),
)

_BY_STATE_AND_EVENT: Final = {(row.source, row.event): row for row in TRANSITIONS}


def transition(state: State | None, event: Event) -> Transition:
    """Return the row for `event` in `state`; UsageError when the table has none."""
    row = _BY_STATE_AND_EVENT.get((state, event))
    if row is None:
        where = "a message that is not there" if state is None else f"a {state} message"
        raise UsageError(
            f"{event} cannot happen to {where}",
            hint="docs/lifecycle.md lists what can",
            state=state,
            event=event,
        )
    return row
