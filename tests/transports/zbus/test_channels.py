"""Subscriptions: windows that are set, filters, several on one connection, masks, removal."""

from __future__ import annotations

from typing import Any

import pytest

from embedq.net import NetLimits
from embedq_transports.zbus import ZBUS, commands
from embedq_transports.zbus.channels import tell_removed
from tests.conformance.transport_suite import PATIENCE_S, eventually
from tests.transports.zbus.conftest import URL
from tests.transports.zbus.ends import Ws


@pytest.fixture
def queue(broker, ws):
    ws().do(cmd="create", mq="q", channel="c")
    return broker.queue("q")


def subscribe(client, **headers: object):
    answer = client.do(cmd="sub", mq="q", **{"channel": "c", **headers})
    assert answer["status"] == 200, answer
    return client


def nothing_more(client) -> None:
    """Whatever would have been pushed would come before this answer."""
    assert client.do(cmd="ping", id="nothing")["headers"]["id"] == "nothing"


def bodies(client, count: int) -> list[Any]:
    return [client.next()["body"] for _ in range(count)]


def test_a_push_has_the_names_and_texts_that_every_client_needs(queue, ws):
    client = subscribe(ws(), window=5)
    queue.put("hello")
    push = client.next()
    assert push["status"] is None
    headers = push["headers"]
    assert (headers["mq"], headers["channel"], headers["window"]) == ("q", "c", "4")
    assert headers["offset"].isdecimal()
    assert isinstance(headers["id"], str)
    assert isinstance(headers["source"], str)


def test_a_window_is_what_is_left_and_is_set_anew(queue, ws):
    client = subscribe(ws(), window=2)
    for n in range(9):
        queue.put(n)
    assert bodies(client, 2) == [0, 1]
    nothing_more(client)
    client.say(cmd="sub", mq="q", channel="c", window="3", ack="false")
    assert [client.next()["headers"]["window"] for _ in range(3)] == ["2", "1", "0"]
    client.say(cmd="sub", mq="q", channel="c", window=0, ack=False)
    nothing_more(client)
    client.say(cmd="sub", mq="q", channel="c", ack=False)
    assert bodies(client, 4) == [5, 6, 7, 8]
    eventually(lambda: queue.stats().stored == 0)


def test_a_window_that_is_set_while_some_is_left_is_not_added(queue, ws):
    client = subscribe(ws(), window=3)
    subscribe(client, window=2)
    for n in range(9):
        queue.put(n)
    assert bodies(client, 2) == [0, 1]
    nothing_more(client)


def test_subscribers_of_one_channel_share_and_each_channel_gets_all(broker, queue, ws):
    admin = ws()
    admin.do(cmd="create", mq="q", channel="d")
    first, second = subscribe(ws(), window=50), subscribe(ws(), window=50)
    other = subscribe(ws(), channel="d")
    for n in range(100):
        queue.put(n)
    assert sorted([*bodies(first, 50), *bodies(second, 50)]) == list(range(100))
    assert bodies(other, 100) == list(range(100))


def test_one_connection_has_any_number_of_subscriptions(broker, ws):
    client = ws()
    for name in "abc":
        client.do(cmd="create", mq=name, channel=name)
        client.do(cmd="sub", mq=name, channel=name, window=1)
    for name in "abc":
        broker.queue(name).put(f"to {name}")
    got = {push["headers"]["mq"]: push["body"] for push in (client.next() for _ in "abc")}
    assert got == {"a": "to a", "b": "to b", "c": "to c"}


def test_a_filter_lets_through_what_it_wants_and_drops_what_nobody_wants(queue, ws):
    client = subscribe(ws(), filter="a.*;z")
    for tag in ("a.b", "b", None, "z", "a.b.c"):
        queue.put(str(tag), headers={} if tag is None else {"tag": tag})
    assert bodies(client, 2) == ["a.b", "z"]
    nothing_more(client)
    eventually(lambda: queue.stats().stored == 0)


def test_a_window_that_clients_set_anew_leaves_the_filter_alone(queue, ws):
    client = subscribe(ws(), filter="a", window=1)
    subscribe(client, window=9, ack="true")  # as clients do by themselves: it names no filter
    for tag in ("b", "a"):
        queue.put(tag, headers={"tag": tag})
    assert bodies(client, 1) == ["a"]
    subscribe(client, filter="")
    queue.put("c", headers={"tag": "c"})
    assert bodies(client, 1) == ["c"]


