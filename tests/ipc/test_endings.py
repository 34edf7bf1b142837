"""How a delivery ended says the same to the host as it would have in its own process."""

from __future__ import annotations

import pytest

from embedq.broker.endings import DONE, RELEASED, RELEASED_TO_TAIL, Ending, Failed, Rejected
from embedq.broker.leases import Lease
from embedq.ipc import frames
from embedq.ipc.endings import from_wire, to_wire
from embedq.ipc.frames import ProtocolError, WireEnding
from embedq.ipc.handles import RemoteGroup, RemoteLease
from embedq.lifecycle import Outcome, Reason
from embedq.message import ErrorInfo
from tests.ipc.told import queue, wire_lease

ERROR = ErrorInfo("ValueError", "the password is hunter2", "line 1\nline 2")


@pytest.fixture
def lease() -> Lease:
    group: RemoteGroup = queue().groups[0]
    return RemoteLease(group, wire_lease(), 0.0)


@pytest.mark.parametrize(
    "ending",
    [
        DONE,
        RELEASED,
        RELEASED_TO_TAIL,
        Failed(ERROR, tail=True),
        Failed(ERROR, 1.5, Outcome.TIMED_OUT),
        Failed(),
        Rejected(Reason.EXPIRED, "too late", ERROR, "handler", Outcome.EXPIRED),
        Rejected(detail="no"),
    ],
    ids=repr,
)
def test_an_ending_travels_unchanged(lease: Lease, ending: Ending) -> None:
    asked = frames.Exchange(1, [to_wire(lease, ending, None)])
    (request,) = frames.decode_requests(frames.encode([asked]))
    assert isinstance(request, frames.Exchange)
    assert from_wire(request.endings[0]) == ending


def test_secrets_are_hidden_before_they_travel(lease: Lease) -> None:
    told = to_wire(lease, Failed(ERROR), lambda text: text.replace("hunter2", "***"))
    assert told.error is not None
    assert b"hunter2" not in told.error


@pytest.mark.parametrize(
    "told",
    [
        WireEnding(1, 1, 1, 9),
        WireEnding(1, 1, 1, 1, outcome=77),
        WireEnding(1, 1, 1, 2, reason="boredom"),
        WireEnding(1, 1, 1, 1, error=b"\xc1"),
    ],
)
def test_an_ending_that_cannot_be_is_refused(told: WireEnding) -> None:
    with pytest.raises(ProtocolError):
        from_wire(told)
