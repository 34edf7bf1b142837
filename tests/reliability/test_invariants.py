"""The checker itself: each promise that a history or a file breaks is noticed."""

import pytest

from tests.reliability.invariants import Checker
from tests.reliability.invariants_events import (
    Answer,
    Call,
    Closed,
    Delivered,
    Died,
    Elapsed,
    Opened,
    Put,
    Refusal,
    body,
    digest,
    event_of,
    line_of,
    tag_of,
)
from tests.reliability.invariants_file import Held, Letter, Row

pytestmark = pytest.mark.reliability

SIZE = 9
GROUP = "g"


class Story:
    """A history told in short calls, and the file that should follow from it."""

    def __init__(self):
        self.checker = Checker()
        self.held = Held(groups={"q": {GROUP: 0}})
        self._ids = iter(range(1, 1000))
        self.feed(Opened(1))

    def feed(self, *events):
        for event in events:
            self.checker.feed(event)

    def call(self, name, seqs=(), puts=()):
        call = Call(next(self._ids), name, "q", GROUP, tuple(seqs), tuple(puts))
        self.feed(call)
        return call.id

    def put(self, *tags, answer=True, **more):
        """Put messages whose seqs are their tags."""
        number = self.call("put", puts=[Put(tag, SIZE, **more) for tag in tags])
        if answer:
            self.feed(Answer(number, tags))
            self.keep(*tags)
        return number

    def keep(self, *tags):
        for tag in tags:
            self.held.messages[tag] = ("q", body(tag, SIZE))
            self.held.seqs[tag] = tag

    def drop(self, *tags):
        for tag in tags:
            del self.held.messages[tag]
            del self.held.seqs[tag]
            self.held.deliveries.pop((tag, GROUP), None)

    def claim(self, tag, attempt=1, counter=None, seq=None, data=None):
        counter = 10 * attempt + tag if counter is None else counter
        seen = digest(body(tag, SIZE) if data is None else data)
        number = self.call("claim")
        self.feed(Answer(number, deliveries=(Delivered(seq or tag, attempt, counter, tag, seen),)))
        rows = self.held.deliveries.setdefault((tag, GROUP), [])
        rows.append(Row(attempt, 1, counter, 0, None, None))

    def settle(self, name, *tags, answer=True):
        number = self.call(name, tags)
        if answer:
            self.feed(Answer(number))

    def ack(self, *tags):
        self.settle("ack", *tags)
        self.drop(*tags)

    def bury(self, tag, attempts=(1,)):
        self.drop(tag)
        letter = Letter("q", body(tag, SIZE), "rejected", list(attempts))
        self.held.dead[tag, GROUP] = letter
        self.held.seqs[tag] = tag

    @property
    def problems(self):
        return self.checker.problems(self.held)


@pytest.fixture
def story():
    return Story()


def test_an_ordinary_history_is_fine(story):
    story.put(1, 2, 3)
    story.claim(1)
    story.ack(1)
    story.claim(2)
    story.settle("fail", 2)
    story.claim(2, attempt=2)
    story.settle("release", 2)
    story.held.deliveries[2, GROUP].pop()
    story.claim(3)
    story.settle("reject", 3)
    story.bury(3)
    assert story.problems == []


def test_a_lost_put(story):
    story.put(1)
    story.drop(1)
    assert "is settled, but must be waiting" in story.problems[0]


def test_a_lost_put_in_a_queue_without_groups(story):
    story.held.groups["q"] = {}
    story.put(1)
    story.drop(1)
    assert story.problems == ["message 1 is lost: its put was confirmed"]


def test_a_put_that_was_refused_but_stored(story):
    story.feed(Refusal(story.put(1, answer=False), "store_full"))
    assert story.problems == []
    story.keep(1)
    assert story.problems == ["message 1 was refused, but is there"]


def test_half_of_a_put(story):
    story.put(1, 2, answer=False)
    story.feed(Died())
    assert story.problems == []
    story.keep(2)
    assert "half of a call happened" in story.problems[0]
    story.keep(1)
    assert story.problems == []


def test_half_of_an_ack(story):
    story.put(1, 2)
    story.claim(1)
    story.claim(2)
    story.settle("ack", 1, 2, answer=False)
    story.feed(Died())
    assert story.problems == []
    story.drop(1)
    assert "half of a call happened" in story.problems[0]


def test_an_acked_message_that_is_still_there(story):
    story.put(1)
    story.claim(1)
    story.settle("ack", 1)
    assert "is waiting, but must be settled" in story.problems[0]


def test_an_acked_message_that_is_delivered_again(story):
    story.put(1)
    story.claim(1)
    story.ack(1)
    story.claim(1, attempt=2)
    assert any("was acked, but delivered" in problem for problem in story.problems)


def test_a_message_that_is_delivered_before_its_ack_is_answered(story):
    story.put(1)
    story.claim(1)
    number = story.call("ack", [1])
    story.claim(1, attempt=2)
    story.feed(Answer(number))
    assert any("was acked, but delivered again" in problem for problem in story.problems)


def test_two_leases_at_once(story):
    story.put(1)
    story.claim(1)
    story.claim(1, attempt=2)
    assert any("was leased to somebody else" in problem for problem in story.problems)


def test_a_lease_that_ended_by_itself_is_no_second_lease(story):
    story.put(1)
    story.claim(1)
    story.feed(Elapsed())
    story.claim(1, attempt=2)
    assert story.problems == []


def test_two_settlements_of_one_delivery(story):
    story.put(1)
    story.claim(1)
    story.ack(1)
    story.settle("fail", 1)
    assert any("had ended before a fail was confirmed" in problem for problem in story.problems)


