"""zbus sessions on real sockets: what is stored, what is answered, and in which order."""

from __future__ import annotations

import json
from functools import partial

import pytest

from embedq import Broker
from embedq.errors import InvalidOption
from embedq.net import NetLimits
from embedq_transports.zbus import ZBUS
from embedq_transports.zbus.session import ZbusSession
from tests.conformance.transport_suite import eventually
from tests.transports.zbus.conftest import URL
from tests.transports.zbus.ends import Http, Response, Ws
from tests.transports.zbus.frames_of import UPGRADE, message


@pytest.fixture
def created(ws):
    client = ws()
    assert client.do(cmd="create", mq="q", channel="c")["status"] == 200
    return client


# --- puts ----------------------------------------------------------------------------------------


def test_a_put_over_http_is_a_message_of_the_queue_with_its_headers(broker, http, created):
    body = "héllo".encode()
    answer = http().query(body, cmd="pub", mq="q", id="m1", Content_Type="text/plain", X_My="1")
    assert (answer.status, answer.body) == (200, b"OK, PUB (mq=q)")
    with broker.queue("q").get(timeout=60, group="c") as delivery:
        assert delivery.body == "héllo"
        assert delivery.headers["wire-id"] == "m1"
        assert delivery.headers["X-My"] == "1"
        assert not {"cmd", "mq", "id", "Host", "Content-Length"} & set(delivery.headers)


def test_json_on_a_websocket_is_json_in_python_and_back(broker, created):
    value = {"b": [1, 2.5, None, True], "a": "x"}
    assert created.do(value, cmd="pub", mq="q")["status"] == 200
    assert broker.queue("q").get(timeout=60, group="c").body == value
    broker.queue("q").put({"from": "python"}, headers={"x": "1"})
    (found,) = created.do(cmd="take", mq="q", channel="c")["body"]
    assert found["body"] == {"from": "python"}
    assert found["headers"]["x"] == "1"
    assert len(found["headers"]["id"]) == 32


def test_bytes_of_python_say_that_they_are_bytes(broker, created):
    broker.queue("q").put(b"\x00\xff")
    broker.queue("q").put("text")
    first, second = created.do(cmd="take", mq="q", channel="c", window=2)["body"]
    assert first["body"] == "AP8="
    assert first["headers"]["Content-Type"] == "application/octet-stream"
    assert second["body"] == "text"
    assert "Content-Type" not in second["headers"]


def test_credentials_are_never_stored(broker, created):
    secret = {"apiKey": "K", "signature": "S", "signFields": "body", "SIGNATURE": "T"}
    assert created.do("x", cmd="pub", mq="q", **secret)["status"] == 200
    (stored,) = broker.queue("q").peek(9)
    assert not {"K", "S", "T"} & set(stored.headers.values())
    assert '"K"' not in stored.headers["zbus"]


def test_credentials_in_a_query_are_never_stored(broker, http, created):
    client = http()
    client.send(b"GET /?cmd=pub&mq=q&apiKey=KEY&signature=SIGN&body=x HTTP/1.1\r\n\r\n")
    assert client.response().status == 200
    (stored,) = broker.queue("q").peek(9)
    assert not any(word in str(stored.headers) for word in ("KEY", "SIGN"))


def test_headers_of_any_type_travel(created):
    created.do("x", cmd="pub", mq="q", n=5, flag=False, many=["a", 1], deep={"a": None}, nil=None)
    (found,) = created.do(cmd="take", mq="q", channel="c")["body"]
    kept = {name: found["headers"][name] for name in ("n", "flag", "many", "deep", "nil")}
    assert kept == {"n": 5, "flag": False, "many": ["a", 1], "deep": {"a": None}, "nil": None}


def test_the_id_of_a_publisher_is_its_own_whatever_else_it_says(created):
    created.do("x", cmd="pub", mq="q", id="mine", **{"wire-id": "other", "zbus": "z"})
    (found,) = created.do(cmd="take", mq="q", channel="c")["body"]
    assert (found["headers"]["id"], found["headers"]["zbus"]) == ("mine", "z")


