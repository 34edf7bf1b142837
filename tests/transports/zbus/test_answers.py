"""What a zbus server writes, in both dialects."""

from __future__ import annotations

import json

import pytest

from embedq.payload import BYTES, JSON, TEXT
from embedq_transports.zbus.answers import (
    NOTHING,
    Answer,
    messages,
    sentence,
    shown,
    to_frame,
    to_response,
    told,
)
from tests.transports.zbus.frames_of import Reader
from tests.transports.zbus.vectors import HTTP, WEBSOCKET, unescaped

PLAIN = ("text/html; charset=utf8", "text/plain; charset=utf8")


def response(*lines: str, body: str = "") -> bytes:
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


@pytest.mark.parametrize(
    ("name", "status", "wire_id"),
    [
        ("H01", 200, "1"),
        ("H04", 400, "4"),
        ("H05", 500, "5"),
        ("H16", 404, "16"),
        ("H48", 403, "48"),
    ],
)
def test_a_sentence_over_http_is_that_of_the_original_as_plain_text(name, status, wire_id):
    (vector,) = [each for each in HTTP if each.name == name]
    wanted = unescaped(vector.came[0])
    text = wanted.split(b"\r\n\r\n")[1].decode()
    # The type is that of 2018: a text that repeats what a client said must be no HTML.
    wanted = wanted.replace(PLAIN[0].encode(), PLAIN[1].encode())
    assert to_response(told(status, text, wire_id)) == wanted


@pytest.mark.parametrize("name", ["W01", "W04", "W16", "W21", "W53"])
def test_a_sentence_on_a_websocket_is_that_of_the_original_as_plain_text(name):
    (vector,) = [each for each in WEBSOCKET if each.name == name]
    wanted = vector.came[0].removeprefix("[text] ").replace(*PLAIN)
    found = json.loads(wanted)
    answer = told(found["status"], found["body"], found["headers"].get("id"))
    (frame,) = Reader().feed(to_frame(answer))
    assert bytes(frame.data).decode() == wanted


def test_nothing_to_take_has_its_own_status_and_no_name_for_it():
    answer = shown([], "19", NOTHING, channel="c1", mq="q1")
    assert to_response(answer) == response(
        "HTTP/1.1 604 Unknown Status (604)",
        "channel: c1",
        "id: 19",
        "mq: q1",
        "Connection: Keep-Alive",
        "Content-Type: application/json; charset=utf8",
        "Content-Length: 2",
        body="[]",
    )


def test_a_push_over_http_is_a_response_with_the_status_200_or_its_own():
    headers = {"mq": "q", "channel": "c", "Tag": "t", "window": "1", "offset": "4", "id": "x"}
    push = Answer(headers, BYTES, b"\x00\xff")
    assert to_response(push).startswith(
        b"HTTP/1.1 200 OK\r\nchannel: c\r\nid: x\r\nmq: q\r\noffset"
    )
    assert to_response(push).endswith(
        b"Content-Type: application/octet-stream\r\nContent-Length: 2\r\n\r\n\x00\xff"
    )
    assert to_response(Answer({}, TEXT, b"", 418)).startswith(b"HTTP/1.1 418 I'm a Teapot\r\n")


@pytest.mark.parametrize("status", [100, 101, 199, 204, 304])
def test_a_status_that_means_another_frame_of_http_is_none_for_a_body(status):
    data = to_response(Answer({}, TEXT, b"body", status))
    assert data.startswith(b"HTTP/1.1 200 OK\r\n")
    assert data.endswith(b"Content-Length: 4\r\n\r\nbody")


def test_no_content_has_no_length():
    data = to_response(Answer({"id": "1"}, BYTES, b"", 204))
    assert data.startswith(b"HTTP/1.1 204 No Content\r\nid: 1\r\n")
    assert b"ontent-" not in data
    assert to_response(Answer({}, BYTES, b"", 304)).startswith(b"HTTP/1.1 304 Not Modified\r\n")
    assert to_response(Answer({}, BYTES, b"", 102)).startswith(b"HTTP/1.1 200 OK\r\n")


def test_messages_in_an_answer_have_five_members_each():
    found = messages([Answer({"b": 1, "a": None}, TEXT, b"x", None, "/u", "GET")])
    answer = shown(found, "1")
    assert answer.body == (
        b'[{"body":"x","headers":{"a":null,"b":1},"method":"GET","status":null,"url":"/u"}]'
    )


def test_head_has_the_length_and_not_the_body():
    answer = told(200, "hello", "1")
    assert to_response(answer, bare=True) + b"hello" == to_response(answer)


def test_the_last_answer_says_so():
    assert b"\r\nConnection: close\r\n" in to_response(told(200, "x", None), keep=False)


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: x", "a\nb", "a\x00b", "a\x7f"])
def test_no_header_value_makes_a_line_of_its_own(value):
    data = to_response(Answer({"x": value, "Content-Type": value}, TEXT, b""))
    assert len(data.split(b"\r\n")) == 7
    assert data.isascii()
    assert not {0, 0x7F} & set(data)


def test_what_http_cannot_say_in_its_head_is_left_out():
    headers = {
        "a b": "x", "a\r\nb": "x", "": "x", "ä": "x", "null": None, "list": ["1", None, 2],
        "dict": {"a": "é"}, "Content-Length": "999", "transfer-encoding": "chunked",
    }  # fmt: skip
    lines = to_response(Answer(headers, TEXT, b"x")).decode().split("\r\n")
    assert lines[1:6] == [
        'dict: {"a":"é"}', "list: 1", "list: 2", "Connection: Keep-Alive",
        "Content-Type: text/plain; charset=utf8",
    ]  # fmt: skip
    assert lines[6] == "Content-Length: 1"


@pytest.mark.parametrize("value", [["a", "b"], None, 5, "", "text/plain; charset=utf8"])
def test_there_is_one_content_type(value):
    data = to_response(Answer({"Content-Type": value, "content-type": ""}, TEXT, b"x"))
    assert data.lower().count(b"content-type") == 1
    assert b"\r\nContent-Type: text/plain; charset=utf8\r\n" in data


def test_a_large_frame_is_one_frame():
    (frame,) = Reader().feed(to_frame(Answer({}, TEXT, b"x" * 70_000)))
    assert json.loads(bytes(frame.data))["body"] == "x" * 70_000


def test_json_stays_as_it_was_written():
    (frame,) = Reader().feed(to_frame(Answer({}, JSON, b'{"z":1.50,"a":[null]}')))
    assert b'{"body":{"z":1.50,"a":[null]},' in bytes(frame.data)


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize(
    ("status", "text", "wire_id"),
    [
        (200, "OK, PUB (mq=q)", "7"),
        (404, "MQ(é\ud800) Not Found", "a\r\nb: c"),
        (604, "", "ü\x00"),
    ],
)
def test_a_sentence_is_what_the_long_way_makes_of_it(status, text, wire_id, keep):
    long_way = to_response(told(status, text, wire_id), keep=keep)
    assert sentence(status, text, wire_id, keep=keep) == long_way
