"""Theme: the streams of waiting messages that the ready index is made from."""

from __future__ import annotations

import pytest

from embedq.storage.port import Load
from embedq.storage.rows import Touched, Waiting
from tests.conformance.scenario import RETRY_AT, Scenario, Theme, row


class Loading(Theme):
    def test_fresh_messages_come_in_seq_order(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        other = scene.queue("mail")
        mine = []
        for _ in range(4):
            mine += scene.put(queue)
            scene.put(other)
        assert scene.fresh(group) == mine

    def test_each_priority_is_a_stream_of_its_own(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        seqs = scene.put_rows(queue, *[row(priority=p) for p in (0, 9, 4, 9, 0, 4)])
        assert scene.fresh(group, 9) == [seqs[1], seqs[3]]
        assert scene.fresh(group, 4) == [seqs[2], seqs[5]]
        assert scene.fresh(group, 0) == [seqs[0], seqs[4]]
        assert scene.fresh(group, 1) == []

    @pytest.mark.parametrize("priority", [0, 6])
    def test_a_chunk_covers_its_stretch_and_no_more(self, scene: Scenario, priority: int) -> None:
        queue, group = scene.queue_and_group()
        scene.put_rows(queue, *[row(priority=priority) for _ in range(10)])
        chunk = scene.store.load(Load(group, priority, 3, 7, 100))
        assert (chunk.fresh, chunk.others, chunk.after) == ([4, 5, 6, 7], [], 7)
        chunk = scene.store.load(Load(group, priority, 0, 10, 4))
        assert (chunk.fresh, chunk.after) == ([1, 2, 3, 4], 4)

    @pytest.mark.parametrize("priority", [0, 6])
    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
    def test_no_message_is_lost_between_chunks(
        self, scene: Scenario, limit: int, priority: int
    ) -> None:
        queue, group, _ = scene.queue_and_groups()
        keys = (None, "a", None, None, "b")
        seqs = scene.put_rows(
            queue, *[row(priority=priority, key=keys[number % 5]) for number in range(20)]
        )
        scene.start_and_ack(group, *seqs[3:9])
        scene.start(group, seqs[10])
        fresh, others = scene.waiting(group, priority, limit=limit)
        left = [*seqs[:3], *seqs[9:]]
        assert sorted([*fresh, *(found.seq for found in others)]) == left
        assert fresh == [seq for seq in left if (seq - 1) % 5 not in {1, 4} and seq != seqs[10]]

    def test_an_empty_stretch_is_done_with_one_look(self, scene: Scenario) -> None:
        _, group = scene.queue_and_group()
        chunk = scene.store.load(Load(group, 0, 10, 20, 5))
        assert (chunk.fresh, chunk.others, chunk.after) == ([], [], 20)

    def test_a_message_with_options_but_no_key_is_fresh(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        seq = scene.put_row(queue, expires=9_000, max_attempts=2, headers=b"\x80")
        assert scene.fresh(group) == [seq]

    def test_a_message_with_a_key_is_described(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        seq = scene.put_row(queue, key="c-3", max_attempts=2, priority=3)
        assert scene.waiting(group, 3) == ([], [Waiting(seq, 3, "c-3", None, 2, None)])

    def test_a_delayed_message_with_a_key_is_in_its_stream(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        seq = scene.put_row(queue, key="c-3", due=5_000)
        assert scene.waiting(group) == ([], [Waiting(seq, 0, "c-3", 5_000, None, None)])
        assert scene.delayed(group) == []

    def test_an_open_delivery_is_shown_with_its_message(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        seq = scene.put_row(queue, max_attempts=4)
        scene.start(group, seq)
        counter = scene.again(group, seq, 2, crashes=1)
        touched = Touched(seq, 2, 1, scene.store.epoch, counter, True, None)
        assert scene.waiting(group) == ([], [Waiting(seq, 0, None, None, 4, touched)])

    def test_what_a_crash_left_open_is_still_shown(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        seqs = [scene.put(queue)[0], scene.put_row(queue, key="a")]
        first, second = scene.start(group, *seqs)
        epoch = scene.store.epoch
        scene.reopen()
        assert scene.waiting(group) == (
            [],
            [
                Waiting(
                    seqs[0], 0, None, None, None, Touched(seqs[0], 1, 0, epoch, first, True, None)
                ),
                Waiting(
                    seqs[1], 0, "a", None, None, Touched(seqs[1], 1, 0, epoch, second, True, None)
                ),
            ],
        )

    def test_a_retry_without_key_is_not_in_the_stream(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        (counter,) = scene.start(group, seq)
        scene.fail(group, seq, due=RETRY_AT)
        assert scene.waiting(group) == ([], [])
        touched = Touched(seq, 1, 0, scene.store.epoch, counter, False, RETRY_AT)
        assert scene.timed(group, retries=True) == [Waiting(seq, 0, None, RETRY_AT, None, touched)]
        assert scene.delayed(group) == []

    def test_a_retry_with_a_key_keeps_its_place_in_the_stream(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        seq = scene.put_row(queue, key="c-3")
        (counter,) = scene.start(group, seq)
        scene.fail(group, seq, due=RETRY_AT)
        touched = Touched(seq, 1, 0, scene.store.epoch, counter, False, RETRY_AT)
        assert scene.waiting(group) == ([], [Waiting(seq, 0, "c-3", RETRY_AT, None, touched)])
        assert scene.retries(group) == []

    def test_a_retry_that_is_given_back_is_ready_again(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        (counter,) = scene.start(group, seq)
        scene.fail(group, seq)
        scene.again(group, seq, 2)
        scene.release(group, seq, 2)
        touched = Touched(seq, 1, 0, scene.store.epoch, counter, False, None)
        assert scene.waiting(group) == ([], [Waiting(seq, 0, None, None, None, touched)])
        assert scene.retries(group) == []

    def test_delayed_messages_come_by_time_then_seq(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        times = (5_000, 4_000, 5_000, 3_000)
        rows = [row(due=due, priority=number) for number, due in enumerate(times)]
        seqs = scene.put_rows(queue, *rows)
        scene.put_row(scene.queue("mail"), due=3_500)
        assert scene.delayed(group) == [seqs[3], seqs[1], seqs[0], seqs[2]]
        for priority in range(4):
            assert scene.waiting(group, priority) == ([], [])

    @pytest.mark.parametrize("retries", [False, True])
    @pytest.mark.parametrize("limit", [1, 2, 3, 50])
    def test_no_time_is_lost_between_chunks(
        self, scene: Scenario, limit: int, *, retries: bool
    ) -> None:
        queue, group, _ = scene.queue_and_groups()
        times = [3_000 + number % 3 for number in range(12)]
        keys = ["k" if number % 4 == 0 else None for number in range(12)]
        due = [None if retries else time for time in times]
        rows = [row(due=time, key=key) for time, key in zip(due, keys, strict=True)]
        seqs = scene.put_rows(queue, *rows)
        if retries:
            scene.start(group, *seqs)
            for seq, time in zip(seqs, times, strict=True):
                scene.fail(group, seq, due=time)
        scene.bury(group, seqs[5])
        found = [row.seq for row in scene.timed(group, retries=retries, limit=limit)]
        expected = [n for n in range(12) if n % 4 and n != 5]
        assert found == [seqs[n] for n in sorted(expected, key=lambda n: (times[n], n))]

    def test_a_delayed_message_that_a_crash_left_open_is_shown_with_its_delivery(
        self, scene: Scenario
    ) -> None:
        queue, group = scene.queue_and_group()
        seq = scene.put_row(queue, due=5_000, priority=2)
        (counter,) = scene.start(group, seq)
        epoch = scene.store.epoch
        scene.reopen()
        touched = Touched(seq, 1, 0, epoch, counter, True, None)
        assert scene.timed(group, retries=False) == [Waiting(seq, 2, None, 5_000, None, touched)]
        assert scene.waiting(group, 2) == ([], [])
        assert scene.retries(group) == []

    def test_of_a_delayed_message_that_failed_only_the_retry_counts(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        seq = scene.put_row(queue, due=2_000)
        scene.start(group, seq)
        scene.fail(group, seq, due=RETRY_AT)
        assert (scene.delayed(group), scene.retries(group)) == ([], [seq])
        scene.again(group, seq, 2)
        scene.release(group, seq, 2)
        assert (scene.delayed(group), scene.retries(group)) == ([seq], [])

    def test_groups_have_their_own_times(self, scene: Scenario) -> None:
        queue, group, audit = scene.queue_and_groups()
        seq = scene.put_row(queue, due=2_000)
        scene.start(group, seq)
        scene.fail(group, seq)
        assert (scene.delayed(group), scene.retries(group)) == ([], [seq])
        assert (scene.delayed(audit), scene.retries(audit)) == ([seq], [])

    def test_settled_messages_are_in_no_stream(self, scene: Scenario) -> None:
        queue, group, _ = scene.queue_and_groups()
        rows = [row(), row(key="k"), row(due=2_000), row(priority=3)]
        seqs = scene.put_rows(queue, *rows)
        late = scene.group(queue, "late", floor=seqs[-1])
        for seq in seqs[:2]:
            scene.start_and_ack(group, seq)
        for seq in seqs[2:]:
            scene.bury(group, seq)
        for where in (group, late):
            assert scene.waiting(where) == scene.waiting(where, 3) == ([], [])
            assert (scene.delayed(where), scene.retries(where)) == ([], [])
            assert scene.store.next_of_key(where, "k", 0) is None

    def test_the_messages_of_a_key_follow_each_other(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        other = scene.queue("mail")
        first, _, second, third = scene.put_rows(
            queue,
            row(key="k"),
            row(key="l"),
            row(key="k", due=5_000, priority=7, max_attempts=2),
            row(key="k"),
        )
        scene.put_row(other, key="k")
        found = scene.store.next_of_key(group, "k", 0)
        assert found == Waiting(first, 0, "k", None, None, None)
        found = scene.store.next_of_key(group, "k", first)
        assert found == Waiting(second, 7, "k", 5_000, 2, None)
        assert scene.store.next_of_key(group, "k", third) is None
        assert scene.store.next_of_key(group, "nobody", 0) is None

    def test_the_next_of_a_key_is_shown_with_its_delivery(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        seq = scene.put_row(queue, key="k")
        (counter,) = scene.start(group, seq)
        scene.fail(group, seq, due=RETRY_AT)
        touched = Touched(seq, 1, 0, scene.store.epoch, counter, False, RETRY_AT)
        found = scene.store.next_of_key(group, "k", 0)
        assert found == Waiting(seq, 0, "k", RETRY_AT, None, touched)

    def test_the_next_of_a_key_skips_what_the_group_has_settled(self, scene: Scenario) -> None:
        queue, group, audit = scene.queue_and_groups()
        first, second = scene.put_rows(queue, row(key="k"), row(key="k"))
        scene.start_and_ack(group, first)
        mine = scene.store.next_of_key(group, "k", 0)
        theirs = scene.store.next_of_key(audit, "k", 0)
        assert mine is not None
        assert theirs is not None
        assert (mine.seq, theirs.seq) == (second, first)