def test_a_token_that_does_not_rise(story):
    story.put(1)
    story.claim(1, counter=5)
    story.settle("fail", 1)
    story.claim(1, attempt=2, counter=5)
    assert any("has token (1, 5) after (1, 5)" in problem for problem in story.problems)


@pytest.mark.parametrize("attempt", [1, 3])
def test_an_attempt_that_is_not_counted_or_counted_twice(story, attempt):
    story.put(1)
    story.claim(1)
    story.settle("fail", 1)
    story.claim(1, attempt=attempt, counter=99)
    assert any("was to be attempt 2" in problem for problem in story.problems)


def test_an_attempt_too_many(story):
    story.put(1, max_attempts=1)
    story.claim(1)
    story.settle("fail", 1)
    story.claim(1, attempt=2)
    assert any("of at most 1 was delivered" in problem for problem in story.problems)


def test_an_attempt_that_the_file_has_forgotten(story):
    story.put(1)
    story.claim(1)
    story.held.deliveries.clear()
    assert "has 0 attempts, not 1 to 1" in story.problems[0]


def test_a_message_that_ran_out_of_attempts_and_is_not_dead(story):
    story.put(1, max_attempts=1)
    story.claim(1)
    story.settle("fail", 1)
    assert "is waiting, but must be dead" in story.problems[0]


def test_a_message_that_is_dead_for_no_reason(story):
    story.put(1)
    story.claim(1)
    story.settle("fail", 1)
    story.bury(1)
    assert "is dead, but must be waiting" in story.problems[0]


def test_a_message_in_two_places(story):
    story.put(1)
    story.claim(1)
    story.settle("reject", 1)
    story.bury(1)
    story.keep(1)
    assert "is in two places: ['dead', 'waiting']" in story.problems[0]


def test_another_body(story):
    story.put(1)
    story.claim(1, data=b"1:other")
    story.held.messages[1] = ("q", b"1:changed")
    assert any("was delivered with another body" in problem for problem in story.problems)
    assert any("has another body" in problem for problem in story.problems)


def test_messages_that_nobody_put(story):
    story.keep(7)
    assert story.problems == ["nobody put message 7"]
    story.claim(8)
    assert any("that nobody put" in problem for problem in story.problems)


def test_a_seq_that_is_given_twice(story):
    story.put(1)
    number = story.put(2, answer=False)
    story.feed(Answer(number, (1,)))
    assert any("seq 1 was given to message 1 and message 2" in text for text in story.problems)


def test_a_dedup_key_that_is_stored_twice(story):
    story.put(1, dedup="k")
    story.put(2, dedup="k")
    assert "have the same dedup key" in story.problems[0]


def test_a_duplicate_that_is_answered_with_another_seq(story):
    story.put(1, 9)
    story.put(3, dedup="k")
    number = story.put(4, answer=False, dedup="k")
    story.feed(Answer(number, (9,), duplicates=(0,)))
    assert "was answered with seq 9, not 3" in story.problems[0]


def test_two_deliveries_of_one_key(story):
    story.put(1, 2, key="k")
    story.claim(1)
    story.claim(2)
    assert any("was delivered while 1 of its key was" in problem for problem in story.problems)


def test_a_cancelled_message_that_is_delivered(story):
    story.put(1)
    number = story.call("cancel", [1])
    story.feed(Answer(number, (1,)))
    story.claim(1)
    assert any("was cancelled, but delivered" in problem for problem in story.problems)


def test_an_epoch_that_does_not_rise(story):
    story.feed(Died(), Opened(1))
    assert story.problems == ["epoch 1 follows epoch 1"]


def test_crashes_are_counted_from_host_to_host(story):
    story.put(1)
    story.claim(1)
    story.feed(Died())
    story.checker.adopt(story.held)
    story.feed(Opened(2))
    number = story.call("claim")
    story.feed(Answer(number, deliveries=(Delivered(1, 2, 1, 1, digest(body(1, SIZE))),)))
    rows = story.held.deliveries[1, GROUP]
    rows[0] = rows[0]._replace(ended=5, outcome=3)
    rows.append(Row(2, 2, 1, 0, None, None))
    assert "has 0 crashes, not 1" in story.problems[0]
    rows[1] = rows[1]._replace(crashes=1)
    assert story.problems == []


def test_a_host_that_closes_counts_no_attempts(story):
    story.put(1)
    story.claim(1)
    story.feed(Closed())
    assert "has 1 attempts, not 0 to 0" in story.problems[0]


def test_what_is_not_durable_may_be_lost_but_not_in_half(story):
    story.put(1)
    story.checker.undurable = True
    number = story.put(2, 3, answer=False)
    story.feed(Answer(number, (2, 3)))
    story.claim(1)
    story.held.deliveries.clear()
    story.settle("ack", 1)
    assert story.problems == []
    story.keep(2)
    assert "half of a call happened" in story.problems[0]
    story.drop(2)
    story.drop(1)
    assert story.problems == []


def test_events_survive_being_written():
    put = Put(5, 20, "dedup", None, 3)
    for event in (
        Opened(3),
        Call(1, "put", "q", puts=(put,)),
        Answer(1, (4,), (0,), (Delivered(4, 1, 2, 5, "ab"),)),
        Refusal(1, "store_full"),
        Closed(),
        Died(),
    ):
        assert event_of(line_of(event).rstrip()) == event


def test_a_line_too_long_for_one_write_is_refused():
    with pytest.raises(ValueError, match="would not be written at once"):
        line_of(Call(1, "put", "q", puts=tuple(Put(10_000 + n, 1) for n in range(400))))


def test_bodies_tell_their_tags():
    assert tag_of(body(17, 0)) == 17
    assert len(body(17, 100)) == 103
    assert tag_of(b"no tag") == -1
    assert tag_of(b"") == -1
