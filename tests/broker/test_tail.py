"""What goes back to the tail is delivered after all that waited, once, also by the next host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from embedq.broker.desk import Desk
from embedq.broker.endings import DONE, RELEASED_TO_TAIL, Ending, Failed
from embedq.broker.host import open_engine
from embedq.broker.leases import Lease
from embedq.broker.state import GroupState, QueueState
from embedq.clock import VirtualClock
from embedq.lifecycle import Outcome, Reason
from embedq.message import draft
from embedq.policy import QueuePolicy
from embedq.storage.inspect import check
from tests.broker.handing import seqs, wait

FAILED_TO_TAIL = Failed(tail=True)
BOTH = pytest.mark.parametrize(
    "ending", [RELEASED_TO_TAIL, FAILED_TO_TAIL], ids=["free", "counts"]
)


def opened(path: Path | str) -> Desk:
    return open_engine(path, durability="normal", clock=VirtualClock(), upkeep=False)


@pytest.fixture(params=["memory", "file"])
def desk(request, tmp_path: Path) -> Iterator[Desk]:
    with opened(":memory:" if request.param == "memory" else tmp_path / "q.db") as found:
        yield found


@pytest.fixture
def queue(desk: Desk) -> QueueState:
    return desk.queue("orders")


@pytest.fixture
def group(desk: Desk, queue: QueueState) -> GroupState:
    return desk.group(queue)


def end(desk: Desk, leases: Sequence[Lease], ending: Ending) -> None:
    assert desk.settle([(lease, ending) for lease in leases]) == []


@BOTH
def test_a_message_goes_behind_those_that_wait(
    desk: Desk, queue: QueueState, group: GroupState, ending: Ending
) -> None:
    first, second, third = desk.put_many(queue, [b"a", b"b", b"c"])
    end(desk, desk.claim(group, 1), ending)
    later = desk.put(queue, b"d")
    leases = desk.claim(group, 9)
    assert seqs(leases) == [second, third, first, later]
    assert leases[2].attempt == 1 + (ending is FAILED_TO_TAIL)
    assert leases[2].message.body == b"a"


@BOTH
def test_several_of_one_call_keep_their_order(
    desk: Desk, queue: QueueState, group: GroupState, ending: Ending
) -> None:
    a, b, c = desk.put_many(queue, [b"a", b"b", b"c"])
    leases = desk.claim(group, 2)
    end(desk, leases[::-1], ending)
    assert seqs(desk.claim(group, 9)) == [c, b, a]


@BOTH
def test_a_message_with_an_ordering_key_is_not_overtaken_by_its_key(
    desk: Desk, queue: QueueState, group: GroupState, ending: Ending
) -> None:
    drafts = [draft(b"1", ordering_key="k"), draft(b"2", ordering_key="k"), draft(b"3")]
    one, two, three = [receipt.seq for receipt in desk.put_drafts(queue, drafts)]
    (lease,) = desk.claim(group, 1)
    end(desk, [lease], ending)
    leases = desk.claim(group, 9)
    assert seqs(leases) == [one, three]
    end(desk, leases, DONE)
    assert seqs(desk.claim(group, 9)) == [two]


@BOTH
def test_it_stays_within_its_priority(
    desk: Desk, queue: QueueState, group: GroupState, ending: Ending
) -> None:
    wanted = [draft(b"", priority=priority) for priority in (9, 0, 9)]
    high, low, high_too = [receipt.seq for receipt in desk.put_drafts(queue, wanted)]
    end(desk, desk.claim(group, 1), ending)
    assert seqs(desk.claim(group, 9)) == [high_too, high, low]


def test_the_attempts_of_failures_end_in_the_dead_letters(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    (receipt,) = desk.put_drafts(queue, [draft(b"", max_attempts=2)])
    for _ in range(2):
        end(desk, desk.claim(group, 1), FAILED_TO_TAIL)
    assert desk.claim(group, 1) == []
    (letter,) = desk.store.dead(queue.id, 0, 9)
    assert (letter.seq, letter.reason) == (receipt.seq, Reason.MAX_ATTEMPTS)


def test_what_is_given_back_for_nothing_goes_round_for_ever(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    (receipt,) = desk.put_drafts(queue, [draft(b"", max_attempts=1)])
    for _ in range(5):
        (lease,) = desk.claim(group, 1)
        assert lease.attempt == 1
        end(desk, [lease], RELEASED_TO_TAIL)
    assert (queue.dead, group.waiting) == (0, 1)
    assert [row.attempt for row in desk.store.deliveries(receipt.seq)] == [0]


@BOTH
def test_who_waits_gets_it_at_once(
    desk: Desk, queue: QueueState, group: GroupState, ending: Ending
) -> None:
    seq = desk.put(queue, b"a")
    (lease,) = desk.claim(group, 1)
    waiter = wait(desk, group)
    end(desk, [lease], ending)
    assert waiter.woken
    assert seqs(desk.claim(group, 1)) == [seq]


@BOTH
def test_a_put_does_not_overtake_it(
    desk: Desk, queue: QueueState, group: GroupState, ending: Ending
) -> None:
    first = desk.put(queue, b"a")
    end(desk, desk.claim(group, 1), ending)
    second = desk.put(queue, b"b")
    assert seqs(desk.claim(group, 9)) == [first, second]


def test_a_stale_lease_moves_nothing(desk: Desk, queue: QueueState, group: GroupState) -> None:
    first, second = desk.put_many(queue, [b"a", b"b"])
    (lease,) = desk.claim(group, 1)
    desk.release([lease])
    assert desk.settle([(lease, RELEASED_TO_TAIL)]) == [lease]
    assert seqs(desk.claim(group, 9)) == [first, second]


@BOTH
def test_other_groups_see_the_old_order(
    desk: Desk, queue: QueueState, group: GroupState, ending: Ending
) -> None:
    other = desk.group(queue, "audit")
    first, second = desk.put_many(queue, [b"a", b"b"])
    end(desk, desk.claim(group, 1), ending)
    assert seqs(desk.claim(other, 9)) == [first, second]
    assert seqs(desk.claim(group, 9)) == [second, first]


def test_it_can_expire_and_be_settled_by_id(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    made = [draft(b"", expires_at_ms=desk.now_ms() + 1_000), draft(b"")]
    short, long = [receipt.seq for receipt in desk.put_drafts(queue, made)]
    end(desk, desk.claim(group, 2), RELEASED_TO_TAIL)
    desk.settle_by_id(group, long)
    desk.clock.advance(2)  # type: ignore[attr-defined]
    desk.upkeep.round()
    assert desk.claim(group, 9) == []
    (letter,) = desk.store.dead(queue.id, 0, 9)
    assert (letter.seq, letter.reason) == (short, Reason.EXPIRED)
    assert queue.stored == 0


def test_history_has_the_attempts_and_nothing_else(desk: Desk) -> None:
    queue = desk.queue("kept", QueuePolicy(retain_ms=60_000))
    group = desk.group(queue)
    seq = desk.put(queue, b"a")
    for ending in (RELEASED_TO_TAIL, FAILED_TO_TAIL, RELEASED_TO_TAIL, DONE):
        end(desk, desk.claim(group, 1), ending)
    rows = [row for row in desk.store.deliveries(seq) if row.attempt]
    assert [row.outcome for row in rows] == [Outcome.FAILED, Outcome.ACKED]
    assert all(row.due is None for row in desk.store.deliveries(seq))


@BOTH
@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
def test_the_next_host_keeps_the_places(tmp_path: Path, ending: Ending, *, clean: bool) -> None:
    path = tmp_path / "q.db"
    desk = opened(path)
    queue = desk.queue("orders")
    group = desk.group(queue)
    a, _b, c, d = desk.put_many(queue, [b"a", b"b", b"c", b"d"])
    leases = desk.claim(group, 3)
    end(desk, [leases[2], leases[0]], ending)
    end(desk, [leases[1]], DONE)
    if clean:
        desk.close()
    else:
        desk.writer.close()
        desk.store.close(clean=False)
    with opened(path) as again:
        queue = again.existing_queue("orders")
        e = again.put(queue, b"e")
        group = again.group(queue)
        assert seqs(again.claim(group, 9)) == [d, c, a, e]


@BOTH
def test_a_file_with_messages_at_the_tail_is_sound(tmp_path: Path, ending: Ending) -> None:
    path = tmp_path / "q.db"
    with opened(path) as desk:
        queue = desk.queue("orders")
        group = desk.group(queue)
        desk.put_many(queue, [b"a", b"b", b"c"])
        end(desk, desk.claim(group, 2), ending)
    assert check(path).findings == []


def test_a_suspect_that_is_given_back_is_still_one(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    desk = opened(path)
    queue = desk.queue("orders")
    group = desk.group(queue)
    first, second = desk.put_many(queue, [b"a", b"b"])
    desk.claim(group, 1)
    desk.writer.close()
    desk.store.close(clean=False)
    with opened(path) as again:
        queue = again.existing_queue("orders")
        group = again.group(queue)
        (lease,) = again.claim(group, 1)
        assert (lease.seq, lease.is_suspect) == (first, True)
        end(again, [lease], RELEASED_TO_TAIL)
        (lease,) = again.claim(group, 1)
        assert (lease.seq, lease.is_suspect, lease.attempt) == (first, True, 2)
        end(again, [lease], FAILED_TO_TAIL)
        assert seqs(again.claim(group, 9)) == [second, first]
