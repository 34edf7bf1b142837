"""Theme: a message that was given back at the tail has a place behind all that were there."""

from __future__ import annotations

import pytest

from embedq.lifecycle import Outcome
from embedq.storage import tail
from embedq.storage.ops import Ack, Cancel
from embedq.storage.rows import Touched
from tests.conformance.scenario import ENDED, EVERYTHING, Scenario, Theme, attempts_of, row


class Tails(Theme):
    def test_a_place_lies_between_earlier_and_later_puts(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        first, second = scene.put(queue, 2)
        scene.start(group, first)
        due = scene.to_tail(group, first)
        (third,) = scene.put(queue)
        assert due is not None
        assert second < tail.place_of(due) < third
        assert scene.fresh(group) == [second, third]
        assert (scene.at_tail(group), scene.retries(group)) == ([first], [])

    @pytest.mark.parametrize("counts", [True, False])
    @pytest.mark.parametrize("limit", [1, 2, 50])
    def test_the_tail_is_in_the_order_of_coming_there(
        self, scene: Scenario, limit: int, *, counts: bool
    ) -> None:
        queue, group = scene.queue_and_group()
        seqs = scene.put(queue, 5)
        scene.start(group, *seqs)
        order = [seqs[3], seqs[0], seqs[4], seqs[1]]
        for seq in order:
            scene.to_tail(group, seq, counts=counts)
        assert scene.at_tail(group, limit=limit) == order
        assert list(scene.open_deliveries(group)) == [seqs[2]]

    def test_priorities_come_first(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        low, high, low_too = scene.put_rows(queue, *[row(priority=p) for p in (0, 7, 0)])
        scene.start(group, low, high, low_too)
        for seq, priority in ((low, 0), (high, 7), (low_too, 0)):
            scene.to_tail(group, seq, priority=priority)
        assert scene.at_tail(group) == [high, low, low_too]

    def test_an_attempt_that_counts_is_closed(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        scene.start(group, seq)
        due = scene.to_tail(group, seq)
        (row,) = scene.store.deliveries(seq)
        assert (row.attempt, row.ended, row.outcome, row.due) == (1, ENDED, Outcome.FAILED, due)
        (found,) = scene.timed(group, retries=True, tails=True)
        assert found.touched == Touched(seq, 1, 0, scene.store.epoch, 1, False, due)

    @pytest.mark.parametrize("attempt", [1, 2])
    def test_one_that_does_not_count_is_as_if_it_had_not_been(
        self, scene: Scenario, attempt: int
    ) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        scene.start(group, seq)
        if attempt > 1:
            scene.fail(group, seq)
            scene.again(group, seq, 2)
        due = scene.to_tail(group, seq, attempt, counts=False)
        (row,) = scene.store.deliveries(seq)
        assert (row.attempt, row.due) == (attempt - 1, due)
        assert scene.open_deliveries(group) == {}
        (found,) = scene.timed(group, retries=True, tails=True)
        assert found.touched is not None
        assert (found.touched.attempt, found.touched.open) == (attempt - 1, False)

    @pytest.mark.parametrize("counts", [True, False])
    def test_a_start_takes_the_place_away(self, scene: Scenario, *, counts: bool) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        scene.start(group, seq)
        scene.to_tail(group, seq, counts=counts)
        attempt = 1 + counts
        scene.again(group, seq, attempt)
        assert scene.at_tail(group) == []
        scene.release(group, seq, attempt)
        assert scene.at_tail(group) == []
        assert [found.seq for found in scene.waiting(group)[1]] == [seq]

    @pytest.mark.parametrize("clean", [True, False])
    @pytest.mark.parametrize("counts", [True, False])
    def test_places_survive_the_process(
        self, scene: Scenario, *, counts: bool, clean: bool
    ) -> None:
        queue, group = scene.queue_and_group()
        seqs = scene.put(queue, 3)
        scene.start(group, *seqs)
        for seq in reversed(seqs):
            scene.to_tail(group, seq, counts=counts)
        before = scene.timed(group, retries=True, tails=True)
        scene.reopen(clean=clean)
        assert scene.timed(group, retries=True, tails=True) == before
        (later,) = scene.put(queue)
        assert all(tail.place_of(found.due or 0) < later for found in before)

    @pytest.mark.parametrize("counts", [True, False])
    def test_groups_have_tails_of_their_own(self, scene: Scenario, *, counts: bool) -> None:
        queue, group, audit = scene.queue_and_groups()
        (seq,) = scene.put(queue)
        scene.start(group, seq)
        scene.to_tail(group, seq, counts=counts)
        assert (scene.at_tail(group), scene.at_tail(audit)) == ([seq], [])
        assert (scene.waiting(group), scene.fresh(audit)) == (([], []), [seq])

    @pytest.mark.parametrize("wrong", ["attempt", "ended", "gone"])
    def test_a_delivery_that_is_not_open_stays_as_it_is(self, scene: Scenario, wrong: str) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        scene.start(group, seq)
        if wrong == "ended":
            scene.fail(group, seq)
        before = scene.store.deliveries(seq), scene.store.last_seq
        which = EVERYTHING if wrong == "gone" else seq
        for counts in (True, False):
            assert scene.to_tail(group, which, 1 + (wrong == "attempt"), counts=counts) is None
        assert (scene.store.deliveries(seq), scene.store.last_seq) == before

    @pytest.mark.parametrize("counts", [True, False])
    def test_a_message_leaves_with_its_place(self, scene: Scenario, *, counts: bool) -> None:
        queue, group = scene.queue_and_group()
        acked, buried, cancelled = scene.put(queue, 3)
        for seq in (acked, buried, cancelled):
            scene.start(group, seq)
            scene.to_tail(group, seq, counts=counts)
        scene.again(group, acked, 1 + counts)
        assert scene.do(Ack(group, ENDED, [acked])).removed == 1
        assert scene.bury(group, buried).removed == 1
        assert scene.do(Cancel(queue, [cancelled])).removed == [cancelled]
        assert scene.at_tail(group) == []
        assert all(scene.store.deliveries(s) == [] for s in (acked, buried, cancelled))

    def test_a_dead_letter_does_not_show_what_did_not_count(self, scene: Scenario) -> None:
        queue, group, _ = scene.queue_and_groups()
        (seq,) = scene.put(queue)
        scene.start(group, seq)
        scene.to_tail(group, seq, counts=False)
        scene.bury(group, seq)
        (letter,) = scene.letters(queue)
        assert attempts_of(letter) == []
        assert group not in scene.store.unsettled(seq)

    def test_a_new_time_to_expire_is_that_of_the_message(self, scene: Scenario) -> None:
        queue, _ = scene.queue_and_group()
        first, second = scene.put_rows(queue, row(expires=5_000), row(expires=5_000))
        op = tail.SetExpiry(queue, first, None)
        scene.commit(op)
        assert op.found
        assert [seq for seq, _ in scene.store.expired(6_000, 10)] == [second]
        scene.commit(tail.SetExpiry(queue, first, 5_500))
        assert [seq for seq, _ in scene.store.expired(6_000, 10)] == [second, first]

    def test_a_message_that_is_not_there_gets_no_time_to_expire(self, scene: Scenario) -> None:
        queue, _ = scene.queue_and_group()
        (seq,) = scene.put(queue)
        for op in (tail.SetExpiry(queue + 1, seq, 5), tail.SetExpiry(queue, seq + 1, 5)):
            scene.commit(op)
            assert not op.found
        assert scene.store.expired(6_000, 10) == []
