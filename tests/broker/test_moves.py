"""Claims and cancellations: what they take, what they leave, and what a failure gives back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.broker.moves import Change, Claim
from embedq.broker.state import GroupState, QueueState
from embedq.clock import VirtualClock
from embedq.errors import StoreBusy
from embedq.lifecycle import Reason
from embedq.message import draft
from embedq.policy import QueuePolicy
from embedq.storage.ops import Pause


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


def seqs(leases) -> list[int]:
    return [lease.seq for lease in leases]


def fail_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = desk.store.commit

    def failing(_batch: object) -> None:
        monkeypatch.setattr(desk.store, "commit", commit)
        desk.store.refused += 1
        raise StoreBusy("somebody has the file")

    monkeypatch.setattr(desk.store, "commit", failing)


# -------------------------------------------------------------------------------- claims


def test_tokens_rise_from_claim_to_claim_and_across_groups(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    audit = desk.group(queue, "audit", "beginning")
    desk.put_many(queue, [b"body"] * 3)
    counters = [lease.counter for lease in (*desk.claim(group, 2), *desk.claim(audit, 3))]
    counters += [lease.counter for lease in desk.claim(group)]
    assert counters == sorted(set(counters))


def test_a_claim_leases_for_the_time_of_the_queue_or_its_own(
    desk: Desk, clock: VirtualClock
) -> None:
    queue = desk.queue("orders", QueuePolicy(lease_ms=5_000))
    group = desk.group(queue)
    desk.put_many(queue, [b"body"] * 2)
    (first,), (second,) = desk.claim(group), desk.claim(group, lease_s=0.5)
    assert first.deadline == clock.monotonic() + 5
    assert second.deadline == clock.monotonic() + 0.5


def test_the_attempt_is_stored_with_who_got_it_before_the_claim_returns(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    desk.put_many(queue, [b"body"] * 2)
    desk.claim(group)
    desk.claim(group, session=77)
    rows = [row for seq in (1, 2) for row in desk.store.deliveries(seq)]
    assert [(row.attempt, row.session, row.started) for row in rows] == [
        (1, desk.session, desk.now_ms()),
        (1, 77, desk.now_ms()),
    ]
    name = desk.store.session_names([desk.session])[desk.session]
    assert name.startswith("host-")


def test_leases_come_in_the_order_of_the_messages_whatever_is_known_of_them(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    desk.put_many(queue, [b"body"] * 3)
    first, second, third = desk.claim(group, 3)
    desk.fail(second)
    desk.release([third])
    desk.fail(first, delay_s=5)
    clock.advance(5)
    again = desk.claim(group, 9)
    assert [(lease.seq, lease.attempt) for lease in again] == [(1, 2), (2, 2), (3, 1)]


def test_a_claim_that_cannot_be_stored_gives_everything_back(
    desk: Desk, queue: QueueState, group: GroupState, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.put_many(queue, [b"body"] * 2)
    desk.put_drafts(queue, [draft(b"", priority=3), draft(b"", ordering_key="k")])
    held = desk.claim(group)
    fail_once(desk, monkeypatch)
    with pytest.raises(StoreBusy):
        desk.claim(group, 9)
    assert group.leases == {lease.seq: lease for lease in held}
    assert (group.delivered, group.waiting) == (1, 3)
    assert seqs(desk.claim(group, 9)) == [1, 2, 4]
    desk.ack(*held)


def test_a_message_whose_attempts_crashes_used_up_is_dead_before_it_is_delivered(
    desk: Desk, clock: VirtualClock
) -> None:
    queue = desk.queue("orders", QueuePolicy(max_attempts=2))
    group = desk.group(queue)
    desk.put_many(queue, [b"body"] * 2)
    for _ in range(2):
        leases = desk.claim(group, 2)
        for lease in leases:
            desk.fail(lease) if lease.attempt < 2 else desk.release([lease])
    desk.queue("orders", QueuePolicy(max_attempts=1))  # fewer than were started
    assert desk.claim(group, 9) == []
    letters = desk.store.dead(queue.id, 0, 9)
    assert [(letter.seq, letter.reason) for letter in letters] == [
        (1, Reason.MAX_ATTEMPTS),
        (2, Reason.MAX_ATTEMPTS),
    ]
    assert (queue.stored, queue.dead, group.waiting) == (0, 2, 0)


@pytest.mark.parametrize("own", [0, 1, 4])
@pytest.mark.parametrize("more", [{}, {"priority": 3}, {"ordering_key": "k"}], ids=str)
def test_a_message_s_own_bound_of_attempts_goes_before_that_of_the_queue(
    desk: Desk, own: int, more: dict
) -> None:
    queue = desk.queue("orders", QueuePolicy(max_attempts=2))
    group = desk.group(queue)
    desk.put_drafts(queue, [draft(b"body", max_attempts=own, **more)])
    attempts = 0
    while attempts < 6 and (leases := desk.claim(group)):
        attempts += 1
        desk.fail(leases[0])
    assert attempts == (own or 6)
    assert queue.dead == (1 if own else 0)


def test_a_paused_queue_is_not_even_looked_into(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    desk.put(queue, b"body")
    desk.pause(queue)
    claim = Claim(desk, group, 1, 1.0, None)
    assert claim.prepare() == ()
    assert (claim.found, claim.hungry) == (False, None)


# ------------------------------------------------------------------------------- cancels


def test_what_is_leased_is_not_cancelled(desk: Desk, queue: QueueState, group: GroupState) -> None:
    desk.put_many(queue, [b"body"] * 3)
    desk.claim(group)
    assert desk.cancel(queue, 1, 2, 2, 99) == [2]
    assert desk.cancel(queue) == []
    assert (queue.stored, group.waiting) == (2, 1)
    assert seqs(desk.claim(group, 9)) == [3]


def test_a_message_that_one_group_works_at_stays_for_all(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    audit = desk.group(queue, "audit", "beginning")
    desk.put(queue, b"body")
    desk.claim(audit)
    assert desk.cancel(queue, 1) == []
    assert seqs(desk.claim(group)) == [1]


def test_a_cancelled_message_leaves_the_counts_of_those_who_had_settled_it(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    audit = desk.group(queue, "audit", "beginning")
    desk.put_many(queue, [b"body"] * 3)
    desk.ack(*desk.claim(group, 2))
    desk.ack(*desk.claim(audit))
    assert desk.cancel(queue, 1, 2, 3) == [2, 3]  # the first one has left already
    assert (queue.stored, group.settled, audit.settled) == (0, 0, 0)
    assert (group.waiting, audit.waiting) == (0, 0)


def test_history_cannot_be_cancelled(desk: Desk) -> None:
    queue = desk.queue("kept", QueuePolicy(retain_ms=60_000))
    group = desk.group(queue)
    desk.put_many(queue, [b"body"] * 2)
    desk.ack(*desk.claim(group))
    assert desk.cancel(queue, 1, 2) == [2]
    assert [found.seq for found in desk.peek(queue)] == [1]
    assert (queue.stored, group.settled, group.waiting) == (1, 1, 0)


def test_after_a_cancelled_message_the_next_one_of_its_key_moves(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    desk.claim(group)
    desk.put_drafts(queue, [draft(b"", ordering_key="k")] * 3)
    assert desk.cancel(queue, 1) == [1]
    assert seqs(desk.claim(group, 9)) == [2]
    assert desk.cancel(queue, 3) == [3]
    desk.ack(group.leases[2])
    assert desk.claim(group, 9) == []
    assert queue.stored == 0


def test_in_a_queue_without_groups_a_cancel_just_removes(desk: Desk, queue: QueueState) -> None:
    desk.put_many(queue, [b"body"] * 2)
    assert desk.cancel(queue, 2) == [2]
    assert queue.stored == 1


# --------------------------------------------------------------------------------- puts


def test_only_what_was_stored_is_counted_and_offered(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    desk.claim(group)
    one = draft(b"body", dedup_key="k")
    receipts = desk.put_drafts(queue, [one, one, draft(b"other")])
    assert [(receipt.seq, receipt.duplicate) for receipt in receipts] == [
        (1, False),
        (1, True),
        (2, False),
    ]
    assert (queue.stored, queue.puts, queue.last) == (2, 2, 2)
    assert seqs(desk.claim(group, 9)) == [1, 2]


def test_a_put_that_cannot_be_stored_is_not_offered(
    desk: Desk, queue: QueueState, group: GroupState, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.claim(group)
    fail_once(desk, monkeypatch)
    with pytest.raises(StoreBusy):
        desk.put_drafts(queue, [draft(b"lost", priority=3)])
    assert (queue.stored, desk.claim(group)) == (0, [])


# ------------------------------------------------------------------------------- changes


def test_a_change_brings_memory_up_to_date_only_when_it_is_stored(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    desk.writer.run(Change([], lambda: told.append("nothing to store")))
    queue = desk.queue("orders")

    def change() -> Change:
        return Change([Pause(queue.id, paused=True)], lambda: told.append("paused"))

    fail_once(desk, monkeypatch)
    with pytest.raises(StoreBusy):
        desk.writer.run(change())
    assert told == ["nothing to store"]
    desk.writer.run(change())
    assert told == ["nothing to store", "paused"]
