"""Deliveries whose worker died: the same rules as after the end of a host (P5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from embedq import QueuePolicy
from embedq.broker.crashing import Crashes, acrashed
from embedq.broker.desk import Desk
from embedq.broker.state import GroupState
from embedq.clock import VirtualClock
from embedq.lifecycle import Outcome, Reason
from embedq.message import Draft, ErrorInfo
from embedq.storage.memory import MemoryStore

CAUSE = ErrorInfo("SIGSEGV", "the worker (process 7) crashed; nobody can tell whose fault it was")
Made = Callable[..., GroupState]


@pytest.fixture
def desk() -> Iterator[Desk]:
    clock = VirtualClock()
    with Desk(MemoryStore(clock), clock=clock) as opened:
        yield opened


def group_of(desk: Desk, count: int, **policy: object) -> GroupState:
    settings = {"max_attempts": 9, "max_crashes": 3} | policy
    queue = desk.queue("q", QueuePolicy(**settings))  # type: ignore[arg-type]
    group = desk.group(queue)
    desk.put_many(queue, [b"%d" % n for n in range(count)])
    return group


def crash(desk: Desk, *leases: object) -> None:
    asyncio.run(acrashed(desk, leases, CAUSE))  # type: ignore[arg-type]


def test_a_crash_is_an_attempt_and_the_message_a_suspect(desk: Desk) -> None:
    group = group_of(desk, 1)
    (lease,) = desk.claim(group)
    crash(desk, lease)
    assert not lease.is_held
    first, *_ = desk.store.deliveries(lease.seq)
    assert (first.outcome, first.crashes) == (Outcome.CRASHED, 1)
    assert ErrorInfo.decode(first.error or b"") == CAUSE
    (again,) = desk.claim(group)
    assert (again.attempt, again.is_suspect) == (2, True)
    assert again.entry is not None
    assert again.entry.crashes == 1


def test_suspects_run_one_at_a_time(desk: Desk) -> None:
    group = group_of(desk, 5)
    crash(desk, *desk.claim(group, 3))
    out = desk.claim(group, 5)
    assert [lease.seq for lease in out if lease.is_suspect] == [1]
    assert len(out) == 3  # it, and the two that nobody suspects
    desk.ack(*out)
    assert [lease.is_suspect for lease in desk.claim(group, 5)] == [True]


def test_too_many_crashes_are_the_end(desk: Desk) -> None:
    group = group_of(desk, 1, max_crashes=2)
    for _ in range(2):
        crash(desk, *desk.claim(group))
    assert desk.claim(group) == []
    letter = desk.store.dead_letter(1, group.id)
    assert letter is not None
    assert (letter.reason, letter.moved_by) == (Reason.CRASHED, "host")
    assert letter.detail == (
        "2 attempts started, 2 crashes; the last: SIGSEGV: the worker (process 7) crashed"
    )
    assert (group.queue.dead, group.queue.stored, len(group.leases)) == (1, 0, 0)


def test_the_last_attempt_may_end_in_a_crash(desk: Desk) -> None:
    group = group_of(desk, 1, max_attempts=1)
    crash(desk, *desk.claim(group))
    assert group.queue.dead == 1


def test_a_lease_that_no_longer_counts_has_not_crashed(desk: Desk) -> None:
    group = group_of(desk, 2)
    first, second = desk.claim(group, 2)
    desk.ack(first)
    crash(desk, first, second)
    assert group.acked == 1
    assert [row.outcome for row in desk.store.deliveries(2)] == [Outcome.CRASHED]


def test_the_next_message_of_a_key_waits_for_the_one_that_crashed(desk: Desk) -> None:
    queue = desk.queue("q", QueuePolicy(max_crashes=2))
    group = desk.group(queue)
    desk.put_drafts(queue, [Draft(b"%d" % n, ordering_key="k") for n in range(2)])
    (first,) = desk.claim(group, 5)
    crash(desk, first)
    (again,) = desk.claim(group, 5)
    assert again.seq == first.seq
    crash(desk, again)
    (second,) = desk.claim(group, 5)
    assert second.seq == first.seq + 1


def test_whoever_waits_is_woken(desk: Desk) -> None:
    group = group_of(desk, 1)
    leases = desk.claim(group)

    async def run() -> list[object]:
        waits = asyncio.create_task(desk.await_claim(group, 1, 10))
        while not group.waiters:  # noqa: ASYNC110  # it has nothing to wait for
            await asyncio.sleep(0)
        await acrashed(desk, leases, CAUSE)
        return list(await waits)

    assert len(asyncio.run(run())) == 1


def test_a_crash_that_was_not_committed_changes_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = group_of(desk, 1)
    (lease,) = desk.claim(group)
    task = Crashes(desk, group, [lease], CAUSE)
    task.prepare()
    assert group.leases == {}
    task.undo()
    assert group.leases == {lease.seq: lease}
    desk.ack(lease)


def test_both_events_are_told(desk: Desk) -> None:
    group = group_of(desk, 1)
    told: list[str] = []
    for name in ("crashed_delivery", "suspect"):
        desk.events.on(name, lambda notice: told.append(notice.text))
    crash(desk, *desk.claim(group))
    assert desk.events.flush()
    assert "when its process ended: SIGSEGV" in told[0]
    assert "runs alone" in told[1]
