"""Puts under numbers: one commit with their answers, whatever else shares it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from embedq import QueuePolicy
from embedq.broker.awaiting import LoopWaiter
from embedq.broker.desk import Desk
from embedq.broker.moves import Change
from embedq.broker.numbered import NumberedPuts, Numbers, aput_rows, plain_row
from embedq.errors import LimitExceeded, QueueFull, StoreFull
from embedq.limits import Limits
from embedq.storage import answered
from embedq.storage.memory import MemoryStore
from embedq.storage.ops import OpenSession

TOKEN = bytes(range(16))


@pytest.fixture
def desk() -> Iterator[Desk]:
    with Desk(MemoryStore(), limits=Limits(batch_messages=5)) as opened:
        yield opened


def opened_session(desk: Desk, token: bytes = TOKEN) -> OpenSession:
    op = OpenSession("client", 1, token)
    desk.writer.run(Change([op]))
    return op


def kept(desk: Desk, token: bytes = TOKEN) -> dict[int, answered.Answer]:
    return answered.decode(opened_session(desk, token).requests)


def test_puts_of_many_sessions_share_a_commit_and_know_their_seqs(desk: Desk) -> None:
    queue, other = desk.queue("q"), desk.queue("other")
    one = Numbers(opened_session(desk).id)
    two = Numbers(opened_session(desk, bytes(16)).id)
    groups = desk.writer.groups
    puts = NumberedPuts(desk)
    puts.add(one, 1, queue, 0, [b"a"])
    puts.add(two, 1, queue, 0, [b"b", b"c"])
    puts.add(one, 2, other, 0, [b"d"])
    puts.add(one, 3, queue, 7, [b"e"])
    puts.add(two, 2, queue, 0, [])
    desk.writer.run(puts)
    assert desk.writer.groups == groups + 1
    first = puts.firsts()
    bodies = {m.seq: (m.body, m.kind) for m in desk.peek(queue) + desk.peek(other)}
    assert [bodies[seq] for seq in first[:4]] == [(b"a", 0), (b"b", 0), (b"d", 0), (b"e", 7)]
    assert bodies[first[1] + 1] == (b"c", 0)
    assert one.known == {1: (first[0], 1), 2: (first[2], 1), 3: (first[3], 1)}
    assert kept(desk) == one.known
    assert kept(desk, bytes(16)) == two.known == {1: (first[1], 2), 2: (0, 0)}
    assert (queue.stored, other.stored) == (4, 1)


def test_two_tasks_of_one_session_in_one_commit_are_both_remembered(desk: Desk) -> None:
    queue = desk.queue("q")
    numbers = Numbers(opened_session(desk).id)
    tasks = []
    groups = desk.writer.groups
    for n in (1, 2):
        puts = NumberedPuts(desk)
        puts.add(numbers, n, queue, 0, [b"%d" % n])
        tasks.append(puts)
    committed = threading.Event()
    with desk.writer.lock:  # both wait, and are taken together
        for task in tasks:
            desk.writer.send(task, committed.set)
    assert committed.wait(60)
    assert desk.writer.groups == groups + 1
    assert set(numbers.known) == {1, 2}
    assert kept(desk) == numbers.known


def test_what_was_seen_is_kept_no_longer(desk: Desk) -> None:
    queue = desk.queue("q")
    numbers = Numbers(opened_session(desk).id)
    for n in range(1, 6):
        numbers.see(n - 2)
        puts = NumberedPuts(desk)
        puts.add(numbers, n, queue, 0, [b"x"])
        desk.writer.run(puts)
        assert set(kept(desk)) == set(numbers.known) == {n - 1, n} - {0}
    numbers.see(2)  # told late: changes nothing
    assert set(numbers.known) == {4, 5}


def test_a_put_that_failed_is_not_remembered(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = desk.queue("q")
    numbers = Numbers(opened_session(desk).id)
    commit = desk.store.commit

    def full(_: object) -> None:
        raise StoreFull("no room")

    puts = NumberedPuts(desk)
    puts.add(numbers, 1, queue, 0, [b"x"])
    monkeypatch.setattr(desk.store, "commit", full)
    with pytest.raises(StoreFull):
        desk.writer.run(puts)
    monkeypatch.setattr(desk.store, "commit", commit)
    assert numbers.known == {}
    again = NumberedPuts(desk)
    again.add(numbers, 2, queue, 0, [b"y"])
    desk.writer.run(again)
    assert set(kept(desk)) == {2}


def test_a_batch_that_is_too_large_is_refused_before_the_others_are_touched(desk: Desk) -> None:
    queue = desk.queue("q")
    numbers = Numbers(opened_session(desk).id)
    puts = NumberedPuts(desk)
    puts.add(numbers, 1, queue, 0, [b"x"])
    with pytest.raises(LimitExceeded):
        puts.add(numbers, 2, queue, 0, [b"x"] * 6)
    desk.writer.run(puts)
    assert set(numbers.known) == {1}


async def put_rows(desk: Desk, numbers: Numbers, n: int, *bodies: bytes, timeout: float) -> object:
    rows = [plain_row(0, body) for body in bodies]
    return await aput_rows(
        desk,
        desk.queues["q"],
        rows,
        numbers=numbers,
        n=n,
        timeout=timeout,
        waiter=LoopWaiter(),
    )


def test_rows_wait_for_room_and_are_remembered_when_they_have_got_it(desk: Desk) -> None:
    queue = desk.queue("q", QueuePolicy(max_length=2))
    group = desk.group(queue)
    numbers = Numbers(opened_session(desk).id)

    async def run() -> None:
        await put_rows(desk, numbers, 1, b"a", b"b", timeout=0)
        with pytest.raises(QueueFull):
            await put_rows(desk, numbers, 2, b"c", timeout=0)
        with pytest.raises(QueueFull):
            await put_rows(desk, numbers, 2, b"c", timeout=0.05)
        with pytest.raises(QueueFull, match="more than max_length"):
            await put_rows(desk, numbers, 2, b"c", b"d", b"e", timeout=1)
        assert set(kept(desk)) == {1}
        waits = asyncio.create_task(put_rows(desk, numbers, 3, b"c", timeout=60))
        while not queue.space:  # noqa: ASYNC110  # it has nothing to wait for
            await asyncio.sleep(0)
        desk.ack(*desk.claim(group))
        assert await waits == ([3], [])

    asyncio.run(run())
    assert kept(desk) == {1: ([1, 2], []), 3: ([3], [])}


def test_rows_push_the_oldest_out(desk: Desk) -> None:
    queue = desk.queue("q", QueuePolicy(max_length=2, when_full="drop_oldest"))
    numbers = Numbers(opened_session(desk).id)
    for n in range(1, 4):
        asyncio.run(put_rows(desk, numbers, n, b"%d" % n, timeout=0))
    assert [m.body for m in desk.peek(queue)] == [b"2", b"3"]
    assert set(kept(desk)) == {1, 2, 3}


def test_a_cancelled_put_waits_no_longer_and_leaves_its_turn_to_the_next(desk: Desk) -> None:
    queue = desk.queue("q", QueuePolicy(max_length=1))
    numbers = Numbers(opened_session(desk).id)
    first = desk.put(queue, b"first")

    async def main() -> None:
        waiters = [LoopWaiter() for _ in range(4)]
        puts = []
        for n, each in enumerate(waiters, 1):
            rows = [plain_row(0, b"%d" % n)]
            put = aput_rows(desk, queue, rows, numbers=numbers, n=n, timeout=None, waiter=each)
            puts.append(asyncio.create_task(put))
            while len(queue.space) < n:  # noqa: ASYNC110  # the put says nothing before it is done
                await asyncio.sleep(0.001)
        desk.cancel_wait(waiters[0])  # while it waits
        with pytest.raises(QueueFull):
            await asyncio.wait_for(puts[0], 20)
        with desk.writer.lock:
            assert len(queue.space) == 3
        with desk.writer.lock:  # it has been woken, and does not know it yet
            queue.space.wake()
            waiters[1].cancelled = True
        with pytest.raises(QueueFull):
            await asyncio.wait_for(puts[1], 20)
        desk.cancel(queue, first)
        assert (await asyncio.wait_for(puts[2], 20))[0] == [first + 1]
        desk.cancel_wait(waiters[3])
        with pytest.raises(QueueFull):
            await asyncio.wait_for(puts[3], 20)

    asyncio.run(main())
    assert [message.body for message in desk.peek(queue)] == [b"3"]
    assert len(queue.space) == 0
    assert sorted(numbers.known) == [3]
