"""What waits in the store comes into memory once, whatever happens while it is being read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.broker.state import GroupState, QueueState
from embedq.clock import VirtualClock
from embedq.errors import StoreBusy
from embedq.limits import LIMITS
from embedq.message import draft
from embedq.storage.memory import MemoryStore
from embedq.storage.ops import Op

SMALL = dataclasses.replace(
    LIMITS, load_chunk=3, head_max=4, disk_watermark_bytes=0, ballast_bytes=0
)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def desk(clock: VirtualClock):
    with Desk(MemoryStore(clock), clock=clock, limits=SMALL) as opened:
        yield opened


@pytest.fixture
def queue(desk: Desk) -> QueueState:
    return desk.queue("orders")


@pytest.fixture
def group(desk: Desk, queue: QueueState) -> GroupState:
    return desk.group(queue)


def drain(desk: Desk, group: GroupState, most: int = 10) -> list[int]:
    """Claim and ack until nothing is ready."""
    seqs: list[int] = []
    while leases := desk.claim(group, most):
        seqs += [lease.seq for lease in leases]
        desk.ack(*leases)
    return seqs


def while_reading(
    desk: Desk,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    act: Callable[[], object],
    when: Callable[[Any], bool] = bool,
) -> None:
    """Let `act` happen once, between the reading of a chunk and its taking in."""
    read = getattr(desk.store, method)

    def slow(request):
        chunk = read(request)
        if when(request):
            monkeypatch.setattr(desk.store, method, read)
            act()
        return chunk

    monkeypatch.setattr(desk.store, method, slow)


def fail_once(desk: Desk, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Let the next commit fail."""
    commit = desk.store.commit

    def failing(batch: list[Op]) -> None:
        monkeypatch.setattr(desk.store, "commit", commit)
        raise error

    monkeypatch.setattr(desk.store, "commit", failing)


