"""What one subscriber has claimed and another gets is the other's, whoever of them leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from embedq.net import NetLimits
from embedq_transports.zbus import ZBUS
from tests.conformance.transport_suite import eventually, reset
from tests.transports.zbus.conftest import URL
from tests.transports.zbus.ends import Ws

COUNT = 4


@pytest.fixture
def queue(broker, ws):
    ws().do(cmd="create", mq="q", channel="c")
    return broker.queue("q")


@pytest.fixture(params=["in order", "by a reset"])
def leave(request) -> Callable[[Any], None]:
    return reset if request.param == "by a reset" else Ws.close


def sub(client: Ws, tag: str, **headers: object) -> Ws:
    told = client.do(cmd="sub", mq="q", channel="c", filter=tag, acknowledge=True, **headers)
    assert told["status"] == 200
    return client


def fill(queue, count: int = COUNT) -> None:
    for n in range(count):
        queue.put(n, headers={"tag": "b"})


def pushed(client: Ws, count: int = COUNT) -> list[dict]:
    pushes = [client.next() for _ in range(count)]
    assert {each["headers"]["attempt"] for each in pushes} == {"1"}
    return pushes


def numbers(pushes: list[dict]) -> list[int]:
    return sorted(each["body"] for each in pushes)


def settle(client: Ws, push: dict, command: str = "ack", **headers: object) -> dict:
    headers["offset"] = push["headers"]["offset"]
    return client.do(cmd=command, mq="q", channel="c", **headers)


def nothing_more(client: Ws) -> None:
    """Whatever would have been pushed would come before this answer."""
    assert client.do(cmd="ping", id="nothing")["headers"]["id"] == "nothing"


def both(queue, ws, *, parked: bool) -> tuple[Ws, Ws, list[dict]]:
    """Return who claims, who gets, its messages: the first has claimed some, or all."""
    claims, gets = sub(ws(), "a"), sub(ws(), "b", window=0 if parked else COUNT)
    fill(queue)
    if parked:
        eventually(lambda: queue.group("c").stats().leased == COUNT)
        gets.say(cmd="sub", mq="q", channel="c", window=COUNT, ack=False)
    pushes = pushed(gets)
    assert numbers(pushes) == list(range(COUNT))
    return claims, gets, pushes


@pytest.mark.parametrize("parked", [False, True])
def test_what_it_got_comes_again_at_once_when_it_leaves(queue, ws, leave, parked):
    _claims, gets, _ = both(queue, ws, parked=parked)
    again = sub(ws(), "b", window=0)  # what nobody wants would be dropped
    leave(gets)
    again.say(cmd="sub", mq="q", channel="c", ack=False)
    pushes = pushed(again)
    assert numbers(pushes) == list(range(COUNT))
    assert {settle(again, each)["status"] for each in pushes} == {200}
    assert queue.stats().stored == 0


@pytest.mark.parametrize("parked", [False, True])
def test_what_it_got_stays_its_own_when_the_one_that_claimed_it_leaves(
    listener, queue, ws, leave, parked
):
    claims, gets, pushes = both(queue, ws, parked=parked)
    gone = listener.stats.closed.copy()
    leave(claims)
    eventually(lambda: listener.stats.closed != gone)
    gets.say(cmd="sub", mq="q", channel="c", ack=False)  # it has room for more
    assert {settle(gets, each)["status"] for each in pushes} == {200}
    nothing_more(gets)
    assert queue.stats().stored == 0


def test_what_waits_for_room_comes_again_when_the_one_that_claimed_it_leaves(queue, ws, leave):
    claims, gets = sub(ws(), "a;b", window=0), sub(ws(), "b", window=0)
    claims.say(cmd="sub", mq="q", channel="c", filter="a", ack=False)
    fill(queue)
    eventually(lambda: queue.group("c").stats().leased == COUNT)
    leave(claims)
    eventually(lambda: queue.group("c").stats().leased == 0)
    gets.say(cmd="sub", mq="q", channel="c", ack=False)
    assert numbers(pushed(gets)) == list(range(COUNT))
    nothing_more(gets)


def test_what_was_handed_on_dies_by_the_hand_of_the_one_that_got_it(queue, ws):
    _, gets, pushes = both(queue, ws, parked=True)
    port = gets.socket.getsockname()[1]
    assert settle(gets, pushes[0], "reject", reason="no use")["status"] == 200
    (letter,) = queue.dead.list()
    assert f":{port}: " in letter.detail


def test_who_holds_as_much_as_it_may_is_handed_nothing_until_it_acks(broker, ends):
    listener = broker.listen(URL, transport=ZBUS, limits=NetLimits(unacked=2))
    claims, gets, other = (Ws(listener) for _ in range(3))
    ends += [claims, gets, other]
    other.do(cmd="create", mq="q", channel="c")
    queue = broker.queue("q")
    sub(claims, "a")
    sub(gets, "b")
    fill(queue, 8)
    held = pushed(gets, 2)
    eventually(lambda: queue.group("c").stats().leased == 4)
    nothing_more(gets)
    seen = numbers(held)
    for _ in range(6):
        offset = held.pop(0)["headers"]["offset"]
        gets.say(cmd="ack", mq="q", channel="c", offset=offset)
        told, push = sorted([gets.next(), gets.next()], key=lambda each: each["status"] is None)
        assert told["status"] == 200
        held.append(push)
        seen.append(push["body"])
    assert sorted(seen) == list(range(8))