def test_subscribers_with_different_filters_each_get_their_own(queue, ws):
    even, odd = subscribe(ws(), filter="even"), subscribe(ws(), filter="odd")
    for n in range(40):
        queue.put(n, headers={"tag": "odd" if n % 2 else "even"})
    assert sorted(bodies(even, 20)) == list(range(0, 40, 2))
    assert sorted(bodies(odd, 20)) == list(range(1, 40, 2))


def test_what_waits_for_the_room_of_one_is_not_given_to_another(queue, ws):
    slow, other = subscribe(ws(), filter="s", window=1), subscribe(ws(), filter="o")
    for n in range(6):
        queue.put(n, headers={"tag": "s"})
    queue.put("last", headers={"tag": "o"})
    assert bodies(other, 1) == ["last"]
    assert bodies(slow, 1) == [0]
    nothing_more(slow)
    slow.say(cmd="sub", mq="q", channel="c", filter="s", ack=False)
    assert sorted(bodies(slow, 5)) == [1, 2, 3, 4, 5]
    eventually(lambda: queue.stats().stored == 0)


def test_what_waited_for_one_goes_to_another_that_wants_it_by_now(queue, ws):
    slow, other = subscribe(ws(), filter="s", window=1), subscribe(ws(), filter="o")
    for n in range(3):
        queue.put(n, headers={"tag": "s"})
    queue.put("last", headers={"tag": "o"})
    assert bodies(other, 1) == ["last"]
    other.say(cmd="sub", mq="q", channel="c", filter="o;s", ack=False)
    assert sorted([*bodies(slow, 1), *bodies(other, 2)]) == [0, 1, 2]


def test_no_more_is_held_back_for_one_without_room_than_fits_the_memory(queue, ws):
    slow, other = subscribe(ws(), filter="s", window=0), subscribe(ws(), filter="o")
    queue.put_many([b"%d" % n for n in range(600)], headers={"tag": "s"})
    queue.put("for the other", headers={"tag": "o"})
    eventually(lambda: queue.group("c").stats().leased >= 256)
    nothing_more(slow)
    nothing_more(other)
    assert queue.group("c").stats().leased < 600
    slow.say(cmd="sub", mq="q", channel="c", filter="s", ack=False)
    assert len({slow.next()["body"] for _ in range(600)}) == 600
    assert bodies(other, 1) == ["for the other"]


def test_what_waited_for_one_who_left_and_nobody_else_wants_is_dropped(queue, ws):
    slow, other = subscribe(ws(), filter="s", window=1), subscribe(ws(), filter="o")
    for n in range(3):
        queue.put(n, headers={"tag": "s"})
    queue.put("last", headers={"tag": "o"})
    assert bodies(other, 1) == ["last"]
    slow.close()
    eventually(lambda: queue.stats().stored == 0)


def test_a_filter_of_the_channel_holds_for_all_its_subscribers(queue, ws):
    admin = ws()
    admin.do(cmd="create", mq="q", channel="c", filter="a.#")
    client = subscribe(ws())
    queue.put(1, headers={"tag": "b"})
    queue.put(2, headers={"Tag": "a.x.y"})
    assert bodies(client, 1) == [2]
    eventually(lambda: queue.stats().stored == 0)


def test_a_filter_too_long_is_told(queue, ws):
    client = ws()
    for command in ("sub", "create"):
        assert client.do(cmd=command, mq="q", channel="c", filter="a" * 128)["status"] == 400


@pytest.mark.parametrize("mask", [{"mqMask": 2}, {"channelMask": 2}])
def test_an_exclusive_channel_has_one_subscriber(queue, ws, mask):
    admin, second = ws(), ws()
    admin.do(cmd="create", mq="q", channel="c", **mask)
    first = subscribe(ws())
    assert second.do(cmd="sub", mq="q", channel="c")["status"] == 409
    subscribe(first, window=7)  # its own may be set anew
    first.close()
    eventually(lambda: second.do(cmd="sub", mq="q", channel="c")["status"] == 200)


