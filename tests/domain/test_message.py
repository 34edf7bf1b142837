"""Drafts, messages, receipts, error texts and dead letters.

Knows: what a valid draft is, that errors stay small, that ids are lazy but equal.
Does not know: the store.
"""

import pickle
from dataclasses import replace

import msgspec
import pytest
from hypothesis import example, given, strategies as st

from embedq.errors import InvalidName, InvalidOption, InvalidPayload, LimitExceeded
from embedq.ids import MessageIds
from embedq.lifecycle import Outcome
from embedq.limits import LIMITS
from embedq.message import (
    AttemptRecord,
    DeadLetter,
    Draft,
    ErrorInfo,
    Message,
    Receipt,
    draft,
)

IDS = MessageIds(b"0123456789abcdef")
SMALL = replace(
    LIMITS, body_bytes=10, headers_count=2, header_bytes=20, headers_bytes=30, delay_max_s=1.0
)


def fail(error, cause=None):
    if cause is not None:
        raise error from cause
    raise error


def raised(text, limit=LIMITS.error_bytes, kind=ValueError):
    with pytest.raises(kind) as caught:
        fail(kind(text))
    return ErrorInfo.from_exception(caught.value, limit=limit)


# --- drafts --------------------------------------------------------------------------------------


def test_a_draft_of_a_body_has_nothing_else():
    assert draft(b"x") == Draft(b"x")
    assert draft(b"x", 2) == Draft(b"x", 2)


@pytest.mark.parametrize(
    "more",
    [
        {"headers": {"a": "b"}},
        {"priority": 1},
        {"available_at_ms": 5},
        {"expires_at_ms": 5},
        {"dedup_key": "k"},
        {"ordering_key": "k"},
        {"max_attempts": 0},
        {"max_attempts": 255},
    ],
)
def test_any_option_is_in_the_draft(more):
    made = draft(b"x", **more)
    assert made != Draft(b"x")
    for name, value in more.items():
        assert getattr(made, name) == value


def test_a_draft_cannot_be_changed_and_shares_nothing_with_the_caller():
    body, headers = bytearray(b"abc"), {"a": "b"}
    made = draft(body, headers=headers)
    body[0] = 0
    headers["c"] = "d"
    assert made.body == b"abc"
    assert made.headers == {"a": "b"}
    with pytest.raises(AttributeError):
        setattr(made, "body", b"")  # noqa: B010 - the type checker knows it, too


def test_a_memoryview_is_a_body_and_no_headers_are_none():
    assert draft(memoryview(b"abcd")[::2], headers={}) == Draft(b"ac")


@pytest.mark.parametrize("body", ["text", None, 5, ["x"]])
def test_a_body_that_is_not_bytes_is_refused(body):
    with pytest.raises(InvalidPayload, match=type(body).__name__):
        draft(body)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"kind": -1}, "kind"),
        ({"kind": "json"}, "kind"),
        ({"priority": 10}, "priority"),
        ({"priority": -1}, "priority"),
        ({"priority": True}, "priority"),
        ({"priority": 1.5}, "priority"),
        ({"priority": [1]}, "priority"),
        ({"max_attempts": 256}, "max_attempts"),
        ({"max_attempts": -1}, "max_attempts"),
        ({"dedup_key": "k", "dedup_window_ms": -1}, "dedup_window_ms"),
        ({"available_at_ms": -1}, "available_at_ms"),
        ({"available_at_ms": 1.5}, "available_at_ms"),
        ({"expires_at_ms": 1 << 60}, "expires_at_ms"),
        ({"expires_at_ms": 5, "available_at_ms": 5}, "expires"),
        ({"headers": [("a", "b")]}, "headers"),
        ({"headers": {"a": 1}}, "header 'a'"),
    ],
)
def test_a_bad_option_is_named(options, name):
    with pytest.raises(InvalidOption, match=name):
        draft(b"x", **options)


