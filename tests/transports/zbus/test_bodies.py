"""Bodies: what each dialect brings, and what each gets of it."""

from __future__ import annotations

import json

import msgspec
import pytest

from embedq.payload import BYTES, JSON, TEXT
from embedq_transports.zbus.bodies import (
    BadForm,
    content_type_of,
    from_http,
    from_json,
    to_http,
    to_json,
)
from embedq_transports.zbus.limits import ZBUS_LIMITS, ZbusLimits

PARTS = (
    b'preamble\r\n--B\r\nContent-Disposition: form-data; name="a"\r\n\r\nx\r\n--B\r\n'
    b'content-disposition: form-data; name="a"\r\n\r\ny\r\n--B\r\n'
    b'Content-Disposition: form-data; name="f"; filename="n.bin"\r\n'
    b"Content-Type: image/png\r\n\r\n\x00\xff\r\n--x\r\n--B--\r\nepilogue"
)


def http(data: bytes, content_type: str | None) -> tuple[int, bytes]:
    return from_http(data, content_type, ZBUS_LIMITS)


@pytest.mark.parametrize(
    ("data", "content_type", "found"),
    [
        ("héllo 你好".encode(), "text/plain; charset=utf8", (TEXT, "héllo 你好".encode())),
        ("é".encode("latin-1"), "TEXT/html; charset=ISO-8859-1", (TEXT, "é".encode())),
        ("你好".encode("gbk"), 'text/plain; charset="gbk"', (TEXT, "你好".encode())),
        (b'{"a": 1}', "application/json", (TEXT, b'{"a": 1}')),
        (b"{no json", "application/json; charset=utf8", (TEXT, b"{no json")),
        (b"\x00\xff\x80A", "application/octet-stream", (BYTES, b"\x00\xff\x80A")),
        (b"hoho", None, (BYTES, b"hoho")),
        (b"hoho", "", (BYTES, b"hoho")),
        (b"", "text/plain", (BYTES, b"")),
    ],
)
def test_a_body_over_http_is_what_its_content_type_says(data, content_type, found):
    assert http(data, content_type) == found


def test_a_form_is_an_object_of_attributes():
    kind, body = http(b"a=1&b=x%20y&b=+z&c=", "application/x-www-form-urlencoded")
    assert kind == JSON
    wanted = {"attributes": {"a": "1", "b": ["x y", " z"], "c": ""}, "files": {}}
    assert json.loads(body) == wanted


def test_a_multipart_form_is_an_object_with_files_in_base64():
    kind, body = http(PARTS, "multipart/form-data; boundary=B")
    assert kind == JSON
    entry = {"fileName": "n.bin", "contentType": "image/png", "data": "AP8NCi0teA=="}
    assert json.loads(body) == {"attributes": {"a": ["x", "y"]}, "files": {"f": [entry]}}


@pytest.mark.parametrize(
    ("data", "content_type"),
    [
        (b"\xff", "text/plain"),
        (b"x", "text/plain; charset=no-such"),
        (b"x", "text/plain; charset=rot13"),
        (b"x", "text/plain; charset=base64"),
        (PARTS, "multipart/form-data"),
        (PARTS, "multipart/form-data; boundary=C"),
        (PARTS[:-12], "multipart/form-data; boundary=B"),
        (b"--B\r\nno end of head\r\n--B--", "multipart/form-data; boundary=B"),
        (b"--B\r\nX: 1\r\n\r\nno name\r\n--B--", "multipart/form-data; boundary=B"),
        (b"--B\r\n" + b"X: 1\r\n" * 20 + b"\r\nx\r\n--B--", "multipart/form-data; boundary=B"),
    ],
)
def test_a_body_that_is_not_its_content_type_is_refused(data, content_type):
    with pytest.raises(BadForm):
        http(data, content_type)


