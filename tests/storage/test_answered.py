"""Answers to puts, as they are kept with a session."""

from __future__ import annotations

from hypothesis import given, strategies as st

from embedq.storage import answered

NUMBERS = st.integers(0, (1 << 63) - 1)
ANSWERS = st.tuples(NUMBERS, NUMBERS) | st.tuples(st.lists(NUMBERS), st.lists(NUMBERS))


@given(st.dictionaries(NUMBERS, ANSWERS))
def test_answers_are_found_again(answers: dict[int, answered.Answer]) -> None:
    assert answered.decode(answered.encode(answers.items())) == answers


def test_fresh_answers_come_after_known_ones() -> None:
    data = answered.merged({1: (5, 2)}, [(2, ([7], [0])), (1, (6, 1))])
    assert answered.decode(data) == {1: (6, 1), 2: ([7], [0])}


@given(st.binary(max_size=40))
def test_damage_makes_answers_unknown_and_nothing_worse(data: bytes) -> None:
    for first, second in answered.decode(data).values():
        assert type(first) is type(second)


def test_nothing_is_known_without_bytes() -> None:
    assert answered.decode(None) == answered.decode(b"") == {}
    assert answered.decode(b"\x91\x93\x01\x02\x90") == {}  # half plain, half rows