def test_a_huge_number_is_refused_without_printing_it():
    with pytest.raises(InvalidOption, match="priority"):
        draft(b"x", priority=10**10_000)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"dedup_key": ""}, "dedup_key"),
        ({"ordering_key": "a\nb"}, "ordering_key"),
        ({"headers": {"": "b"}}, "header name"),
        ({"headers": {"a": "\ud800"}}, "'a'"),
        ({"headers": {5: "b"}}, "header name"),
    ],
)
def test_a_bad_key_or_header_is_named(options, what):
    with pytest.raises(InvalidName, match=what):
        draft(b"x", **options)


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"body": b"x" * 11}, "body_bytes"),
        ({"headers": {"a": "", "b": "", "c": ""}}, "headers_count"),
        ({"headers": {"a": "x" * 20}}, "header_bytes"),
        ({"headers": {"a": "x" * 15, "b": "é" * 8}}, "headers_bytes"),
    ],
)
def test_what_is_too_large_names_its_limit(options, limit):
    with pytest.raises(LimitExceeded) as caught:
        draft(**{"body": b"x", **options}, limits=SMALL)
    assert caught.value.details == {"limit": limit}


def test_what_just_fits_is_accepted():
    draft(b"x" * 10, headers={"a": "x" * 19, "b": "x" * 9}, limits=SMALL)


def test_headers_obey_the_rules_one_by_one_also_where_all_together_do_not():
    long = {letter * 255: "x" * 4_000 for letter in "abc"}
    assert draft(b"", headers=long).headers == long
    assert draft(b"", headers={"a": "é", "ü": "b"}).headers == {"a": "é", "ü": "b"}
    for broken in ({"a" * 256: "x"}, {"a\n": "x"}, {"a": "x", "": "y"}):
        with pytest.raises(InvalidName):
            draft(b"", headers=broken)
    tight = replace(LIMITS, headers_bytes=10)
    with pytest.raises(LimitExceeded, match="headers_bytes"):
        draft(b"", headers={"a": "x" * 10}, limits=tight)


def test_with_the_time_of_day_a_delay_beyond_the_limit_is_refused():
    assert draft(b"x", available_at_ms=2000, now_ms=1000, limits=SMALL).available_at_ms == 2000
    with pytest.raises(InvalidOption, match="available_at_ms"):
        draft(b"x", available_at_ms=2001, now_ms=1000, limits=SMALL)
    with pytest.raises(InvalidOption, match="expires_at_ms"):
        draft(b"x", expires_at_ms=2001, now_ms=1000, limits=SMALL)


# --- ids on demand -------------------------------------------------------------------------------


def test_a_receipt_computes_its_id_when_asked():
    lazy, known = Receipt(IDS, 7), Receipt(IDS.encode(7), 7)
    assert lazy.id == known.id == IDS.encode(7)
    assert lazy == known
    assert not lazy != known  # noqa: SIM202 - the other operator, on purpose
    assert hash(lazy) == hash(known)
    assert lazy != Receipt(IDS, 8)
    assert lazy != Receipt(IDS, 7, duplicate=True)
    assert lazy != Message(IDS, 7, "q", b"", 0, None, 1)
    assert lazy != "a receipt"


def test_a_receipt_travels_with_its_id_and_without_the_store_key():
    data = pickle.dumps(Receipt(IDS, 7, duplicate=True))
    assert b"0123456789abcdef" not in data
    assert pickle.loads(data) == Receipt(IDS, 7, duplicate=True)


def test_values_show_every_field_and_cut_long_ones():
    shown = repr(Message(IDS, 7, "orders", b"x" * 1000, 0, {"a": "b"}, 5, ordering_key="k"))
    assert f"id='{IDS.encode(7)}', seq=7, queue='orders'" in shown
    assert "(1000 in all)" in shown
    assert len(shown) < 400
    assert repr(Receipt(IDS, 7)) == f"Receipt(id='{IDS.encode(7)}', seq=7, duplicate=False)"


def test_a_dead_letter_keeps_its_attempts():
    attempt = AttemptRecord(1, 10, 20, "worker 4", Outcome.FAILED, ErrorInfo("ValueError", "no"))
    letter = DeadLetter(
        IDS,
        7,
        "q",
        "default",
        "rejected",
        "no",
        20,
        5,
        "handler",
        b"",
        0,
        None,
        attempts=(attempt,),
    )
    assert letter.id == IDS.encode(7)
    assert letter.attempts == (attempt,)
    assert "attempts=(1 in all)" in repr(letter)


