"""When a message comes again, and what a lease that is over can still do (promises P6 and P8)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from embedq import ErrorInfo, QueuePolicy, StaleLease
from embedq.broker.engine import Engine
from embedq.broker.host import open_engine
from embedq.broker.leases import Lease
from embedq.clock import VirtualClock
from embedq.lifecycle import Reason

LATE: dict[str, Callable[[Engine, Lease], None]] = {
    "ack": lambda engine, lease: engine.ack(lease),
    "fail": lambda engine, lease: engine.fail(lease, ErrorInfo("ValueError")),
    "reject": lambda engine, lease: engine.reject(lease, "why"),
    "release": lambda engine, lease: engine.release([lease]),
    "extend": lambda engine, lease: engine.extend(lease, 60),
}


def die(engine: Engine) -> None:
    """Let go of the file as a process does that is killed: without a word."""
    engine.writer.close()
    engine.store.close(clean=False)


def test_a_lease_that_is_over_is_delivered_again_in_the_next_round_and_not_before() -> None:
    clock = VirtualClock()
    with open_engine(":memory:", clock=clock, upkeep=False) as engine:
        queue = engine.queue("q")
        group = engine.group(queue)
        engine.put(queue, b"1")
        (first,) = engine.claim(group, lease_s=30)
        clock.jump(86_400)  # the wall clock: leases do not look at it
        engine.upkeep.round()
        clock.jump(-2 * 86_400)
        clock.advance(29.9)
        engine.upkeep.round()
        assert first.is_held
        assert engine.claim(group) == []
        clock.advance(0.1)
        engine.upkeep.round()
        (second,) = engine.claim(group)
        assert (second.seq, second.attempt) == (first.seq, 2)
        assert second.counter > first.counter


@pytest.mark.parametrize("late", LATE)
def test_a_lease_that_is_over_changes_nothing(late: str) -> None:
    clock = VirtualClock()
    with open_engine(":memory:", clock=clock, upkeep=False) as engine:
        queue = engine.queue("q")
        group = engine.group(queue)
        engine.put(queue, b"1")
        (first,) = engine.claim(group, lease_s=30)
        clock.advance(30)
        engine.upkeep.round()
        (second,) = engine.claim(group, lease_s=30)
        before = engine.store.deliveries(first.seq)
        with pytest.raises(StaleLease):
            LATE[late](engine, first)
        assert engine.store.deliveries(first.seq) == before
        assert second.is_held
        engine.ack(second)
        assert (queue.stored, queue.dead, group.waiting) == (0, 0, 0)


def test_what_was_in_work_when_its_host_died_comes_at_once_one_at_a_time(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "q.db", upkeep=False)
    queue = engine.queue("q")
    engine.put_many(queue, [b"1", b"2", b"3"])
    engine.claim(engine.group(queue), most=2)
    die(engine)
    with open_engine(tmp_path / "q.db", upkeep=False) as engine:
        group = engine.group(engine.queue("q"))
        found = [(lease.seq, lease.attempt) for lease in engine.claim(group, most=10)]
        assert found == [(1, 2), (3, 1)]  # the second suspect waits for the first one's end
        assert engine.claim(group, most=10) == []
        engine.ack(group.leases[1])
        assert [(lease.seq, lease.attempt) for lease in engine.claim(group)] == [(2, 2)]


def test_a_message_under_which_the_host_dies_again_and_again_is_dead_in_the_end(
    tmp_path: Path,
) -> None:
    for attempt in (1, 2, 3):
        engine = open_engine(tmp_path / "q.db", upkeep=False)
        queue = engine.queue("q", QueuePolicy(max_attempts=0, max_crashes=3))
        group = engine.group(queue)
        if attempt == 1:
            engine.put(queue, b"deadly")
        (lease,) = engine.claim(group)
        assert lease.attempt == attempt
        die(engine)
    with open_engine(tmp_path / "q.db", upkeep=False) as engine:
        queue = engine.queue("q")
        assert engine.claim(engine.group(queue)) == []
        (letter,) = engine.store.dead(queue.id, 0, 10)
        assert (letter.body, letter.reason) == (b"deadly", Reason.CRASHED)
