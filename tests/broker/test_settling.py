"""Every ending leaves what it should, and twice in one call counts once."""

from collections.abc import Callable, Sequence

import pytest

from embedq.broker.engine import Engine
from embedq.broker.host import open_engine
from embedq.broker.leases import Lease
from embedq.broker.settling import Drops, Timeouts
from embedq.clock import VirtualClock
from embedq.message import draft
from embedq.policy import QueuePolicy
from embedq.storage.ops import Cancel

Settle = Callable[[Engine, Sequence[Lease]], object]


def ack(engine: Engine, leases: Sequence[Lease]) -> None:
    engine.ack(*leases)


def release(engine: Engine, leases: Sequence[Lease]) -> None:
    engine.release(leases)


@pytest.mark.parametrize(("settle", "again"), [(ack, 0), (release, 1)])
def test_a_delivery_named_twice_is_settled_once(settle: Settle, again: int) -> None:
    with open_engine(":memory:", upkeep=False) as engine:
        queue = engine.queue("orders")
        group, other = engine.group(queue), engine.group(queue, "audit", "beginning")
        engine.put_many(queue, [b"one", b"two"])
        (lease,) = engine.claim(group, 1)
        settle(engine, [lease, lease])
        assert group.settled == 1 - again
        assert (group.waiting, other.waiting) == (1 + again, 2)
        assert len(engine.claim(group, 10)) == 1 + again


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def engine(clock: VirtualClock):
    with open_engine(":memory:", clock=clock, upkeep=False) as opened:
        yield opened


def test_a_lease_that_was_extended_after_it_was_found_over_goes_on(
    engine: Engine, clock: VirtualClock
) -> None:
    queue = engine.queue("orders")
    group = engine.group(queue)
    engine.put_many(queue, [b"body"] * 2)
    over, extended = engine.claim(group, 2, lease_s=10)
    clock.advance(10)
    engine.extend(extended, 5)
    engine.writer.run(Timeouts(engine, group, [over, extended]))
    assert (over.is_held, extended.is_held) == (False, True)
    assert [lease.attempt for lease in engine.claim(group, 9)] == [2]


def test_a_delivery_of_what_is_gone_ends_without_a_trace(engine: Engine) -> None:
    queue = engine.queue("orders")
    group = engine.group(queue)
    engine.put_drafts(queue, [draft(b"", ordering_key="k")] * 2)
    (lease,) = engine.claim(group)
    engine.store.commit([Cancel(queue.id, [lease.seq])])
    queue.removed(1)
    engine.writer.run(Drops(engine, group, [lease]))
    assert not lease.is_held
    assert [again.seq for again in engine.claim(group, 9)] == [2]  # the next of its key


@pytest.mark.parametrize("way", ["reject", "last failure"])
def test_when_a_message_is_dead_the_next_of_its_key_moves(engine: Engine, way: str) -> None:
    queue = engine.queue("orders", QueuePolicy(max_attempts=1))
    group = engine.group(queue)
    engine.put_drafts(queue, [draft(b"", ordering_key="k")] * 2)
    (lease,) = engine.claim(group, 9)
    if way == "reject":
        engine.reject(lease)
    else:
        engine.fail(lease)
    assert [again.seq for again in engine.claim(group, 9)] == [2]
    assert (queue.dead, queue.stored) == (1, 1)


def test_a_key_stays_blocked_while_its_message_waits_for_a_retry(
    engine: Engine, clock: VirtualClock
) -> None:
    queue = engine.queue("orders")
    group = engine.group(queue)
    engine.put_drafts(queue, [draft(b"", ordering_key="k")] * 2)
    engine.fail(engine.claim(group)[0], delay_s=5)
    assert engine.claim(group, 9) == []
    clock.advance(5)
    (lease,) = engine.claim(group, 9)
    assert (lease.seq, lease.attempt) == (1, 2)
    engine.release([lease])
    (lease,) = engine.claim(group, 9)
    assert (lease.seq, lease.attempt) == (1, 2)
    engine.ack(lease)
    assert [again.seq for again in engine.claim(group, 9)] == [2]