@given(st.integers(1, 255), st.sampled_from([None, *Outcome]), st.text(max_size=20))
def test_attempts_survive_msgpack(number, outcome, text):
    record = AttemptRecord(number, 1, None, "w", outcome, ErrorInfo.capped("E", text))
    data = msgspec.msgpack.encode(record)
    assert msgspec.msgpack.decode(data, type=AttemptRecord) == record


# --- errors stay small ---------------------------------------------------------------------------


def test_an_exception_is_described_with_type_text_and_frames():
    info = raised("no such customer")
    assert info.type == "ValueError"
    assert info.message == "no such customer"
    assert "raise error" in info.traceback
    assert ErrorInfo.decode(info.encode()) == info


def test_an_exception_of_a_module_has_its_full_name():
    assert raised("x", kind=InvalidName).type == "embedq.errors.InvalidName"


def test_a_text_of_50_megabytes_is_cut_at_its_end():
    info = raised("a" * 50_000_000)
    assert len(info.encode()) <= LIMITS.error_bytes
    assert info.message.startswith("aaaa")
    assert info.message.endswith("…")
    assert info.traceback


def test_a_long_traceback_is_cut_at_its_start():
    info = ErrorInfo.capped("E", "m", "first\n" + "x\n" * 50_000 + "last")
    assert info.traceback.startswith("…")
    assert info.traceback.endswith("last")
    assert LIMITS.error_bytes - 16 <= len(info.encode()) <= LIMITS.error_bytes


def test_a_short_message_leaves_its_room_to_the_traceback():
    info = ErrorInfo.capped("E", "m", "t" * 3000, limit=3200)
    assert info.traceback == "t" * 3000


def test_causes_are_told_from_the_first_to_the_last():
    with pytest.raises(ValueError, match="outer") as caught:
        fail(ValueError("outer"), cause=KeyError("inner"))
    traceback = ErrorInfo.from_exception(caught.value).traceback
    assert traceback.index("KeyError: 'inner'") < traceback.index("then") < len(traceback)


def test_a_hidden_context_stays_hidden():
    for hidden in (False, True):
        error = ValueError("outer")
        error.__context__ = KeyError("inner")
        error.__suppress_context__ = hidden
        assert ("inner" in ErrorInfo.from_exception(error).traceback) is not hidden


def test_causes_that_run_in_a_circle_end():
    one, other = ValueError("one"), KeyError("other")
    one.__cause__, other.__cause__ = other, one
    assert ErrorInfo.from_exception(one).traceback.count("then") == 3


def test_an_endless_recursion_is_described():
    def again():
        again()

    with pytest.raises(RecursionError) as caught:
        again()
    info = ErrorInfo.from_exception(caught.value)
    assert info.type == "RecursionError"
    assert len(info.encode()) <= LIMITS.error_bytes


class SilentError(Exception):
    def __str__(self):
        raise RuntimeError("no text today")


def test_an_exception_without_a_text_is_described_by_what_broke():
    info = ErrorInfo.from_exception(SilentError())
    assert info.message == "<its text cannot be made: RuntimeError>"
    assert info.type.endswith("SilentError")


any_text = st.characters(exclude_categories=())


@given(
    st.text(any_text, max_size=300),
    st.text(any_text, max_size=3000),
    st.text(any_text, max_size=3000),
    st.integers(0, 2000),
)
def test_no_text_makes_a_stored_error_larger_than_its_limit(kind, message, traceback, limit):
    info = ErrorInfo.capped(kind, message, traceback, limit=limit)
    assert len(info.encode()) <= max(limit, 64)
    assert ErrorInfo.decode(info.encode()) == info


@example("\ud800" * 5000)
@given(st.text(any_text, max_size=5000))
def test_no_exception_text_is_too_much(text):
    assert len(raised(text, limit=500).encode()) <= 500


@given(st.binary(max_size=40))
def test_damaged_bytes_are_described_instead_of_raised(data):
    assert isinstance(ErrorInfo.decode(data), ErrorInfo)


def test_what_a_newer_release_adds_to_an_error_is_left_out():
    data = msgspec.msgpack.encode(["E", "m", "t", {"notes": ["new"]}])
    assert ErrorInfo.decode(data) == ErrorInfo("E", "m", "t")


def test_a_cap_that_does_not_cut_would_be_noticed():
    uncut = ErrorInfo("E", "x" * 5000, "")
    assert len(uncut.encode()) > LIMITS.error_bytes
