"""Signed messages on a listener that asks who clients are."""

from __future__ import annotations

import hashlib
import hmac
import json

import pytest

from embedq import Broker, TransportNotFound
from embedq.net import TokenFile, UsersFile
from embedq.net.auth import change_user
from embedq_transports import zbus
from embedq_transports.zbus import ZBUS
from tests.transports.zbus.conftest import URL
from tests.transports.zbus.ends import Http, Ws
from tests.transports.zbus.vectors import API_KEY, SECRET


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens"
    path.touch(0o600)
    path.write_text(f"{API_KEY} {SECRET}\nreader[consume] reading\n")
    return TokenFile(path)


@pytest.fixture
def guarded(broker, tokens, ends):
    def guarded(kind: type[Http] = Ws, **options: object):
        end = kind(broker.listen(URL, transport=ZBUS, auth=tokens, **options))
        ends.append(end)
        return end

    return guarded


def signed(message, key: str = API_KEY, secret: str = SECRET):
    """Sign as clients of 2018 do: the whole message, keys sorted, without blanks."""
    message["headers"]["apiKey"] = key
    text = json.dumps(message, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    made = hmac.new(secret.encode(), text.encode(), hashlib.sha256)
    message["headers"]["signature"] = made.hexdigest()
    return message


def ask(client: Ws, message) -> int:
    client.tell(message)
    return client.next()["status"]


def test_what_is_missing_is_told_in_the_original_s_order_and_without_an_id(guarded):
    client = guarded()
    client.tell({"headers": {"cmd": "query"}})
    answer = client.next()
    assert (answer["status"], answer["body"]) == (403, "missing apiKey in request")
    assert "id" not in answer["headers"]
    for headers, text in [
        ({"apiKey": "k"}, "missing signature in request"),
        ({"apiKey": "k", "signature": "00"}, "apiKey not exists"),
        ({"apiKey": API_KEY, "signature": "00"}, "signature mismatched"),
    ]:
        answer = client.do(cmd="query", id="1", **headers)
        assert (answer["status"], answer["body"], answer["headers"]["id"]) == (403, text, "1")


def test_a_signed_message_is_done_and_a_forged_one_is_not(broker, guarded):
    client = guarded()
    create = {"headers": {"cmd": "create", "mq": "q", "channel": "c", "id": "1"}}
    assert ask(client, signed(create)) == 200
    pub = signed({"headers": {"cmd": "pub", "mq": "q", "id": "2"}, "body": "hé😀"})
    assert ask(client, pub) == 200
    assert ask(client, {**pub, "body": "other"}) == 403
    assert [each.body.decode() for each in broker.queue("q").peek(9)] == ["hé😀"]


def test_every_message_is_asked_for_its_signature(guarded):
    client = guarded()
    assert ask(client, signed({"headers": {"cmd": "create", "mq": "q"}})) == 200
    assert ask(client, {"headers": {"cmd": "query", "mq": "q"}}) == 403


def test_a_ping_and_the_icon_need_none(guarded):
    client = guarded()
    assert client.do(cmd="ping", id="1")["status"] == 200
    browser = guarded(Http)
    browser.send(b"GET /favicon.ico HTTP/1.1\r\n\r\n")
    assert browser.response().status == 200


def test_rights_are_those_of_the_key(guarded):
    client = guarded()
    reader = ("reader", "reading")
    create = {"cmd": "create", "mq": "q", "channel": "c"}
    assert ask(client, signed({"headers": dict(create)}, *reader)) == 403
    assert ask(client, signed({"headers": dict(create)})) == 200
    take = {"cmd": "take", "mq": "q", "channel": "c"}
    assert ask(client, signed({"headers": dict(take)}, *reader)) == 604
    assert ask(client, signed({"headers": {"cmd": "pub", "mq": "q"}}, *reader)) == 403
    assert ask(client, signed({"headers": {"cmd": "remove", "mq": "q"}}, *reader)) == 403


def test_a_signature_of_nothing_counts_where_it_is_allowed(guarded):
    headers = {
        "cmd": "create",
        "mq": "q",
        "apiKey": API_KEY,
        "signFields": "",
        "signature": "2f6dc4f4f289b6cb92aef5b776f8d77f49720ca4aa89a588dde6a2c190208c2d",
    }
    assert ask(guarded(), {"headers": headers}) == 403
    assert ask(guarded(constant=True), {"headers": headers}) == 200


def test_pipelined_messages_are_done_in_order_whoever_sent_them(broker, guarded):
    client = guarded()
    client.tell(signed({"headers": {"cmd": "create", "mq": "q", "channel": "c", "id": "0"}}))
    for n in range(1, 20):
        client.tell(signed({"headers": {"cmd": "pub", "mq": "q", "id": str(n)}, "body": n}))
    assert [client.next()["headers"]["id"] for _ in range(20)] == [str(n) for n in range(20)]
    assert [each.body for each in broker.queue("q").peek(99)] == [b"%d" % n for n in range(1, 20)]


def test_hashed_passwords_cannot_check_signatures(tmp_path, ends):
    path = tmp_path / "users"
    change_user(path, "anna", b"secret")
    with Broker(":memory:") as broker:
        client = Ws(broker.listen(URL, auth=UsersFile(path)))
        ends.append(client)
        message = signed({"headers": {"cmd": "query"}}, "anna", "secret")
        client.tell(message)
        assert client.next()["body"] == "apiKey not exists"


@pytest.mark.parametrize(
    ("there", "told"),
    [
        ({"httptools"}, "websockets, which is not installed"),
        (set(), "httptools and websockets, which are not installed"),
    ],
)
def test_what_is_not_installed_is_named(broker, monkeypatch, there, told):
    monkeypatch.setattr(zbus, "find_spec", lambda name: name if name in there else None)
    with pytest.raises(TransportNotFound, match=told):
        broker.listen(URL, transport=ZBUS)