def test_a_backlog_comes_chunk_by_chunk_and_memory_stays_small(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    desk.claim(group)
    desk.put_many(queue, [b"body"] * 20)
    seen = []
    while leases := desk.claim(group, 2):
        seen += [lease.seq for lease in leases]
        assert len(group.index.streams[0].head) <= 4
        desk.ack(*leases)
    assert seen == list(range(1, 21))


def test_what_is_put_while_a_chunk_is_read_comes_after_it(
    desk: Desk, queue: QueueState, group: GroupState, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.put_many(queue, [b"body"] * 2)
    while_reading(desk, monkeypatch, "load", lambda: desk.put_many(queue, [b"body"] * 2))
    assert drain(desk, group) == [1, 2, 3, 4]


def test_a_delayed_message_that_is_put_while_times_are_read_is_not_lost(
    desk: Desk,
    queue: QueueState,
    group: GroupState,
    clock: VirtualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def late(seconds: int) -> list[int]:
        due = desk.now_ms() + 1000 * seconds
        return [
            receipt.seq for receipt in desk.put_drafts(queue, [draft(b"", available_at_ms=due)])
        ]

    late(4)
    while_reading(desk, monkeypatch, "load_due", lambda: (late(2), late(6)))
    assert desk.claim(group) == []
    comes = []
    for _ in range(7):
        clock.advance(1)
        comes.append(drain(desk, group))
    assert comes == [[], [2], [], [1], [], [3], []]


def test_a_retry_that_begins_to_wait_while_retries_are_read_is_not_lost(
    desk: Desk,
    queue: QueueState,
    group: GroupState,
    clock: VirtualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk.put_many(queue, [b"body"] * 2)
    first, second = desk.claim(group, 2)
    desk.fail(first, delay_s=5)
    with desk.writer.lock:
        desk.rebuild(group)

    while_reading(
        *(desk, monkeypatch, "load_due", lambda: desk.fail(second, delay_s=3)),
        when=lambda request: request.retries,
    )
    assert desk.claim(group) == []
    clock.advance(3)
    assert drain(desk, group) == [2]
    clock.advance(2)
    assert drain(desk, group) == [1]


def test_a_chunk_that_was_read_before_everything_was_forgotten_is_dropped(
    desk: Desk, queue: QueueState, group: GroupState, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.put_many(queue, [b"body"] * 3)

    def forget() -> None:
        with desk.writer.lock:
            desk.rebuild(group)

    while_reading(desk, monkeypatch, "load", forget)
    while_reading(desk, monkeypatch, "load_due", forget)
    assert drain(desk, group) == [1, 2, 3]


def test_a_message_settled_by_id_while_its_chunk_is_read_does_not_come(
    desk: Desk, queue: QueueState, group: GroupState, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = desk.group(queue, "audit")  # for which the message stays
    desk.put_many(queue, [b"body"] * 2)
    desk.put_drafts(queue, [draft(b"", priority=3, ordering_key="k")])
    while_reading(
        *(desk, monkeypatch, "load", lambda: desk.settle_by_id(group, 1)),
        when=lambda request: request.priority == 0,
    )
    assert drain(desk, group) == [3, 2]
    assert drain(desk, audit) == [3, 1, 2]


def test_after_a_failed_claim_what_is_released_comes_once(
    desk: Desk, queue: QueueState, group: GroupState, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.put_many(queue, [b"body"] * 4)
    desk.put_drafts(queue, [draft(b"", priority=2)] * 2)
    leases = desk.claim(group, 3)
    fail_once(desk, monkeypatch, StoreBusy("somebody has the file"))
    with pytest.raises(StoreBusy):
        desk.claim(group)
    desk.release(leases)
    assert [lease.seq for lease in desk.claim(group, 10)] == [5, 6, 1, 2, 3, 4]
    assert desk.claim(group, 10) == []


def test_an_acked_message_does_not_come_again_after_a_failed_claim(
    desk: Desk, queue: QueueState, group: GroupState, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.group(queue, "audit")
    desk.put_many(queue, [b"body"] * 3)
    (first, second) = desk.claim(group, 2)
    fail_once(desk, monkeypatch, StoreBusy("somebody has the file"))
    with pytest.raises(StoreBusy):
        desk.claim(group)
    while_reading(desk, monkeypatch, "load", lambda: desk.ack(first))
    assert drain(desk, group) == [3]
    desk.release([second])
    assert drain(desk, group) == [2]


def test_due_messages_come_though_many_others_wait_for_a_far_time(
    tmp_path: Path, clock: VirtualClock
) -> None:
    with open_engine(tmp_path / "q.db", clock=clock, limits=SMALL, upkeep=False) as desk:
        queue = desk.queue("orders")
        desk.group(queue)
        now = desk.now_ms()
        late = [draft(b"", available_at_ms=now + 1000 * seconds) for seconds in range(1, 6)]
        desk.put_drafts(queue, late)
        desk.put_many(queue, [b"body"] * 5)
    with open_engine(tmp_path / "q.db", clock=clock, limits=SMALL, upkeep=False) as desk:
        group = desk.group(desk.queue("orders"))
        while leases := desk.claim(group, 10):
            for lease in leases:
                desk.fail(lease, delay_s=3600)
        clock.advance(10)
        assert drain(desk, group) == [1, 2, 3, 4, 5]


def test_keyed_retries_come_however_many_they_are(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    desk.put_drafts(queue, [draft(b"", ordering_key=f"customer {n}") for n in range(30)])
    while leases := desk.claim(group, 10):
        for lease in leases:
            desk.fail(lease, delay_s=60)
    clock.advance(60)
    assert drain(desk, group) == list(range(1, 31))


def test_a_key_keeps_its_order_though_its_first_message_was_not_loaded_yet(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    desk.claim(group)
    desk.put_many(queue, [b"body"] * 8)  # more than memory holds
    drafts = [draft(b"", ordering_key="k"), draft(b"", ordering_key="k", priority=3)]
    desk.put_drafts(queue, drafts)
    seqs = drain(desk, group, 1)
    assert sorted(seqs) == list(range(1, 11))
    assert seqs.index(9) < seqs.index(10)


def test_the_first_message_of_a_key_may_leave_before_it_was_loaded(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    desk.claim(group)
    desk.put_many(queue, [b"body"] * 8)
    drafts = [draft(b"", ordering_key="k"), draft(b"", ordering_key="k", priority=3)]
    desk.put_drafts(queue, drafts)
    assert desk.cancel(queue, 9) == [9]
    assert drain(desk, group, 1) == [10, 1, 2, 3, 4, 5, 6, 7, 8]


def test_a_delivery_that_nobody_holds_comes_back_without_counting(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    """Its claim was interrupted after the commit: the caller never saw it."""
    desk.put(queue, b"body")
    (lease,) = desk.claim(group)
    with desk.writer.lock:
        group.leases.clear()
        desk.rebuild(group)
    (again,) = desk.claim(group)
    assert (again.seq, again.attempt) == (lease.seq, 1)
    assert again.counter > lease.counter
