"""Many deliveries are settled by one call, in one commit."""

import asyncio
from typing import Any

import pytest

from embedq import Broker, InvalidOption, Queue, RetryPolicy
from embedq.clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def host(clock: VirtualClock, tmp_path):
    with Broker(tmp_path / "q.db", clock=clock) as opened:
        yield opened


@pytest.fixture(params=["host", "client"])
def broker(host: Broker, clock: VirtualClock, tmp_path, request: pytest.FixtureRequest):
    """Every call is the same wherever the host is."""
    if request.param == "host":
        yield host
    else:
        host.backing.wait_until_served()
        with Broker(tmp_path / "q.db", role="client", clock=clock) as client:
            yield client


@pytest.fixture
def orders(broker: Broker) -> Queue[Any]:
    made = broker.queue("orders", retry=RetryPolicy(base="10s", jitter="none"))
    made.put_many(range(20))
    return made


def bodies(orders: Queue[Any]) -> list[Any]:
    return [delivery.body for delivery in orders.get_many(99)]


def test_many_are_acked_in_one_commit(broker: Broker, orders: Queue[Any]) -> None:
    deliveries = orders.get_many(20)
    before = broker.stats().commits
    assert orders.settle(deliveries) == []
    assert broker.stats().commits - before == 1
    assert all(delivery.settled for delivery in deliveries)
    assert orders.stats().stored == 0
    assert orders.settle([]) == []


def test_each_way_to_settle(host: Broker, orders: Queue[Any], clock: VirtualClock) -> None:
    deliveries = orders.get_many(20)
    assert orders.settle(deliveries[:5], "release") == []
    assert bodies(orders) == [0, 1, 2, 3, 4]
    assert orders.settle(deliveries[5:10], "nack") == []
    assert orders.settle(deliveries[10:15], "nack", delay="1m") == []
    assert orders.settle(iter(deliveries[15:]), "reject", reason="not these") == []
    assert {letter.detail for letter in orders.dead.list()} == {"not these"}
    assert len(orders.dead.list()) == 5
    clock.advance(11)
    host.backing.desk.upkeep.round()  # type: ignore[attr-defined]  # nobody waits: it is due
    assert bodies(orders) == [5, 6, 7, 8, 9]
    clock.advance(55)
    assert set(bodies(orders)) >= {10, 11, 12, 13, 14}


def test_what_no_longer_counts_is_returned_and_the_rest_is_settled(
    orders: Queue[Any], clock: VirtualClock
) -> None:
    deliveries = orders.get_many(4)
    deliveries[0].ack()
    orders.group().settle_by_id(deliveries[1].id)
    assert orders.settle(deliveries) == deliveries[:2]
    assert [delivery.settled for delivery in deliveries] == [True, False, True, True]
    assert orders.stats().stored == 16
    assert orders.settle(deliveries) == deliveries


def test_one_that_is_named_twice_is_settled_once(orders: Queue[Any]) -> None:
    (delivery,) = orders.get_many(1)
    assert orders.settle([delivery, delivery]) == []
    assert orders.stats().stored == 19


def test_deliveries_of_another_queue_are_refused_and_nothing_is_settled(
    broker: Broker, orders: Queue[Any]
) -> None:
    mine = orders.get_many(2)
    other = broker.queue("other")
    other.put("x")
    stranger = Broker(":memory:")
    theirs = stranger.queue("orders")
    theirs.put("x")
    wrong: Any
    for wrong in ([*mine, *other.get_many(1)], [*mine, *theirs.get_many(1)], [None], 5, mine[0]):
        with pytest.raises(InvalidOption, match="deliveries="):
            orders.settle(wrong)
    with pytest.raises(InvalidOption, match="not a Delivery") as caught:
        orders.settle(mine[0])  # type: ignore[arg-type]
    assert "[delivery]" in str(caught.value.hint)
    stranger.stop()
    assert not any(delivery.settled for delivery in mine)


def test_coroutines_settle_many_too(orders: Queue[Any]) -> None:
    async def main() -> None:
        deliveries = await orders.aget_many(20)
        assert await orders.asettle(deliveries[:10]) == []
        assert await orders.asettle(deliveries, "reject", reason="late") == deliveries[:10]

    asyncio.run(main())
    assert (orders.stats().stored, orders.stats().dead) == (0, 10)
