"""Emptying a queue, or a group's part of it; and what stats say before and after."""

import pytest

from embedq.broker.desk import Desk
from embedq.broker.endings import DONE
from embedq.broker.host import open_engine
from embedq.broker.purge import CHUNK, purge_group, purge_queue
from embedq.broker.state import GroupState, QueueState
from embedq.broker.stats import of_broker, of_queue
from embedq.clock import VirtualClock
from embedq.errors import StaleLease
from embedq.message import draft


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["memory", "file"])
def desk(request, clock: VirtualClock, tmp_path):
    path = ":memory:" if request.param == "memory" else tmp_path / "q.db"
    with open_engine(path, clock=clock, upkeep=False) as opened:
        yield opened


@pytest.fixture
def queue(desk: Desk) -> QueueState:
    return desk.queue("orders")


@pytest.fixture
def group(desk: Desk, queue: QueueState) -> GroupState:
    return desk.group(queue)


def fill(desk: Desk, queue: QueueState) -> int:
    desk.put_many(queue, [b"x"] * (2 * CHUNK))
    later = desk.now_ms() + 60_000
    drafts = [draft(b"x", priority=1), draft(b"x", available_at_ms=later)]
    drafts += [draft(b"x", ordering_key="k")] * 3
    desk.put_drafts(queue, drafts)
    return 2 * CHUNK + 5


def test_a_purged_queue_is_empty_for_everybody_and_goes_on(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    audit = desk.group(queue, "audit", "beginning")
    count = fill(desk, queue)
    leases = desk.claim(group, 3)
    desk.ack(*desk.claim(audit, 2))
    seen: list[tuple[int, int]] = []
    assert purge_queue(desk, queue, lambda done, total: seen.append((done, total))) == count
    assert seen[-1] == (count, count)
    with pytest.raises(StaleLease):
        desk.ack(*leases)
    clock.advance(100)
    assert desk.claim(group, 999) == desk.claim(audit, 999) == []
    assert (queue.stored, group.waiting, audit.waiting) == (0, 0, 0)
    desk.put_drafts(queue, [draft(b"new", ordering_key="k")])
    assert [len(desk.claim(each, 9)) for each in (group, audit)] == [1, 1]


def test_what_is_put_meanwhile_stays(desk: Desk, queue: QueueState, group: GroupState) -> None:
    count = fill(desk, queue)
    put: list[int] = []

    def more(done: int, total: int) -> None:
        if not put:
            put.append(desk.put(queue, b"new"))

    assert purge_queue(desk, queue, more) == count
    assert [lease.seq for lease in desk.claim(group, 9)] == put


def test_a_purged_group_has_nothing_and_the_others_keep_everything(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    audit = desk.group(queue, "audit", "beginning")
    count = fill(desk, queue)
    (lease,) = desk.claim(group)
    assert purge_group(desk, group) == count
    assert desk.settle([(lease, DONE)]) == [lease]
    clock.advance(100)
    assert desk.claim(group, 999) == []
    assert (group.waiting, audit.waiting) == (0, count)
    assert len(desk.claim(audit, 999)) == count - 2  # one for each key
    assert purge_group(desk, group) == 0


def test_stats_count(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    earlier = of_broker(desk)
    count = fill(desk, queue)
    clock.advance(10)
    (first, second) = desk.claim(group, 2)
    desk.ack(first)
    desk.reject(second)
    told = of_queue(desk, queue)
    mine = told.group("default")
    assert mine is not None
    assert (told.stored, told.length, told.dead, told.put) == (count - 2, count - 2, 1, count)
    assert (mine.waiting, mine.delayed, mine.leased) == (count - 2, 1, 0)
    assert (mine.delivered, mine.acked, mine.oldest_s) == (2, 1, 10.0)
    assert told.events["dead"] == 1
    assert told.group("nobody") is None
    now = of_broker(desk)
    assert now.queue("orders") == told
    assert now.queue("none") is None
    assert (now.exact, now.trouble, now.uptime_s) == (True, None, 10.0)
    assert now.rates(earlier)["put"] == count / 10
    assert earlier.rates(now) == {}


def test_an_empty_queue_has_no_age(desk: Desk, queue: QueueState, group: GroupState) -> None:
    assert of_queue(desk, queue).oldest_s is None
    other = desk.queue("other")
    assert of_queue(desk, other).oldest_s is None
    desk.put(other, b"x")
    assert of_queue(desk, other).oldest_s == 0
