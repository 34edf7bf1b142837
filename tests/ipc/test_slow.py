"""A client that does not read: it gets nothing more, and costs the others nothing."""

from __future__ import annotations

import pytest

from embedq.ipc import frames, session
from tests.ipc.conftest import Served
from tests.ipc.peer import eventually

BODY = bytes(1 << 20)

# It lasts until the test goes on, however late that is.
pytestmark = pytest.mark.usefixtures("without_heartbeats")


def test_nothing_is_claimed_for_a_client_that_does_not_read(served: Served) -> None:
    good, slow = served.peer(), served.peer(rcvhwm=1)
    count = 100  # more than the sockets take
    for _ in range(count // 10):
        good.put(served.q, *[BODY] * 10)
    for _ in range(count):
        slow.send(frames.Exchange(slow.n(), [], served.g, 1, 0))
    waits = served.server._sessions.by_token[slow.token]
    eventually(lambda: waits.is_full, 20)
    eventually(lambda: len(served.group.leases) == len(waits.leases), 20)
    assert 0 < len(waits.leases) < count // 2
    # What it has not got is for others, once it has been given back.
    assert len(good.exchange(group=served.g, most=1, wait_ms=20_000).leases) == 1
    # Once it reads, every request is answered, and no message is lost on the way.
    answers = [slow.answer_to(n) for n in range(1, count + 1)]
    got = sum(len(each.leases) for each in answers if isinstance(each, frames.Exchanged))
    left = 0
    while got + left < count - 1:
        left += len(good.exchange(group=served.g, most=4, wait_ms=20_000).leases)
    assert got >= 10
    assert got + left == count - 1


def test_a_claim_brings_no_more_bytes_than_a_message_may_have(served: Served) -> None:
    peer = served.peer()
    most = served.desk.limits.batch_bytes
    body = bytes(10 << 20)
    for _ in range(10):
        peer.put(served.q, body)
    answer = peer.exchange(group=served.g, most=10)
    assert 1 <= len(answer.leases) <= most // len(body)
    eventually(lambda: len(served.group.leases) == len(answer.leases))
    assert served.group.queue.large
    again = peer.exchange(group=served.g, most=10)
    assert [lease.attempt for lease in again.leases] == [1] * len(again.leases)


def test_a_client_that_lets_too_much_wait_is_dropped(served: Served) -> None:
    assert session.UNSENT_BYTES < session.UNSENT_MOST
    good, slow = served.peer(), served.peer(rcvhwm=1)
    served.server.most_unsent = 4 << 20
    for _ in range(6):
        good.put(served.q, *[BODY] * 10)
    for _ in range(60):
        slow.send(frames.Exchange(slow.n(), [], served.g, 1, 0))
    eventually(lambda: served.server.stats.sessions == 1, 20)
    assert good.exchange(group=served.g, most=1, wait_ms=20_000).leases
