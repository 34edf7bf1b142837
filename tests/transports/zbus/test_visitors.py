"""Pages of strangers in a browser do nothing here, whatever they call this machine."""

from __future__ import annotations

from typing import Any

import pytest

from embedq.net import TokenFile
from embedq_transports.zbus import ZBUS
from embedq_transports.zbus.visitors import Visitors
from tests.transports.zbus.conftest import URL
from tests.transports.zbus.ends import Http, Ws
from tests.transports.zbus.frames_of import UPGRADE

EVIL = {"Origin": "http://evil.com"}
#: What a picture or a link on another page sends: no origin.
PICTURE = {"Sec-Fetch-Site": "cross-site"}
PREFLIGHT = (
    b"OPTIONS / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://e.com\r\n"
    b"Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: cmd,mq\r\n\r\n"
)


@pytest.fixture
def asking(broker, ends):
    """Return a client of a listener with options, which asks with headers."""

    def asking(**options: Any) -> Http:
        ends.append(Http(broker.listen(URL, transport=ZBUS, **options)))
        return ends[-1]

    return asking


def ask(client: Http, headers: dict[str, str], host: str = "localhost") -> int:
    lines = [f"{name}: {value}" for name, value in {"Host": host, **headers}.items()]
    client.send(("\r\n".join(["GET /?cmd=create&mq=made HTTP/1.1", *lines]) + "\r\n\r\n").encode())
    return client.response().status


@pytest.mark.parametrize("headers", [EVIL, PICTURE, {"Origin": "null"}, {**EVIL, **PICTURE}])
def test_a_page_of_another_origin_makes_nothing_over_http(broker, asking, headers):
    client = asking()
    assert ask(client, headers) == 403
    assert broker.stats().queues == ()
    assert ask(client, {}) == 200  # the connection lives


@pytest.mark.parametrize("name", ["Origin", "Sec-Fetch-Site"])
def test_what_is_said_twice_is_said_by_nobody(asking, name):
    client = asking(cors="http://e.com")
    twice = f"{name}: http://e.com\r\n" * 2
    client.send(f"GET /?cmd=query HTTP/1.1\r\nHost: localhost\r\n{twice}\r\n".encode())
    assert client.response().status == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://localhost"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://LOCALHOST:80", "Sec-Fetch-Site": "same-origin"},
    ],
)
def test_a_page_of_this_origin_and_an_address_that_was_typed_may_come(asking, headers):
    assert ask(asking(), headers) == 200


def test_a_name_that_was_made_to_mean_this_machine_is_refused_unless_it_is_listed(asking):
    client = asking(hosts="mq.example,other")
    for host in (
        "evil.com",
        "evil.com:15555",
        "127.0.0.1.evil.com",
        "x" * 300,
        "",
        "[::1",
        "a:b:c",
    ):
        assert ask(client, {}, host) == 403
    for host in ("MQ.example.:15555", "other", "127.0.0.1:1", "[::1]:1", "[::1]", "10.0.0.1"):
        assert ask(client, {}, host) == 200
    assert ask(client, {"Origin": "http://evil.com:1"}, "evil.com:1") == 403
    client.send(b"GET /?cmd=create&mq=x HTTP/1.1\r\nHost: localhost\r\nHost: evil.com\r\n\r\n")
    assert client.response().status == 403


def test_any_name_will_do_where_that_is_said_or_messages_are_signed(asking, tmp_path):
    assert ask(asking(hosts="*"), {}, "evil.com") == 200
    tokens = tmp_path / "tokens"
    tokens.touch(0o600)
    tokens.write_text("key secret\n")
    client = asking(auth=TokenFile(tokens))
    client.request(host="any.example", cmd="query")
    assert client.response().body == b"missing apiKey in request"


def test_a_page_that_is_named_sends_over_http_and_reads_answers(asking):
    client = asking(cors="http://e.com,http://f.com")
    client.request(Origin="http://e.com", cmd="create", mq="made")
    answer = client.response()
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == "http://e.com"
    client.send(PREFLIGHT)
    answer = client.response()
    assert answer.status == 200
    assert answer.headers["access-control-allow-headers"] == "cmd,mq"
    client.request(cmd="query", mq="made", **EVIL)
    answer = client.response()
    assert answer.status == 403
    assert "access-control-allow-origin" not in answer.headers
    assert "cors" in answer.body.decode()


def test_a_page_that_is_named_reads_what_is_wrong_with_its_form(asking):
    client = asking(cors="http://e.com")
    form = {"Origin": "http://e.com", "Content-Type": "multipart/form-data"}
    answer = client.query(b"x", **form)
    assert answer.status == 400
    assert answer.headers["access-control-allow-origin"] == "http://e.com"


def test_pages_that_may_send_over_http_may_not_open_a_websocket_and_the_other_way_round(broker):
    upgrade = UPGRADE.replace(b"Host:", b"Origin: http://e.com\r\nHost:")
    client = Http(broker.listen(URL, transport=ZBUS, cors="http://e.com"))
    client.send(upgrade)
    assert client.response().status == 403
    client.close()
    listener = broker.listen(URL, transport=ZBUS, origins="http://e.com")
    Ws(listener, upgrade).close()
    client = Http(listener)
    assert ask(client, {"Origin": "http://e.com"}) == 403
    assert listener.stats.refused == {"page": 1}
    client.close()


def test_programs_that_say_nothing_of_pages_are_left_alone():
    own = Visitors(hosts=frozenset())
    assert own.refuses(None, None, None, websocket=False) is None
    assert own.refuses("localhost", None, None, websocket=True) is None
