"""How messages are handed out, without sockets: to members that read slowly, go, ack late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from embedq.net import DONE, RELEASED, Failed, Rejected
from embedq.net.timers import Timer
from embedq_transports.tmq.channels import Channel
from embedq_transports.tmq.commands import QueueOptions, QueueStatus
from embedq_transports.tmq.debts import Debts
from embedq_transports.tmq.frames import LITTLE, Frame, encode_frame
from embedq_transports.tmq.limits import TMQ_LIMITS
from embedq_transports.tmq.queues import Queue
from embedq_transports.tmq.terms import Terms


class Subscription:
    """What a broker gives for `subscribe`."""

    def __init__(self, deliver: Callable[[Any], object], window: int) -> None:
        self.deliver = deliver
        self.window = window
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


class Site:
    """A listener whose clock stands still and whose turns are taken by hand."""

    is_draining = False
    protocol, peer = "tmq", "listener"

    def __init__(self) -> None:
        self.broker = self
        self.time = 0.0
        self.timers: list[Timer] = []
        self.turns: list[Callable[[], object]] = []
        self.subscriptions: list[Subscription] = []

    def subscribe(self, _queue: str, deliver: Any, *, window: int, **_: object) -> Subscription:
        self.subscriptions.append(Subscription(deliver, window))
        return self.subscriptions[-1]

    def now(self) -> float:
        return self.time

    def later(self, seconds: float, call: Callable[[], object]) -> Timer:
        self.timers.append(Timer(self.time + seconds, call))
        return self.timers[-1]

    def soon(self, call: Callable[[], object]) -> None:
        self.turns.append(call)

    def turn(self) -> None:
        turns, self.turns = self.turns, []
        for call in turns:
            call()

    def advance(self, seconds: float) -> None:
        self.time += seconds
        due = [timer for timer in self.timers if timer.at <= self.time]
        self.timers = [timer for timer in self.timers if timer.at > self.time]
        for timer in due:
            if timer.call is not None:
                timer.call()


class Delivery:
    """A leased message."""

    priority = seq = 0
    id = "f" * 32

    def __init__(self, site: Site, body: bytes = b"x", attempt: int = 1, **headers: str) -> None:
        self.holder = site
        self.body = body
        self.attempt = attempt
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.endings: list[Any] = []

    def settle(self, ending: object, then: Callable[[None], object] | None = None) -> None:
        assert not self.endings, "it is settled twice"
        self.endings.append(ending)
        if then is not None:
            then(None)

    def release(self) -> None:
        self.settle(RELEASED)


class Client:
    """A member. What is written stays unsent until `reads`."""

    dialect = LITTLE
    is_clogged = is_full = False

    def __init__(self, name: str) -> None:
        self.client_id = name.encode()
        self.peer = f"{name}.test"
        self.debts = Debts()
        self.joined: dict[Channel, None] = {}
        self.got: list[bytes] = []
        self.unsent: list[Callable[[bool], object]] = []

    def may(self, _right: str, _queue: str | None) -> bool:
        return True

    def encode(self, frame: Frame) -> bytes:
        return encode_frame(frame)

    def write(self, data: bytes, left: Callable[[bool], object]) -> None:
        self.got.append(data)
        self.unsent.append(left)

    def reads(self, gone: bool = True) -> None:  # noqa: FBT001, FBT002
        unsent, self.unsent = self.unsent, []
        for left in unsent:
            left(gone)


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def make(site):
    def make(*members: Any, terms: dict[str, Any] | None = None, **options: Any) -> Queue:
        channel = Channel("ch", b"ch")
        listener = Terms(TMQ_LIMITS, QueueOptions(acknowledge_timeout=15_000), **(terms or {}))
        queue = channel.queues[1] = Queue(site, channel, 1, listener)
        queue.change(QueueOptions(**options))
        for member in members:
            assert channel.join(member)
        return queue

    return make


def give(site: Site, *deliveries: Delivery) -> Delivery:
    for delivery in deliveries:
        site.subscriptions[-1].deliver(delivery)
    return deliveries[0]


# --- who settles --------------------------------------------------------------------------------


def test_the_first_copy_that_has_left_settles_the_message(site, make):
    one, two = Client("c1"), Client("c2")
    make(one, two)
    delivery = give(site, Delivery(site))
    assert delivery.endings == []
    two.reads()
    assert delivery.endings == [DONE]
    one.reads()


def test_a_message_of_which_no_copy_left_goes_back(site, make):
    one, two = Client("c1"), Client("c2")
    make(one, two)
    delivery = give(site, Delivery(site))
    one.reads(gone=False)
    assert delivery.endings == []
    two.reads(gone=False)
    assert delivery.endings == [RELEASED]


def test_what_a_member_has_read_but_not_acknowledged_is_still_its_own(site, make):
    one = Client("c1")
    queue = make(one, request_acknowledge=True)
    delivery = give(site, Delivery(site, wire_id="m1"))
    one.reads()
    assert delivery.endings == []
    handout = one.debts.find(queue, b"m1")
    assert handout is not None
    handout.acknowledged(lambda _: None)
    assert delivery.endings == [DONE]
    assert one.debts.all() == []


def test_a_message_without_an_id_cannot_be_acknowledged_and_is_done_when_it_has_left(site, make):
    one = Client("c1")
    make(one, request_acknowledge=True, use_message_id=False)
    delivery = give(site, Delivery(site))
    assert one.debts.all() == []
    one.reads()
    assert delivery.endings == [DONE]


def test_with_nobody_there_nothing_is_asked_for_and_what_comes_late_goes_back(site, make):
    one = Client("c1")
    queue = make(one)
    deliver = site.subscriptions[-1].deliver
    queue.channel.leave(one)
    assert not site.subscriptions[-1].is_open
    late = Delivery(site)
    deliver(late)
    assert late.endings == [RELEASED]


# --- first acquirers ----------------------------------------------------------------------------


def flags(client: Client) -> list[bool]:
    return [bool(data[0] & 0x80) for data in client.got]


def test_only_the_first_member_of_a_first_delivery_is_a_first_acquirer(site, make):
    one, two = Client("c1"), Client("c2")
    make(one, two)
    give(site, Delivery(site), Delivery(site, attempt=2))
    assert (flags(one), flags(two)) == ([True, False], [False, False])


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("gone", [True, False])
def test_what_had_left_and_came_back_has_no_first_acquirer(site, make, asks, gone):
    members: list[Any] = [Client("c1"), Client("c2")]
    queue = make(*members, request_acknowledge=asks)
    first = give(site, Delivery(site, wire_id="m"))
    for each in members:
        each.reads(gone)
    for each in members:
        queue.channel.leave(each)
        for handout in each.debts.all():
            handout.gone(each)
    assert first.endings == [DONE if gone and not asks else RELEASED]
    three = Client("c3")
    queue.channel.join(three)
    give(site, Delivery(site, wire_id="m"), Delivery(site, wire_id="m"))
    assert flags(three) == [not (asks and gone), True]


# --- slow members -------------------------------------------------------------------------------


def test_nothing_is_asked_for_while_all_members_read_too_slowly(site, make):
    one, two = Client("c1"), Client("c2")
    make(one, two, terms={"window": 7})
    (subscription,) = site.subscriptions
    give(site, Delivery(site))
    one.is_clogged = True
    site.turn()
    assert subscription.window == 7
    give(site, Delivery(site))
    two.is_clogged = True
    site.turn()
    assert subscription.window == 0
    two.is_clogged = False
    two.reads()
    assert subscription.window == 7


def test_it_stops_within_a_turn_before_a_member_would_be_cut(site, make):
    one = Client("c1")
    make(one)
    one.is_full = one.is_clogged = True
    give(site, Delivery(site))
    assert site.subscriptions[-1].window == 0
    one.is_full = one.is_clogged = False
    one.reads()
    assert site.subscriptions[-1].window > 0


def test_in_turn_a_member_that_is_full_is_passed_over(site, make):
    members = [Client(f"c{number}") for number in range(3)]
    make(*members, queue_status=QueueStatus.ROUND_ROBIN)
    members[1].is_full = True
    give(site, *(Delivery(site) for _ in range(4)))
    assert [len(member.got) for member in members] == [2, 0, 2]
    members[1].is_full = False
    give(site, *(Delivery(site) for _ in range(3)))
    assert [len(member.got) for member in members] == [3, 1, 3]


def test_turns_go_on_behind_a_member_that_has_left(site, make):
    members = [Client(f"c{number}") for number in range(3)]
    queue = make(*members, queue_status=QueueStatus.ROUND_ROBIN)
    give(site, Delivery(site))
    queue.channel.leave(members[0])
    give(site, Delivery(site), Delivery(site))
    assert [len(member.got) for member in members] == [1, 1, 1]


# --- late members -------------------------------------------------------------------------------


def test_each_message_has_its_own_time_to_be_acknowledged_in(site, make):
    one = Client("c1")
    queue = make(one, request_acknowledge=True)
    first = give(site, Delivery(site, wire_id="m1"))
    site.advance(10)
    second, third = Delivery(site, wire_id="m2"), Delivery(site, wire_id="m3")
    give(site, second, third)
    handout = one.debts.find(queue, b"m2")
    assert handout is not None
    handout.acknowledged(lambda _: None)
    site.advance(5)
    assert isinstance(first.endings[0], Rejected)
    assert first.endings[0].detail == "tmq c1.test (c1): no Delivery within 15 seconds"
    assert (second.endings, third.endings) == ([DONE], [])
    site.advance(10)
    assert isinstance(third.endings[0], Rejected)


def test_as_many_redeliveries_as_are_wanted_come_before_the_end(site, make):
    one, two = Client("c1"), Client("c2")
    make(one, two, terms={"redeliveries": 1}, request_acknowledge=True)
    first, last = Delivery(site, wire_id="m"), Delivery(site, attempt=2, wire_id="n")
    give(site, first, last)
    site.advance(15)
    assert isinstance(first.endings[0], Failed)
    assert first.endings[0].error is not None
    assert first.endings[0].error.message.startswith("c1.test (c1), c2.test (c2): no Delivery")
    assert isinstance(last.endings[0], Rejected)


def test_a_shorter_time_does_not_wait_for_the_longer_one_of_those_before(site, make):
    queue = make(Client("c1"), request_acknowledge=True)
    first = give(site, Delivery(site, wire_id="m1"))
    queue.change(QueueOptions(request_acknowledge=True, acknowledge_timeout=1_000))
    second = give(site, Delivery(site, wire_id="m2"))
    site.advance(1)
    assert isinstance(second.endings[0], Rejected)
    assert first.endings == []
    site.advance(14)
    assert isinstance(first.endings[0], Rejected)
    assert "within 15 seconds" in first.endings[0].detail


def test_a_timeout_of_none_waits_for_ever(site, make):
    make(Client("c1"), request_acknowledge=True, acknowledge_timeout=0)
    delivery = give(site, Delivery(site, wire_id="m"))
    site.advance(1_000_000)
    assert delivery.endings == []


# --- headers that anybody may have written ------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"wire_id": "x" * 300},
        {"wire_id": "100%"},
        {"tmq_source": "%zz", "tmq_target": "y" * 256},
        {"tmq_ttl": "-1", "tmq_flags": "all"},
        {"tmq_ttl": "99999999999"},
        {"tmq_ttl": "²"},
    ],
)
def test_headers_that_no_frame_can_carry_are_left_out(site, make, headers):
    one = Client("c1")
    make(one)
    give(site, Delivery(site, **headers))
    assert one.got == [encode_frame(Frame(0x11, 1, b"f" * 32, b"", b"ch", b"x", True, ttl=15))]
