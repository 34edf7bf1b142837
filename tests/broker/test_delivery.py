"""A delivery shows its message and is settled once, by a call or by leaving its block."""

import asyncio
import threading
from dataclasses import dataclass

import pytest

from embedq.broker.delivery import CancelToken, Delivery
from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.broker.state import GroupState, QueueState
from embedq.clock import VirtualClock
from embedq.decisions import Reject, Retry
from embedq.errors import InvalidOption, InvalidPayload, StaleLease
from embedq.message import draft
from embedq.payload import encode
from embedq.policy import RetryPolicy

PLAIN = RetryPolicy(base="10s", jitter="none", give_up_on=LookupError)


@dataclass
class Order:
    number: int


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def desk(clock: VirtualClock):
    with open_engine(":memory:", clock=clock, upkeep=False) as opened:
        yield opened


@pytest.fixture
def queue(desk: Desk) -> QueueState:
    return desk.queue("orders")


@pytest.fixture
def group(desk: Desk, queue: QueueState) -> GroupState:
    return desk.group(queue)


@pytest.fixture
def delivery(desk: Desk, queue: QueueState, group: GroupState) -> Delivery[Order]:
    kind, body = encode(Order(7))
    desk.put_drafts(queue, [draft(body, kind, {"a": "b"}, priority=2, ordering_key="k")])
    (lease,) = desk.claim(group)
    return Delivery(desk, lease, Order, retry=PLAIN)


def again(desk: Desk, group: GroupState) -> list[int]:
    return [lease.attempt for lease in desk.claim(group)]


def test_it_shows_its_message(desk: Desk, delivery: Delivery[Order], clock: VirtualClock) -> None:
    assert delivery.body == Order(7)
    assert delivery.body is delivery.body
    assert (delivery.raw, delivery.kind) == (b'{"number":7}', 2)
    assert (delivery.queue, delivery.group, delivery.seq) == ("orders", "default", 1)
    assert delivery.id == desk.ids.encode(1)
    assert (delivery.headers, delivery.content_type) == ({"a": "b"}, "application/json")
    assert (delivery.priority, delivery.ordering_key) == (2, "k")
    assert (delivery.attempt, delivery.max_attempts, delivery.redelivered) == (1, 5, False)
    assert delivery.put_at.timestamp() == clock.time()
    clock.advance(3)
    assert delivery.age_s == 3
    assert delivery.lease_deadline == clock.monotonic() + 27
    assert delivery.id in repr(delivery)


