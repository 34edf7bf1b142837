"""Theme: what is expired, and how messages, settlements and dead letters are counted."""

from __future__ import annotations

from embedq.storage.ops import Save
from embedq.storage.port import Tally
from tests.conformance.scenario import EVERYTHING, Scenario, Theme, row


def without_zeros(counts: dict[int, int]) -> dict[int, int]:
    return {key: count for key, count in counts.items() if count}


class Counts(Theme):
    def test_an_empty_store_counts_nothing(self, scene: Scenario) -> None:
        scene.queue_and_group()
        assert scene.tally() == Tally({}, {}, {}, 0, {})

    def test_messages_and_settlements_are_counted(self, scene: Scenario) -> None:
        queue, group, audit = scene.queue_and_groups()
        other = scene.queue("mail")
        elsewhere = scene.group(other)
        seqs = scene.put(queue, 4)
        foreign = scene.put(other, 3)
        scene.start_and_ack(group, *seqs[:2])
        scene.bury(group, seqs[2])
        scene.start(audit, seqs[1])
        scene.fail(audit, seqs[1])
        scene.start_and_ack(elsewhere, foreign[0])
        late = scene.group(queue, "late", floor=seqs[1])
        assert scene.tally() == Tally(
            {queue: 4, other: 2},
            {queue: seqs[-1], other: foreign[-1]},
            {group: 3, late: 2},
            foreign[-1],
            {queue: 1},
        )

    def test_a_message_below_the_floor_is_counted_once(self, scene: Scenario) -> None:
        queue, group, _ = scene.queue_and_groups(retain_ms=1_000)
        seqs = scene.put(queue, 3)
        scene.start_and_ack(group, seqs[0], seqs[2])
        late = scene.group(queue, "late", floor=seqs[1])
        scene.start_and_ack(late, seqs[2])
        assert scene.tally().settled == {group: 2, late: 3}

    def test_everything_can_be_counted_as_of_one_moment(self, scene: Scenario) -> None:
        queue, group, audit = scene.queue_and_groups()
        other = scene.queue("mail")
        seqs = scene.put(queue, 5)
        scene.put(other, 2)
        scene.start_and_ack(group, *seqs[:2])
        scene.bury(group, seqs[2])
        late = scene.group(queue, "late", floor=seqs[0])
        count = scene.store.begin_tally()
        expected = Tally(
            {queue: 5, other: 2},
            {queue: seqs[-1], other: scene.store.last_seq},
            {group: 3, late: 1},
            scene.store.last_seq,
            {queue: 1},
        )
        # From here on everything changes, but the moment has been fixed.
        for where in (audit, group):
            scene.start_and_ack(where, seqs[4])
            scene.bury(where, seqs[3])
        scene.commit(Save([], [(group, seqs[3], 4), (late, seqs[4], 5)], exact=False))
        scene.put(queue, 3)
        found = count()
        assert found._replace(settled=without_zeros(found.settled)) == expected

    def test_upkeep_changes_nothing_that_can_be_seen(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        seqs = scene.put(queue, 20)
        scene.start_and_ack(group, *seqs[:10])
        before = scene.store.range(queue, 0, EVERYTHING)
        scene.store.look_around()
        scene.store.rest(100)
        assert scene.store.range(queue, 0, EVERYTHING) == before
        assert scene.put(queue) == [21]

    def test_dead_letters_are_counted_by_queue(self, scene: Scenario) -> None:
        queue, group, audit = scene.queue_and_groups()
        other = scene.queue("mail")
        elsewhere = scene.group(other)
        scene.queue("empty")
        (seq,), (foreign,) = scene.put(queue), scene.put(other)
        scene.bury(group, seq)
        scene.bury(audit, seq)
        scene.bury(elsewhere, foreign)
        assert scene.tally().dead == {queue: 2, other: 1}

    def test_expired_messages_come_oldest_first(self, scene: Scenario) -> None:
        queue, _ = scene.queue_and_group()
        other = scene.queue("mail")
        scene.group(other)
        times = (7_000, 5_000, None, 9_000, 6_000)
        seqs = scene.put_rows(queue, *[row(expires=time) for time in times])
        foreign = scene.put_row(other, expires=5_500)
        expired = [(seqs[1], queue), (foreign, other), (seqs[4], queue), (seqs[0], queue)]
        assert scene.store.expired(7_000, 100) == expired
        assert scene.store.expired(7_000, 2) == expired[:2]
        assert scene.store.expired(6_999, 100) == expired[:3]
        assert scene.store.expired(4_999, 100) == []

    def test_a_message_expires_in_the_groups_that_still_wait(self, scene: Scenario) -> None:
        queue, group, audit = scene.queue_and_groups()
        seq = scene.put_row(queue, expires=5_000)
        scene.start_and_ack(group, seq)
        assert scene.store.expired(5_000, 100) == [(seq, queue)]
        assert scene.store.unsettled(seq) == [audit]

    def test_a_message_that_no_group_waits_for_expires_if_there_is_no_group(
        self, scene: Scenario
    ) -> None:
        queue = scene.queue()
        seq = scene.put_row(queue, expires=5_000)
        assert scene.store.expired(5_000, 100) == [(seq, queue)]

    def test_settled_messages_are_not_in_the_way_of_expired_ones(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group(retain_ms=1_000)
        settled = scene.put_rows(queue, *[row(expires=5_000) for _ in range(5)])
        waiting = scene.put_row(queue, expires=6_000)
        scene.start_and_ack(group, *settled[:4])
        scene.bury(group, settled[4])
        assert scene.store.expired(9_000, 3) == [(waiting, queue)]
        assert scene.seqs(queue) == [*settled, waiting]

    def test_ranges_and_counts_see_the_same_messages(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        seqs = scene.put(queue, 30)
        scene.start_and_ack(group, *seqs[::3])
        assert scene.tally().stored == {queue: 20}
        assert len(scene.store.range(queue, 0, EVERYTHING)) == 20
