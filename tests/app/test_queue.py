"""Putting, getting and operating a queue, from threads and from coroutines."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from embedq import (
    Broker,
    Empty,
    GroupNotFound,
    InvalidOption,
    InvalidPayload,
    LimitExceeded,
    Queue,
    QueueFull,
    Receipt,
    RetryPolicy,
    StaleLease,
    UnknownMessage,
)
from embedq.app.hosting import Connected
from embedq.clock import VirtualClock

SOON = 20


@dataclass
class Order:
    number: int


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["host in memory", "host", "client"])
def broker(clock: VirtualClock, tmp_path, request: pytest.FixtureRequest):
    """Every call is the same wherever the host is."""
    path = ":memory:" if request.param == "host in memory" else tmp_path / "orders.db"
    host = Broker(path, clock=clock)
    if request.param != "client":
        yield host
    else:
        host.backing.wait_until_served()
        client = Broker(path, role="client", clock=clock)
        assert isinstance(client.backing, Connected)
        yield client
        client.stop()
    host.stop()


@pytest.fixture
def orders(broker: Broker) -> Queue[Order]:
    return broker.queue("orders", Order, retry=RetryPolicy(base="10s", jitter="none"))


def test_what_is_put_is_got_as_an_object_of_its_type(orders: Queue[Order]) -> None:
    receipt = orders.put(Order(7))
    assert isinstance(receipt, Receipt)
    with orders.get(timeout=SOON) as delivery:
        assert (delivery.body, delivery.id) == (Order(7), receipt.id)
    with pytest.raises(Empty, match="queue 'orders', group 'default'"):
        orders.get(timeout=0)


def test_options_reach_the_message(orders: Queue[Order], clock: VirtualClock) -> None:
    orders.put(Order(1), headers={"a": "b"})
    orders.put(Order(2), priority=5)
    orders.put(Order(3), delay="1m")
    first = orders.put(Order(4), dedup_key="k")
    again = orders.put(Order(4), dedup_key="k")
    assert (again.duplicate, again.seq) == (True, first.seq)
    assert [d.body.number for d in orders.get_many(9)] == [2, 1, 4]
    clock.advance(60)
    assert [d.body.number for d in orders.get_many(9)] == [3]


def test_many_are_put_at_once_whatever_their_kinds(broker: Broker) -> None:
    queue = broker.queue("mixed")
    receipts = queue.put_many([b"bytes", "text", {"a": 1}])
    assert [receipt.seq for receipt in receipts] == [1, 2, 3]
    assert [d.body for d in queue.get_many(9)] == [b"bytes", "text", {"a": 1}]
    assert queue.put_many(range(3))[-1].seq == 6
    assert queue.put_many([]) == []
    assert len(queue.put_many(["x", "y"], priority=3)) == 2


def test_a_put_that_is_wrong_says_so_at_the_call(orders: Queue[Any], broker: Broker) -> None:
    with pytest.raises(InvalidPayload, match="takes"):
        orders.put("no order")
    with pytest.raises(InvalidOption, match="did you mean delay="):
        orders.put(Order(1), dealy="1m")  # type: ignore[call-arg]
    with pytest.raises(InvalidOption, match=r"put_many\(\[body\]\)"):
        broker.queue("text").put_many("letters")
    with pytest.raises(InvalidOption, match="dedup_key='k' would make one message of them"):
        orders.put_many([Order(1), Order(2)], dedup_key="k")
    with pytest.raises(LimitExceeded, match="one put_many"):
        broker.queue("text").put_many("x" for _ in range(10_001))
    with pytest.raises(LimitExceeded):
        broker.queue("bytes").put(b"x" * (16 * 2**20 + 1))
    with pytest.raises(InvalidOption, match="whole number"):
        orders.get_many(0)
    assert orders.stats().stored == 0


def test_a_failure_in_a_block_is_retried_by_the_queue_s_policy(
    orders: Queue[Order], clock: VirtualClock
) -> None:
    orders.put(Order(1))
    with pytest.raises(ValueError, match="no"), orders.get(SOON):
        raise ValueError("no")
    clock.advance(9)
    assert orders.get_many(1) == []
    clock.advance(1)
    assert orders.get(SOON).attempt == 2


def test_auto_acked_deliveries_are_settled(orders: Queue[Order]) -> None:
    orders.put(Order(1))
    delivery = orders.get(0, auto_ack=True)
    assert delivery.settled
    assert orders.stats().stored == 0
    with pytest.raises(StaleLease):
        delivery.ack()


def test_groups_get_their_own_copies(orders: Queue[Order]) -> None:
    audit = orders.group("audit", start="beginning")
    assert orders.get_many(1) == []  # names the group `default`, which begins here
    orders.put(Order(1))
    orders.get(0).ack()
    orders.get(0, group="audit").ack()
    assert [group.name for group in orders.groups] == ["audit", "default"]
    orders.put(Order(2))
    assert audit.stats().waiting == 1
    assert audit.purge() == 1
    audit.remove()
    assert [group.name for group in orders.groups] == ["default"]
    with pytest.raises(GroupNotFound):
        audit.stats()


def test_a_removed_group_lets_go_of_what_only_it_waited_for(orders: Queue[Order]) -> None:
    orders.group("default", start="beginning")
    slow = orders.group("slow", start="beginning")
    orders.put_many([Order(n) for n in range(5)])
    for delivery in orders.get_many(3):
        delivery.ack()
    held = orders.get(0, group="slow")
    assert orders.stats().stored == 5
    slow.remove()
    told = orders.stats()
    assert (told.stored, told.groups[0].waiting) == (2, 2)
    with pytest.raises(StaleLease):
        held.ack()
    for delivery in orders.get_many(9):
        delivery.ack()
    assert orders.stats().stored == 0


def test_messages_are_settled_by_id(orders: Queue[Order]) -> None:
    ids = [receipt.id for receipt in orders.put_many([Order(n) for n in range(4)])]
    group = orders.group(start="beginning")
    held = orders.get(0)
    group.settle_by_id(ids[0])
    group.settle_by_id(ids[1], "reject", "not wanted")
    assert not held.settled
    with pytest.raises(StaleLease):
        held.ack()
    with pytest.raises(UnknownMessage):
        group.settle_by_id(ids[0])
    with pytest.raises(InvalidOption, match="how='eat'"):
        group.settle_by_id(ids[2], "eat")
    assert [letter.detail for letter in orders.dead.list()] == ["not wanted"]


def test_looking_and_operating(orders: Queue[Order]) -> None:
    receipts = orders.put_many([Order(n) for n in range(4)])
    assert [message.id for message in orders.peek(2)] == [r.id for r in receipts[:2]]
    assert orders.peek(9, after=receipts[2].seq)[0].body == b'{"number":3}'
    assert orders.cancel(receipts[0].id) == [receipts[0].id]
    orders.pause()
    assert orders.paused
    assert orders.get_many(9) == []
    with pytest.raises(Empty, match=r"paused: call queue\.resume"):
        orders.get(0)
    orders.resume()
    assert len(orders.get_many(9)) == 3
    assert orders.purge() == 3
    assert orders.stats().length == 0


def test_dead_letters_of_a_queue(orders: Queue[Order]) -> None:
    orders.put(Order(1))
    orders.get(0).reject("bad")
    (letter,) = orders.dead.list()
    orders.dead.redrive(letter.id)
    assert orders.get(0).headers == {"redriven-from": letter.id}


def test_a_full_queue_refuses_or_waits(broker: Broker) -> None:
    queue = broker.queue("small", max_length=1, when_full="block")
    queue.put("x")
    with pytest.raises(QueueFull):
        queue.put("y", timeout=0.01)
    with pytest.raises(QueueFull):
        asyncio.run(queue.aput("y", timeout=0.01))
    broker.queue("small", when_full="drop_oldest")
    queue.put("y")
    assert queue.get(0).body == "y"


def test_every_verb_has_a_twin_for_coroutines(orders: Queue[Order], clock: VirtualClock) -> None:
    async def main() -> None:
        receipt = await orders.aput(Order(1), priority=1)
        await orders.aput_many([Order(2), Order(3)])
        assert (await orders.apeek(1))[0].id == receipt.id
        assert await orders.acancel(receipt.id) == [receipt.id]
        async with await orders.aget(SOON) as delivery:
            assert delivery.body == Order(2)
        (delivery,) = await orders.aget_many(5)
        await delivery.areject("no")
        with pytest.raises(Empty):
            await orders.aget(0)
        assert len(await orders.dead.alist()) == 1
        await orders.dead.aredrive()
        await orders.apause()
        await orders.aresume()
        assert (await orders.astats()).stored == 1
        assert await orders.apurge() == 1
        assert await orders.group().apurge() == 0
        assert (await orders.aget_many(1, auto_ack=True)) == []

    asyncio.run(main())


def test_messages_come_as_an_asynchronous_stream(orders: Queue[Order]) -> None:
    async def main() -> list[int]:
        seen: list[int] = []
        orders.put_many([Order(n) for n in range(3)])
        async for delivery in orders:
            async with delivery:
                seen.append(delivery.body.number)
            if len(seen) == 3:
                break
        return seen

    assert asyncio.run(main()) == [0, 1, 2]


def test_blocking_calls_are_safe_where_a_loop_runs(orders: Queue[Order]) -> None:
    async def main() -> None:
        tasks = [asyncio.create_task(orders.aput(Order(n))) for n in range(50)]
        await asyncio.wait(tasks, timeout=0)
        for number in range(50):
            orders.put(Order(number))
        await asyncio.gather(*tasks)
        assert len(orders.get_many(100)) == 100

    asyncio.run(asyncio.wait_for(main(), SOON))


def test_many_coroutines_share_commits(tmp_path) -> None:
    broker = Broker(tmp_path / "q.db")
    queue = broker.queue("q")

    async def main() -> None:
        await asyncio.gather(*[queue.aput(b"x") for _ in range(256)])

    queue.put(b"x")
    before = broker.stats().commits
    asyncio.run(main())
    assert queue.stats().stored == 257
    assert broker.stats().commits - before <= 64
    broker.stop()


def test_a_queue_that_rejects_is_full_at_once(broker: Broker) -> None:
    queue = broker.queue("small", max_length=2, when_full="reject")
    queue.put_many(["x", "y"])
    for put in (queue.put, lambda body: queue.put(body, timeout=SOON)):
        with pytest.raises(QueueFull, match="'small' holds 2 messages, max_length=2"):
            put("z")
    queue.get(0).ack()
    queue.put("z")


def test_messages_of_a_key_follow_each_other_and_an_expired_one_dies(
    orders: Queue[Order], clock: VirtualClock
) -> None:
    orders.put_many([Order(n) for n in range(3)], ordering_key="customer")
    orders.put(Order(9), ttl="5s")
    (first, other) = orders.get_many(9)
    assert (first.body.number, other.body.number) == (0, 9)
    other.release()
    first.ack()
    clock.advance(6)
    assert [delivery.body.number for delivery in orders.get_many(9)] == [1]
    assert [letter.reason for letter in orders.dead.list()] == ["expired"]
