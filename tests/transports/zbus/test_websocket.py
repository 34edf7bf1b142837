"""The zbus wire as a WebSocket: the handshake, messages in frames, what ends a connection."""

from __future__ import annotations

import json
from typing import Any

import pytest
from websockets.frames import Opcode

from embedq.payload import JSON
from embedq_transports.zbus.limits import ZbusLimits
from embedq_transports.zbus.message import Came, Ended, Fault, Malformed, Message, Opened, Write
from embedq_transports.zbus.visitors import Visitors
from embedq_transports.zbus.wire import ServerWire
from tests.transports.zbus.frames_of import UPGRADE, frame, message
from tests.transports.zbus.vectors import WEBSOCKET

SMALL = ZbusLimits(frame_bytes=300, fragments=5)
CREATE = (
    b"POST / HTTP/1.1\r\nHost: x\r\nCMD: create\r\nmq: q1\r\nid: 1\r\nContent-Length: 0\r\n\r\n"
)


def fed(data: bytes, wire: ServerWire | None = None) -> list[Any]:
    return list((wire or ServerWire()).feed(data))


def only(data: bytes, wire: ServerWire | None = None) -> Message:
    (event,) = (wire or ServerWire()).feed(data)
    assert isinstance(event, Came)
    return event.message


def opened(limits: ZbusLimits = SMALL, **options) -> ServerWire:
    wire = ServerWire(limits, **options)
    (event,) = wire.feed(UPGRADE)
    assert isinstance(event, Opened)
    return wire


def fault(events) -> Fault:
    assert isinstance(events[-1], Fault), events
    return events[-1]


@pytest.mark.parametrize("vector", WEBSOCKET, ids=lambda each: each.name)
def test_each_recorded_websocket_message_is_read(vector):
    for line in vector.sent:
        kind, _, payload = line.partition(" ")
        if kind not in ("[text]", "[binary]"):
            continue
        opcode = Opcode.TEXT if kind == "[text]" else Opcode.BINARY
        (event,) = fed(frame(payload, opcode), opened())
        if vector.name in ("W56", "W57", "W58", "W60"):  # the original closed: see the document
            assert event == Malformed("json format required")
        else:
            sent = json.loads(payload)
            assert event.message.headers == sent.get("headers", {})
            assert event.message.url == sent.get("url")


def test_any_path_opens_a_websocket_in_the_answer_that_clients_know():
    (event,) = fed(UPGRADE)
    assert event == Opened(
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
        b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
    )


def test_extensions_and_subprotocols_are_offered_in_vain():
    offer = b"Sec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
    (event,) = fed(UPGRADE[:-2] + offer)
    assert b"extensions" not in event.data
    assert b"protocol" not in event.data


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        (b"Version: 13", b"Version: 8", b"426 Upgrade Required"),
        (b"Sec-WebSocket-Key: ", b"X-Key: ", b"400 Bad Request"),
        (b"GET ", b"POST ", b"400 Bad Request"),
    ],
)
def test_a_handshake_that_is_none_is_refused(old, new, status):
    events = fed(UPGRADE.replace(old, new))
    assert fault(events).answer.startswith(b"HTTP/1.1 " + status)


def test_a_wish_for_another_protocol_is_not_heard():
    data = b"GET /x HTTP/1.1\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n\r\n"
    first, second = fed(data + CREATE)
    assert first.message.url == "/x"
    assert second.message.text("cmd") == "create"


def test_pages_of_other_origins_are_refused_unless_they_are_named():
    own = UPGRADE.replace(b"Host:", b"Origin: http://127.0.0.1\r\nHost:")
    evil = UPGRADE.replace(b"Host:", b"Origin: http://evil\r\nHost:")
    older = UPGRADE.replace(b"Host:", b"Sec-WebSocket-Origin: http://evil\r\nHost:")
    good = UPGRADE.replace(b"Host:", b"Origin: http://good\r\nHost:")

    def picky() -> ServerWire:
        return ServerWire(visitors=Visitors(frozenset({"http://good"})))

    for refused in (evil, older):
        assert fault(picky().feed(refused)).answer.startswith(b"HTTP/1.1 403")
    for welcome in (own, good, UPGRADE):  # the last one is of no page at all
        assert isinstance(picky().feed(welcome)[0], Opened)
    assert isinstance(ServerWire(visitors=Visitors(frozenset({"*"}))).feed(evil)[0], Opened)