def test_status_method_and_url_of_a_publisher_travel(created):
    created.tell(
        {"headers": {"cmd": "pub", "mq": "q"}, "url": "/u", "method": "PUT", "status": 418}
    )
    assert created.next()["status"] == 200
    (found,) = created.do(cmd="take", mq="q", channel="c")["body"]
    assert (found["url"], found["method"], found["status"]) == ("/u", "PUT", 418)


def test_pipelined_puts_are_answered_in_order_and_stored_in_order(broker, http, created):
    client = http()
    for n in range(200):
        client.request(b"%d" % n, cmd="pub", mq="q", id=str(n))
    assert [client.response().headers["id"] for _ in range(200)] == [str(n) for n in range(200)]
    assert [int(each.body) for each in broker.queue("q").peek(999)] == list(range(200))


def test_answers_over_http_keep_the_order_whatever_takes_longer(http, created):
    client = http()
    client.request(cmd="query", mq="q", id="1")
    client.request(b"x", cmd="pub", mq="q", id="2")
    client.request(b"x", cmd="pub", mq="nowhere", id="3")
    client.request(cmd="take", mq="q", channel="c", id="4")
    client.request(cmd="nothing", id="5")
    got = [client.response() for _ in range(5)]
    assert [each.headers["id"] for each in got] == ["1", "2", "3", "4", "5"]
    assert [each.status for each in got] == [200, 200, 404, 200, 404]


def test_a_put_that_wants_no_answer_gets_none_unless_it_fails(http, created):
    client = http()
    client.request(b"x", cmd="pub", mq="q", id="1", ack="FALSE")
    client.request(b"x", cmd="pub", mq="nowhere", id="2", ack="false")
    client.request(cmd="take", mq="q", channel="c", id="3")
    assert client.response().headers["id"] == "2"
    assert json.loads(client.response().body)[0]["body"] == "eA=="


def test_the_answer_to_a_put_comes_before_its_own_push(created):
    created.do(cmd="sub", mq="q", channel="c")
    for n in range(100):
        created.say(n, cmd="pub", mq="q", id=f"m{n}")
    came = [created.next() for _ in range(200)]
    answered = set()
    for each in came:
        if each["status"] == 200:
            answered.add(each["headers"]["id"])
        else:
            assert each["headers"]["id"] in answered
    assert [each["body"] for each in came if each["status"] is None] == list(range(100))


def test_a_body_too_large_is_told_and_the_connection_lives(broker, ends):
    listener = broker.listen(URL, transport=ZBUS, limits=NetLimits(message_bytes=100))
    client = Http(listener)
    ends.append(client)
    client.query(cmd="create", mq="q")
    client.request(b"x" * 101, cmd="pub", mq="q", Content_Type="text/plain")
    assert client.response().status == 413


def test_a_header_that_cannot_be_stored_is_told(created):
    answer = created.do("x", cmd="pub", mq="q", **{"a\u0000b": "x"})
    assert answer["status"] == 400
    assert created.do("x", cmd="pub", mq="q")["status"] == 200


# --- connections ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head", [b"GET / HTTP/1.0\r\n", b"GET / HTTP/1.1\r\nConnection: close\r\n"]
)
def test_who_wants_one_answer_gets_it_and_an_end(http, created, head):
    client = http()
    client.send(head + b"cmd: query\r\nmq: q\r\n\r\n")
    answer = client.response()
    assert answer.status == 200
    assert answer.headers["connection"] == "close"
    assert client.socket.recv(1) == b""


def test_a_client_that_sends_no_more_gets_all_its_answers(http, created):
    client = http()
    for n in range(5):
        client.request(b"x", cmd="pub", mq="q", id=str(n))
    client.request(cmd="query", mq="q", id="last")
    client.socket.shutdown(1)
    assert [client.response().headers["id"] for _ in range(6)] == [*"01234", "last"]
    assert client.socket.recv(1) == b""


