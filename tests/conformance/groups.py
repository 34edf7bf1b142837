"""Theme: queues and groups, their settings, floors, and what is left when a group goes."""

from __future__ import annotations

from embedq.policy import QueuePolicy
from embedq.storage.ops import (
    Collect,
    DeclareGroup,
    DeclareQueue,
    Pause,
    RemoveGroup,
    Save,
)
from embedq.storage.rows import GroupRow, QueueRow
from tests.conformance.scenario import EVERYTHING, Scenario, Theme


class Groups(Theme):
    def queues_of(self, scene: Scenario) -> dict[str, QueueRow]:
        return {found.name: found for found in scene.store.catalogue()[0]}

    def groups_of(self, scene: Scenario) -> dict[tuple[int, str], GroupRow]:
        return {(found.queue, found.name): found for found in scene.store.catalogue()[1]}

    def test_a_new_store_has_no_queues(self, scene: Scenario) -> None:
        assert scene.store.catalogue() == ([], [])

    def test_a_queue_is_declared_with_its_policy(self, scene: Scenario) -> None:
        policy = QueuePolicy(max_attempts=0, retain_ms=5, max_length=3, when_full="drop_oldest")
        declared = scene.do(DeclareQueue("aufträge", policy)).row
        assert declared is not None
        assert self.queues_of(scene) == {"aufträge": declared}
        assert (declared.policy, declared.paused) == (policy, False)
        assert (declared.stored, declared.dead) == (0, 0)

    def test_declaring_again_changes_the_settings_of_the_same_queue(self, scene: Scenario) -> None:
        first = scene.do(DeclareQueue("orders", QueuePolicy(max_attempts=3))).row
        assert first is not None
        scene.commit(Pause(first.id, paused=True))
        second = scene.do(DeclareQueue("orders", QueuePolicy(max_attempts=7))).row
        assert second is not None
        assert (second.id, second.paused, second.policy.max_attempts) == (first.id, True, 7)
        assert self.queues_of(scene)["orders"].policy == QueuePolicy(max_attempts=7)

    def test_rows_that_were_answered_may_be_changed_by_the_caller(self, scene: Scenario) -> None:
        for _ in range(2):  # when they are made, and when they are there
            declared = scene.do(DeclareQueue("orders", QueuePolicy())).row
            assert declared is not None
            member = scene.do(DeclareGroup(declared.id, "default", 0)).row
            assert member is not None
            (seq,) = scene.put(declared.id)
            declared.paused, declared.policy = True, QueuePolicy(retain_ms=5)
            member.floor = 99
            assert scene.store.unsettled(seq) == [member.id]
            assert not self.queues_of(scene)["orders"].paused
            assert scene.start_and_ack(member.id, seq) == 1

    def test_an_answered_row_does_not_change_with_what_follows(self, scene: Scenario) -> None:
        declared = scene.do(DeclareQueue("orders", QueuePolicy())).row
        assert declared is not None
        member = scene.do(DeclareGroup(declared.id, "default", 0)).row
        assert member is not None
        scene.commit(
            DeclareQueue("orders", QueuePolicy(max_attempts=9)),
            Pause(declared.id, paused=True),
            Save([(declared.id, 1, 2, 3)], [(member.id, 4, 5)], exact=False),
        )
        assert (declared.policy, declared.paused, declared.stored) == (QueuePolicy(), False, 0)
        assert (member.floor, member.settled) == (0, 0)

    def test_names_that_differ_in_case_are_different_queues(self, scene: Scenario) -> None:
        assert scene.queue("orders") != scene.queue("Orders")

    def test_a_pause_is_remembered_and_ended(self, scene: Scenario) -> None:
        queue, other = scene.queue(), scene.queue("mail")
        scene.commit(Pause(queue, paused=True))
        assert {name: row.paused for name, row in self.queues_of(scene).items()} == {
            "orders": True,
            "mail": False,
        }
        scene.reopen()
        scene.commit(Pause(queue, paused=False), Pause(other, paused=True))
        assert [row.paused for row in self.queues_of(scene).values()] == [False, True]

    def test_a_group_is_declared_once(self, scene: Scenario) -> None:
        queue = scene.queue()
        scene.put(queue, 3)
        first = scene.do(DeclareGroup(queue, "default", 2)).row
        second = scene.do(DeclareGroup(queue, "default", 3)).row
        assert first is not None
        assert second == first
        assert (first.queue, first.name, first.floor) == (queue, "default", 2)
        assert self.groups_of(scene) == {(queue, "default"): first}

    def test_groups_of_different_queues_may_share_a_name(self, scene: Scenario) -> None:
        queue, other = scene.queue(), scene.queue("mail")
        groups = scene.group(queue), scene.group(other)
        assert groups[0] != groups[1]
        (seq,) = scene.put(other)
        assert (scene.fresh(groups[0]), scene.fresh(groups[1])) == ([], [seq])

    def test_messages_up_to_the_floor_are_not_for_the_group(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        old, last = scene.put(queue, 2)
        late = scene.do(DeclareGroup(queue, "late", last)).row
        assert late is not None
        assert late.settled == 2
        (new,) = scene.put(queue)
        assert scene.fresh(late.id) == [new]
        assert scene.store.unsettled(old) == [group]
        assert scene.start_and_ack(group, old) == 1

    def test_a_floor_counts_only_messages_of_its_queue(self, scene: Scenario) -> None:
        queue, other = scene.queue(), scene.queue("mail")
        scene.put(other, 3)
        (seq,) = scene.put(queue)
        group = scene.do(DeclareGroup(queue, "default", seq)).row
        assert group is not None
        assert group.settled == 1

    def test_the_group_that_is_removed_is_not_waited_for(self, scene: Scenario) -> None:
        queue, group, audit = scene.queue_and_groups()
        (seq,) = scene.put(queue)
        scene.start(audit, seq)
        scene.commit(RemoveGroup(audit))
        assert list(self.groups_of(scene)) == [(queue, "default")]
        assert scene.store.unsettled(seq) == [group]
        assert scene.start_and_ack(group, seq) == 1
        assert scene.store.deliveries(seq) == []

    def test_a_new_group_never_gets_the_id_of_a_removed_one(self, scene: Scenario) -> None:
        queue, group, audit = scene.queue_and_groups()
        (seq,) = scene.put(queue)
        dead = scene.bury(audit, seq).dead_id
        scene.commit(RemoveGroup(audit))
        again = scene.group(queue, "audit")
        assert again not in {group, audit}
        assert scene.store.dead_letter(seq, again) is None
        assert scene.fresh(again) == [seq]
        assert scene.bury(again, seq).dead_id not in {None, dead}

    def test_the_dead_letters_of_a_removed_group_stay(self, scene: Scenario) -> None:
        queue, _, audit = scene.queue_and_groups()
        (seq,) = scene.put(queue)
        scene.bury(audit, seq)
        scene.commit(RemoveGroup(audit))
        assert [letter.group for letter in scene.letters(queue)] == [audit]

    def test_collecting_removes_what_only_the_removed_group_waited_for(
        self, scene: Scenario
    ) -> None:
        queue, group, audit = scene.queue_and_groups()
        done, waiting, leased = scene.put(queue, 3)
        scene.start(group, done, leased)
        scene.ack(group, done)
        scene.commit(RemoveGroup(audit))
        assert scene.do(Collect(queue, 0, EVERYTHING)).removed == 1
        assert scene.seqs(queue) == [waiting, leased]
        assert scene.store.deliveries(done) == []
        assert list(scene.open_deliveries(group)) == [leased]

    def test_collecting_looks_at_one_stretch_of_one_queue(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        other = scene.queue("mail")
        elsewhere = scene.group(other)
        seqs = scene.put(queue, 4)
        foreign = scene.put(other, 1)
        last = scene.store.last_seq
        scene.commit(
            Save([], [(group, last, 0), (elsewhere, last, 0)], exact=False),
        )
        assert scene.do(Collect(queue, seqs[0], seqs[2])).removed == 2
        assert scene.seqs(queue) == [seqs[0], seqs[3]]
        assert scene.seqs(other) == foreign

    def test_a_queue_without_groups_keeps_its_messages(self, scene: Scenario) -> None:
        queue = scene.queue()
        seqs = scene.put(queue, 2)
        assert scene.do(Collect(queue, 0, EVERYTHING)).removed == 0
        assert scene.seqs(queue) == seqs

    def test_collecting_leaves_a_retained_queue_alone(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group(retain_ms=1_000)
        (seq,) = scene.put(queue)
        scene.start_and_ack(group, seq)
        assert scene.do(Collect(queue, 0, EVERYTHING)).removed == 0
        assert scene.seqs(queue) == [seq]

    def test_a_raised_floor_settles_what_lies_below(self, scene: Scenario) -> None:
        queue, group, audit = scene.queue_and_groups()
        first, second, third = scene.put(queue, 3)
        scene.start_and_ack(group, first, second)
        scene.commit(Save([], [(group, second, 2)], exact=False))
        assert scene.store.unsettled(first) == [audit]
        assert scene.fresh(group) == [third]
        # The floor says it all now, so the deliveries need not be kept.
        assert scene.store.deliveries(first) == []
        assert scene.start_and_ack(audit, first) == 1
        assert scene.seqs(queue) == [second, third]

    def test_a_raised_floor_keeps_the_history_of_a_retained_queue(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group(retain_ms=1_000)
        (seq,) = scene.put(queue)
        scene.start_and_ack(group, seq)
        before = scene.store.deliveries(seq)
        scene.commit(Save([], [(group, seq, 1)], exact=False))
        assert scene.store.deliveries(seq) == before != []

    def test_a_raised_floor_leaves_other_groups_alone(self, scene: Scenario) -> None:
        queue, group, audit = scene.queue_and_groups()
        (seq,) = scene.put(queue)
        scene.start_and_ack(group, seq)
        scene.start(audit, seq)
        scene.commit(Save([], [(group, seq, 1)], exact=False))
        assert [found.group for found in scene.store.deliveries(seq)] == [audit]
        assert list(scene.open_deliveries(audit)) == [seq]

    def test_floors_only_rise(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        seqs = scene.put(queue, 4)
        scene.commit(Save([], [(group, seqs[2], 3)], exact=False))
        scene.commit(Save([], [(group, seqs[0], 1)], exact=False))
        assert self.groups_of(scene)[queue, "default"].floor == seqs[2]
        assert scene.fresh(group) == [seqs[3]]
        scene.reopen()
        assert self.groups_of(scene)[queue, "default"].floor == seqs[2]
