"""After a crash: who may have caused it runs one at a time, and at its last chance alone (P5)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from embedq import QueuePolicy
from embedq.broker.desk import Desk
from embedq.broker.endings import DONE, RELEASED, Ending, Failed
from embedq.broker.host import open_engine
from embedq.broker.state import GroupState
from embedq.broker.waiting import Waiter

Opened = Callable[[], tuple[Desk, GroupState]]


def die(desk: Desk) -> None:
    """Let go of the file as a process does that is killed: without a word."""
    desk.writer.close()
    desk.store.close(clean=False)


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    def reopen() -> tuple[Desk, GroupState]:
        desk = open_engine(tmp_path / "q.db", upkeep=False)
        queue = desk.queue("q", QueuePolicy(max_attempts=9, max_crashes=3))
        desk.upkeep.count()
        return desk, desk.group(queue)

    return reopen


def crash_twice(opened: Opened, count: int) -> tuple[Desk, GroupState]:
    """Put messages; the first of them is being delivered when its host dies, twice."""
    desk, group = opened()
    desk.put_many(group.queue, [b"%d" % n for n in range(count)])
    for _ in range(2):
        assert seqs(desk, group, 1) == [1]
        die(desk)
        desk, group = opened()
    return desk, group


def seqs(desk: Desk, group: GroupState, most: int = 10) -> list[int]:
    return [lease.seq for lease in desk.claim(group, most)]


def test_a_suspect_at_its_last_chance_comes_alone_and_holds_up_the_rest(opened: Opened) -> None:
    desk, group = crash_twice(opened, 4)
    (suspect,) = desk.claim(group, 10)
    assert (suspect.seq, suspect.attempt) == (1, 3)
    assert seqs(desk, group) == []
    desk.ack(suspect)
    assert seqs(desk, group) == [2, 3, 4]
    desk.close()


@pytest.mark.parametrize("ending", [DONE, RELEASED, Failed(delay_s=0.0)])
def test_a_suspect_at_its_last_chance_waits_for_those_that_run(
    opened: Opened, ending: Ending
) -> None:
    desk, group = crash_twice(opened, 3)
    (suspect,) = desk.claim(group, 10)
    # Given back, it stays a suspect; what is claimed in the same commit runs first.
    got = desk.exchange(group, [(suspect, RELEASED)], 1).leases
    assert [lease.seq for lease in got] == [2]
    assert seqs(desk, group) == []
    settled = desk.exchange(group, [(got[0], ending)], 10).leases
    assert [lease.seq for lease in settled] == [1]
    assert seqs(desk, group) == []
    desk.ack(settled[0])
    assert seqs(desk, group) == ([3] if ending is DONE else [2, 3])
    desk.close()


def test_a_suspect_that_ends_in_the_commit_of_the_next_claim_leaves_no_gap(opened: Opened) -> None:
    desk, group = opened()
    desk.put_many(group.queue, [b"0", b"1"])
    desk.claim(group, 2)
    die(desk)
    desk, group = opened()
    (first,) = desk.claim(group, 10)
    got = desk.exchange(group, [(first, DONE)], 1, timeout=0.0)
    assert [lease.seq for lease in got.leases] == [2]
    got = desk.exchange(group, [(got.leases[0], DONE)], 1, timeout=0.0)
    assert len(got.leases) == 0
    desk.close()


def test_nobody_asks_in_a_loop_for_the_suspect_of_a_paused_queue(opened: Opened) -> None:
    desk, group = crash_twice(opened, 1)
    desk.pause(group.queue)
    assert len(desk.exchange(group, (), 1, timeout=0.05, waiter=Waiter()).leases) == 0
    desk.pause(group.queue, paused=False)
    assert seqs(desk, group) == [1]
    desk.close()


#: Claims of three meet a new one beside the first suspect each time.
KILLERS = {2, 4, 6}


def dead_after_killers(opened: Opened) -> set[int]:
    """Let hosts die under every killer until all is settled; return who is dead."""
    desk, group = opened()
    desk.put_many(group.queue, [b"%d" % n for n in range(1, 9)])
    deaths = 0
    while group.waiting or group.leases:
        leases = desk.claim(group, 3)
        if not KILLERS.isdisjoint(lease.seq for lease in leases):
            die(desk)
            deaths += 1
            assert deaths <= 3 * len(KILLERS)
            desk, group = opened()
        else:
            desk.ack(*leases)
    dead = desk.store.dead(group.queue.id, 0, 100)
    desk.close()
    return {row.seq for row in dead}


def test_an_innocent_neighbour_survives_more_killers_than_max_crashes(opened: Opened) -> None:
    assert dead_after_killers(opened) == KILLERS


def test_the_scenario_would_notice_an_innocent_that_dies(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GroupState, "room_beside_suspects", lambda _, most: most)
    assert dead_after_killers(opened) > KILLERS
