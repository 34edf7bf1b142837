"""A pub that waits for room holds back nothing of its own client that would make room."""

from __future__ import annotations

import json
import socket

import pytest
from websockets.frames import Opcode

from tests.transports.zbus.frames_of import frame


@pytest.fixture
def queue(broker, ws):
    """A queue that one message fills."""
    queue = broker.queue("q", max_length=1)
    ws().do(cmd="create", mq="q", channel="c")
    return queue


def holder(queue, client, **headers: object) -> str:
    """Let a client hold what fills the queue, and wait for room behind it; return the offset."""
    told = client.do(cmd="sub", mq="q", channel="c", acknowledge=True, **headers)
    assert told["status"] == 200
    queue.put("a")
    offset = client.next()["headers"]["offset"]
    client.say("b", cmd="pub", mq="q", id="pub")
    return offset


def settle(client, command: str, offset: str) -> None:
    client.say(cmd=command, mq="q", channel="c", offset=offset, id="settle")


def answers(client, *ids: str) -> dict[str, dict]:
    """Return the next messages, by id; those of pushes are what they carry."""
    found = [client.next() for _ in ids]
    told = {each["headers"]["id"] if each["status"] else each["body"]: each for each in found}
    assert set(told) == set(ids)
    return told


@pytest.mark.parametrize("command", ["ack", "reject"])
def test_what_makes_room_is_done_while_a_pub_waits_for_it(queue, ws, command):
    client = ws()
    settle(client, command, holder(queue, client))
    told = answers(client, "pub", "settle", "b")
    assert told["pub"]["status"] == told["settle"]["status"] == 200


BETWEEN = {
    "a window": json.dumps({"headers": {"cmd": "sub", "mq": "q", "channel": "c", "id": "x"}}),
    "a look": json.dumps({"headers": {"cmd": "query", "mq": "q", "id": "x"}}),
    "a command that is none": json.dumps({"headers": {"cmd": "xyz", "id": "x"}}),
    "what is missing": json.dumps({"headers": {"cmd": "take", "id": "x"}}),
    "a pub elsewhere": json.dumps({"headers": {"cmd": "pub", "mq": "r", "id": "x"}}),
}


@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN.keys())
def test_so_it_is_behind_anything_else(broker, queue, ws, between):
    client = ws()
    client.do(cmd="create", mq="r", channel="c")
    offset = holder(queue, client)
    client.send(frame(between))
    settle(client, "ack", offset)
    assert answers(client, "pub", "settle", "x", "b")["pub"]["status"] == 200


@pytest.mark.parametrize("between", [("{", Opcode.TEXT), ("hello", Opcode.PING)])
def test_so_it_is_behind_what_is_no_message(queue, ws, between):
    client = ws()
    offset = holder(queue, client)
    client.send(frame(*between))
    settle(client, "ack", offset)
    bodies = {bytes(client.frame().data) for _ in range(4)}
    assert any(b"OK, PUB" in each for each in bodies)
    assert any(b"OK, ACK" in each for each in bodies)


def test_a_window_that_lets_come_what_makes_room_does_not_wait_for_it(queue, ws):
    client = ws()
    client.do(cmd="sub", mq="q", channel="c", window=0)
    queue.put("a")
    client.say("b", cmd="pub", mq="q", id="pub")
    client.say(cmd="sub", mq="q", channel="c", window=5, id="sub")
    assert answers(client, "pub", "sub", "a", "b")["pub"]["status"] == 200


def test_a_take_makes_room_for_the_pub_before_it(queue, ws):
    client = ws()
    queue.put("a")
    client.say("b", cmd="pub", mq="q", id="pub")
    client.say(cmd="take", mq="q", channel="c", id="take")
    told = answers(client, "pub", "take")
    assert [each["body"] for each in told["take"]["body"]] == ["a"]


def test_what_makes_room_is_done_while_a_call_waits_for_it(queue, ws):
    client = ws()
    assert client.do(cmd="sub", mq="q", channel="c", acknowledge=True)["status"] == 200
    queue.put("a")
    offset = client.next()["headers"]["offset"]
    client.tell({"url": "/q/x", "headers": {"id": "call"}, "body": "b"})
    settle(client, "ack", offset)
    answers(client, "settle", "b")


def test_answers_over_http_keep_the_order_of_their_requests(queue, http):
    client = http()
    queue.put("a")
    client.request(cmd="take", mq="q", channel="c", acknowledge="true")
    offset = client.response().body.split(b'"offset":"')[1].split(b'"')[0].decode()
    client.request(b"b", cmd="pub", mq="q")
    client.request(cmd="query", mq="q")
    client.request(cmd="ack", mq="q", channel="c", offset=offset)
    first, second, third = (client.response() for _ in range(3))
    assert first.body.startswith(b"OK, PUB")
    assert b'"messageDepth"' in second.body
    assert third.body.startswith(b"OK, ACK")


def test_a_take_is_behind_a_pub_for_which_there_is_room(broker, ws):
    queue = broker.queue("r", max_length=100)
    client = ws()
    client.do(cmd="create", mq="r", channel="c")
    for n in range(20):
        client.say(n, cmd="pub", mq="r", ack=False)
        client.say(cmd="take", mq="r", channel="c", id="take")
        told = client.next()
        assert [each["body"] for each in told["body"]] == [n]
    assert queue.stats().put == 20


def test_who_ends_its_side_while_a_pub_waits_is_answered_when_there_is_room(queue, ws):
    client = ws()
    queue.put("a")
    client.say("b", cmd="pub", mq="q", id="pub")
    client.say("c", cmd="pub", mq="q", id="another")
    client.socket.shutdown(socket.SHUT_WR)
    for body in "abc":
        with queue.get(timeout=60, group="c") as delivery:
            assert delivery.body == body
    assert [client.next()["headers"]["id"] for _ in range(2)] == ["pub", "another"]
