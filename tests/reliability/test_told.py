"""A history of calls is judged like a journal: what it tells of deliveries and their ends."""

from typing import Any

from tests.reliability.checker import Rules
from tests.reliability.checker_end import check
from tests.reliability.invariants_events import (
    Answer,
    Call,
    Closed,
    Delivered,
    Died,
    Event,
    Opened,
    Put,
    body,
    digest,
)
from tests.reliability.invariants_file import Held
from tests.reliability.told import lines_of

HELD = Held(groups={"q": {"g": 0}})


def claim(call: int, attempt: int, counter: int) -> list[Event]:
    got = Delivered(7, attempt, counter, 7, digest(body(7, 5)))
    return [Call(call, "claim", "q", "g", most=1), Answer(call, deliveries=(got,))]


def broken(*events: Any) -> set[str]:
    return {one.promise for one in check(lines_of(events), HELD, Rules())}


PUT = [Opened(1), Call(1, "put", "q", puts=(Put(7, 5),)), Answer(1, (7,))]


def test_a_history_that_is_right_breaks_nothing():
    ack = [Call(3, "ack", "q", "g", (7,)), Answer(3)]
    assert broken(*PUT, *claim(2, 1, 1), *ack, Closed()) == set()
    assert broken(*PUT, Died(), Opened(2), *claim(2, 1, 1), *ack, Closed()) == set()


def test_a_delivery_after_a_confirmed_ack_is_seen():
    ack = [Call(3, "ack", "q", "g", (7,)), Answer(3)]
    again = claim(4, 2, 1)
    assert "P3" in broken(*PUT, *claim(2, 1, 1), *ack, Died(), Opened(2), *again, Closed())


def test_an_answer_belongs_to_the_delivery_that_the_call_was_for():
    release = [Call(3, "release", "q", "g", (7,)), Answer(3)]
    ack = [Call(5, "ack", "q", "g", (7,)), Answer(5)]
    # Somebody else has the message before the answer of the release is noted.
    events = [*claim(2, 1, 1), release[0], *claim(4, 1, 2), release[1], *ack]
    assert broken(*PUT, *events, Closed()) == set()
