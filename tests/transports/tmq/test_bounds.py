"""What bounds one member leaves the others alone: what it holds, and how many queues it hears."""

from __future__ import annotations

import pytest

from embedq.net import NetLimits
from tests.interop.speakers import until
from tests.interop.tmq_client import CHANNEL, TmqClient

OK, NOT_FOUND, LIMIT = 200, 404, 482
TWO = {"acknowledge": True, "create": True, "limits": NetLimits(unacked=2)}


def synced(client: TmqClient) -> TmqClient:
    assert client.command(602, "no such channel") == NOT_FOUND
    return client


def nothing_more(client: TmqClient) -> None:
    """What was handed out before this question would come before its answer."""
    assert CHANNEL not in [frame.kind for frame in synced(client).inbox]


def bodies(client: TmqClient, count: int) -> list[bytes]:
    return [client.message().body for _ in range(count)]


@pytest.fixture
def greedy(connect) -> TmqClient:
    """A member that holds as much as it may, in the first queue of its channel."""
    client = connect("greedy", **TWO)
    client.join("mine")
    for body in (b"a", b"b"):
        client.push("mine", 1, body)
    client.held = [client.message() for _ in range(2)]
    return client


def test_who_holds_as_much_as_it_may_gets_no_copy_until_it_acknowledges(connect, greedy):
    other = connect("other", **TWO)
    assert other.join("mine") == OK
    for body in (b"c", b"d"):
        other.push("mine", 1, body)
        other.ack(other.message())
    nothing_more(greedy)
    greedy.ack(greedy.held[0])
    synced(greedy)
    other.push("mine", 1, b"e")
    assert bodies(greedy, 1) == bodies(other, 1) == [b"e"]


def test_in_turn_those_get_it_that_may_hold_more(connect, greedy):
    assert greedy.create("turns", 1, queue_status="roundrobin") == OK
    assert greedy.join("turns") == OK
    other = connect("other", **TWO)
    assert other.join("turns") == OK
    for number in range(4):
        other.push("turns", 1, b"%d" % number)
        got = other.message()
        assert got.body == b"%d" % number
        other.ack(got)
    nothing_more(greedy)


def test_where_nobody_may_hold_more_the_queue_waits_until_somebody_acknowledges(
    broker, connect, greedy
):
    for number in range(5):
        greedy.push("mine", 2, b"%d" % number)
    queue = broker.queue("mine/2")
    until(lambda: queue.stats().put == 5)
    nothing_more(greedy)
    until(lambda: queue.group("default").stats().leased == 0)
    seen: list[bytes] = []
    while len(seen) < 5:
        greedy.ack(greedy.held.pop(0))
        got = greedy.message()
        greedy.held.append(got)
        seen.append(got.body)
    assert seen == [b"%d" % number for number in range(5)]
    nothing_more(greedy)


def test_who_joins_gets_what_waited_as_nobody_might_hold_more(connect, greedy):
    greedy.push("mine", 2, b"x")
    synced(greedy)
    other = connect("other", **TWO)
    assert other.join("mine") == OK
    assert bodies(other, 1) == [b"x"]
    nothing_more(greedy)


def test_what_it_holds_goes_to_the_others_when_it_leaves(connect, greedy):
    other = connect("other", **TWO)
    assert other.join("mine") == OK
    greedy.close()
    assert sorted(bodies(other, 2)) == [b"a", b"b"]


def test_a_join_beyond_the_queues_that_one_may_hear_is_refused(broker, connect):
    for name in ("two/1", "two/2", "four/1", "four/2", "four/3", "four/4"):
        broker.queue(name)
    client = connect("c", create=True, limits=NetLimits(subscriptions=3))
    assert client.join("four") == LIMIT
    assert client.join("two") == OK
    assert client.join("empty") == OK
    assert client.join("another") == LIMIT
    assert client.join("two") == OK
    assert client.leave("empty") == OK
    assert client.join("another") == OK
    other = connect("d", create=True, limits=NetLimits(subscriptions=3))
    assert other.join("two") == OK
