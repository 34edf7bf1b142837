"""A queue of bounded length blocks, refuses or drops, whoever puts and however many at once."""

import asyncio
import threading
from pathlib import Path

import pytest

from embedq.broker import bounds
from embedq.broker.awaiting import LoopWaiter
from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.broker.moves import Change
from embedq.broker.numbered import Numbers, aput_rows, plain_row
from embedq.broker.state import QueueState
from embedq.broker.waiting import Waiter
from embedq.clock import VirtualClock
from embedq.errors import QueueFull
from embedq.message import draft
from embedq.policy import QueuePolicy
from embedq.storage.ops import OpenSession
from tests.broker.handing import plain, together
from tests.vanishing import vanishing

SOON = 20.0


@pytest.fixture
def desk():
    with open_engine(":memory:", clock=VirtualClock(), upkeep=False) as opened:
        yield opened


def bounded(desk: Desk, when_full: str, most: int = 3, **more: object) -> QueueState:
    policy = QueuePolicy(max_length=most).changed(when_full=when_full, **more)
    return desk.queue("orders", policy)


def test_a_full_queue_refuses(desk: Desk) -> None:
    queue = bounded(desk, "reject")
    for _ in range(3):
        desk.put(queue, b"x")
    with pytest.raises(QueueFull, match="max_length=3"):
        desk.put(queue, b"x")
    with pytest.raises(QueueFull):
        desk.put_drafts(queue, [draft(b"x", priority=1)])
    with pytest.raises(QueueFull):
        desk.put_many(queue, [b"x"])
    assert queue.stored == 3
    desk.ack(*desk.claim(desk.group(queue)))
    assert desk.put(queue, b"x") == 4


def test_a_batch_that_never_fits_is_refused_at_once(desk: Desk) -> None:
    queue = bounded(desk, "block")
    with pytest.raises(QueueFull, match="in one put"):
        desk.put_many(queue, [b"x"] * 4)


def test_a_full_queue_drops_its_oldest_messages_that_nobody_works_at(desk: Desk) -> None:
    queue = bounded(desk, "drop_oldest")
    group = desk.group(queue)
    desk.put_many(queue, [b"1", b"2", b"3"])
    (lease,) = desk.claim(group)
    desk.put_many(queue, [b"4", b"5"])
    assert queue.stored == 3
    assert [message.body for message in desk.peek(queue)] == [b"1", b"4", b"5"]
    desk.ack(lease)
    assert [each.message.body for each in desk.claim(group, 9)] == [b"4", b"5"]
    assert desk.events.count("dropped", "orders") == 2


def test_what_is_retained_does_not_count(desk: Desk) -> None:
    queue = bounded(desk, "reject", retain_ms=1000_000)
    group = desk.group(queue)
    for _ in range(5):
        desk.put_many(queue, [b"x"] * 3)
        desk.ack(*desk.claim(group, 3))
    assert (queue.stored, bounds.length(queue)) == (15, 0)
    desk.put_many(queue, [b"x"] * 3)
    desk.queue("orders", queue.policy.changed(when_full="drop_oldest"))
    desk.put(queue, b"last")
    assert (queue.stored, bounds.length(queue)) == (18, 3)
    assert [each.message.body for each in desk.claim(group, 9)] == [b"x", b"x", b"last"]


def test_a_put_waits_for_room_in_turn(desk: Desk) -> None:
    queue = bounded(desk, "block", 1)
    group = desk.group(queue)
    desk.put(queue, b"0")
    threads = []
    for number in range(3):
        thread = threading.Thread(target=desk.put, args=(queue, b"%d" % (number + 1)), daemon=True)
        thread.start()
        threads.append(thread)
        pause = threading.Event()
        while len(queue.space) < number + 1:
            pause.wait(0.002)
    seen = []
    for number in range(4):
        (lease,) = desk.claim(group)
        seen.append(lease.message.body)
        desk.ack(lease)
        for thread in threads[number : number + 1]:
            thread.join(SOON)
            assert not thread.is_alive()
    assert seen == [b"0", b"1", b"2", b"3"]


def test_waiting_for_room_ends_with_the_timeout(desk: Desk) -> None:
    queue = bounded(desk, "block", 1)
    desk.put(queue, b"x")
    for timeout in (0, 0.01):
        with pytest.raises(QueueFull):
            bounds.put(desk, queue, [draft(b"x")], timeout)
        with pytest.raises(QueueFull):
            asyncio.run(bounds.aput(desk, queue, [draft(b"x")], timeout))
    assert not queue.space


@pytest.mark.parametrize("how", ["cancel", "more room"])
def test_other_ways_to_get_room(desk: Desk, how: str) -> None:
    queue = bounded(desk, "block", 1)
    first = desk.put(queue, b"x")

    async def main() -> int:
        put = asyncio.create_task(bounds.aput(desk, queue, [draft(b"y")]))
        while not queue.space:  # noqa: ASYNC110  # the put says nothing before it is done
            await asyncio.sleep(0.001)
        if how == "more room":
            desk.queue("orders", queue.policy.changed(max_length=2))
        else:
            desk.cancel(queue, first)
        (receipt,) = await asyncio.wait_for(put, SOON)
        return receipt.seq

    assert asyncio.run(main()) == 2


