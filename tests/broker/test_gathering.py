"""Plain puts of coroutines go together, and each gets its own answer."""

import asyncio
import dataclasses
import gc
from weakref import ref

import pytest

from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.errors import LimitExceeded, QueueFull, StoreClosed
from embedq.limits import LIMITS
from embedq.message import Draft
from embedq.policy import QueuePolicy


@pytest.fixture
def desk(tmp_path):
    limits = dataclasses.replace(LIMITS, batch_messages=40, body_bytes=100)
    with open_engine(tmp_path / "q.db", limits=limits, upkeep=False) as opened:
        yield opened


def test_each_coroutine_gets_the_seq_of_its_own_message(desk: Desk) -> None:
    queues = [desk.queue("a"), desk.queue("b")]

    async def put(number: int) -> tuple[int, int]:
        return number, await desk.aput(queues[number % 2], b"%d" % number, number % 3)

    async def main() -> list[tuple[int, int]]:
        return await asyncio.gather(*[put(number) for number in range(200)])

    commits = desk.writer.groups
    answers = asyncio.run(main())
    assert desk.writer.groups - commits <= 12
    found = {m.seq: m for queue in queues for m in desk.peek(queue, 999)}
    for number, seq in answers:
        message = found[seq]
        assert (message.body, message.kind) == (b"%d" % number, number % 3)
        assert message.queue == queues[number % 2].id
    assert [queue.stored for queue in queues] == [100, 100]


def test_order_within_a_queue_is_that_of_the_puts(desk: Desk) -> None:
    queue = desk.queue("a")

    async def main() -> None:
        await asyncio.gather(*[desk.aput(queue, b"%d" % number) for number in range(100)])

    asyncio.run(main())
    assert [m.body for m in desk.peek(queue, 999)] == [b"%d" % n for n in range(100)]


def test_errors_reach_the_one_who_caused_them(desk: Desk) -> None:
    queue = desk.queue("a")
    small = desk.queue("small", QueuePolicy(max_length=1, when_full="reject"))

    async def main() -> list[object]:
        calls = [(queue, b"x" * 101), (queue, b"x"), (small, b"x"), (small, b"y")]
        return list(
            await asyncio.gather(
                *[desk.aput(where, body) for where, body in calls], return_exceptions=True
            )
        )

    large, good, first, second = asyncio.run(main())
    assert isinstance(large, LimitExceeded)
    assert isinstance(good, int)
    assert isinstance(first, int)
    assert isinstance(second, QueueFull)


def test_a_closed_store_is_told_to_all(desk: Desk) -> None:
    queue = desk.queue("a")

    async def main() -> list[object]:
        await desk.aput(queue, b"x")
        desk.close()
        puts = [desk.aput(queue, b"x") for _ in range(3)]
        return list(await asyncio.gather(*puts, return_exceptions=True))

    assert [type(error) for error in asyncio.run(main())] == [StoreClosed] * 3


def test_a_cancelled_put_disturbs_no_other(desk: Desk) -> None:
    queue = desk.queue("a")

    async def main() -> None:
        tasks = [asyncio.ensure_future(desk.aput(queue, b"x")) for _ in range(10)]
        await asyncio.wait(tasks, timeout=0)
        tasks[3].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(done[3], asyncio.CancelledError)
        assert len({seq for seq in done if isinstance(seq, int)}) == 9

    asyncio.run(main())
    assert queue.stored >= 9


def test_one_desk_serves_one_loop_after_the_other(desk: Desk) -> None:
    queue = desk.queue("a")

    async def main() -> int:
        return await desk.aput(queue, b"x")

    assert [asyncio.run(main()) for _ in range(3)] == [1, 2, 3]


def test_loops_that_have_ended_are_not_kept(desk: Desk) -> None:
    queue = desk.queue("a")
    group = desk.group(queue)

    async def main() -> ref[asyncio.AbstractEventLoop]:
        await desk.aput(queue, b"x")
        await desk.aput_drafts(queue, [Draft(b"y", priority=3)])
        assert await desk.await_claim(group, timeout=60)
        return ref(asyncio.get_running_loop())

    loops = [asyncio.run(main()) for _ in range(4)]
    gc.collect()
    # The writing thread may still know the last that it has answered.
    assert [each() for each in loops[:-1]] == [None] * 3
