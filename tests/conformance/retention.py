"""Theme: a queue that retains keeps settled messages and a history, until their time is over."""

from __future__ import annotations

import pytest

from embedq.lifecycle import Outcome, Reason
from embedq.policy import QueuePolicy
from embedq.storage.ops import Ack, Bury, DeclareQueue, Retire
from tests.conformance.scenario import ENDED, EVERYTHING, Scenario, Theme


class Retention(Theme):
    def closings(self, scene: Scenario, seq: int) -> list[int | None]:
        return [found.closed for found in scene.store.deliveries(seq)]

    def retire(
        self, scene: Scenario, group: int, cutoff: int, after: int = 0, limit: int = 100
    ) -> Retire:
        return scene.do(Retire(group, cutoff, after, limit))

    def test_an_acked_message_stays_with_its_delivery(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group(retain_ms=1_000)
        (seq,) = scene.put(queue)
        assert scene.start_and_ack(group, seq, now=ENDED) == 0
        assert scene.message(seq) is not None
        (found,) = scene.store.deliveries(seq)
        assert (found.ended, found.outcome, found.due) == (ENDED, Outcome.ACKED, None)
        assert scene.store.unsettled(seq) == []
        assert scene.fresh(group) == []

    def test_closings_carry_the_epoch_and_rise_from_commit_to_commit(
        self, scene: Scenario
    ) -> None:
        queue, group = scene.queue_and_group(retain_ms=1_000)
        seqs = scene.put(queue, 4)
        scene.start(group, *seqs)
        scene.ack(group, seqs[2])
        scene.ack(group, seqs[0], seqs[1])
        scene.reopen()
        scene.ack(group, seqs[3])
        closed = [number or 0 for seq in seqs for number in self.closings(scene, seq)]
        assert closed[2] < closed[0] == closed[1] < closed[3]
        epoch = scene.store.epoch
        assert [number >> 40 for number in closed] == [epoch - 1] * 3 + [epoch]

    def test_every_way_of_closing_is_part_of_the_history(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group(retain_ms=1_000)
        failed, crashed, dead, expired = scene.put(queue, 4)
        scene.start(group, failed, crashed, dead)
        scene.fail(group, failed)
        scene.again(group, crashed, 2)
        scene.bury(group, dead)
        scene.commit(Bury(group, expired, ENDED, Reason.EXPIRED))
        numbers = [self.closings(scene, seq) for seq in (failed, crashed, dead, expired)]
        open_, closed = None, [number for row in numbers for number in row if number]
        assert numbers == [closed[:1], [closed[1], open_], closed[2:3], closed[3:]]
        assert closed == sorted(set(closed))
        assert scene.message(dead) is not None

    def test_a_retry_keeps_its_place_in_the_history(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group(retain_ms=1_000)
        (seq,) = scene.put(queue)
        scene.start(group, seq)
        scene.fail(group, seq)
        (before,) = self.closings(scene, seq)
        scene.again(group, seq, 2)
        assert self.closings(scene, seq) == [before, None]

    def test_a_queue_that_does_not_retain_numbers_nothing(self, scene: Scenario) -> None:
        queue, group, _ = scene.queue_and_groups()
        failed, crashed, acked, dead = scene.put(queue, 4)
        scene.start(group, failed, crashed, acked, dead)
        scene.fail(group, failed)
        scene.again(group, crashed, 2)
        scene.ack(group, acked)
        scene.bury(group, dead)
        for seq in (failed, crashed, acked, dead):
            assert set(self.closings(scene, seq)) == {None}

    def test_retention_begins_and_ends_with_the_policy(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        seqs = scene.put(queue, 3)
        scene.start(group, *seqs)
        assert scene.ack(group, seqs[0]) == 1
        scene.commit(DeclareQueue("orders", QueuePolicy(retain_ms=5)))
        assert scene.ack(group, seqs[1]) == 0
        scene.commit(DeclareQueue("orders", QueuePolicy()))
        assert scene.ack(group, seqs[2]) == 1
        assert scene.seqs(queue) == [seqs[1]]

    def test_messages_retire_when_their_time_is_over(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group(retain_ms=1_000)
        seqs = scene.put(queue, 4)
        scene.start(group, *seqs)
        for number, seq in enumerate(seqs[:3]):
            scene.ack(group, seq, now=ENDED + number)
        (second,) = self.closings(scene, seqs[1])
        retired = self.retire(scene, group, ENDED + 2)
        assert (retired.removed, retired.reached) == (2, second)
        assert scene.seqs(queue) == seqs[2:]
        assert scene.store.deliveries(seqs[0]) == []
        assert scene.store.deliveries(seqs[2]) != []

    def test_there_is_nothing_to_retire_before_the_first_time_is_over(
        self, scene: Scenario
    ) -> None:
        queue, group = scene.queue_and_group(retain_ms=1_000)
        (seq,) = scene.put(queue)
        assert self.retire(scene, group, EVERYTHING).reached is None
        scene.start_and_ack(group, seq, now=ENDED)
        retired = self.retire(scene, group, ENDED)
        assert (retired.removed, retired.reached) == (0, None)

    def test_retiring_goes_on_from_where_it_was(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group(retain_ms=1_000)
        seqs = scene.put(queue, 5)
        scene.start(group, *seqs)
        for seq in reversed(seqs):
            scene.ack(group, seq)
        removed, after = [], 0
        while True:
            retired = self.retire(scene, group, EVERYTHING, after, limit=2)
            if retired.reached is None:
                break
            removed.append(retired.removed)
            assert retired.reached > after
            after = retired.reached
        assert (removed, scene.seqs(queue)) == ([2, 2, 1], [])

    def test_what_one_commit_closed_retires_together_whatever_the_limit(
        self, scene: Scenario
    ) -> None:
        queue, group = scene.queue_and_group(retain_ms=1_000)
        seqs = scene.put(queue, 5)
        scene.start_and_ack(group, *seqs)
        retired = self.retire(scene, group, EVERYTHING, limit=2)
        assert (retired.removed, scene.seqs(queue)) == (5, [])
        (number,) = {retired.reached}
        assert self.retire(scene, group, EVERYTHING, number or 0).reached is None

    def test_a_time_in_the_middle_of_a_commit_loses_none_of_it(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group(retain_ms=1_000)
        early, late = scene.put(queue, 2)
        scene.start(group, early, late)
        scene.commit(Ack(group, ENDED, [early]), Ack(group, ENDED + 10, [late]))
        first = self.retire(scene, group, ENDED + 5)
        self.retire(scene, group, ENDED + 99, first.reached or 0)
        assert scene.seqs(queue) == []

    def test_a_failed_attempt_does_not_retire_its_message(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group(retain_ms=1_000)
        (seq,) = scene.put(queue)
        scene.start(group, seq)
        scene.fail(group, seq)
        (failed,) = self.closings(scene, seq)
        retired = self.retire(scene, group, EVERYTHING)
        assert (retired.removed, retired.reached) == (0, failed)
        scene.again(group, seq, 2)
        scene.ack(group, seq, now=ENDED + 10)
        assert self.retire(scene, group, ENDED + 5).removed == 0
        assert self.retire(scene, group, ENDED + 11).removed == 1

    def test_a_message_stays_for_the_group_that_still_waits(self, scene: Scenario) -> None:
        queue, group, audit = scene.queue_and_groups(retain_ms=1_000)
        (seq,) = scene.put(queue)
        scene.start_and_ack(group, seq)
        first = self.retire(scene, group, EVERYTHING)
        assert first.removed == 0
        assert first.reached is not None
        scene.start_and_ack(audit, seq)
        assert self.retire(scene, group, EVERYTHING, first.reached).removed == 0
        assert self.retire(scene, audit, EVERYTHING).removed == 1

    @pytest.mark.parametrize("first", [0, 1])
    @pytest.mark.parametrize("buried", [False, True])
    def test_a_message_stays_until_the_youngest_settlement_is_old_enough(
        self, scene: Scenario, first: int, *, buried: bool
    ) -> None:
        queue, *groups = scene.queue_and_groups(retain_ms=1_000)
        (seq,) = scene.put(queue)
        old, young = groups[first], groups[1 - first]
        scene.start_and_ack(old, seq, now=ENDED)
        if buried:
            scene.bury(young, seq, now=ENDED + 10)
        else:
            scene.start_and_ack(young, seq, now=ENDED + 10)
        passed = self.retire(scene, old, ENDED + 10)
        assert (passed.removed, scene.seqs(queue)) == (0, [seq])
        assert passed.reached is not None
        assert self.retire(scene, young, ENDED + 10).reached is None
        assert self.retire(scene, old, ENDED + 11, passed.reached).reached is None
        assert self.retire(scene, young, ENDED + 11).removed == 1
        assert (scene.seqs(queue), scene.store.deliveries(seq)) == ([], [])

    def test_of_a_commit_only_what_every_group_settled_long_ago_retires(
        self, scene: Scenario
    ) -> None:
        queue, group, audit = scene.queue_and_groups(retain_ms=1_000)
        seqs = scene.put(queue, 6)
        scene.start_and_ack(group, *seqs)
        scene.start_and_ack(audit, *seqs[::2], now=ENDED + 5)
        scene.start_and_ack(audit, *seqs[1::2], now=ENDED + 9)
        assert self.retire(scene, group, ENDED + 6).removed == 3
        assert scene.seqs(queue) == seqs[1::2]
        assert [len(scene.store.deliveries(seq)) for seq in seqs] == [0, 2] * 3

    def test_a_settlement_from_before_the_retention_keeps_nothing(self, scene: Scenario) -> None:
        queue, group, audit = scene.queue_and_groups()
        (seq,) = scene.put(queue)
        scene.start_and_ack(group, seq, now=ENDED + 99)
        scene.commit(DeclareQueue("orders", QueuePolicy(retain_ms=5)))
        scene.start_and_ack(audit, seq, now=ENDED)
        assert self.retire(scene, audit, ENDED + 1).removed == 1

    def test_dead_messages_retire_but_their_letters_stay(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group(retain_ms=1_000)
        (seq,) = scene.put(queue)
        assert scene.bury(group, seq).removed == 0
        assert self.retire(scene, group, EVERYTHING).removed == 1
        assert (scene.message(seq), scene.store.deliveries(seq)) == (None, [])
        assert [letter.seq for letter in scene.letters(queue)] == [seq]
