"""Texts that people see: nothing in them can make a terminal obey."""

import unicodedata

import pytest
from hypothesis import given, strategies as st

from embedq.cli.showing import (
    age,
    body_text,
    counted,
    cut,
    fields,
    iso,
    preview,
    size,
    table,
    when,
    width,
)
from embedq.printable import plain

HARMFUL = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def is_harmless(text: str) -> bool:
    return not any(unicodedata.category(c) in HARMFUL for c in text)


@given(st.text(st.characters(exclude_categories=())))
def test_no_control_character_passes(text):
    shown = plain(text)
    assert is_harmless(shown)
    assert plain(shown) == shown


@given(st.binary(max_size=300))
def test_a_body_of_any_bytes_is_harmless(body):
    assert is_harmless(body_text(body))
    assert is_harmless(preview(body, 20))
    assert len(preview(body, 20)) <= 20


def test_the_check_of_harmlessness_finds_a_planted_escape():
    assert not is_harmless("a\x1b[2Jb")
    assert not is_harmless("\u202egpj.exe")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, Grüße, 漢字", "plain text, Grüße, 漢字"),
        ("a\x1b[31mred", "a\\x1b[31mred"),
        ("line\nend\r\t", "line\\nend\\r\\t"),
        ("c1\x9b31m", "c1\\x9b31m"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("\U000e0001", "\\U000e0001"),
        ("byte\udcff", "byte\\xff"),
    ],
)
def test_what_a_terminal_could_obey_is_escaped(text, shown):
    assert plain(text) == shown


def test_line_ends_can_be_kept():
    assert plain("a\nb\x1b", keep="\n") == "a\nb\\x1b"


def test_a_large_body_is_not_decoded_whole():
    assert preview(b"x" * 10_000_000, 10) == "xxxxxxxxx…"
    assert preview("é".encode() * 1000, 10).endswith("…")


def test_columns_line_up_whatever_the_characters():
    text = table(("NAME", "N"), [("漢字", "5"), ("a\x1b", "12345")], right="N")
    lines = text.splitlines()
    assert lines[2] == "a\\x1b  12345"
    assert {width(line) for line in lines} == {12}


def test_fields_are_one_column_of_names():
    assert fields([("a", "1\n"), ("long", "2")]) == "a     1\\n\nlong  2"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0.0s"),
        (-3, "0.0s"),
        (9.94, "9.9s"),
        (10, "10s"),
        (65, "1m 5s"),
        (7200, "2h 0m"),
        (90_061, "1d 1h"),
    ],
)
def test_spans_have_their_two_largest_units(seconds, text):
    assert age(seconds) == text


def test_moments_are_utc_with_milliseconds_and_never_fail():
    assert iso(None) is None
    assert iso(1_700_000_000_007) == "2023-11-14T22:13:20.007Z"
    assert when(1_700_000_000_007) == "2023-11-14 22:13:20.007Z"
    assert iso(1 << 60) == f"{1 << 60} ms"


def test_sizes_and_counts_have_units():
    assert [size(n) for n in (0, 1023, 1536, 5 << 20, 3 << 40)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 MiB",
        "3.0 TiB",
    ]
    assert [counted(n, "line") for n in (0, 1, 2000)] == ["0 lines", "1 line", "2,000 lines"]
    assert cut("abcdef", 4) == "abc…"
