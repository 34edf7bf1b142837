"""Counted strings: every boundary of the specification, over-long forms, what is refused."""

import pytest
from hypothesis import given, strategies as st

from embedq_transports.mmqp.strings import (
    BadField,
    Code,
    Span,
    encode_size,
    encode_string,
    find_string,
    read_utf8,
)


@pytest.mark.parametrize(("size", "text"), [
    (0, "00"), (1, "0101"), (255, "01ff"), (256, "020100"), (63_456, "02f7e0"),
    (65_535, "02ffff"), (65_536, "03010000"), (65_537, "03010001"), (16_777_216, "0401000000"),
])  # fmt: skip
def test_a_length_is_written_in_the_fewest_bytes(size, text):
    assert encode_size(size).hex() == text
    data = bytes.fromhex(text)
    assert find_string(data, 0, size, "x") == Span(len(data), len(data) + size, shortest=True)


@pytest.mark.parametrize("text", ["020006", "0800 0000 0000 0000 06", "03000006"])
def test_a_length_in_more_bytes_than_needed_is_read(text):
    data = bytes.fromhex(text) + b"abcdef"
    span = find_string(data, 0, 6, "x")
    assert span is not None
    assert not span.shortest
    assert read_utf8(data, span, "x") == b"abcdef"


def test_one_zero_byte_of_length_is_an_empty_string():
    assert find_string(b"\x01\x00", 0, 9, "x") == Span(2, 2, shortest=False)


@pytest.mark.parametrize("count", [9, 48, 255])
def test_a_length_of_nine_bytes_is_refused_at_its_first(count):
    with pytest.raises(BadField, match=f"has {count} bytes, more than 8") as caught:
        find_string(bytes((count,)), 0, 9, "x")
    assert caught.value.code == Code.BAD_REQUEST


def test_a_string_at_the_limit_is_found_and_one_more_is_refused_before_it_comes():
    assert find_string(b"\x01\x09", 0, 9, "x")
    with pytest.raises(BadField, match="the x has 10 bytes, more than 9") as caught:
        find_string(b"\x01\x0a", 0, 9, "x")
    assert caught.value.code == Code.TOO_LARGE
    with pytest.raises(BadField):
        find_string(b"\x08" + b"\xff" * 8, 0, 1 << 40, "x")


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x08\0\0\0\0\0\0\0"])
def test_an_unfinished_length_is_waited_for(data):
    assert find_string(data, 0, 9, "x") is None


def test_bytes_that_are_not_utf8_are_refused_by_name():
    with pytest.raises(BadField, match="the x is not UTF-8 at byte 1"):
        read_utf8(bytearray(b"a\xff"), Span(0, 2, shortest=True), "x")


@given(st.text(max_size=300), st.binary(max_size=5))
def test_a_string_is_read_as_it_was_written(text, behind):
    data = encode_string(text.encode()) + behind
    span = find_string(data, 0, 2_000, "x")
    assert span is not None
    assert read_utf8(data, span, "x") == text.encode()
    assert data[span.end :] == behind