def test_a_websocket_is_opened_behind_requests_on_the_same_connection(http, ws, created):
    client = http()
    client.request(cmd="query", mq="nowhere", id="1")
    client.send(UPGRADE + message(headers={"cmd": "query", "mq": "nowhere", "id": "2"}))
    assert client.response().status == 404
    assert client.until(b"\r\n\r\n").startswith(b"HTTP/1.1 101 ")
    assert b'"id":"2"' in client.until(b'"url":null}')


def test_head_gets_the_head(http, created):
    client = http()
    client.send(b"HEAD /?cmd=query&mq=nowhere HTTP/1.1\r\n\r\n")
    answer = client.response(bare=True)
    assert (answer.status, answer.headers["content-length"]) == (404, "21")
    assert client.query(cmd="query", mq="q").status == 200


@pytest.mark.parametrize(
    ("head", "status"),
    [("Host: evil.example", 403), ("Content-Type: multipart/form-data", 400)],
)
def test_head_gets_the_head_of_a_refusal(http, head, status):
    client = http()
    client.send(f"HEAD / HTTP/1.1\r\n{head}\r\nContent-Length: 1\r\n\r\nx".encode())
    assert client.response(bare=True).status == status
    assert client.query(cmd="query", mq="nowhere").status == 404


def test_head_takes_nothing_that_it_does_not_get(broker, http, created):
    broker.queue("q").put("x")
    client = http()
    for more in ("", "&acknowledge=true"):
        client.send(f"HEAD /?cmd=take&mq=q&channel=c{more} HTTP/1.1\r\n\r\n".encode())
        assert client.response(bare=True).status == 200
        (found,) = created.do(cmd="take", mq="q", channel="c", acknowledge=True)["body"]
        offset = found["headers"]["offset"]
        created.do(cmd="nack", mq="q", channel="c", offset=offset)


def test_a_query_of_the_root_is_a_command(broker, http, created):
    client = http()
    client.send(b"GET /?cmd=pub&mq=q&body=h%C3%A9 HTTP/1.1\r\n\r\n")
    assert client.response().body == b"OK, PUB (mq=q)"
    assert broker.queue("q").get(timeout=60, group="c").body == "hé"


def test_browsers_find_an_icon(http):
    client = http()
    client.send(b"GET /favicon.ico HTTP/1.1\r\n\r\n")
    answer = client.response()
    assert (answer.status, answer.headers["content-type"]) == (200, "image/x-icon")
    assert answer.body.startswith(b"\x00\x00\x01\x00\x01\x00")
    assert "id" not in answer.headers


def test_a_ping_is_answered_if_it_can_be(http, created):
    created.say(cmd="ping")
    assert created.do(cmd="ping", id="7")["headers"] == {"id": "7"}
    assert http().query(cmd="ping").body == b"null"


def test_a_goodbye_is_said_to_websockets(ends):

    with Broker(":memory:") as broker:
        client = Ws(broker.listen(URL))
        ends.append(client)
        client.do(cmd="query")
    assert client.frame().data[:2] == b"\x03\xe9"  # 1001: going away


@pytest.mark.parametrize(
    "option", [{"memory": -1}, {"call_timeout": "soon"}, {"constant": "maybe"}, {"colour": "red"}]
)
def test_an_option_that_cannot_be_meant_is_refused(broker, option):
    with pytest.raises(InvalidOption):
        broker.listen(URL, transport=ZBUS, **option)


# --- create, query, remove -----------------------------------------------------------------------


def test_what_was_not_created_is_not_found_and_not_made(broker, created):
    assert created.do(cmd="take", mq="q", channel="other")["body"] == "Channel(other) Not Found"
    assert created.do(cmd="sub", mq="other", channel="c")["body"] == "MQ(other) Not Found"
    assert created.do("x", cmd="pub", mq="other")["status"] == 404
    assert [each.name for each in broker.stats().queues] == ["q", "@zbus"]
    assert [each.name for each in broker.queue("q").groups] == ["c"]


