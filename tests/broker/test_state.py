"""Counts follow from what was committed; what the store does not know is forgotten."""

from __future__ import annotations

from typing import cast

from embedq.broker.entry import Entry
from embedq.broker.leases import Lease
from embedq.broker.state import GroupState, QueueState
from embedq.policy import QueuePolicy
from embedq.storage.memory import MemoryStore
from embedq.storage.ops import PutPlain
from embedq.storage.rows import GroupRow, QueueRow


def queue_of(*groups: str, policy: QueuePolicy | None = None) -> QueueState:
    row = QueueRow(1, "orders", policy or QueuePolicy(), paused=False, stored=0, dead=0, last=0)
    queue = QueueState(row)
    for number, name in enumerate(groups, 1):
        member = GroupRow(number, 1, name, 0, 0)
        queue.groups.append(GroupState(member, queue, MemoryStore(), 10))
    return queue


def put(queue: QueueState, first: int, count: int) -> None:
    op = PutPlain(1, 0, 0, [], count)
    op.first = first
    queue.put_applied(op)


def hold(group: GroupState, seq: int, counter: int = 1, entry: Entry | None = None) -> Lease:
    lease = Lease(group, seq, 1, counter, 10.0)
    lease.entry = entry
    group.hold(lease)
    return lease


def test_a_put_counts_in_its_queue_and_is_offered_to_every_group() -> None:
    queue = queue_of("a", "b")
    for group in queue.groups:
        group.index.streams[0].live = True
    put(queue, 5, 3)
    assert (queue.stored, queue.last, queue.puts) == (3, 7, 3)
    assert [list(group.index.streams[0].head) for group in queue.groups] == [[5, 6, 7]] * 2
    assert [group.waiting for group in queue.groups] == [3, 3]


def test_a_settlement_of_the_only_group_leaves_no_count_behind() -> None:
    queue = queue_of("a")
    put(queue, 1, 3)
    (group,) = queue.groups
    assert group.is_sole
    group.count_settled(2, 2)
    assert (queue.stored, group.settled, group.waiting) == (1, 0, 1)
    group.count_settled(1, 0)  # it was gone already
    assert (queue.stored, group.settled) == (1, 0)


def test_a_settlement_of_one_group_of_two_counts_until_the_message_leaves() -> None:
    queue = queue_of("a", "b")
    put(queue, 1, 3)
    first, second = queue.groups
    first.count_settled(2, 0)
    assert (first.settled, first.waiting, second.waiting) == (2, 1, 3)
    second.count_settled(1, 1)
    assert (queue.stored, first.settled, second.settled) == (2, 1, 0)
    assert (first.waiting, second.waiting) == (1, 2)


def test_with_retention_even_the_only_group_keeps_what_it_settled() -> None:
    queue = queue_of("a", policy=QueuePolicy(retain_ms=1))
    put(queue, 1, 2)
    (group,) = queue.groups
    group.count_settled(2, 0)
    assert (queue.stored, group.settled, group.waiting) == (2, 2, 0)
    queue.removed(1)
    assert (queue.stored, group.settled) == (1, 1)


def test_what_is_leased_does_not_wait() -> None:
    queue = queue_of("a")
    put(queue, 1, 2)
    (group,) = queue.groups
    lease = hold(group, 1)
    assert (group.waiting, lease.is_held) == (1, True)
    group.end(lease)
    assert (group.waiting, lease.is_held) == (2, False)
    group.end(lease)  # once more is harmless


def test_a_consumer_s_own_bound_of_attempts_goes_before_that_of_the_queue() -> None:
    queue = queue_of("a", policy=QueuePolicy(max_attempts=4))
    (group,) = queue.groups
    lease = hold(group, 1)
    assert (group.max_attempts, lease.max_attempts) == (4, 4)
    group.most = 0
    assert (group.max_attempts, lease.max_attempts) == (0, 0)


def test_a_held_lease_blocks_its_key_and_holds_up_other_suspects() -> None:
    (group,) = queue_of("a").groups
    entry = Entry(key="k")
    entry.suspect = True
    lease = hold(group, 7, entry=entry)
    assert (group.index.keys, group.index.suspect_out) == ({"k": 7}, True)
    group.end(lease)
    assert not group.index.suspect_out


def test_a_rebuild_keeps_the_leases_that_the_store_knows_under_the_same_token() -> None:
    (group,) = queue_of("a").groups
    kept = hold(group, 1, 11, Entry(key="k"))
    hold(group, 2, 12)
    hold(group, 3, 13)
    generation = group.index.generation
    group.index.streams[0].live = True
    group.floor = 0
    group.rebuild({1: 11, 2: 99, 4: 14})
    assert group.leases == {1: kept}
    assert group.index.keys == {"k": 1}
    assert group.index.generation > generation
    assert not group.index.streams[0].live


def test_queues_and_groups_show_their_names_and_counts() -> None:
    queue = queue_of("a")
    put(queue, 1, 2)
    queue.dead = 1
    assert repr(queue) == "<Queue 'orders': 2 stored, 1 dead>"
    assert repr(queue.groups[0]) == "<Group 'orders'/'a': 2 waiting>"


def test_a_group_asks_the_store_for_the_messages_of_a_key_with_its_own_number() -> None:
    asked: list[tuple[int, str, int]] = []

    class Asked:
        def next_of_key(self, group: int, key: str, after: int) -> None:
            asked.append((group, key, after))

    row = GroupRow(7, 1, "a", 0, 0)
    group = GroupState(row, queue_of(), cast("MemoryStore", Asked()), 10)
    assert group.index.open_key("k", 5) is None
    assert asked == [(7, "k", 5)]