def test_a_body_of_another_type_is_told_when_it_is_asked_for(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    desk.put(queue, b"\xff", 2)
    (lease,) = desk.claim(group)
    delivery: Delivery[Order] = Delivery(desk, lease, Order)
    assert delivery.raw == b"\xff"
    with pytest.raises(InvalidPayload):
        _ = delivery.body


def test_it_is_settled_once(queue: QueueState, delivery: Delivery[Order]) -> None:
    delivery.ack()
    assert delivery.settled
    assert queue.stored == 0
    for settle in (delivery.ack, delivery.nack, delivery.reject, delivery.release):
        with pytest.raises(StaleLease, match="settled already"):
            settle()


def test_a_lease_that_ended_is_told(
    desk: Desk, delivery: Delivery[Order], clock: VirtualClock
) -> None:
    clock.advance(31)
    desk.end_leases()
    with pytest.raises(StaleLease, match="no longer counts"):
        delivery.ack()
    assert not delivery.settled
    with pytest.raises(
        StaleLease, match=f"message {delivery.id} in queue 'orders' no longer counts"
    ):
        delivery.extend("1m")


def test_what_is_settled_cannot_be_extended_and_says_so(delivery: Delivery[Order]) -> None:
    delivery.ack()
    for extend in (delivery.extend, lambda span: asyncio.run(delivery.aextend(span))):
        with pytest.raises(StaleLease, match=r"'orders' is settled already \(done\)"):
            extend("1m")


def test_nack_without_a_delay_follows_the_policy(
    desk: Desk, group: GroupState, delivery: Delivery[Order], clock: VirtualClock
) -> None:
    delivery.nack(error="not yet")
    clock.advance(9)
    assert again(desk, group) == []
    clock.advance(1)
    assert again(desk, group) == [2]


def test_nack_with_a_delay_uses_it(
    desk: Desk, group: GroupState, delivery: Delivery[Order], clock: VirtualClock
) -> None:
    delivery.nack("1m")
    clock.advance(59)
    assert again(desk, group) == []
    clock.advance(1)
    assert again(desk, group) == [2]


def test_reject_release_and_extend(
    desk: Desk,
    queue: QueueState,
    group: GroupState,
    delivery: Delivery[Order],
    clock: VirtualClock,
) -> None:
    delivery.extend("5m")
    clock.advance(200)
    assert desk.end_leases() == 0
    delivery.release()
    (lease,) = desk.claim(group)
    assert lease.attempt == 1
    Delivery(desk, lease).reject("no good")
    (dead,) = desk.store.dead(queue.id, 0, 9)
    assert (dead.reason, dead.detail) == ("rejected", "no good")


def test_leaving_a_block_acks_and_raising_nacks(
    desk: Desk,
    queue: QueueState,
    group: GroupState,
    delivery: Delivery[Order],
    clock: VirtualClock,
) -> None:
    with pytest.raises(ValueError, match="broken"), delivery:
        raise ValueError("broken")
    clock.advance(10)
    (lease,) = desk.claim(group)
    assert lease.attempt == 2
    last: Delivery[object] = Delivery(desk, lease)
    with last as second:
        assert second.attempt == 2
    assert queue.stored == 0


def test_a_block_settles_nothing_that_is_settled(
    queue: QueueState, delivery: Delivery[Order]
) -> None:
    def late() -> None:
        with delivery:
            delivery.ack()
            raise ValueError("late")

    with pytest.raises(ValueError, match="late"):
        late()
    assert queue.stored == 0


def test_an_error_that_is_given_up_on_makes_a_dead_letter(
    queue: QueueState, delivery: Delivery[Order]
) -> None:
    with pytest.raises(KeyError), delivery:
        raise KeyError("gone")
    assert queue.dead == 1


def test_decisions_leave_a_block_quietly(
    desk: Desk,
    queue: QueueState,
    group: GroupState,
    delivery: Delivery[Order],
    clock: VirtualClock,
) -> None:
    with delivery:
        raise Retry("3s")
    clock.advance(3)
    (lease,) = desk.claim(group)
    with Delivery(desk, lease):
        raise Reject("enough")
    (dead,) = desk.store.dead(queue.id, 0, 9)
    assert dead.detail == "enough"


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_a_program_that_ends_gives_the_message_back(
    desk: Desk, group: GroupState, delivery: Delivery[Order], end: type[BaseException]
) -> None:
    with pytest.raises(end), delivery:
        raise end
    assert again(desk, group) == [1]


def test_in_a_block_the_lease_is_renewed(
    desk: Desk, delivery: Delivery[Order], clock: VirtualClock
) -> None:
    with delivery:
        clock.advance(100)
        assert desk.end_leases() == 0


def test_an_ack_that_comes_too_late_is_told_but_an_error_is_not_hidden(
    desk: Desk, queue: QueueState, group: GroupState, delivery: Delivery[Order]
) -> None:
    def mine() -> None:
        with delivery:
            desk.settle_by_id(group, 1)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        mine()
    desk.put(queue, b"x")
    (lease,) = desk.claim(group)
    with pytest.raises(StaleLease), Delivery(desk, lease):
        desk.settle_by_id(group, lease.seq)


def test_coroutines_have_twins_of_every_call(
    desk: Desk,
    queue: QueueState,
    group: GroupState,
    delivery: Delivery[Order],
    clock: VirtualClock,
) -> None:
    async def main() -> None:
        await delivery.aextend("1m")
        await delivery.anack(0)
        clock.advance(0.001)
        (lease,) = desk.claim(group)
        await Delivery(desk, lease).arelease()
        (lease,) = desk.claim(group)
        with pytest.raises(ValueError, match="x"):
            async with Delivery(desk, lease):
                raise ValueError("x")
        (lease,) = desk.claim(group)
        async with Delivery(desk, lease):
            assert lease.attempt == 3
        desk.put(queue, b"x")
        await Delivery(desk, desk.claim(group)[0]).areject("no")
        desk.put(queue, b"x")
        await Delivery(desk, desk.claim(group)[0]).aack()

    asyncio.run(main())
    assert (queue.stored, queue.dead) == (0, 1)


def test_a_cancelled_coroutine_gives_the_message_back(
    desk: Desk, group: GroupState, delivery: Delivery[Order]
) -> None:
    async def main() -> None:
        entered = asyncio.Event()

        async def work() -> None:
            async with delivery:
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await entered.wait()
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())
    assert again(desk, group) == [1]


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda d: d.nack("soon"), "delay"),
        (lambda d: d.nack("400d"), "delay"),
        (lambda d: d.extend("13h"), "duration"),
        (lambda d: d.extend(0), "duration"),
        (lambda d: d.reject(3), "reason"),
    ],
    ids=["words", "too long", "long lease", "no lease", "number"],
)
def test_wrong_arguments_are_named_and_settle_nothing(
    delivery: Delivery[Order], call, argument: str
) -> None:
    with pytest.raises(InvalidOption, match=argument.split("uration", maxsplit=1)[0]):
        call(delivery)
    delivery.ack()


def test_a_token_tells_the_first_reason_to_those_who_wait() -> None:
    token = CancelToken()
    assert not token
    assert not token.wait(0)
    thread = threading.Thread(target=token.wait)
    thread.start()
    token.set("drain")
    token.set("timeout")
    thread.join(20)
    assert not thread.is_alive()
    assert token.wait()
    assert (bool(token), token.reason) == (True, "drain")
    assert "drain" in repr(token)