def test_a_query_tells_what_both_generations_told(created):
    created.do("x", cmd="pub", mq="q")
    created.do(cmd="sub", mq="q", channel="c", window=0, filter="a.*")
    created.do(cmd="create", mq="q", channel="c", channelMask=2, mqMask=1)
    found = created.do(cmd="query", mq="q")["body"]
    assert {name: found[name] for name in ("name", "type", "mask", "size", "messageDepth")} == {
        "name": "q", "type": "memory", "mask": 1, "size": 1, "messageDepth": 1,
    }  # fmt: skip
    assert found["consumerCount"] == 1
    assert found["creator"].startswith("/127.0.0.1:")
    assert found["createdAt"] <= found["lastPubTime"] <= found["lastSubTime"]
    assert found["channels"] == found["channelList"]
    (channel,) = found["channels"]
    assert (channel["name"], channel["mask"]) == ("c", 2)
    (subscription,) = channel["subscriptions"]
    assert (subscription["filters"], subscription["window"]) == (["a.*"], 0)
    assert created.do(cmd="query", mq="q", channel="c")["body"] == channel
    assert [each["name"] for each in created.do(cmd="query")["body"]] == ["q"]


def test_a_monitor_shows_queues_by_their_paths(broker, created, ends):
    client = Http(broker.listen(URL, transport=ZBUS, monitor=True))
    ends.append(client)
    created.do(cmd="sub", mq="q", channel="c", window=3)

    def get(path: str) -> Response:
        client.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return client.response()

    (found,) = json.loads(get("/").body)
    assert found["name"] == "q"
    (subscribed,) = found["channels"][0]["subscriptions"]
    assert (subscribed["channel"], subscribed["window"]) == ("c", 3)
    assert json.loads(get("/info?mq=q").body) == found
    assert [get(f"/info?mq={each}").status for each in ("other", "%40zbus")] == [404, 404]
    assert get("/info?mq=other").body == b"MQ(other) Not Found"
    assert [get(path).status for path in ("/info", "/q/x")] == [400, 400]
    created.do(cmd="create", mq="50%25 + é")
    assert json.loads(get("/info?mq=50%2525+%2B+%C3%A9").body)["name"] == "50%25 + é"
    assert get("/?cmd=query&mq=q").status == 200


def test_a_queue_in_memory_keeps_its_last_thousand_messages_only(broker, created):
    assert broker.queue("q").policy.max_length == 1000
    created.do(cmd="create", mq="disk", mqType="disk")
    created.do(cmd="create", mq="db", mqType="db")
    assert broker.queue("disk").policy.max_length is None
    assert broker.queue("db").policy.max_length is None
    assert (
        created.do(cmd="create", mq="x", mqType="Memory")["body"] == "mqType(Memory) Not Support"
    )


def test_a_queue_of_python_keeps_its_settings(broker, created):
    broker.queue("mine").put("x")
    assert created.do(cmd="create", mq="mine", channel="c", mqType="memory")["status"] == 200
    assert broker.queue("mine").policy.max_length is None
    assert created.do(cmd="take", mq="mine", channel="c")["body"][0]["body"] == "x"


def test_a_channel_begins_where_it_is_told(created):
    for n in range(3):
        created.do(n, cmd="pub", mq="q")

    def begin(channel: str, **headers: object) -> list[int]:
        created.do(cmd="create", mq="q", channel=channel, **headers)
        answer = created.do(cmd="take", mq="q", channel=channel, window=9)
        return [each["body"] for each in answer["body"]]

    first = created.do(cmd="take", mq="q", channel="c")["body"][0]
    assert begin("end", offset=-1) == []
    assert begin("later") == []
    assert begin("disk", mqType="disk") == [1, 2]
    assert begin("zero", offset="0") == [1, 2]
    second = int(first["headers"]["offset"]) + 1
    assert begin("third", offset=second + 1) == [2]
    assert begin("far", offset=second + 99) == []


