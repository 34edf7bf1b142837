"""Acknowledgements on zbus: what is held, acked, tried again, dead."""

from __future__ import annotations

import asyncio
import threading

import pytest

from embedq.broker.desk import Desk
from tests.conformance.transport_suite import eventually, reset


@pytest.fixture
def queue(broker, ws):
    ws().do(cmd="create", mq="q", channel="c")
    return broker.queue("q")


def subscribed(client, **headers: object):
    told = client.do(cmd="sub", mq="q", channel="c", acknowledge=True, **headers)
    assert told["status"] == 200
    return client


def settle(client, command: str, push, **headers: object):
    offset = push["headers"]["offset"]
    return client.do(cmd=command, mq="q", channel="c", offset=offset, **headers)


def test_what_is_pushed_is_held_until_it_is_acked(queue, ws):
    client = subscribed(ws())
    queue.put("x")
    push = client.next()
    assert push["headers"]["attempt"] == "1"
    assert queue.stats().stored == 1
    answer = settle(client, "ack", push)
    offset = push["headers"]["offset"]
    assert answer["body"] == f"OK, ACK (mq=q,channel=c,offset={offset})"
    assert queue.stats().stored == 0
    again = settle(client, "ack", push)
    assert (again["status"], again["body"]) == (404, f"Offset({offset}) Not Held")


def test_who_subscribes_anew_may_acknowledge_from_then_on_or_no_more(queue, ws):
    client, stored = subscribed(ws()), lambda: queue.stats().stored
    for wanted, kept in (({}, 1), ({"acknowledge": False}, 0), ({"acknowledge": "true"}, 1)):
        assert client.do(cmd="sub", mq="q", channel="c", **wanted)["status"] == 200
        queue.put("x")
        push = client.next()
        assert ("attempt" in push["headers"]) is bool(kept)
        if kept:
            assert stored() == 1
            settle(client, "ack", push)
        eventually(lambda: stored() == 0)


def test_what_is_not_acked_goes_to_the_next_and_costs_no_attempt(queue, ws):
    first, second = subscribed(ws(), window=1), ws()
    queue.put("x")
    assert first.next()["body"] == "x"
    subscribed(second)
    first.close()
    push = second.next()
    assert (push["body"], push["headers"]["attempt"]) == ("x", "1")


def test_a_nack_is_tried_again_and_ends_as_a_dead_letter(broker, queue, ws):
    client = subscribed(ws())
    queue.put("x", max_attempts=2)
    assert settle(client, "nack", client.next())["status"] == 200
    push = client.next()
    assert push["headers"]["attempt"] == "2"
    offset = push["headers"]["offset"]
    client.say(cmd="nack", mq="q", channel="c", offset=offset, reason="it is broken", ack=False)
    eventually(lambda: queue.stats().dead == 1)
    (letter,) = queue.dead.list()
    errors = [each.error.message for each in queue.dead.show(letter.id).attempts]
    assert [each.split(": ", 1)[1] for each in errors] == ["nack of the client", "it is broken"]


def test_a_reject_is_dead_at_once(queue, ws):
    client = subscribed(ws())
    queue.put("x")
    assert settle(client, "reject", client.next(), reason="no use")["status"] == 200
    (letter,) = queue.dead.list()
    assert letter.detail.startswith("zbus 127.0.0.1:")
    assert letter.detail.endswith("no use")


def test_a_take_can_be_acked_over_http(queue, http):
    for n in range(3):
        queue.put(n)
    client = http()
    client.request(cmd="take", mq="q", channel="c", window="2", acknowledge="true")
    found = client.response()
    assert found.status == 200
    offset = found.body.split(b'"offset":"')[1].split(b'"')[0].decode()
    assert queue.stats().stored == 3
    assert client.query(cmd="ack", mq="q", channel="c", offset=offset).status == 200
    client.close()
    # One is given back, and may come behind the one that nobody has had.
    assert {queue.get(timeout=60, group="c").body for _ in range(2)} == {1, 2}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 400),
        ({"mq": "q"}, 400),
        ({"mq": "q", "channel": "c"}, 400),
        ({"mq": "q", "channel": "c", "offset": "x"}, 500),
        ({"mq": "q", "channel": "c", "offset": 1, "delay": -1}, 400),
        ({"mq": "q", "channel": "c", "offset": 1, "delay": 2**31 - 1}, 404),
        ({"mq": "q", "channel": "other", "offset": 1}, 404),
    ],
)
def test_what_cannot_be_settled_is_told(queue, ws, headers, status):
    client = ws()
    for command in ("ack", "nack", "reject"):
        assert client.do(cmd=command, **headers)["status"] == status


def test_who_is_gone_before_it_hears_of_its_ack_takes_nothing_from_the_others(
    listener, queue, ws, caplog, monkeypatch
):
    first, second = subscribed(ws(), window=1), subscribed(ws(), window=1)
    queue.put_many(["x", "y"])
    offset = first.next()["headers"]["offset"]
    push = second.next()
    queue.put("z")
    committed, gone = threading.Event(), threading.Event()

    def slowly(call):
        async def answering(*given, **named):
            got = await call(*given, **named)
            committed.set()
            await asyncio.to_thread(gone.wait, 60)
            return got

        return answering

    for call in (Desk.asettle, Desk.aexchange):
        monkeypatch.setattr(Desk, call.__name__, slowly(call))
    first.say(cmd="ack", mq="q", channel="c", offset=offset)
    assert committed.wait(60)
    reset(first)
    eventually(lambda: listener.stats.closed)
    gone.set()
    assert settle(second, "ack", push)["status"] == 200
    subscribed(second, window=1)
    assert second.next()["body"] == "z"
    assert not [each for each in caplog.records if each.levelname == "ERROR"]
