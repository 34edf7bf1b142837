"""The zbus wire: what bytes mean in both dialects, at any cut, and what is refused."""

from __future__ import annotations

import random
import tracemalloc
import weakref
from typing import Any

import pytest
from websockets.frames import Opcode

from embedq.payload import BYTES, TEXT
from embedq_transports.zbus.limits import ZbusLimits
from embedq_transports.zbus.message import (
    Came,
    Ended,
    Fault,
    Malformed,
    Message,
    Opened,
    Write,
)
from embedq_transports.zbus.wire import ServerWire
from tests.transports import wire_checks
from tests.transports.zbus.frames_of import UPGRADE, frame, message
from tests.transports.zbus.vectors import HTTP, unescaped

SMALL = ZbusLimits(head_bytes=400, headers=8, body_bytes=100, frame_bytes=300, fragments=5)
CREATE = (
    b"POST / HTTP/1.1\r\nHost: x\r\nCMD: create\r\nmq: q1\r\nid: 1\r\nContent-Length: 0\r\n\r\n"
)
PUB = (
    b"POST /a%20b?c=d+e HTTP/1.1\r\ncmd: pub\r\nContent-Type: text/plain\r\n"
    b"Content-Length: 2\r\n\r\nhi"
)
CHUNKED = (
    b"PUT / HTTP/1.1\r\ncmd: pub\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\ncmd: remove\r\n\r\n"
)


def fed(data: bytes, wire: ServerWire | None = None) -> list[Any]:
    return list((wire or ServerWire()).feed(data))


def only(data: bytes, wire: ServerWire | None = None) -> Message:
    (event,) = (wire or ServerWire()).feed(data)
    assert isinstance(event, Came)
    return event.message


def fault(events) -> Fault:
    assert isinstance(events[-1], Fault), events
    return events[-1]


# --- golden vectors ------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", HTTP, ids=lambda each: each.name)
def test_each_recorded_request_is_read(vector):
    data = b"".join(unescaped(line) for line in vector.sent)
    events = fed(data)
    if vector.name == "H40":  # the original answered 404 and went on: a damaged request is refused
        assert fault(events).answer.startswith(b"HTTP/1.1 400 Bad Request\r\nConnection: close")
        return
    assert all(isinstance(each, Came) for each in events)
    for each, part in zip(events, data.split(b"\r\n\r\n"), strict=False):
        command = each.message.text("cmd")
        if b"\r\ncmd: " in part:
            assert part.count(f"\r\ncmd: {command}\r\n".encode()) or part.endswith(
                f"\r\ncmd: {command}".encode()
            )
        else:
            assert command is None


# --- HTTP ----------------------------------------------------------------------------------------


def test_headers_are_members_of_the_message_and_their_names_have_no_case():
    found = only(CREATE)
    assert found.headers["CMD"] == "create"
    assert found.text("cmd") == "create"
    assert (found.text("mq"), found.text("id"), found.text("channel")) == ("q1", "1", None)
    assert (found.url, found.method, found.status) == ("/", "POST", None)
    assert (found.kind, found.body) == (BYTES, b"")


def test_path_and_query_are_decoded_and_kept_beside_a_command():
    found = only(PUB)
    assert found.url == "/a b?c=d e"
    assert (found.kind, found.body) == (TEXT, b"hi")


def test_the_query_of_the_root_is_a_command_if_no_header_is_one():
    found = only(b"GET /?cmd=pub&MQ=q%201&body=h%C3%A9 HTTP/1.1\r\nmq: other\r\n\r\n")
    assert (found.text("cmd"), found.text("mq")) == ("pub", "q 1")
    assert (found.kind, found.body) == (TEXT, "hé".encode())
    assert found.url == "/"  # what the query said are headers now
    assert only(b"GET /?cmd=pub HTTP/1.1\r\ncmd: query\r\n\r\n").text("cmd") == "query"
    assert only(b"GET /x?cmd=pub HTTP/1.1\r\n\r\n").text("cmd") is None
    assert only(b"GET /?a=b HTTP/1.1\r\n\r\n").text("a") is None


