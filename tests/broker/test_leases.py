"""Leases end once, and once they have ended nothing keeps them."""

import gc
from types import SimpleNamespace
from typing import cast

import pytest

from embedq.broker.engine import Engine
from embedq.broker.entry import Entry
from embedq.broker.host import open_engine
from embedq.broker.leases import Deadlines, Lease
from embedq.broker.state import GroupState, QueueState
from embedq.clock import VirtualClock
from tests.vanishing import vanishing


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def engine(clock: VirtualClock):
    with open_engine(":memory:", clock=clock, upkeep=False) as opened:
        yield opened


@pytest.fixture
def queue(engine: Engine) -> QueueState:
    return engine.queue("orders")


@pytest.fixture
def group(engine: Engine, queue: QueueState) -> GroupState:
    return engine.group(queue)


def test_a_lease_that_was_extended_often_ends_once(
    engine: Engine, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    engine.put(queue, b"body")
    (lease,) = engine.claim(group, 1, lease_s=10)
    for _ in range(3):
        engine.extend(lease, 10)  # ends at the same instant each time
    clock.advance(5)
    engine.extend(lease, 10)
    clock.advance(9.9)
    assert engine.end_leases() == 0
    clock.advance(0.1)
    assert engine.end_leases() == 1
    again = engine.claim(group, 10)
    assert [other.attempt for other in again] == [2]


def test_an_extension_may_also_end_a_lease_sooner(
    engine: Engine, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    engine.put(queue, b"body")
    (lease,) = engine.claim(group, 1, lease_s=100)
    engine.extend(lease, 1)
    clock.advance(1)
    assert engine.end_leases() == 1
    clock.advance(100)
    assert engine.end_leases() == 0


def test_the_end_of_an_earlier_lease_does_not_end_the_next_one(
    engine: Engine, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    engine.put(queue, b"body")
    engine.release(engine.claim(group, 1, lease_s=10))
    clock.advance(5)
    (lease,) = engine.claim(group, 1, lease_s=10)
    clock.advance(6)
    assert engine.end_leases() == 0
    assert lease.is_held
    clock.advance(4)
    assert engine.end_leases() == 1


def test_a_settled_message_is_not_kept_until_its_lease_would_have_ended(
    engine: Engine, queue: QueueState, group: GroupState
) -> None:
    engine.put(queue, b"large")
    engine.ack(*engine.claim(group, 1, lease_s=3600))
    gc.collect()
    kept = [lease for lease in gc.get_objects() if isinstance(lease, Lease)]
    assert [lease for lease in kept if lease.group is group] == []


def test_what_is_watched_does_not_grow_with_the_leases_that_were_settled(
    engine: Engine, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    engine.put(queue, b"held")
    (held,) = engine.claim(group, 1, lease_s=3600)
    for _ in range(300):
        engine.put_many(queue, [b"body"] * 100)
        engine.ack(*engine.claim(group, 100, lease_s=3600))
    assert engine.deadlines.watched < 20_000
    assert held.is_held
    clock.advance(3600)
    assert engine.end_leases() == 1


# ----------------------------------------------------------------------------- deadlines


class Table:
    """As much of a group as deadlines look at."""

    def __init__(self, lease_ms: int = 30_000) -> None:
        self.leases: dict[int, Lease] = {}
        self.queue = SimpleNamespace(policy=SimpleNamespace(lease_ms=lease_ms))

    def lease(self, seq: int, counter: int, deadline: float) -> Lease:
        lease = Lease(cast("GroupState", self), seq, 1, counter, deadline)
        self.leases[seq] = lease
        return lease


def test_leases_of_a_claim_end_together_and_come_again_while_they_are_held() -> None:
    table, deadlines = Table(), Deadlines()
    leases = [table.lease(seq, seq, 10.0) for seq in (1, 2, 3)]
    deadlines.add(10.0, leases)
    assert (deadlines.next(), deadlines.watched) == (10.0, 3)
    del table.leases[2]
    assert deadlines.over(9.9) == []
    assert deadlines.over(10.0) == [leases[0], leases[2]]
    again = deadlines.next()
    assert again is not None
    assert again > 10.0
    assert deadlines.over(again) == [leases[0], leases[2]]
    table.leases.clear()
    assert deadlines.over(99.0) == []
    assert (deadlines.next(), deadlines.watched) == (None, 0)


def test_an_extended_lease_is_left_to_the_entry_of_its_extension() -> None:
    table, deadlines = Table(), Deadlines()
    lease = table.lease(1, 1, 10.0)
    deadlines.add(10.0, [lease])
    lease.deadline = 20.0
    deadlines.add(20.0, [lease])
    assert deadlines.over(15.0) == []
    assert deadlines.over(20.0) == [lease]


def test_the_entry_of_an_earlier_delivery_does_not_end_a_later_one() -> None:
    table, deadlines = Table(), Deadlines()
    deadlines.add(10.0, [table.lease(1, 5, 10.0)])
    later = table.lease(1, 6, 10.0)
    assert deadlines.over(10.0) == []
    assert later.is_held


def test_a_kept_lease_is_renewed_by_the_time_of_its_queue() -> None:
    table, deadlines = Table(lease_ms=7_000), Deadlines()
    lease = table.lease(1, 1, 10.0)
    lease.keeper = iter([True, False]).__next__
    deadlines.add(10.0, [lease])
    assert deadlines.over(12.0) == []
    assert (lease.deadline, deadlines.next()) == (19.0, 19.0)
    assert deadlines.over(19.0) == [lease]


def test_after_an_interruption_only_what_is_held_is_watched() -> None:
    table, deadlines = Table(), Deadlines()
    deadlines.add(10.0, [table.lease(1, 1, 10.0)])
    held = table.lease(2, 2, 12.0)
    deadlines.watch_only([held])
    assert (deadlines.next(), deadlines.watched) == (12.0, 1)


def test_a_lease_remembers_what_its_message_is_when_it_comes_back() -> None:
    table = Table()
    lease = table.lease(1, 1, 10.0)
    plain = lease.entry_at(3)
    assert (plain.priority, plain.attempt, plain.key, plain.suspect) == (0, 3, None, False)
    lease.entry = Entry(4, 2, 1, "k", 9)
    lease.entry.suspect = True
    back = lease.entry_at(2)
    assert (back.priority, back.attempt, back.crashes, back.key) == (4, 2, 1, "k")
    assert (back.max_attempts, back.suspect) == (9, False)
    assert (lease.key, lease.is_suspect) == ("k", True)
    assert repr(lease) == "<Lease of message 1, attempt 1, token 1>"


@pytest.mark.parametrize("looks", range(2))
def test_a_lease_may_be_kept_no_longer_while_its_end_is_looked_at(
    engine: Engine, group: GroupState, looks: int
) -> None:
    lease = vanishing(Lease, "keeper", looks)(group, 1, 1, 1, 0.0)
    lease.keeper = lambda: True
    group.hold(lease)
    engine.deadlines.add(0.0, [lease])
    assert engine.deadlines.over(0.0) == ([] if looks else [lease])
