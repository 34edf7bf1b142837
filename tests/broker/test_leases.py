"""Leases end once, and once they have ended nothing keeps them."""

import gc

import pytest

from embedq.broker.engine import Engine
from embedq.broker.host import open_engine
from embedq.broker.leases import Lease
from embedq.broker.state import GroupState, QueueState
from embedq.clock import VirtualClock


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