def test_a_queue_is_deleted_with_its_last_subscriber(broker, ws):
    admin, first, second = ws(), ws(), ws()
    admin.do(cmd="create", mq="q", channel="c", mqMask=1)
    subscribe(first)
    subscribe(second)
    admin.say("x", cmd="pub", mq="q", ack=False)
    first.close()
    nothing_more(admin)
    assert admin.do(cmd="query", mq="q")["status"] == 200
    second.close()
    eventually(lambda: admin.do(cmd="query", mq="q")["status"] == 404)
    eventually(lambda: broker.queue("q").groups == ())


def test_a_channel_is_deleted_with_its_last_subscriber(queue, ws):
    admin, client = ws(), ws()
    admin.do(cmd="create", mq="q", channel="d", channelMask=1)
    subscribe(client, channel="d")
    client.close()
    eventually(lambda: admin.do(cmd="query", mq="q", channel="d")["status"] == 404)
    assert admin.do(cmd="query", mq="q", channel="c")["status"] == 200


@pytest.mark.parametrize(
    ("what", "text"), [({}, "MQ(q) Not Found"), ({"channel": "c"}, "Channel(c) Not Found")]
)
@pytest.mark.parametrize("window", [None, 0])
def test_subscribers_are_told_of_a_removal_and_can_come_back(queue, ws, what, text, window):
    admin, client = ws(), subscribe(ws(), window=window)
    assert admin.do(cmd="remove", mq="q", **what)["status"] == 200
    told = client.next()
    assert (told["status"], told["body"]) == (404, text)
    assert (told["headers"]["mq"], told["headers"]["channel"]) == ("q", "c")
    admin.do(cmd="create", mq="q", channel="c")
    subscribe(client)
    admin.do("again", cmd="pub", mq="q")
    assert bodies(client, 1) == ["again"]
    nothing_more(client)


def test_a_push_over_http_is_a_response(queue, http):
    client = http()
    assert client.query(cmd="sub", mq="q", channel="c", window="2").status == 200
    queue.put(b"\x00\xff", headers={"x": "1"})
    queue.put({"a": 1})
    first, second = client.response(), client.response()
    assert (first.status, first.body, first.headers["x"]) == (200, b"\x00\xff", "1")
    assert first.headers["content-type"] == "application/octet-stream"
    assert (second.headers["window"], second.body) == ("0", b'{"a":1}')
    assert second.headers["content-type"] == "application/json; charset=utf8"


def test_what_a_client_does_not_read_is_not_lost(broker, ends):
    listener = broker.listen(URL, transport=ZBUS, limits=NetLimits(unsent_pause_bytes=1000))
    slow = Ws(listener)
    ends.append(slow)
    slow.do(cmd="create", mq="q", channel="c")
    subscribe(slow)
    queue = broker.queue("q")
    for n in range(40):
        queue.put(f"{n:06}" * 20_000)
    got = {slow.next()["body"][:6]}
    slow.close()
    eventually(lambda: listener.stats.connections == 0)
    with queue.get(timeout=PATIENCE_S, group="c") as delivery:
        got.add(delivery.body[:6])
    assert len(got) == 2


def test_more_subscriptions_than_allowed_are_told(broker, ends):
    client = Ws(broker.listen(URL, transport=ZBUS, limits=NetLimits(subscriptions=1)))
    ends.append(client)
    for name in "cd":
        client.do(cmd="create", mq="q", channel=name)
    subscribe(client)
    assert client.do(cmd="sub", mq="q", channel="d")["status"] == 200
    told = client.next()
    assert told["status"] == 403
    assert told["headers"]["channel"] == "d"


def test_who_is_gone_when_a_removal_is_done_keeps_no_other_from_being_told(queue, ws, monkeypatch):
    def after_one_has_gone(watches):
        watches[0].session.connection.channel.connection_lost(None)
        tell_removed(watches)

    monkeypatch.setattr(commands, "tell_removed", after_one_has_gone)
    subscribe(ws(), window=0)
    other = subscribe(ws(), window=0)
    assert ws().do(cmd="remove", mq="q", channel="c")["status"] == 200
    assert other.next()["body"] == "Channel(c) Not Found"
