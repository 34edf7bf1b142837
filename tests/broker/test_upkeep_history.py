"""What was settled is kept for as long as it should be; what is there is counted right."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedq.broker import removal
from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.clock import VirtualClock
from embedq.limits import LIMITS
from embedq.policy import QueuePolicy

SMALL = dataclasses.replace(LIMITS, disk_watermark_bytes=0, ballast_bytes=0)
RETAIN_MS = 60_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "q.db"


def open_desk(path: Path | str, clock: VirtualClock) -> Desk:
    return open_engine(path, durability="normal", clock=clock, limits=SMALL, upkeep=False)


@pytest.fixture(params=["memory", "file"])
def desk(request, clock: VirtualClock, path: Path) -> Iterator[Desk]:
    with open_desk(":memory:" if request.param == "memory" else path, clock) as opened:
        yield opened


def die(desk: Desk) -> None:
    """Let go of the file as a process does that is killed."""
    desk.writer.close()
    desk.store.close(clean=False)


# ---------------------------------------------------------------------------- retention


def test_what_is_retained_goes_a_moment_after_its_time_and_not_before(
    desk: Desk, clock: VirtualClock
) -> None:
    queue = desk.queue("kept", QueuePolicy(retain_ms=RETAIN_MS))
    group, audit = desk.group(queue), desk.group(queue, "audit")
    desk.put_many(queue, [b"body"] * 2)
    desk.ack(*desk.claim(group, 2))
    clock.advance(10)
    desk.ack(*desk.claim(audit))
    desk.reject(desk.claim(audit)[0])  # a dead letter settles, too
    clock.advance(RETAIN_MS / 1000)
    desk.upkeep.round()  # 10 s after the retention of the first group's settlement
    assert (queue.stored, group.settled, audit.settled) == (2, 2, 2)
    clock.advance(0.001)
    desk.upkeep.round()
    assert (queue.stored, group.settled, audit.settled, queue.dead) == (0, 0, 0, 1)
    assert desk.store.deliveries(1) == []


def test_what_a_group_still_waits_for_is_kept_for_as_long_as_that_takes(
    desk: Desk, clock: VirtualClock
) -> None:
    queue = desk.queue("kept", QueuePolicy(retain_ms=RETAIN_MS))
    group, audit = desk.group(queue), desk.group(queue, "audit")
    desk.put(queue, b"body")
    desk.ack(*desk.claim(group))
    clock.advance(10 * RETAIN_MS / 1000)
    desk.upkeep.round()
    desk.ack(*desk.claim(audit))
    desk.upkeep.round()
    assert queue.stored == 1
    clock.advance(RETAIN_MS / 1000 + 0.001)
    desk.upkeep.round()
    assert queue.stored == 0


def test_what_was_kept_for_a_group_goes_when_the_group_goes(
    desk: Desk, clock: VirtualClock
) -> None:
    queue = desk.queue("kept", QueuePolicy(retain_ms=RETAIN_MS))
    group, audit = desk.group(queue), desk.group(queue, "audit")
    desk.put(queue, b"body")
    desk.ack(*desk.claim(group))
    clock.advance(2 * RETAIN_MS / 1000)
    desk.upkeep.round()
    assert queue.stored == 1
    removal.remove_group(desk, audit)
    desk.upkeep.round()
    assert queue.stored == 0


def test_retention_goes_on_after_a_restart_from_the_beginning(
    path: Path, clock: VirtualClock
) -> None:
    desk = open_desk(path, clock)
    queue = desk.queue("kept", QueuePolicy(retain_ms=RETAIN_MS))
    group = desk.group(queue)
    desk.put_many(queue, [b"body"] * 3)
    desk.ack(*desk.claim(group, 2))
    desk.close()
    clock.advance(2 * RETAIN_MS / 1000)
    with open_desk(path, clock) as desk:
        desk.upkeep.round()
        assert [found.seq for found in desk.peek(desk.queue("kept"))] == [3]


def test_a_large_history_goes_in_parts(
    desk: Desk, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("embedq.broker.upkeep._MANY", 2)
    monkeypatch.setattr("embedq.broker.upkeep._BATCHES", 3)
    queue = desk.queue("kept", QueuePolicy(retain_ms=RETAIN_MS))
    group = desk.group(queue)
    desk.put_many(queue, [b"body"] * 9)
    for _ in range(9):
        desk.ack(*desk.claim(group))
    clock.advance(2 * RETAIN_MS / 1000)
    stored = []
    for _ in range(3):
        desk.upkeep.round()
        stored.append(queue.stored)
    assert stored == [3, 0, 0]


# ----------------------------------------------------------------------------- counting


def test_counts_are_exact_again_after_a_crash(path: Path, clock: VirtualClock) -> None:
    desk = open_desk(path, clock)
    queue = desk.queue("orders")
    group, audit = desk.group(queue), desk.group(queue, "audit")
    desk.put_many(queue, [b"body"] * 5)
    desk.ack(*desk.claim(group, 2))
    desk.reject(desk.claim(group)[0])
    desk.ack(*desk.claim(audit))
    before = (queue.stored, queue.dead, group.settled, audit.settled)
    die(desk)
    with open_desk(path, clock) as desk:
        queue = desk.queue("orders")
        group, audit = desk.group(queue), desk.group(queue, "audit")
        assert (desk.counts_exact, queue.stored) == (False, 0)
        desk.put(queue, b"meanwhile")
        desk.upkeep.count()
        assert desk.counts_exact
        expected = (before[0] + 1, *before[1:])
        assert (queue.stored, queue.dead, group.settled, audit.settled) == expected


def test_what_happens_while_it_is_being_counted_is_counted_once(
    path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = open_desk(path, clock)
    queue = desk.queue("orders")
    group = desk.group(queue)
    desk.put_many(queue, [b"body"] * 5)
    die(desk)
    with open_desk(path, clock) as desk:
        queue = desk.queue("orders")
        group = desk.group(queue)
        begin = desk.store.begin_tally

        def slow():
            ask = begin()

            def count():
                desk.put_many(queue, [b"more"] * 2)
                desk.ack(*desk.claim(group))
                desk.reject(desk.claim(group)[0])
                desk.queue("new")
                return ask()

            return count

        monkeypatch.setattr(desk.store, "begin_tally", slow)
        desk.upkeep.count()
        assert (queue.stored, queue.dead, group.waiting) == (5, 1, 5)
        assert desk.counts_exact
