"""Which errors are taken for the same, without Spark."""

from __future__ import annotations

import traceback

import pytest

from embedq.spark.pipelines.fingerprints import LENGTH, alike, fingerprint, place


def raised(error):
    def inner():
        raise error

    try:
        inner()
    except type(error):
        return traceback.format_exc()
    raise AssertionError


def test_errors_of_one_type_from_one_place_are_the_same_whatever_they_say():
    one = fingerprint("ValueError", "order 17", raised(ValueError("order 17")))
    other = fingerprint("ValueError", "order 18 of x", raised(ValueError("order 18 of x")))
    assert one == other
    assert len(one) == LENGTH


def test_another_type_or_another_place_is_another_error():
    here = raised(ValueError("x"))
    assert fingerprint("ValueError", "x", here) != fingerprint("KeyError", "x", here)
    elsewhere = here.replace("in inner", "in outer")
    assert fingerprint("ValueError", "x", here) != fingerprint("ValueError", "x", elsewhere)


def test_lines_and_folders_make_no_difference():
    here = 'File "/srv/a/app.py", line 7, in ship\n'
    moved = 'File "/opt/b/app.py", line 99, in ship\n'
    assert fingerprint("E", "", here) == fingerprint("E", "", moved)
    assert place(here) == "app:ship"


def test_without_a_traceback_the_message_counts_as_far_as_it_is_alike():
    assert place(None) == ""
    assert fingerprint("E", "order 1 is late", None) == fingerprint("E", "order 22 is late", "")
    assert fingerprint("E", "order 1 is late", None) != fingerprint("E", "no stock", None)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (None, ""),
        ("no row 'a b' in 12 s", "no row '…' in # s"),
        ("at 0x7f00aa", "at #"),
        ("0123456789abcdef0123456789abcdef failed", "# failed"),
        ("deadbeef is a word, facade too", "deadbeef is a word, facade too"),
        ("\ud800 half a character", "\ud800 half a character"),
    ],
)
def test_what_differs_between_messages_is_taken_out(text, left):
    assert alike(text) == left
    assert len(fingerprint("E", text, None)) == LENGTH
