"""Headers of a zbus message: texts, whole numbers, truths."""

from __future__ import annotations

import pytest

from embedq_transports.zbus.message import LONG, BadInteger, Message


@pytest.mark.parametrize(
    ("value", "number"),
    [(None, None), (5, 5), ("05", 5), ("-1", -1), ("+7", 7), (0, 0), ("2147483647", 2147483647)],
)
def test_a_number_may_be_a_text(value, number):
    assert Message({}, {"window": value}).number("window") == number


@pytest.mark.parametrize(
    "value", ["abc", "", "1.25", 1.5, True, [1], "٣", "2147483649", 2**31, "1" * 9999, "--1"]
)
def test_what_is_no_number_is_told_as_the_original_does(value):
    with pytest.raises(BadInteger, match="For input string"):
        Message({}, {"window": value}).number("window")


def test_the_number_of_a_message_may_be_larger_than_an_int():
    for value in (2**31, str(2**31), 2**63 - 1):
        assert Message({}, {"offset": value}).number("offset", LONG) == int(value)
    with pytest.raises(BadInteger):
        Message({}, {"offset": str(2**63)}).number("offset", LONG)


def test_a_flag_is_true_in_any_case_and_all_else_is_false():
    values = {"a": True, "b": "TRUE", "c": "false", "d": "1", "e": 1, "f": None}
    found = Message({}, values)
    assert [found.flag(name, default=True) for name in "abcdefg"] == [
        True, True, False, False, False, True, True,
    ]  # fmt: skip
