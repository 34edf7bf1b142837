"""A put that meets a waiting consumer leases its message to it, in one commit."""

from __future__ import annotations

import asyncio
import threading

import pytest

from embedq.broker.desk import Desk
from embedq.broker.direct import leave
from embedq.broker.endings import DONE, Failed
from embedq.broker.host import open_engine
from embedq.broker.leases import Lease
from embedq.broker.numbered import NumberedPuts, Numbers
from embedq.broker.state import GroupState, QueueState
from embedq.clock import VirtualClock
from embedq.message import draft
from embedq.policy import QueuePolicy
from tests.broker.handing import SOON, plain, poll, rows, seqs, together, wait


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


async def enlisted(group: GroupState, count: int) -> None:
    for _ in range(10_000):
        if len(group.waiters) >= count:
            return
        await asyncio.sleep(0.001)
    raise AssertionError("nobody waits")


class Trace:
    """The statements of the writing connection."""

    def __init__(self, desk: Desk) -> None:
        self._connection = desk.store.connection  # type: ignore[attr-defined]
        self.seen: list[str] = []

    def __enter__(self) -> list[str]:
        self._connection.set_trace_callback(self.seen.append)
        return self.seen

    def __exit__(self, *_: object) -> None:
        self._connection.set_trace_callback(None)


def verbs(statements: list[str]) -> list[str]:
    return [" ".join(statement.split("(")[0].split()[:3]) for statement in statements]


BOTH = ["BEGIN IMMEDIATE", "INSERT INTO delivery", "INSERT INTO msg", "COMMIT"]


# ------------------------------------------------------------------------------- commits


