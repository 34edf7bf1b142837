"""Names, keys and names from wires.

Knows: the rules, and that wire bytes come back exactly.
Does not know: queues.
"""

import pytest
from hypothesis import example, given, strategies as st

from embedq.errors import InvalidName
from embedq.names import (
    check_group_name,
    check_header_name,
    check_key,
    check_queue_name,
    from_wire,
    to_wire,
)


@pytest.mark.parametrize(
    "name", ["orders", "a", "a b/c.d\\e'\"", "日本語", "🙂", "%00", "x" * 255, "é" * 127, "\u200b"]
)
def test_good_names_are_returned_as_they_are(name):
    assert check_queue_name(name) is name
    assert check_group_name(name) is name
    assert check_header_name(name) is name
    assert check_key(name, "dedup_key") is name


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("", "is empty"),
        ("x" * 256, "longer than 255 bytes"),
        ("é" * 128, "longer than 255 bytes"),
        ("x" * 10_000_000, "longer than 255 bytes"),
        ("a\nb", r"control character U\+000A"),
        ("\x00", r"control character U\+0000"),
        ("a\x7f", r"control character U\+007F"),
        ("a\x85", r"control character U\+0085"),
        ("a\x9f", r"control character U\+009F"),
        ("a\ud800", "lone surrogate at position 1"),
        (b"orders", "is a str, not bytes"),
        (None, "is a str, not NoneType"),
    ],
)
def test_a_bad_name_says_which_rule_it_breaks(name, rule):
    with pytest.raises(InvalidName, match=f"queue name.*{rule}") as caught:
        check_queue_name(name)
    assert len(str(caught.value)) < 250
    assert str(caught.value).isascii() or "…" in str(caught.value)


def test_the_error_names_what_was_checked():
    for check, what in ((check_group_name, "group name"), (check_header_name, "header name")):
        with pytest.raises(InvalidName, match=what):
            check("")
    with pytest.raises(InvalidName, match="ordering_key") as caught:
        check_key("", "ordering_key")
    assert caught.value.details == {"what": "ordering_key"}


@given(st.text())
def test_what_passes_is_short_utf8_without_control_characters(text):
    try:
        check_queue_name(text)
    except InvalidName:
        return
    assert 1 <= len(text.encode()) <= 255
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in text)


@given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
@example(b"")
@example(b"\0")
@example(b"\0\0")
@example(b"%00")
@example(b"a\0")
@example(b"\xed\xa0\x80")
@example("\x85é".encode())
def test_wire_bytes_become_a_good_name_and_come_back(wire):
    name = from_wire(wire)
    assert to_wire(name) == wire
    if len(name.encode()) <= 255:
        assert check_queue_name(name) == name


@given(st.text())
def test_a_name_that_can_be_written_on_a_wire_comes_back_from_it(name):
    try:
        wire = to_wire(name)
    except InvalidName:
        return
    assert from_wire(wire) == name


def test_the_forms_of_the_contract():
    assert from_wire(b"") == "%00"
    assert from_wire(b"orders") == "orders"
    assert from_wire("é".encode()) == "é"
    assert from_wire(b"50%\xff\n") == "50%25%FF%0A"


@pytest.mark.parametrize("name", ["100%", "%41", "%ff", "%zz", "", "a\nb", "\ud800"])
def test_a_name_no_wire_can_have_made_is_refused(name):
    with pytest.raises(InvalidName, match="cannot be written on a wire"):
        to_wire(name)
