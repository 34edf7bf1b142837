"""Calls of services: who is called, where the reply goes, what happens without one."""

from __future__ import annotations

import json

import pytest

from embedq_transports.zbus import ZBUS
from embedq_transports.zbus.calls import _names_in
from tests.transports.zbus.conftest import URL
from tests.transports.zbus.ends import Http, Ws


@pytest.fixture
def service(ws):
    client = ws()
    client.do(cmd="create", mq="/svc", channel="/svc", mqMask=1, mqType=None)
    assert client.do(cmd="sub", mq="/svc", channel="/svc")["status"] == 200
    return client


def answer(service: Ws, call, body: object, **headers: object) -> None:
    target = {"target": call["headers"]["source"], "id": call["headers"]["id"]}
    service.tell({"headers": {"cmd": "route", **target, **headers}, "status": 200, "body": body})


def test_a_caller_on_a_websocket_gets_its_reply(service, ws):
    caller = ws()
    caller.tell({"url": "/svc/add", "headers": {"id": "1"}, "body": [1, 2]})
    call = service.next()
    answer(service, call, 3)
    found = caller.next()
    assert (found["status"], found["body"], found["headers"]["id"]) == (200, 3, "1")


def test_a_caller_may_also_put_without_wanting_an_answer(service, ws):
    caller = ws()
    message = {"cmd": "pub", "mq": "/svc", "ack": False, "id": "1"}
    caller.tell({"url": "/svc/add", "headers": message, "body": "x"})
    answer(service, service.next(), "y")
    assert caller.next()["body"] == "y"


def test_a_caller_over_http_gets_the_reply_as_its_response(service, http):
    caller = http()
    caller.request(b"[1,2]", path="/svc/a%20b?c=d", id="7", Content_Type="application/json")
    call = service.next()
    assert (call["url"], call["method"]) == ("/svc/a b?c=d", "POST")
    assert (call["body"], call["headers"]["Content-Type"]) == ("[1,2]", "application/json")
    answer(service, call, {"sum": 3}, **{"Content-Type": "application/json", "X-My": "é"})
    found = caller.response()
    assert (found.status, json.loads(found.body)) == (200, {"sum": 3})
    assert (found.headers["id"], found.headers["x-my"]) == ("7", "é")
    assert "target" not in found.headers


@pytest.mark.parametrize(
    ("given", "told"),
    [({}, ""), ({"Content-Type": "text/x"}, "text/x"), ({"content-type": "a/b"}, "a/b")],
)
def test_the_type_of_what_is_called_with_is_told_in_lower_case_too(service, ws, given, told):
    ws().tell({"url": "/svc", "headers": given, "body": [1]})
    headers = service.next()["headers"]
    assert headers["content-type"] == told
    assert given.items() <= headers.items()


def test_replies_over_http_come_in_the_order_of_the_calls(service, http):
    caller = http()
    for n in range(3):
        caller.request(b"", path=f"/svc/{n}", id=str(n))
    calls = [service.next() for _ in range(3)]
    for call in reversed(calls):
        answer(service, call, call["url"])
    assert [caller.response().body for _ in range(3)] == [b"/svc/%d" % n for n in range(3)]


def test_calls_with_the_same_id_are_answered_one_by_one(service, http):
    caller = http()
    for n in range(2):
        caller.request(b"", path=f"/svc/{n}", id="same")
    for _ in range(2):
        call = service.next()
        answer(service, call, call["url"])
    assert [caller.response().body for _ in range(2)] == [b"/svc/0", b"/svc/1"]


def test_a_service_over_http_is_called_and_routes(ws, http):
    service, caller = http(), ws()
    service.query(cmd="create", mq="/h", channel="c")
    service.query(cmd="sub", mq="/h", channel="c")
    caller.tell({"url": "/h", "headers": {"id": "1"}, "body": "x"})
    call = service.response()
    route = {"cmd": "route", "target": call.headers["source"], "id": call.headers["id"]}
    service.request(b"y", Content_Type="text/plain", **route)
    assert caller.next()["body"] == "y"


@pytest.mark.parametrize("path", ["/svc2/x", "/nothing", "/", "/sv", "/nothing?a=/svc"])
def test_a_url_of_no_queue_is_not_found(service, http, path):
    caller = http()
    caller.request(path=path)
    found = caller.response()
    assert found.status == 404
    assert found.body == f"{path.partition('?')[0]} Not Found".encode()


def test_the_longest_name_in_a_url_is_called(service, ws):
    special, caller = ws(), ws()
    special.do(cmd="create", mq="/svc/special", channel="c")
    special.do(cmd="sub", mq="/svc/special", channel="c")
    caller.tell({"url": "/svc/special/x", "headers": {}})
    assert special.next()["url"] == "/svc/special/x"
    caller.tell({"url": "/svc/specials", "headers": {}})
    assert service.next()["url"] == "/svc/specials"


def test_names_in_a_url_end_with_its_segments():
    assert _names_in("/a/b?c/d") == ["/a/b", "a/b", "/a", "a"]
    assert _names_in("a/b") == ["a/b", "a"]
    assert _names_in("/") == ["/"]
    assert len(_names_in("/a" * 1000)) <= 66


def test_a_service_without_a_subscriber_is_a_bad_gateway(ws, http):
    ws().do(cmd="create", mq="/idle", channel="c")
    found = http().query(path="/idle/x")
    assert (found.status, found.body) == (502, b"MQ(/idle) has no subscriber")


def test_a_service_that_is_silent_is_a_timeout_and_what_follows_is_answered(broker, ends):
    listener = broker.listen(URL, transport=ZBUS, call_timeout="10ms")
    service, caller = Ws(listener), Http(listener)
    ends.extend([service, caller])
    service.do(cmd="create", mq="/svc", channel="c")
    service.do(cmd="sub", mq="/svc", channel="c")
    caller.request(path="/svc/x", id="1")
    caller.request(cmd="query", mq="nothing", id="2")
    assert [caller.response().status for _ in range(2)] == [504, 404]
    call = service.next()
    late = {"cmd": "route", "target": call["headers"]["source"], "id": "1", "ack": True}
    assert service.do("late", **late)["status"] == 404


def test_a_caller_that_sends_no_more_gets_its_reply_and_an_end(service, http):
    caller = http()
    caller.request(path="/svc/x", id="1")
    caller.socket.shutdown(1)
    answer(service, service.next(), "y")
    assert caller.response().body == b"y"
    assert caller.socket.recv(1) == b""


def test_a_caller_with_very_many_calls_waits_and_gets_all_its_replies(service, http):
    caller = http()
    for _ in range(400):
        caller.request(path="/svc/x")
    for n in range(400):
        answer(service, service.next(), n)
    assert [caller.response().body for _ in range(400)] == [b"%d" % n for n in range(400)]


def test_only_who_wants_it_is_told_that_a_target_is_gone(service, ws):
    service.say("x", cmd="route", target="nobody")
    answer = service.do("x", cmd="route", target="nobody", ack="true", id="1")
    assert (answer["status"], answer["body"]) == (404, "Target=nobody Not Found")
    assert service.do("x", cmd="route", id="2")["status"] == 400
    other = ws()
    other.tell({"url": "/svc", "headers": {"id": "1"}})
    source = service.next()["headers"]["source"]
    assert service.do("x", cmd="route", target=source, ack=True, id="3")["body"] == "OK"


def test_a_message_without_a_command_or_a_url_is_told(ws):
    client = ws()
    assert client.do()["body"] == "cmd key required"
    client.tell({})
    assert client.next()["status"] == 400