def test_a_target_may_name_the_host():
    found = only(b"GET http://h:1/?cmd=pub&mq=q HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (found.text("cmd"), found.text("mq"), found.text("host")) == ("pub", "q", "h:1")
    found = only(b"GET HTTP://h/a?b HTTP/1.1\r\n\r\n")
    assert (found.url, found.text("host")) == ("/a?b", "h")
    assert only(b"GET http://h HTTP/1.1\r\n\r\n").url == "/"
    assert only(b"GET http://h?cmd=pub HTTP/1.1\r\n\r\n").text("cmd") == "pub"
    assert only(b"OPTIONS * HTTP/1.1\r\n\r\n").url == "*"


def test_a_header_that_comes_twice_is_a_list():
    found = only(b"GET / HTTP/1.1\r\nX-Dup: 1\r\nx-dup: 2\r\nX-DUP: 3\r\n\r\n")
    assert found.headers == {"X-Dup": ["1", "2", "3"]}
    assert (
        only(b"GET / HTTP/1.1\r\ncmd: query\r\ncmd: pub\r\n\r\n").text("cmd") == '["query","pub"]'
    )


def test_names_are_utf8_or_latin_1():
    assert only("GET / HTTP/1.1\r\nmq: 你好\r\n\r\n".encode()).text("mq") == "你好"
    assert only(b"GET / HTTP/1.1\r\nmq: caf\xe9\r\n\r\n").text("mq") == "café"


def test_a_body_in_chunks_is_whole_and_what_stands_behind_it_is_no_header():
    found = only(CHUNKED)
    assert (found.text("cmd"), found.body) == ("pub", b"abcde")


def test_a_body_in_tiny_chunks_takes_no_more_memory_than_it_has():
    wire, count = ServerWire(), 20_000
    assert wire.feed(CHUNKED.partition(b"3\r\n")[0]) == []
    tracemalloc.start()
    try:
        for _ in range(count // 100):
            assert wire.feed(b"2\r\nab\r\n" * 100) == []
        now, _peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert now < 4 * 2 * count
    assert only(b"0\r\n\r\n", wire).body == b"ab" * count


def test_a_client_that_waits_for_leave_to_send_its_body_gets_it():
    wire = ServerWire()
    head = b"POST / HTTP/1.1\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n"
    assert wire.feed(head) == [Write(b"HTTP/1.1 100 Continue\r\n\r\n")]
    assert wire.pending
    assert only(b"hi", wire).body == b"hi"
    assert not wire.pending


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.0\r\n",
        b"GET / HTTP/1.1\r\nConnection: close\r\n",
        b"GET / HTTP/1.1\r\nconnection: Close\r\n",
    ],
)
def test_who_wants_one_answer_is_believed(head):
    wire = ServerWire()
    (event,) = fed(head + b"\r\n" + CREATE, wire)
    assert event.last
    assert wire.closed
    assert wire.feed(CREATE) == []


def test_a_client_of_http_1_0_may_keep_its_connection():
    first, second = fed(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" * 2)
    assert not first.last
    assert not second.last


def test_head_is_told_apart():
    head, get = fed(b"HEAD / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n")
    assert (head.bare, get.bare) == (True, False)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 10,
        b"GET / HTTP/1.1\r\n" + b"a: %b\r\n" % (b"b" * 100) * 5,
        b"GET / HTTP/1.1\r\nmq: " + b"a" * 801,
        b"GET /" + b"a" * 801,
    ],
)
@pytest.mark.parametrize("size", [1, 7, 200])
def test_a_head_that_grows_too_large_is_refused_before_it_ends(data, size):
    wire = ServerWire(SMALL)
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    events = [event for piece in pieces for event in wire.feed(piece)]
    (found,) = events
    assert isinstance(found, Fault)
    assert found.answer.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"hello world\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nmq: a\x00b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nmq: a\r\n b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nm q: a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nmq : a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nmq: a\n\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: abc\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 0x1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
        (
            b"GET / HTTP/1.1\r\nUpgrade: h2c\r\nConnection: upgrade\r\nContent-Length: 1\r\n\r\nx",
            501,
        ),
        (b"POST / HTTP/1.1\r\nContent-Length: 101\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + b"x" * 101, 413),
        (b"GET /" + b"a" * 400 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nmq: " + b"a" * 400 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 9 + b"\r\n", 431),
    ],
)
def test_a_damaged_request_is_refused_and_no_command_runs_from_it(data, status):
    wire = ServerWire(SMALL)
    events = wire.feed(CREATE + data + CREATE)
    assert [type(each) for each in events] == [Came, Fault]
    assert fault(events).answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"\r\nConnection: close\r\n" in fault(events).answer
    assert wire.closed
    assert not wire.pending
    assert wire.feed(CREATE) == wire.end() == []


