"""Filters of tags."""

from __future__ import annotations

import pytest

from embedq_transports.zbus.tags import BadFilter, Filter


@pytest.mark.parametrize(
    ("text", "wanted", "unwanted"),
    [
        ("", [None, "", "a", "a.b"], []),
        (";", [None, "a"], []),
        ("a", ["a"], [None, "", "A", "a.b", "ab"]),
        ("a.b", ["a.b"], ["a", "a.b.c", "a.c", None]),
        ("a.*", ["a.b", "a."], ["a", "a.b.c", "b.b"]),
        ("*.b", ["a.b", ".b"], ["b", "a.b.b"]),
        ("*", ["a", ""], ["a.b", None]),
        ("#", ["a", "a.b.c", ""], [None]),
        ("a.#", ["a", "a.b", "a.b.c"], ["ab", "b.a", None]),
        ("a.#.z", ["a", "a.b"], ["b"]),
        ("a;b.*", ["a", "b.c"], ["b", "c", "a.b"]),
        (";a;;", ["a"], ["b", None]),
        ("grün.*", ["grün.ü"], ["gruen.x"]),
    ],
)
def test_a_filter_wants_what_its_grammar_says(text, wanted, unwanted):
    found = Filter(text)
    for tag in wanted:
        assert found.wants(tag), tag
    for tag in unwanted:
        assert not found.wants(tag), tag


def test_a_filter_has_at_most_127_bytes():
    assert Filter("a" * 127).wants("a" * 127)
    with pytest.raises(BadFilter, match="127"):
        Filter("ä" * 64)
