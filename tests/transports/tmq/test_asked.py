"""Questions: who waits for a Response, under which ids, for how long, and how many are kept."""

from __future__ import annotations

import pytest

from embedq_transports.tmq.asked import Asked

M, P = b"m1", b"p1"
#: A message, as it is asked for and as it is pulled.
MESSAGE = ("ch", M, P)


class Now:
    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def asked(now) -> Asked:
    asked = Asked(now, 30.0)
    asked.asks(*MESSAGE)
    return asked


def kept(asked: Asked) -> list[int]:
    """The sizes of all that it keeps."""
    return [len(asked), len(asked._by_id), len(asked._pulled)]


def test_a_question_is_found_by_its_channel_and_id_until_it_is_answered(asked):
    question = asked.of_channel("ch", M)
    assert (question.message_id, question.producer) == (M, P)
    assert asked.of_channel("other", M) is None
    assert asked.of_channel("ch", b"m2") is None
    asked.end(question)
    assert asked.of_channel("ch", M) is None
    assert kept(asked) == [0, 0, 0]


def test_a_puller_finds_it_by_its_request_and_by_whatever_it_may_call_the_producer(asked):
    asked.pulled(MESSAGE, "one", b"g1", P)
    for target in ("ch", P):
        assert asked.of_pull("one", b"g1", target) is asked.of_channel("ch", M)
    for wrong in (
        ("two", b"g1", "ch"),
        ("one", M, "ch"),
        ("one", b"g1", "p1"),
        ("one", b"g1", ""),
    ):
        assert asked.of_pull(*wrong) is None


def test_nobody_is_asked_by_what_was_pulled_and_does_not_wait_for_a_response(asked):
    asked.pulled(("ch", M, b"somebody else"), "one", b"g1", P)
    assert kept(asked) == [1, 1, 0]


@pytest.mark.parametrize("after_s", [29.9, 30.0])
def test_it_is_kept_for_its_time_and_no_longer(asked, now, after_s):
    asked.pulled(MESSAGE, "one", b"g1", P)
    now.s += after_s
    found = (asked.of_pull("one", b"g1", "ch"), asked.of_channel("ch", M))
    is_late = after_s == 30.0
    assert [each is None for each in found] == [is_late] * 2
    assert kept(asked) == ([0, 0, 0] if is_late else [1, 1, 1])


def test_a_pull_does_not_make_it_longer(asked, now):
    now.s += 20
    asked.pulled(MESSAGE, "one", b"g1", P)
    now.s += 11
    assert asked.of_pull("one", b"g1", P) is None


def test_asking_again_with_the_same_id_does(asked, now):
    asked.pulled(MESSAGE, "one", b"g1", P)
    now.s += 20
    asked.asks(*MESSAGE)
    now.s += 20
    asked.asks("ch", b"m2", P)
    assert asked.of_pull("one", b"g1", "ch") is asked.of_channel("ch", M) is not None
    assert len(asked) == 2


def test_two_producers_with_the_same_id_are_answered_one_by_one_or_as_they_were_pulled(asked):
    asked.asks("ch", M, b"p2")
    asked.pulled(("ch", M, b"p2"), "one", b"g1", b"p2")
    assert asked.of_pull("one", b"g1", "ch").producer == b"p2"
    for producer in (P, b"p2"):
        question = asked.of_channel("ch", M)
        assert question.producer == producer
        asked.end(question)
    assert kept(asked) == [0, 0, 0]


def test_of_several_pulls_under_one_id_the_oldest_is_meant_and_the_target_tells_them_apart(asked):
    for id, channel in ((b"m2", "ch"), (b"m3", "other")):
        asked.asks(channel, id, P)
        asked.pulled((channel, id, P), "one", b"g1", b"")
    asked.pulled(MESSAGE, "one", b"g1", b"")
    meant = [("ch", b"m2"), ("other", b"m3"), (b"", M)]
    for target, id in meant:
        question = asked.of_pull("one", b"g1", target)
        assert question.message_id == id
        asked.end(question)
    assert kept(asked) == [0, 0, 0]


def test_who_pulls_a_message_that_has_come_back_answers_instead_of_the_one_before(asked):
    asked.pulled(MESSAGE, "one", b"g1", P)
    asked.pulled(MESSAGE, "two", b"g1", P)
    assert asked.of_pull("one", b"g1", "ch") is None
    assert asked.of_pull("two", b"g1", "ch") is not None
    asked.left("two")
    asked.left("never there")
    assert asked.of_pull("two", b"g1", "ch") is None
    asked.pulled(MESSAGE, "three", b"g3", P)
    asked.end(asked.of_pull("three", b"g3", "ch"))
    assert kept(asked) == [0, 0, 0]


def test_no_more_are_kept_than_ten_thousand_however_they_are_pulled(asked):
    for number in range(20_000):
        id = b"%d" % number
        asked.asks("ch", id, P)
        asked.pulled(("ch", id, P), number % 7, id if number % 2 else b"same", P)
    assert len(asked) == 10_000
    assert len(asked._by_id) == 10_000
    held = [each for names in asked._pulled.values() for each in names.values()]
    assert sum(map(len, held)) == 20_000  # each under two targets
    for puller in range(7):
        asked.left(puller)
    assert kept(asked) == [10_000, 10_000, 0]
