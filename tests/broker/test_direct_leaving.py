"""What a put has handed over is lost with nobody: who leaves, who is late, what fails."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from embedq.broker.desk import Desk
from embedq.broker.direct import leave
from embedq.broker.host import open_engine
from embedq.broker.intake import checksum
from embedq.broker.moves import Claim
from embedq.broker.settling import Releases
from embedq.broker.state import GroupState, QueueState
from embedq.broker.waiting import Waiter
from embedq.clock import VirtualClock
from embedq.errors import StoreFull
from embedq.storage.ops import Op
from tests.broker.handing import LEASE_S, SOON, plain, seqs, together, wait
from tests.vanishing import vanishing


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def desk(clock: VirtualClock, tmp_path):
    with open_engine(tmp_path / "q.db", clock=clock, upkeep=False) as opened:
        yield opened


@pytest.fixture
def queue(desk: Desk) -> QueueState:
    return desk.queue("orders")


@pytest.fixture
def group(desk: Desk, queue: QueueState) -> GroupState:
    return desk.group(queue)


def test_who_leaves_gives_back_what_it_was_handed_without_an_attempt(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    leaving, staying = wait(desk, group), wait(desk, group)
    seq = desk.put(queue, b"body")
    assert seqs(leaving.handed()) == [seq]
    leave(desk, group.waiters, leaving)
    assert staying.wait(SOON)  # the release wakes the next one
    (lease,) = desk.claim(group)
    assert (lease.seq, lease.attempt) == (seq, 1)
    assert leaving.got == ()


def test_what_comes_with_the_last_moment_of_a_wait_is_taken(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    class Late(Waiter):
        def wait(self, timeout: float | None = None) -> bool:
            desk.put(queue, b"body")
            super().reset()
            return False  # the time is over

    (lease,) = desk.wait_claim(group, 1, SOON, waiter=Late())
    assert (lease.seq, lease.attempt) == (1, 1)
    assert not group.waiters


def test_a_cancelled_waiter_returns_what_it_was_handed(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    class Cancelled(Waiter):
        def wait(self, timeout: float | None = None) -> bool:
            desk.put(queue, b"body")
            desk.cancel_wait(self)
            return super().wait(timeout)

    waiter = Cancelled()
    assert seqs(desk.wait_claim(group, 1, SOON, waiter=waiter)) == [1]
    assert desk.wait_claim(group, 1, SOON, waiter=waiter) == []


def test_a_commit_that_fails_gives_neither_message_nor_lease(
    desk: Desk, queue: QueueState, group: GroupState, monkeypatch
) -> None:
    waiters = [wait(desk, group) for _ in range(3)]

    def fail(batch: Sequence[Op]) -> None:
        desk.store.refused += 1
        raise StoreFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr(desk.store, "commit", fail)
        with pytest.raises(StoreFull):
            desk.put_many(queue, [b"a", b"b"])
    assert [waiter.handed() for waiter in waiters] == [[], [], []]
    assert (queue.stored, group.leases, len(group.waiters)) == (0, {}, 3)
    desk.put_many(queue, [b"a", b"b", b"c"])
    assert [seqs(waiter.handed()) for waiter in waiters] == [[1], [2], [3]]


def test_of_a_group_that_fails_each_put_is_tried_with_its_waiter(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    waiters = [wait(desk, group) for _ in range(2)]
    wrong = plain(desk, queue, b"wrong")
    wrong._op.items[1] = object()  # type: ignore[call-overload]  # what SQLite cannot store
    together(desk, plain(desk, queue, b"a"), wrong, plain(desk, queue, b"b"))
    assert wrong.error is not None
    bodies = [lease.message.body for waiter in waiters for lease in waiter.handed()]
    assert bodies == [b"a", b"b"]


def test_a_release_in_the_same_commit_still_wakes_somebody(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    desk.put(queue, b"first")
    held = desk.claim(group)
    first, second = wait(desk, group), wait(desk, group)
    together(desk, Releases(desk, group, held), plain(desk, queue, b"second"))
    assert seqs(first.handed()) == [2]
    assert second.wait(0)
    assert seqs(desk.claim(group)) == [1]


def test_a_body_that_may_change_is_copied(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    waiter = wait(desk, group)
    body = bytearray(b"body")
    desk.put(queue, body)  # type: ignore[arg-type]
    body[:] = b"else"
    (lease,) = waiter.handed()
    assert lease.message.body == b"body"
    assert checksum(None, lease.message.body) == lease.message.crc


@pytest.mark.parametrize("looks", range(4))
def test_who_leaves_while_its_claim_is_applied_costs_nobody_an_error(
    desk: Desk, group: GroupState, looks: int
) -> None:
    desk.claim(group)
    waiter = Waiter()
    leaving = vanishing(Claim, "waiter", looks)(
        desk, group, 1, LEASE_S, desk.session, waiter=waiter
    )
    beside = plain(desk, desk.queue("other"), b"beside")
    together(desk, leaving, beside)
    assert (leaving.error, beside.error) == (None, None)
    assert leaving.waits == (group.waiters.first() is waiter)
