"""Theme: groups that are positions: what they hold, how they move on, what then leaves."""

from __future__ import annotations

import pytest

from embedq.storage.held import Advance, Hold, Lapse, Unhold
from embedq.storage.ops import DeclareGroup, PutRows, RemoveGroup, Retire
from tests.conformance.scenario import EVERYTHING, PUT_AT, Scenario, Theme, plain, row


class Positions(Theme):
    def position(
        self, scene: Scenario, queue: int, *, name: str = "spark", hold_ms: int = 0
    ) -> int:
        declared = DeclareGroup(queue, name, 0)
        scene.commit(declared, Hold(declared, hold_ms))
        assert declared.row is not None
        assert declared.row.hold_ms == hold_ms
        return declared.row.id

    def held(self, scene: Scenario) -> dict[str, int | None]:
        return {row.name: row.hold_ms for row in scene.store.catalogue()[1]}

    def test_a_position_is_one_after_reopening(self, scene: Scenario) -> None:
        queue, _ = scene.queue_and_group()
        self.position(scene, queue, hold_ms=5)
        scene.reopen()
        assert self.held(scene) == {"default": None, "spark": 5}
        self.position(scene, queue, hold_ms=7)  # the last one who says it
        assert self.held(scene)["spark"] == 7

    def test_a_removed_position_leaves_nothing(self, scene: Scenario) -> None:
        queue = scene.queue()
        position = self.position(scene, queue)
        scene.commit(RemoveGroup(position), Unhold(position))
        assert scene.do(Advance(position, EVERYTHING)).passed == 0
        scene.reopen()
        scene.group(queue, "spark")
        assert self.held(scene) == {"spark": None}

    def test_messages_stay_until_the_position_has_passed_them(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        position = self.position(scene, queue)
        first, second, third = scene.put(queue, 3)
        assert scene.start_and_ack(group, first, second) == 0
        moved = scene.do(Advance(position, second))
        assert (moved.passed, moved.removed) == (2, 2)
        assert scene.seqs(queue) == [third]
        assert scene.store.deliveries(first) == []
        moved = scene.do(Advance(position, third))
        assert (moved.passed, moved.removed) == (1, 0)
        assert scene.start_and_ack(group, third) == 1

    def test_a_position_never_moves_back(self, scene: Scenario) -> None:
        queue = scene.queue()
        position = self.position(scene, queue)
        seqs = scene.put(queue, 3)
        assert scene.do(Advance(position, seqs[1])).passed == 2
        for floor in (seqs[0], seqs[1]):
            again = scene.do(Advance(position, floor))
            assert (again.passed, again.removed) == (0, 0)
        assert scene.store.unsettled(seqs[2]) == [position]
        scene.reopen()
        (found,) = scene.store.catalogue()[1]
        assert found.floor == seqs[1]

    def test_a_position_counts_messages_of_its_queue_alone(self, scene: Scenario) -> None:
        queue, other = scene.queue(), scene.queue("other")
        position = self.position(scene, queue)
        scene.put(other, 2)
        (seq,) = scene.put(queue)
        scene.put(other, 2)
        moved = scene.do(Advance(position, EVERYTHING))
        assert (moved.passed, moved.removed) == (1, 1)
        assert len(scene.seqs(other)) == 4
        assert scene.seqs(queue) == []
        assert seq

    def test_a_retained_queue_keeps_what_a_position_has_passed(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group(retain_ms=1_000)
        position = self.position(scene, queue)
        (seq,) = scene.put(queue)
        scene.start_and_ack(group, seq)
        assert scene.do(Retire(group, EVERYTHING, 0, 10)).removed == 0
        moved = scene.do(Advance(position, seq))
        assert (moved.passed, moved.removed) == (1, 0)
        assert scene.do(Retire(group, EVERYTHING, 0, 10)).removed == 1

    def test_what_nobody_but_positions_had_to_read_lapses_by_its_age(
        self, scene: Scenario
    ) -> None:
        queue = scene.queue(retain_ms=1_000)
        position = self.position(scene, queue)
        old, unread = scene.put(queue, 2)
        young = scene.do(plain(queue, b"young", now=PUT_AT + 1)).first
        scene.commit(Advance(position, old))
        assert scene.do(Lapse(queue, 0, EVERYTHING, PUT_AT + 1)).removed == 1
        assert scene.seqs(queue) == [unread, young]
        scene.commit(Advance(position, young))
        assert scene.do(Lapse(queue, unread, EVERYTHING, PUT_AT + 1)).removed == 0
        assert scene.do(Lapse(queue, 0, unread, PUT_AT + 2)).removed == 1
        assert scene.seqs(queue) == [young]

    def test_what_was_delivered_does_not_lapse(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group(retain_ms=1_000)
        position = self.position(scene, queue)
        (seq,) = scene.put(queue)
        scene.start_and_ack(group, seq)
        scene.commit(Advance(position, seq))
        assert scene.do(Lapse(queue, 0, EVERYTHING, EVERYTHING)).removed == 0

    def test_messages_that_only_a_position_waits_for_do_not_expire(self, scene: Scenario) -> None:
        queue = scene.queue()
        self.position(scene, queue)
        put = scene.do(PutRows(queue, PUT_AT, [row(expires=5)]))
        assert scene.store.expired(9, 10) == []
        group = scene.group(queue)
        assert scene.store.expired(9, 10) == [(put.seqs[0], queue)]
        scene.start_and_ack(group, put.seqs[0])
        assert scene.store.expired(9, 10) == []

    @pytest.mark.parametrize(
        ("after", "upto", "time", "expected"),
        [
            (0, EVERYTHING, 10, None),
            (0, EVERYTHING, 11, 1),
            (0, EVERYTHING, 21, 4),
            (0, EVERYTHING, 31, EVERYTHING),
            (0, 4, 99, 4),
            (0, 3, 99, 3),
            (1, EVERYTHING, 20, None),
            (5, EVERYTHING, 99, None),
            (4, 4, 99, None),
        ],
    )
    def test_how_far_messages_are_older_than_a_time(
        self, scene: Scenario, after: int, upto: int, time: int, expected: int | None
    ) -> None:
        queue, other = scene.queue(), scene.queue("other")
        for now, where in ((10, queue), (20, queue), (1, other), (20, queue), (30, queue)):
            scene.do(plain(where, b"x", now=now))
        assert scene.store.put_before(queue, after, upto, time) == expected