def test_a_message_has_five_members_and_all_others_are_passed_over():
    data = message(
        url="/u", method="GET", status=201, headers={"Cmd": "pub", "id": 7}, body=[1], x=1
    )
    found = only(data, opened())
    assert found.headers == {"Cmd": "pub", "id": 7}
    assert (found.text("cmd"), found.text("id")) == ("pub", "7")
    assert (found.url, found.method, found.status) == ("/u", "GET", 201)
    assert (found.kind, found.body) == (JSON, b"[1]")
    assert found.raw is None


def test_what_is_signed_is_kept_where_signatures_are_checked():
    raw = '{"headers":{},"body":1.0}'
    assert only(frame(raw), opened(keep_raw=True)).raw == raw.encode()


def test_a_message_may_come_in_frames_with_pings_between():
    wire = opened()
    data = frame('{"headers":', fin=False) + frame(b"hey", Opcode.PING)
    (pong,) = wire.feed(data)
    assert pong == Write(b"\x8a\x03hey")
    assert wire.pending
    assert only(frame('{"mq":"q"}}', Opcode.CONT), wire).text("mq") == "q"
    assert not wire.pending


@pytest.mark.parametrize(
    "payload",
    [
        "not json",
        "[1]",
        "null",
        "",
        '{"headers":{}} x',
        '{"headers":[1]}',
        '{"headers":"x"}',
        '{"url":1}',
        '{"method":[]}',
        '{"status":{}}',
        b'{"headers":{"mq":"\xff"}}',
        '{"body":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"headers":{"a":' + "[" * 100_000 + "]" * 100_000 + "}}",
    ],
    ids=range(13),
)
def test_what_is_no_message_is_told_and_the_connection_lives(payload):
    wire = opened(ZbusLimits())
    assert wire.feed(frame(payload)) == [Malformed("json format required")]
    assert only(message(headers={"mq": "q"}), wire).text("mq") == "q"


@pytest.mark.parametrize("value", ["[" * 33 + "]" * 33, '{"a":' * 33 + "1" + "}" * 33, "1" * 30])
def test_a_header_that_could_not_be_written_again_is_refused(value):
    (event,) = fed(frame('{"headers":{"x":' + value + "}}"), opened())
    assert isinstance(event, Malformed)
    assert only(frame('{"headers":{"x":' + "[" * 32 + "]" * 32 + "}}"), opened()).headers["x"]


def test_half_a_character_is_none():
    assert fed(frame('{"headers":{"mq":"\\ud800"}}'), opened()) == [Malformed()]


def test_headers_may_be_missing_or_null():
    assert only(frame("{}"), opened()).headers == {}
    assert only(frame('{"headers":null}'), opened()).headers == {}


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x81\x02{}", b"\x03\xea"),  # not masked: 1002
        (b"\xc1\x82abcd{}", b"\x03\xea"),  # compressed, which nobody has agreed to
        (b"\x83\x80abcd", b"\x03\xea"),  # an opcode that does not exist
        (frame("x", Opcode.CONT), b"\x03\xea"),  # nothing to continue
        (b"\x81\xfe\x01\x2dabcd", b"\x03\xf1"),  # 301 bytes: 1009, before they come
        (b"\x81\xff" + b"\x7f" + b"\xff" * 7 + b"abcd", b"\x03\xf1"),
        (frame("a" * 200, fin=False) + frame("a" * 101, Opcode.CONT), b"\x03\xf1"),
        (frame("a", fin=False) + frame("", Opcode.CONT, fin=False) * 5, b"\x03\xf1"),
        (b"\x89\xfe\x00\x7eabcd" + b"a" * 126, b"\x03\xea"),  # too long for a ping
    ],
    ids=range(9),
)
def test_a_frame_that_breaks_the_protocol_ends_its_connection_with_a_code(data, code):
    wire = opened()
    found = fault(wire.feed(data + message(headers={})))
    assert found.answer[:1] == b"\x88"
    assert found.answer[2:4] == code
    assert wire.closed
    assert wire.feed(message(headers={})) == wire.end() == []


def test_a_close_is_echoed():
    wire = opened()
    assert wire.feed(frame(b"\x03\xe8", Opcode.CLOSE)) == [Ended(b"\x88\x02\x03\xe8")]
    assert wire.closed


def test_what_comes_before_a_fault_counts():
    first, second = opened().feed(message(headers={"mq": "q"}) + b"\x81\x02{}")
    assert isinstance(first, Came)
    assert isinstance(second, Fault)
