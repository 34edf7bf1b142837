"""Settling in one commit, by id, and leases that are kept."""

import pytest

from embedq.broker.desk import Desk
from embedq.broker.endings import DONE, RELEASED, Ending, Failed, Rejected
from embedq.broker.host import open_engine
from embedq.broker.leases import Lease
from embedq.broker.state import GroupState, QueueState
from embedq.clock import VirtualClock
from embedq.errors import StaleLease, UnknownMessage
from embedq.lifecycle import Outcome, Reason
from embedq.message import ErrorInfo, draft


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["memory", "file"])
def desk(request, clock: VirtualClock, tmp_path):
    path = ":memory:" if request.param == "memory" else tmp_path / "q.db"
    with open_engine(path, clock=clock, upkeep=False) as opened:
        yield opened


@pytest.fixture
def queue(desk: Desk) -> QueueState:
    return desk.queue("orders")


@pytest.fixture
def group(desk: Desk, queue: QueueState) -> GroupState:
    return desk.group(queue)


def test_endings_of_all_kinds_share_one_commit(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    desk.put_many(queue, [b"a", b"b", b"c", b"d"])
    a, b, c, d = desk.claim(group, 4)
    commits = desk.writer.groups
    error = ErrorInfo("ValueError", "no")
    endings: list[tuple[Lease, Ending]] = [
        (a, DONE),
        (b, Failed(error, 5, Outcome.TIMED_OUT)),
        (c, Rejected(Reason.AGE, "too old", error)),
        (d, RELEASED),
    ]
    assert desk.settle(endings) == []
    assert desk.writer.groups == commits + 1
    assert [(lease.seq, lease.attempt) for lease in desk.claim(group, 9)] == [(d.seq, 1)]
    clock.advance(5)
    assert [(lease.seq, lease.attempt) for lease in desk.claim(group, 9)] == [(b.seq, 2)]
    (dead,) = desk.store.dead(queue.id, 0, 10)
    assert (dead.seq, dead.reason, dead.detail) == (c.seq, "age", "too old")


def test_stale_leases_are_told_and_change_nothing(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    desk.put_many(queue, [b"a", b"b"])
    a, b = desk.claim(group, 2, lease_s=1)
    desk.extend(b, 100)
    clock.advance(2)
    desk.end_leases()
    assert desk.settle([(a, DONE), (b, DONE), (b, RELEASED)]) == [a]
    (again,) = desk.claim(group, 9)
    assert (again.seq, again.attempt) == (a.seq, 2)


def test_an_exchange_settles_and_claims_in_one_commit(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    desk.put_many(queue, [b"a", b"b", b"c"])
    (lease,) = desk.exchange(group).leases
    commits = desk.writer.groups
    (following,), stale = desk.exchange(group, [(lease, DONE)])
    assert desk.writer.groups == commits + 1
    assert (following.seq, following.message.body, list(stale)) == (2, b"b", [])
    leases, stale = desk.exchange(group, [(lease, DONE), (following, DONE)])
    assert [each.seq for each in leases] == [3]
    assert stale == [lease]


def test_an_exchange_of_keyed_messages_gets_the_next_of_the_key(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    desk.put_drafts(queue, [draft(bytes([n]), ordering_key="k") for n in range(5)])
    seen = []
    leases, _ = desk.exchange(group)
    while leases:
        seen += [lease.message.body[0] for lease in leases]
        leases, _ = desk.exchange(group, [(lease, DONE) for lease in leases])
        leases = leases or desk.claim(group)
    assert seen == [0, 1, 2, 3, 4]


def test_groups_are_settled_together(desk: Desk, queue: QueueState, group: GroupState) -> None:
    audit = desk.group(queue, "audit", "beginning")
    desk.put(queue, b"a")
    leases = desk.claim(group) + desk.claim(audit)
    assert desk.settle([(lease, DONE) for lease in leases]) == []
    assert (queue.stored, group.settled, audit.settled) == (0, 0, 0)
    assert desk.settle([]) == []


# ---------------------------------------------------------------------------------- by id


def test_a_leased_message_is_settled_by_its_id(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    desk.put_many(queue, [b"a", b"b"])
    a, b = desk.claim(group, 2)
    desk.settle_by_id(group, a.seq)
    desk.settle_by_id(group, b.seq, Failed())
    with pytest.raises(StaleLease):
        desk.ack(a)
    with pytest.raises(UnknownMessage, match="no message"):
        desk.settle_by_id(group, a.seq)
    assert [(each.seq, each.attempt) for each in desk.claim(group, 9)] == [(b.seq, 2)]


@pytest.mark.parametrize("others", [False, True])
def test_a_waiting_message_is_settled_by_its_id_for_its_group_only(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock, *, others: bool
) -> None:
    audit = desk.group(queue, "audit", "beginning") if others else None
    soon = desk.now_ms() + 1000
    drafts = [
        draft(b"plain"),
        draft(b"urgent", priority=5),
        draft(b"late", available_at_ms=soon),
        draft(b"keyed", ordering_key="k"),
        draft(b"keyed, too", ordering_key="k"),
        draft(b"rest"),
    ]
    seqs = [receipt.seq for receipt in desk.put_drafts(queue, drafts)]
    desk.settle([(desk.claim(group)[0], Failed(delay_s=1))])  # the urgent one has been tried
    for seq in seqs[:4]:
        desk.settle_by_id(group, seq)
    clock.advance(2)
    assert [lease.seq for lease in desk.claim(group, 9)] == seqs[4:]
    if audit is not None:
        assert len(desk.claim(audit, 9)) == 5  # every message, one for each key
    assert queue.stored == (6 if others else 2)
    assert group.waiting == 0


def test_a_waiting_message_is_rejected_by_its_id(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    desk.put_many(queue, [b"a", b"b"])
    desk.settle_by_id(group, 1, Rejected(detail="not today", by="ann"))
    desk.settle_by_id(group, 2, RELEASED)
    assert [lease.seq for lease in desk.claim(group, 9)] == [2]
    (dead,) = desk.store.dead(queue.id, 0, 9)
    assert (dead.seq, dead.detail, dead.moved_by) == (1, "not today", "ann")


# ------------------------------------------------------------------------------- keeping


def test_a_kept_lease_is_renewed_until_its_keeper_is_gone(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    desk.put(queue, b"a")
    (lease,) = desk.claim(group)
    alive = True
    desk.keep(lease, lambda: alive)
    for _ in range(5):
        clock.advance(31)
        assert desk.end_leases() == 0
    assert lease.is_held
    alive = False
    clock.advance(31)
    assert desk.end_leases() == 1


def test_a_lease_that_is_kept_no_more_ends(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    desk.put(queue, b"a")
    (lease,) = desk.claim(group)
    desk.keep(lease, lambda: True)
    desk.unkeep(lease)
    clock.advance(31)
    assert desk.end_leases() == 1


# -------------------------------------------------------------------------------- events


def test_a_message_whose_attempts_are_used_up_is_told_with_what_the_last_one_met(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    told: list[str] = []
    desk.events.on("dead", lambda notice: told.append(notice.text.partition(" is dead: ")[2]))
    desk.put_drafts(queue, [draft(body, max_attempts=1) for body in (b"a", b"b", b"c")])
    a, b, c = desk.claim(group, 3)
    error = ErrorInfo("ValueError", "no such item\n(in 5 shops)" + "x" * 9_000)
    desk.settle([(a, Failed(error)), (b, Failed()), (c, Rejected(detail="why", error=error))])
    desk.events.flush()
    assert told == [
        "max_attempts (attempt 1 of 1 failed: ValueError: no such item)",
        "max_attempts (attempt 1 of 1 failed)",
        "rejected (why)",
    ]


def test_what_happens_is_told(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    told: list[str] = []
    desk.events.on("*", lambda notice: told.append(notice.name))
    desk.put_many(queue, [b"a", b"b", b"c"])
    a, b, c = desk.claim(group, 3, lease_s=10)
    desk.settle([(a, Failed(ErrorInfo("ValueError"), 1)), (b, Rejected()), (c, RELEASED)])
    desk.claim(group, lease_s=1)
    clock.advance(2)
    desk.upkeep.round()
    desk.put_drafts(queue, [draft(b"x", expires_at_ms=desk.now_ms() + 10)])
    clock.advance(1)
    desk.upkeep.round()
    desk.pause(queue)
    desk.pause(queue, paused=False)
    desk.queue("orders", queue.policy.changed(max_attempts=9))
    assert desk.events.flush()
    assert told == [
        *("retried", "dead", "released"),
        *("lease_expired", "retried"),
        *("expired", "dead"),
        *("paused", "resumed", "settings_changed"),
    ]
    counts = desk.events.counts()
    assert (counts["put", "orders"], counts["delivered", "orders"]) == (4, 4)
    assert counts["dead", "orders"] == 2
