"""What a client has asked: what the host may forget, what the next host is asked again."""

from __future__ import annotations

import pytest

from embedq.errors import QueueNotFound
from embedq.ipc import frames
from embedq.ipc.ledger import Asked, Ledger, answer_of


def ask(ledger: Ledger, body: bytes = b"x", *, repeat: bool = True) -> Asked:
    seen = ledger.seen
    n = ledger.number()
    asked = Asked(n, frames.Put(n, 1, 0, [body], seen), lambda _: None, repeat=repeat)
    ledger.enter(asked)
    return asked


def test_a_request_is_never_among_those_whose_answers_have_arrived() -> None:
    ledger = Ledger()
    for n in range(1, 4):
        asked = ask(ledger)
        assert asked.frame.seen == n - 1  # type: ignore[attr-defined]
        ledger.settle(asked.n)


def test_what_is_seen_ends_before_the_oldest_request_without_an_answer() -> None:
    ledger = Ledger()
    first, second, third = ask(ledger), ask(ledger), ask(ledger)
    ledger.settle(second.n)
    assert ledger.seen == 0
    ledger.settle(first.n)
    assert ledger.seen == 2
    ledger.settle(third.n)
    assert (ledger.seen, len(ledger)) == (3, 0)


def test_an_answer_is_taken_once() -> None:
    ledger = Ledger()
    asked = ask(ledger)
    assert ledger.settle(asked.n) is asked
    assert ledger.settle(asked.n) is None


def test_the_next_host_is_asked_in_order_after_it_was_told_what_is_new() -> None:
    ledger = Ledger()
    first, second = ask(ledger), ask(ledger)
    assert ledger.next_message() == [first.frame, second.frame]
    assert ledger.lost() == []
    ledger.restart()
    ledger.outbox.append(frames.Listen(["dead"]))
    third = ask(ledger)  # somebody else's, meanwhile
    ledger.repeat()
    assert ledger.next_message() == [
        frames.Listen(["dead"]),
        third.frame,
        first.frame,
        second.frame,
    ]


def test_what_must_not_be_asked_twice_is_lost_if_it_was_sent() -> None:
    ledger = Ledger()
    sent = ask(ledger, repeat=False)
    ledger.next_message()
    waits = ask(ledger, repeat=False)
    assert ledger.lost() == [sent]
    ledger.restart()
    ledger.repeat()
    assert ledger.next_message() == [waits.frame]


def test_a_request_that_nobody_waits_for_is_cancelled_at_the_next_host_too() -> None:
    ledger = Ledger()
    asked = ask(ledger)
    ledger.next_message()
    ledger.cancel(asked.n)
    assert ledger.next_message() == [frames.Cancel(asked.n)]
    for _ in range(2):
        ledger.lost()
        ledger.restart()
        ledger.repeat()
        assert ledger.next_message() == [asked.frame, frames.Cancel(asked.n)]


def test_one_that_has_its_answer_cannot_be_cancelled() -> None:
    ledger = Ledger()
    asked = ask(ledger)
    ledger.next_message()
    ledger.settle(asked.n)
    ledger.cancel(asked.n)
    assert not ledger.outbox


def test_a_message_of_the_wire_is_bounded_but_for_one_large_body() -> None:
    ledger = Ledger()
    large = ask(ledger, b"x" * (3 << 20))
    small = [ask(ledger) for _ in range(1_500)]
    assert ledger.next_message() == [large.frame]
    assert len(ledger.next_message()) == 1_000
    assert ledger.next_message()[-1] == small[-1].frame
    assert all(asked.sent for asked in small)


def test_an_answer_is_returned_or_raised() -> None:
    ledger = Ledger()
    asked = ask(ledger)
    asked.answer = frames.Stored_(1, 5)
    assert answer_of(asked) == frames.Stored_(1, 5)
    asked.answer = frames.Failed(1, "queue_not_found", "there is none")
    with pytest.raises(QueueNotFound, match="there is none"):
        answer_of(asked)
    asked.error = KeyError("first")
    with pytest.raises(KeyError):
        answer_of(asked)