def test_a_cancelled_put_leaves_its_room_to_the_next(desk: Desk) -> None:
    queue = bounded(desk, "block", 1)
    group = desk.group(queue)

    async def main() -> None:
        desk.put(queue, b"x")
        for _ in range(10):
            first = asyncio.create_task(bounds.aput(desk, queue, [draft(b"1")]))
            second = asyncio.create_task(bounds.aput(desk, queue, [draft(b"2")]))
            while len(queue.space) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            desk.ack(*desk.claim(group))
            first.cancel()
            await asyncio.wait([first])
            await asyncio.wait_for(second, SOON)

    asyncio.run(main())
    assert queue.stored == 1


@pytest.mark.parametrize("numbered", [False, True])
def test_a_put_that_is_cancelled_in_its_commit_waits_for_no_room(
    desk: Desk,
    numbered: bool,  # noqa: FBT001
) -> None:
    queue = bounded(desk, "block", 1)
    group = desk.group(queue)
    session = OpenSession("client", 1, bytes(16))
    desk.writer.run(Change([session]))
    numbers, rows = Numbers(session.id), [plain_row(0, b"late")]

    async def put(n: int) -> None:
        if numbered:
            waiter = LoopWaiter()
            await aput_rows(desk, queue, rows, numbers=numbers, n=n, timeout=None, waiter=waiter)
        else:
            await bounds.aput(desk, queue, [draft(b"late")])

    async def main() -> None:
        desk.put(queue, b"x")
        for n in range(1, 200):
            late = asyncio.create_task(put(n))
            for _ in range(n % 4):
                await asyncio.sleep(0)
            late.cancel()
            await asyncio.wait([late])
        last = asyncio.create_task(bounds.aput(desk, queue, [draft(b"last")]))
        while not queue.space:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        desk.ack(*desk.claim(group))
        await asyncio.wait_for(last, SOON)

    asyncio.run(main())
    assert len(queue.space) == 0


@pytest.mark.parametrize("looks", range(3))
def test_who_gives_up_while_its_put_is_applied_costs_nobody_an_error(
    desk: Desk, looks: int
) -> None:
    queue, other = bounded(desk, "block", 1), desk.queue("other")
    desk.put(queue, b"x")
    kind = vanishing(bounds.BoundedPut, "waiter", looks)
    waiter = Waiter()
    late = kind(desk, queue, [plain_row(0, b"late")], desk.now_ms(), waiter)
    beside = plain(desk, other, b"beside")
    together(desk, late, beside)
    assert (late.error, beside.error) == (None, None)
    assert other.stored == 1
    assert late.waits == (looks > 0)
    desk.cancel(queue, 1)
    assert waiter.woken == late.waits


def test_a_bound_holds_when_many_put_at_once(tmp_path) -> None:
    with open_engine(tmp_path / "q.db") as desk:
        queue = bounded(desk, "reject", 50)
        refused = []

        def put() -> None:
            for _ in range(25):
                try:
                    desk.put(queue, b"x")
                except QueueFull:
                    refused.append(1)

        threads = [threading.Thread(target=put) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert queue.stored == 50
        assert len(refused) == 150
        assert queue.taken == 0


def crashed(path: Path, when_full: str) -> Desk:
    """A host that ended without closing held one message; one that closed before held three."""
    with open_engine(path, upkeep=False) as desk:
        queue = bounded(desk, when_full)
        desk.group(queue)
        desk.put_many(queue, [b"1", b"2", b"3"])
    desk = open_engine(path, upkeep=False)
    queue = desk.existing_queue("orders")
    desk.ack(*desk.claim(desk.group(queue), 3))
    desk.put(queue, b"4")
    desk.store.close(clean=False)
    return open_engine(path, upkeep=False)


@pytest.mark.parametrize("when_full", ["reject", "drop_oldest"])
def test_counts_from_before_a_crash_refuse_and_drop_nothing(
    tmp_path: Path, when_full: str
) -> None:
    with crashed(tmp_path / "q.db", when_full) as desk:
        queue = desk.existing_queue("orders")
        desk.put(queue, b"5")
        assert [message.body for message in desk.peek(queue)] == [b"4", b"5"]


@pytest.mark.parametrize("when_full", ["reject", "drop_oldest"])
def test_a_coroutine_refuses_and_drops_nothing_either(tmp_path: Path, when_full: str) -> None:
    with crashed(tmp_path / "q.db", when_full) as desk:
        queue = desk.existing_queue("orders")
        asyncio.run(bounds.aput(desk, queue, [draft(b"5")]))
        assert [message.body for message in desk.peek(queue)] == [b"4", b"5"]


@pytest.mark.parametrize("when_full", ["reject", "drop_oldest"])
def test_a_client_is_refused_nothing_and_drops_nothing_either(
    tmp_path: Path, when_full: str
) -> None:
    with crashed(tmp_path / "q.db", when_full) as desk:
        queue = desk.existing_queue("orders")
        session = OpenSession("client", 1, bytes(16))
        desk.writer.run(Change([session]))
        rows = [plain_row(0, b"5")]
        put = aput_rows(desk, queue, rows, numbers=Numbers(session.id), n=1, timeout=0)
        asyncio.run(put)
        assert [message.body for message in desk.peek(queue)] == [b"4", b"5"]