def test_a_header_that_never_ends_is_refused_at_its_bound():
    wire = ServerWire(SMALL)
    fed = 0
    events = wire.feed(b"GET / HTTP/1.1\r\nmq: ")
    while not events:
        events = wire.feed(b"a" * 100)
        fed += 100
        assert fed <= 600
    assert fault(events).code == "too_large"


def test_a_trailer_that_never_ends_is_refused_at_its_bound():
    wire = ServerWire(SMALL)
    events = wire.feed(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
    for _ in range(100):
        events = events or wire.feed(b"name: value\r\n")
    assert fault(events).code == "too_large"


def test_a_form_that_is_none_is_answered_with_its_id_and_the_connection_lives():
    data = (
        b"POST / HTTP/1.1\r\nid: 7\r\nContent-Type: multipart/form-data\r\n"
        b"Content-Length: 1\r\n\r\nx"
    )
    malformed, came = fed(data + CREATE)
    assert malformed == Malformed("a multipart body without a boundary", "7")
    assert came.message.text("cmd") == "create"


def test_an_end_inside_a_request_is_no_request():
    for cut in range(1, len(PUB)):
        wire = ServerWire()
        assert wire.feed(PUB[:cut]) == []
        assert wire.pending
        assert fault(wire.end()).code == "truncated"
    assert ServerWire().end() == []


# --- any cut, any damage -------------------------------------------------------------------------

SEEDS = [
    CREATE,
    PUB,
    CHUNKED,
    CREATE + PUB + CHUNKED,
    b"GET / HTTP/1.0\r\n\r\n",
    b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
    UPGRADE + message(headers={"cmd": "pub"}, body="héllo") + frame(b"", Opcode.PING),
    UPGRADE + frame("[1]") + frame('{"a"', fin=False) + frame(":1}", Opcode.CONT),
    PUB + UPGRADE + message(body="x" * 130) + frame(b"\x03\xe8", Opcode.CLOSE),
    UPGRADE + b"\x81\x02{}",
]


def joined(events):
    """Pongs that are owed at once are written at once: only their bytes count."""
    out: list[object] = []
    for event in events:
        if isinstance(event, Write) and out and isinstance(out[-1], Write):
            out[-1] = Write(out[-1].data + event.data)
        else:
            out.append(event)
    return out


@pytest.mark.parametrize("data", SEEDS, ids=range(len(SEEDS)))
def test_the_events_do_not_depend_on_the_cuts(data):
    whole = wire_checks.whole(ServerWire, data)
    for cut in range(len(data) + 1):
        assert joined(wire_checks.split(ServerWire, data, [cut])) == joined(whole)
    assert joined(wire_checks.split(ServerWire, data, range(len(data)))) == joined(whole)


def test_damage_gives_events_and_nothing_else():
    rng = random.Random(6)
    for data in wire_checks.mutated(SEEDS, 3_000, 6):
        for event in wire_checks.split(
            lambda: ServerWire(SMALL), data, wire_checks.cuts_of(data, rng)
        ):
            assert isinstance(event, Came | Write | Opened | Malformed | Fault | Ended)


@pytest.mark.parametrize("data", [b"", PUB[:-1], UPGRADE + frame("{}")[:-1]])
def test_a_wire_that_is_over_is_freed_with_what_was_incomplete(data):
    wire = ServerWire(SMALL)
    wire.feed(data)
    gone = [weakref.ref(each) for each in (wire, wire._http) if each is not None]
    with wire_checks.no_collector():
        wire.forget()
        assert not wire.pending
        assert wire.feed(CREATE) == []
        del wire
        assert not any(each() for each in gone)
