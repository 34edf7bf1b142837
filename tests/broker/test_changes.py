"""Rarer tasks: what they commit, and that memory and the file say the same afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from embedq.broker.changes import Abandoned, Expire, NewGroup, SaveCounts
from embedq.broker.desk import Desk
from embedq.broker.endings import RELEASED
from embedq.broker.host import open_engine
from embedq.broker.moves import Claim
from embedq.broker.state import GroupState, QueueState
from embedq.clock import VirtualClock
from embedq.errors import StoreBusy
from embedq.message import draft
from embedq.storage.ops import Op, Save


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["memory", "file"])
def desk(request, clock: VirtualClock, tmp_path: Path) -> Iterator[Desk]:
    path = ":memory:" if request.param == "memory" else tmp_path / "q.db"
    with open_engine(path, durability="normal", clock=clock, upkeep=False) as opened:
        yield opened


@pytest.fixture
def queue(desk: Desk) -> QueueState:
    return desk.queue("orders")


@pytest.fixture
def group(desk: Desk, queue: QueueState) -> GroupState:
    return desk.group(queue)


def saved(desk: Desk, *, exact: bool = False) -> Save:
    """Save, and return what was saved."""
    task = SaveCounts(desk, exact=exact)
    desk.writer.run(task)
    return task._op


# -------------------------------------------------------------------------------- groups


def test_of_two_groups_created_at_once_one_is_the_first(desk: Desk, queue: QueueState) -> None:
    desk.put(queue, b"body")
    tasks = [NewGroup(desk, queue, name, "auto") for name in ("a", "b")]
    for task in tasks:
        desk.writer.run(task)
    first, second = queue.groups
    assert (first.floor, second.floor) == (0, 1)
    assert (len(desk.claim(first)), len(desk.claim(second))) == (1, 0)


# -------------------------------------------------------------------------------- counts


def test_a_floor_stays_below_what_waits_is_leased_or_was_not_looked_at(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    desk.put_many(queue, [b"body"] * 5)
    assert saved(desk).groups == [(group.id, 0, 0)]  # nobody has looked
    leases = desk.claim(group, 3)
    desk.ack(leases[0])
    assert saved(desk).groups == [(group.id, 1, 0)]
    desk.fail(leases[1], delay_s=60)
    desk.ack(leases[2])
    assert saved(desk).groups == [(group.id, 1, 0)]
    clock.advance(60)
    desk.ack(*desk.claim(group, 9))
    assert saved(desk).groups == [(group.id, 5, 0)]
    assert group.floor == 5


def test_a_delayed_message_keeps_the_floor_down(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    desk.claim(group)
    soon = desk.now_ms() + 60_000
    desk.put_drafts(queue, [draft(b"late", available_at_ms=soon), draft(b"now")])
    desk.ack(*desk.claim(group))
    assert saved(desk).groups == [(group.id, 0, 0)]


def test_counts_of_every_queue_and_group_are_saved(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    audit = desk.group(queue, "audit", "beginning")
    mail = desk.queue("mail")
    desk.put_many(queue, [b"body"] * 3)
    desk.put(mail, b"body")
    desk.ack(*desk.claim(group, 2))
    desk.reject(desk.claim(audit)[0])
    op = saved(desk, exact=True)
    assert op.queues == [(queue.id, 2, 1, 3), (mail.id, 1, 0, 4)]
    assert [settled for _, _, settled in op.groups] == [1, 0]
    assert op.exact
    queues, groups = desk.store.catalogue()
    assert [(row.stored, row.dead, row.last) for row in queues] == [(2, 1, 3), (1, 0, 4)]
    assert [row.settled for row in groups] == [1, 0]


def test_a_floor_that_could_not_be_saved_is_not_believed(
    desk: Desk, queue: QueueState, group: GroupState, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.put(queue, b"body")
    desk.ack(*desk.claim(group))
    desk.claim(group)

    def busy(_batch: list[Op]) -> None:
        raise StoreBusy("somebody has the file")

    with monkeypatch.context() as patched:
        patched.setattr(desk.store, "commit", busy)
        with pytest.raises(StoreBusy):
            saved(desk)
    assert group.floor == 0


# -------------------------------------------------------------------------- lost claims


def test_what_an_interrupted_claim_got_is_released(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    desk.put_many(queue, [b"body"] * 3)
    desk.claim(group)
    claim = Claim(desk, group, 2, 30.0, None)
    while not claim.leases:
        desk.writer.run(claim)
        if claim.hungry is not None:
            raise AssertionError("everything is in memory")
    assert sorted(group.leases) == [1, 2, 3]
    desk.writer.run(Abandoned(desk, group, claim))
    assert sorted(group.leases) == [1]
    assert [(lease.seq, lease.attempt) for lease in desk.claim(group, 9)] == [(2, 1), (3, 1)]


def test_a_claim_that_got_nothing_is_abandoned_for_nothing(desk: Desk, group: GroupState) -> None:
    claim = Claim(desk, group, 2, 30.0, None)
    assert Abandoned(desk, group, claim).prepare() == ()


# ------------------------------------------------------------------------------- expiry


def test_an_expired_message_that_is_gone_or_settled_meanwhile_dies_no_second_time(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    soon = desk.now_ms() + 1000
    desk.put_drafts(queue, [draft(b"", expires_at_ms=soon)] * 3)
    over = [(queue, 1), (queue, 2), (queue, 3), (queue, 99)]
    desk.ack(*desk.claim(group))
    desk.cancel(queue, 2)
    clock.advance(1)
    for _ in range(2):
        desk.writer.run(Expire(desk, over))
    assert [letter.seq for letter in desk.store.dead(queue.id, 0, 9)] == [3]
    assert (queue.stored, queue.dead, group.waiting) == (0, 1, 0)
    assert desk.claim(group, 9) == []


def test_a_message_that_one_group_works_at_expires_for_the_others(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    audit = desk.group(queue, "audit", "beginning")
    desk.put_drafts(queue, [draft(b"", expires_at_ms=desk.now_ms() + 1000)])
    (lease,) = desk.claim(audit)
    clock.advance(1)
    desk.writer.run(Expire(desk, [(queue, 1)]))
    assert [letter.group for letter in desk.store.dead(queue.id, 0, 9)] == [group.id]
    assert (queue.stored, group.settled, audit.settled) == (1, 1, 0)
    desk.ack(lease)
    assert (queue.stored, group.settled, audit.settled) == (0, 0, 0)


# ---------------------------------------------------------------------------- expiry


@pytest.mark.parametrize("leased", [True, False])
def test_a_message_gets_a_new_time_to_live(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock, *, leased: bool
) -> None:
    now = desk.now_ms()
    drafts = [draft(b"a", expires_at_ms=now + 1_000), draft(b"b")]
    seqs = [desk.ids.decode(receipt.id) for receipt in desk.put_drafts(queue, drafts)]
    leases = desk.claim(group, 2) if leased else []
    assert desk.office.set_expiry("orders", seqs[0], None)
    assert desk.office.set_expiry("orders", seqs[1], now + 2_000)
    desk.settle([(lease, RELEASED) for lease in leases])
    clock.advance(3)
    assert [lease.message.body for lease in desk.claim(group, 2)] == [b"a"]


def test_a_message_of_another_queue_keeps_its_time_to_live(desk: Desk, queue: QueueState) -> None:
    desk.queue("bills")
    seq = desk.put(queue, b"a")
    assert not desk.office.set_expiry("bills", seq, 1)
    assert not desk.office.set_expiry("orders", seq + 1, 1)
    assert desk.office.peek("orders", 1, 0)[0].expires is None