def test_forms_of_too_many_parts_are_refused_before_they_are_kept():
    limits = ZbusLimits(form_parts=3)
    few, many = b"a&b&c", b"a&b&c&d"
    assert from_http(few, "application/x-www-form-urlencoded", limits)[0] == JSON
    with pytest.raises(BadForm):
        from_http(many, "application/x-www-form-urlencoded", limits)
    part = b'--B\r\nContent-Disposition: form-data; name="a"\r\n\r\nx\r\n'
    assert from_http(part * 3 + b"--B--", "multipart/form-data; boundary=B", limits)[0] == JSON
    with pytest.raises(BadForm):
        from_http(part * 4 + b"--B--", "multipart/form-data; boundary=B", limits)


@pytest.mark.parametrize(
    ("value", "content_type", "found"),
    [
        ('"test"', None, (TEXT, b"test")),  # it would be base64: nobody wants three bytes of it
        ('"dGVzdA=="', None, (TEXT, b"dGVzdA==")),
        ('"dGVzdA=="', "text/plain", (TEXT, b"dGVzdA==")),
        ('"dGVzdA=="', "application/octet-stream", (BYTES, b"test")),
        ('"dGVzdA"', "application/octet-stream", (TEXT, b"dGVzdA")),  # not strict
        ('"dG Vz"', "application/octet-stream", (TEXT, b"dG Vz")),
        ('"5"', "application/json", (TEXT, b"5")),
        ('"h\\u00e9"', None, (TEXT, "hé".encode())),
        ('{"b":[1,2.50,null],"a":1e5}', None, (JSON, b'{"b":[1,2.50,null],"a":1e5}')),
        ("5", "text/plain", (JSON, b"5")),
        ("false", None, (JSON, b"false")),
        ("null", None, (BYTES, b"")),
        ("", None, (BYTES, b"")),
        ('""', None, (JSON, b'""')),
    ],
)
def test_a_body_of_a_websocket_is_text_json_or_bytes(value, content_type, found):
    assert from_json(msgspec.Raw(value.encode()), content_type) == found
    if content_type is None and value:
        assert json.loads(bytes(to_json(*found))) == json.loads(value)


@pytest.mark.parametrize(
    ("kind", "body", "value"),
    [
        (BYTES, b"\x00\xff\x80A", "AP+AQQ=="),
        (BYTES, b"hoho", "aG9obw=="),
        (BYTES, b"", None),
        (TEXT, b'{"a": 1}', '{"a": 1}'),
        (TEXT, b"", ""),
        (TEXT, b"\xff", "/w=="),  # what says that it is text, and is none
        (JSON, b'{"a":[1]}', {"a": [1]}),
    ],
)
def test_a_websocket_gets_bytes_as_base64_and_all_else_as_it_is(kind, body, value):
    assert json.loads(bytes(to_json(kind, body))) == value


@pytest.mark.parametrize(
    ("kind", "body", "content_type", "found"),
    [
        (BYTES, b"\x00\xff", "application/octet-stream", b"\x00\xff"),
        (TEXT, "héllo".encode(), None, "héllo".encode()),
        (TEXT, "你好".encode(), "text/plain; charset=gbk", "你好".encode("gbk")),
        (TEXT, "你".encode(), "text/plain; charset=latin-1", "你".encode()),
        (TEXT, "é".encode(), "text/plain; charset=no-such", "é".encode()),
        (TEXT, b"hello", "application/json", b'"hello"'),
        (TEXT, b'{"a": 1}', "application/json", b'{"a": 1}'),
        (JSON, b'{"a":1}', None, b'{"a":1}'),
    ],
)
def test_http_gets_bytes_as_they_are_and_text_in_its_charset(kind, body, content_type, found):
    assert to_http(kind, body, content_type) == found


def test_a_content_type_is_read_whatever_stands_in_it():
    assert content_type_of('Text/Plain ; Charset="a;b"; x') == (
        "text/plain",
        {"charset": "a;b", "x": ""},
    )
    assert content_type_of("a/b;\r\nc=d")[0] == "a/b"
    assert content_type_of(None) == ("", {})
