"""Theme: a message leaves when every group has settled it, or when it is cancelled."""

from __future__ import annotations

import pytest

from embedq.lifecycle import Outcome
from embedq.storage.ops import Ack, Cancel, DeclareGroup
from tests.conformance.scenario import ENDED, Scenario, Theme

COUNTS = (1, 2, 4, 5, 16, 17, 100, 101, 230)


class Settlement(Theme):
    def test_an_acked_message_leaves_with_its_deliveries(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        first, second = scene.put(queue, 2)
        scene.start(group, first, second)
        assert scene.ack(group, first) == 1
        assert scene.seqs(queue) == [second]
        assert scene.store.deliveries(first) == []
        assert list(scene.open_deliveries(group)) == [second]
        assert scene.waiting(group)[0] == []

    def test_an_acked_message_leaves_with_its_failed_attempts_too(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        scene.start(group, seq)
        scene.fail(group, seq)
        scene.again(group, seq, 2)
        scene.ack(group, seq)
        assert (scene.message(seq), scene.store.deliveries(seq)) == (None, [])
        assert scene.retries(group) == []

    @pytest.mark.parametrize("groups", [1, 2])
    @pytest.mark.parametrize("count", COUNTS)
    def test_many_messages_are_acked_at_once(
        self, scene: Scenario, count: int, groups: int
    ) -> None:
        queue = scene.queue()
        members = [scene.group(queue, f"g{number}") for number in range(groups)]
        seqs = scene.put(queue, count + 1)
        removed = [scene.start_and_ack(member, *seqs[:count]) for member in members]
        assert removed == [*[0] * (groups - 1), count]
        assert scene.seqs(queue) == [seqs[-1]]
        assert all(scene.store.deliveries(seq) == [] for seq in seqs)

    def test_an_ack_of_a_message_that_is_gone_does_nothing(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        first, second, third = scene.put(queue, 3)
        scene.start_and_ack(group, first)
        scene.start(group, second)
        assert scene.ack(group, first, second, 12_345) == 1
        assert scene.seqs(queue) == [third]

    def test_acks_of_one_commit_are_all_counted(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        seqs = scene.put(queue, 6)
        scene.start(group, *seqs)
        acks = [
            Ack(group, ENDED, seqs[:2]),
            Ack(group, ENDED, seqs[2:3]),
            Ack(group, ENDED + 1, seqs[3:5]),
        ]
        scene.commit(*acks)
        assert sum(ack.removed for ack in acks) == 5
        assert scene.seqs(queue) == seqs[5:]

    def test_a_message_waits_for_its_last_group(self, scene: Scenario) -> None:
        queue, group, audit = scene.queue_and_groups()
        (seq,) = scene.put(queue)
        assert scene.store.unsettled(seq) == [group, audit]
        assert scene.start_and_ack(group, seq) == 0
        assert scene.store.unsettled(seq) == [audit]
        assert scene.message(seq) is not None
        assert scene.start_and_ack(audit, seq) == 1
        assert scene.message(seq) is None
        assert scene.store.deliveries(seq) == []

    def test_while_others_wait_the_ack_is_recorded(self, scene: Scenario) -> None:
        queue, group, _ = scene.queue_and_groups()
        (seq,) = scene.put(queue)
        scene.start_and_ack(group, seq, now=ENDED)
        (found,) = scene.store.deliveries(seq)
        assert found[-5:] == (ENDED, Outcome.ACKED, None, None, None)
        assert scene.open_deliveries(group) == {}

    def test_a_group_that_is_done_does_not_get_the_message_again(self, scene: Scenario) -> None:
        queue, group, audit = scene.queue_and_groups()
        (seq,) = scene.put(queue)
        scene.start_and_ack(group, seq)
        assert scene.fresh(group) == []
        assert scene.fresh(audit) == [seq]

    def test_while_others_wait_a_second_ack_changes_nothing(self, scene: Scenario) -> None:
        queue, group, _ = scene.queue_and_groups()
        acked, waiting = scene.put(queue, 2)
        scene.start_and_ack(group, acked, now=ENDED)
        before = scene.store.deliveries(acked)
        assert scene.ack(group, acked, waiting, now=ENDED + 1) == 0
        assert scene.store.deliveries(acked) == before
        assert scene.store.deliveries(waiting) == []
        assert group in scene.store.unsettled(waiting)

    def test_acks_of_two_groups_meet_in_one_commit(self, scene: Scenario) -> None:
        queue, group, audit = scene.queue_and_groups()
        seqs = scene.put(queue, 3)
        scene.start(group, *seqs)
        scene.start(audit, *seqs)
        acks = [Ack(group, ENDED, seqs[:2]), Ack(audit, ENDED, seqs[1:])]
        scene.commit(*acks)
        assert sum(ack.removed for ack in acks) == 1
        assert scene.seqs(queue) == [seqs[0], seqs[2]]

    def test_queues_do_not_wait_for_each_others_groups(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        other = scene.queue("mail")
        scene.group(other, "elsewhere")
        (seq,) = scene.put(queue)
        assert scene.store.unsettled(seq) == [group]
        assert scene.start_and_ack(group, seq) == 1

    def test_nobody_waits_for_a_message_without_groups_or_for_none(self, scene: Scenario) -> None:
        (seq,) = scene.put(scene.queue())
        assert scene.store.unsettled(seq) == []
        assert scene.store.unsettled(12_345) == []

    def test_a_group_that_comes_later_makes_a_message_wait(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        scene.start(group, seq)
        late = scene.do(DeclareGroup(queue, "late", 0)).row
        assert late is not None
        assert scene.ack(group, seq) == 0
        assert scene.store.unsettled(seq) == [late.id]

    def test_cancelling_removes_a_message_for_every_group(self, scene: Scenario) -> None:
        queue, group, audit = scene.queue_and_groups()
        waiting, leased, acked, stays = scene.put(queue, 4)
        scene.start(group, leased, acked)
        scene.ack(group, acked)
        cancel = scene.do(Cancel(queue, [waiting, leased, acked]))
        assert sorted(cancel.removed) == [waiting, leased, acked]
        assert scene.seqs(queue) == [stays]
        assert [scene.store.deliveries(seq) for seq in (waiting, leased, acked)] == [[]] * 3
        assert scene.fresh(audit) == [stays]

    def test_cancelling_tells_which_messages_were_there(self, scene: Scenario) -> None:
        queue, other = scene.queue(), scene.queue("mail")
        (mine,), (foreign,) = scene.put(queue), scene.put(other)
        assert scene.do(Cancel(queue, [mine, foreign, 12_345])).removed == [mine]
        assert scene.do(Cancel(queue, [mine])).removed == []
        assert scene.seqs(other) == [foreign]

    def test_cancelling_works_in_a_retained_queue_too(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group(retain_ms=1_000)
        waiting, acked = scene.put(queue, 2)
        scene.start_and_ack(group, acked)
        assert sorted(scene.do(Cancel(queue, [waiting, acked])).removed) == [waiting, acked]
        assert scene.store.deliveries(acked) == []