def test_a_put_with_a_waiting_thread_is_one_commit_and_no_read(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    got: list[Lease] = []
    thread = threading.Thread(target=lambda: got.extend(desk.wait_claim(group, 1, SOON)))
    thread.start()
    poll(lambda: group.waiters)
    with Trace(desk) as seen:
        seq = desk.put(queue, b"body")
        thread.join(SOON)
    assert verbs(seen) == BOTH
    (lease,) = got
    assert (lease.seq, lease.attempt, lease.message.body) == (seq, 1, b"body")
    assert lease.message == desk.store.messages([seq])[0]
    (row,) = desk.store.deliveries(seq)
    assert (row.counter, row.session, row.attempt) == (lease.counter, desk.session, 1)
    desk.ack(lease)
    assert (queue.stored, group.settled, group.delivered) == (0, 0, 1)


def test_a_put_that_nobody_waits_for_is_one_statement(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    leave(desk, group.waiters, wait(desk, group))  # somebody did, before
    desk.put(queue, b"notices that nobody waits any more")
    with Trace(desk) as seen:
        desk.put(queue, b"body")
    assert verbs(seen) == ["INSERT INTO msg"]


def test_coroutines_are_handed_messages_too(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    async def main() -> list[int]:
        waiting = [asyncio.create_task(desk.await_claim(group)) for _ in range(2)]
        await enlisted(group, 2)
        with Trace(desk) as seen:
            await asyncio.gather(*[desk.aput(queue, b"%d" % number) for number in range(2)])
            got = [await asyncio.wait_for(each, SOON) for each in waiting]
        assert seen.count("COMMIT") == 1
        return sorted(lease.seq for leases in got for lease in leases)

    assert asyncio.run(main()) == [1, 2]


def test_puts_that_meet_share_one_commit_with_the_deliveries(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    waiters = [wait(desk, group) for _ in range(3)]
    with Trace(desk) as seen:
        together(desk, *[plain(desk, queue, b"%d" % number) for number in range(5)])
    assert seen.count("COMMIT") == 1
    assert [seqs(waiter.handed()) for waiter in waiters] == [[1], [2], [3]]
    assert seqs(desk.claim(group, 9)) == [4, 5]


def test_puts_of_other_processes_are_handed_over_too(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    waiters = [wait(desk, group), wait(desk, group, 2)]
    task = NumberedPuts(desk)
    numbers = Numbers(1)
    for n, bodies in enumerate(([b"a", b"b"], [b"c", b"d"]), 1):
        task.add(numbers, n, queue, 0, bodies)
    desk.writer.run(task)
    assert task.firsts() == [1, 3]
    assert numbers.known == {1: (1, 2), 2: (3, 2)}
    assert [seqs(waiter.handed()) for waiter in waiters] == [[1], [2, 3]]
    assert seqs(desk.claim(group, 9)) == [4]


def test_many_messages_are_shared_out_in_turn(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    waiters = [wait(desk, group, most) for most in (2, 1, 4, 1)]
    desk.put_many(queue, [b"body"] * 5)
    assert [seqs(waiter.handed()) for waiter in waiters] == [[1, 2], [3], [4, 5], []]
    assert len(group.waiters) == 1
    desk.put_many(queue, [b"body"] * 3)
    assert seqs(waiters[3].handed()) == [6]
    assert seqs(desk.claim(group, 9)) == [7, 8]


def test_a_large_body_is_noted_for_the_claims_to_come(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    waiter = wait(desk, group)
    desk.put(queue, b"x" * 100_000)
    assert len(waiter.handed()) == 1
    assert queue.large


def test_each_waiter_s_session_is_recorded(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    waiters = [wait(desk, group, 1, session) for session in (7, 7, 8)]
    desk.put_many(queue, [b"body"] * 3)
    rows = [desk.store.deliveries(seq)[0] for seq in (1, 2, 3)]
    assert [row.session for row in rows] == [7, 7, 8]
    assert [row.counter for row in rows] == [waiter.got[0].counter for waiter in waiters]


# -------------------------------------------------------------------- what comes before


def test_other_groups_get_every_message_all_the_same(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    idle, busy = desk.group(queue, "idle", "end"), desk.group(queue, "busy", "end")
    waiters = [wait(desk, group), wait(desk, busy, 3)]
    desk.put_many(queue, [b"a", b"b"])
    assert [seqs(waiter.handed()) for waiter in waiters] == [[1], [1, 2]]
    assert seqs(desk.claim(group, 9)) == [2]
    assert seqs(desk.claim(idle, 9)) == [1, 2]
    assert desk.claim(busy, 9) == []
    for member in (group, idle, busy):
        desk.ack(*list(member.leases.values()))
    assert queue.stored == 0


def test_nothing_is_handed_past_a_message_that_is_ready(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    desk.put(queue, b"first")
    (lease,) = desk.claim(group)
    first, second = wait(desk, group), wait(desk, group)
    desk.release([lease])  # wakes the first one, who has not come for it yet
    desk.put(queue, b"second")
    assert [waiter.handed() for waiter in (first, second)] == [[], []]
    assert [waiter.wait(0) for waiter in (first, second)] == [True, True]
    assert seqs(desk.claim(group, 9)) == [1, 2]


def test_nothing_is_handed_out_of_a_paused_queue(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    desk.pause(queue)
    waiter = wait(desk, group)
    desk.put(queue, b"body")
    assert waiter.handed() == []
    desk.pause(queue, paused=False)
    assert seqs(desk.claim(group)) == [1]


def test_the_most_urgent_of_a_batch_is_handed_over(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    waiter = wait(desk, group, 2)
    drafts = [draft(b"a"), draft(b"b", priority=3, max_attempts=2), draft(b"c", priority=9)]
    desk.put_drafts(queue, drafts)
    urgent, second = waiter.handed()
    assert seqs([urgent, second]) == [3, 2]
    assert [lease.max_attempts for lease in (urgent, second)] == [group.max_attempts, 2]
    assert urgent.message == desk.store.messages([3])[0]
    desk.settle([(urgent, Failed()), (second, Failed())])
    assert [(lease.seq, lease.attempt) for lease in desk.claim(group, 9)] == [
        (3, 2),
        (2, 2),
        (1, 1),
    ]


def test_a_delayed_message_is_not_handed_over(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    waiter = wait(desk, group)
    desk.put_drafts(queue, [draft(b"later", available_at_ms=desk.now_ms() + 1000), draft(b"now")])
    assert seqs(waiter.handed()) == [2]
    clock.advance(1)
    assert seqs(desk.claim(group, 9)) == [1]


def test_of_an_ordering_key_one_at_a_time_is_handed_over(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    waiter = wait(desk, group, 9)
    desk.put_drafts(queue, [draft(b"a", ordering_key="k"), draft(b"b", ordering_key="k")])
    (first,) = waiter.handed()
    other = wait(desk, group)
    desk.put_drafts(queue, [draft(b"c", ordering_key="k"), draft(b"d", ordering_key="m")])
    assert seqs(other.handed()) == [4]
    assert desk.claim(group, 9) == []
    desk.ack(first)
    assert seqs(desk.claim(group, 9)) == [2]


def test_puts_of_one_key_that_meet_are_not_both_handed_over(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    waiters = [wait(desk, group), wait(desk, group)]
    puts = [rows(desk, queue, draft(body, ordering_key="k")) for body in (b"a", b"b")]
    together(desk, *puts)
    assert [seqs(waiter.handed()) for waiter in waiters] == [[1], []]
    assert desk.claim(group, 9) == []
    desk.ack(*waiters[0].handed())
    assert seqs(desk.claim(group, 9)) == [2]


def test_a_put_is_not_handed_past_another_one_of_the_same_commit(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    waiter = wait(desk, group)
    late = draft(b"late", expires_at_ms=desk.now_ms())
    together(desk, rows(desk, queue, late), plain(desk, queue, b"after it"))
    assert waiter.handed() == []
    assert waiter.wait(0)
    assert seqs(desk.claim(group, 9)) == [2]
    assert queue.dead == 1


def test_a_duplicate_leaves_the_waiter_waiting(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    waiter = wait(desk, group)
    desk.put_drafts(queue, [draft(b"a", dedup_key="d")])
    assert seqs(waiter.handed()) == [1]
    other = wait(desk, group)
    (receipt,) = desk.put_drafts(queue, [draft(b"a", dedup_key="d")])
    assert receipt.duplicate
    assert not other.wait(0)
    assert len(group.waiters) == 1
    desk.put(queue, b"b")
    assert seqs(other.handed()) == [2]


def test_a_suspect_comes_before_what_is_put(tmp_path) -> None:
    path = tmp_path / "crashed.db"
    desk = open_engine(path, upkeep=False)
    queue = desk.queue("orders")
    desk.put(queue, b"killer")
    desk.claim(desk.group(queue))
    desk.store.close(clean=False)
    with open_engine(path, upkeep=False) as desk:
        queue = desk.queue("orders", QueuePolicy(max_crashes=2))
        group = desk.group(queue)
        (suspect,) = desk.claim(group, 9)  # it has one chance left, and runs alone
        waiter = wait(desk, group)
        seq = desk.put(queue, b"body")
        assert waiter.handed() == []
        desk.ack(suspect)
        assert seqs(desk.claim(group, 9)) == [seq]


def test_a_queue_of_bounded_length_hands_over_too(desk: Desk) -> None:
    queue = desk.queue("small", QueuePolicy(max_length=2, when_full="reject"))
    group = desk.group(queue)
    waiter = wait(desk, group)
    desk.put(queue, b"a")
    assert seqs(waiter.handed()) == [1]
    assert queue.taken == 0


# ------------------------------------------------------------------------------ fairness


def test_no_queue_and_no_consumer_is_left_out(desk: Desk) -> None:
    states = [desk.queue(f"q{number}") for number in range(3)]
    groups = [desk.group(queue) for queue in states]
    served: dict[tuple[int, int], int] = {}
    waiters = {
        (one, number): wait(desk, group) for one, group in enumerate(groups) for number in range(2)
    }
    for lap in range(12):
        for one, queue in enumerate(states):
            desk.put(queue, b"%d" % lap)
            for number in range(2):
                leases = waiters[one, number].handed()
                if leases:
                    served[one, number] = served.get((one, number), 0) + 1
                    desk.settle([(lease, DONE) for lease in leases])
                    waiters[one, number] = wait(desk, groups[one])
    assert served == dict.fromkeys(waiters, 6)