def test_a_checksum_that_is_not_that_of_the_message_is_refused(created):
    created.do("x", cmd="pub", mq="q", id="one")
    created.do("y", cmd="pub", mq="q", id="two")
    offset = created.do(cmd="take", mq="q", channel="c")["body"][0]["headers"]["offset"]
    nxt = int(offset) + 1
    wrong = created.do(cmd="create", mq="q", channel="c", offset=nxt, checksum="one")
    assert wrong["status"] == 400
    right = created.do(cmd="create", mq="q", channel="c", offset=nxt, checksum="two")
    assert right["status"] == 200
    assert created.do(cmd="take", mq="q", channel="c")["body"][0]["body"] == "y"


def test_what_is_removed_is_gone_and_can_be_made_anew(broker, created):
    created.do("x", cmd="pub", mq="q")
    assert created.do(cmd="remove", mq="q")["status"] == 200
    for command in ("pub", "take", "sub", "query"):
        assert created.do("x", cmd=command, mq="q", channel="c")["status"] == 404
    assert created.do(cmd="query")["body"] == []
    assert broker.queue("q").stats().stored == 0
    assert created.do(cmd="create", mq="q", channel="c")["status"] == 200
    assert created.do(cmd="take", mq="q", channel="c")["status"] == 604


@pytest.mark.parametrize("mq", ["", "/a/b", "a b", "你好", "x\u0001y", "%41", "a\r\nb"])
def test_any_name_names_one_queue(created, mq):
    assert (
        created.do(cmd="create", mq=mq, channel=mq)["body"] == f"OK, CREATE (mq={mq},channel={mq})"
    )
    assert created.do("x", cmd="pub", mq=mq)["status"] == 200
    assert created.do(cmd="query", mq=mq)["body"]["name"] == mq
    (found,) = created.do(cmd="take", mq=mq, channel=mq)["body"]
    assert found["headers"]["mq"] == mq


def test_a_take_gets_as_many_as_it_wants_and_no_more(broker, created):
    for n in range(40):
        broker.queue("q").put(n)

    def take(window: object) -> list[int]:
        answer = created.do(cmd="take", mq="q", channel="c", window=window)
        return [each["body"] for each in answer["body"]]

    assert take(None) == [0]
    assert take("2") == [1, 2]
    assert take(30) == list(range(3, 33))
    assert take(99) == list(range(33, 40))
    assert created.do(cmd="take", mq="q", channel="c")["status"] == 604
    assert created.do(cmd="take", mq="q", channel="c", window=0)["status"] == 400
    assert broker.queue("q").stats().stored == 0


@pytest.mark.parametrize("name", ["mqMask", "channelMask", "offset", "window"])
def test_a_number_that_is_none_is_told(created, name):
    command = "take" if name == "window" else "create"
    answer = created.do(cmd=command, mq="q", channel="c", **{name: "abc"})
    assert (answer["status"], answer["body"]) == (500, 'For input string: "abc"')


def test_only_the_answer_to_a_whole_put_over_http_stands_for_an_acknowledgement(
    created, http, monkeypatch
):
    noted: list[bool] = []
    received = ZbusSession.received

    def noting(session: ZbusSession, data: bytes) -> None:
        received(session, data)
        noted.append(session.answers)

    monkeypatch.setattr(ZbusSession, "received", noting)
    put = b"POST / HTTP/1.1\r\ncmd: pub\r\nmq: q\r\nContent-Length: 1\r\n\r\nx"

    def has_grown(before: int) -> bool:
        return len(noted) > before

    def send(*pieces: bytes) -> list[bool]:
        noted.clear()
        client = http()
        for piece in pieces:
            before = len(noted)
            client.send(piece)
            eventually(partial(has_grown, before))
        client.response()
        return list(noted)

    assert send(put) == [True]
    assert send(put[:-1], put[-1:]) == [False, True]
    assert send(put + put[:-1]) == [False]  # the rest is waited for
    assert send(put.replace(b"cmd: pub", b"cmd: query")) == [False]
    silent = put.replace(b"mq: q", b"mq: q\r\nack: false")
    assert send(silent + put) == [True]
    assert send(put + silent) == [False]
    noted.clear()
    assert created.do(cmd="pub", mq="q")["status"] == 200
    assert not any(noted)
