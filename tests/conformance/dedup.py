"""Theme: a second put with a living dedup key is the same message."""

from __future__ import annotations

from embedq.storage.ops import Cancel, Forget, PutRows
from tests.conformance.scenario import PUT_AT, Scenario, Theme, row

UNTIL = PUT_AT + 600


class Dedup(Theme):
    def test_a_second_put_with_a_living_key_answers_with_the_first_seq(
        self, scene: Scenario
    ) -> None:
        queue = scene.queue()
        first = scene.put_row(queue, b"first", dedup_key="o-17", dedup_until=UNTIL)
        again = scene.do(PutRows(queue, PUT_AT + 599, [row(b"second", dedup_key="o-17")]))
        assert (again.seqs, again.stored) == ([first], [])
        assert [m.body for m in scene.store.range(queue, 0, 9)] == [b"first"]

    def test_a_duplicate_takes_no_seq(self, scene: Scenario) -> None:
        queue = scene.queue()
        scene.put_row(queue, dedup_key="o-17", dedup_until=UNTIL)
        scene.put_row(queue, dedup_key="o-17", dedup_until=UNTIL)
        assert scene.store.last_seq == 1
        assert scene.put(queue) == [2]

    def test_only_the_rows_that_are_new_are_stored(self, scene: Scenario) -> None:
        queue = scene.queue()
        scene.put_row(queue, b"known", dedup_key="a", dedup_until=UNTIL)
        rows = [
            row(b"0"),
            row(b"1", dedup_key="a", dedup_until=UNTIL),
            row(b"2", dedup_key="b", dedup_until=UNTIL),
            row(b"3", dedup_key="b", dedup_until=UNTIL),
            row(b"4"),
        ]
        put = scene.do(PutRows(queue, PUT_AT, rows))
        assert (put.seqs, put.stored) == ([2, 1, 3, 3, 4], [0, 2, 4])
        bodies = [m.body for m in scene.store.range(queue, 1, 9)]
        assert bodies == [b"0", b"2", b"4"]

    def test_two_puts_with_the_same_key_meet_in_one_commit(self, scene: Scenario) -> None:
        queue = scene.queue()
        puts = [PutRows(queue, PUT_AT, [row(dedup_key="a", dedup_until=UNTIL)]) for _ in range(2)]
        scene.commit(*puts)
        assert [(put.seqs, put.stored) for put in puts] == [([1], [0]), ([1], [])]

    def test_a_key_ends_at_its_time(self, scene: Scenario) -> None:
        queue = scene.queue()
        rows = [row(dedup_key="a", dedup_until=UNTIL)]
        assert scene.put_rows(queue, *rows, now=PUT_AT) == [1]
        assert scene.put_rows(queue, *rows, now=UNTIL - 1) == [1]
        assert scene.put_rows(queue, *rows, now=UNTIL) == [2]

    def test_a_key_that_ended_is_taken_over_by_the_next_put(self, scene: Scenario) -> None:
        queue = scene.queue()
        scene.put_row(queue, dedup_key="a", dedup_until=UNTIL)
        new = row(dedup_key="a", dedup_until=2 * UNTIL)
        assert scene.put_rows(queue, new, now=UNTIL) == [2]
        assert scene.put_rows(queue, new, now=2 * UNTIL - 1) == [2]

    def test_a_duplicate_does_not_prolong_the_key(self, scene: Scenario) -> None:
        queue = scene.queue()
        scene.put_row(queue, dedup_key="a", dedup_until=UNTIL)
        later = row(dedup_key="a", dedup_until=10 * UNTIL)
        assert scene.put_rows(queue, later, now=UNTIL - 1) == [1]
        assert scene.put_rows(queue, later, now=UNTIL) == [2]

    def test_each_queue_has_its_own_keys(self, scene: Scenario) -> None:
        queue, other = scene.queue(), scene.queue("mail")
        scene.put_row(queue, dedup_key="a", dedup_until=UNTIL)
        assert scene.put_row(other, dedup_key="a", dedup_until=UNTIL) == 2

    def test_a_key_outlives_its_message(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        acked = scene.put_row(queue, dedup_key="a", dedup_until=UNTIL)
        cancelled = scene.put_row(queue, dedup_key="b", dedup_until=UNTIL)
        scene.start_and_ack(group, acked)
        scene.commit(Cancel(queue, [cancelled]))
        rows = row(dedup_key="a"), row(dedup_key="b")
        assert scene.put_rows(queue, *rows) == [acked, cancelled]
        assert scene.seqs(queue) == []

    def test_forgetting_removes_the_keys_that_ended_and_no_others(self, scene: Scenario) -> None:
        queue = scene.queue()
        for number, until in enumerate((UNTIL, UNTIL + 2, UNTIL + 4)):
            scene.put_row(queue, dedup_key=f"k{number}", dedup_until=until)
        assert scene.do(Forget(UNTIL + 3, 100)).removed == 2
        assert scene.do(Forget(UNTIL + 3, 100)).removed == 0
        # Asked as of an earlier time: what is forgotten is new again, what is not still counts.
        rows = [row(dedup_key=f"k{number}", dedup_until=UNTIL) for number in range(3)]
        assert scene.put_rows(queue, *rows) == [4, 5, 3]

    def test_forgetting_does_a_part_at_a_time(self, scene: Scenario) -> None:
        queue = scene.queue()
        for number in range(5):
            scene.put_row(queue, dedup_key=f"k{number}", dedup_until=UNTIL)
        assert [scene.do(Forget(UNTIL, 2)).removed for _ in range(4)] == [2, 2, 1, 0]

    def test_keys_are_known_after_reopening(self, scene: Scenario) -> None:
        queue = scene.queue()
        seq = scene.put_row(queue, dedup_key="a", dedup_until=UNTIL)
        scene.reopen()
        assert scene.put_row(queue, dedup_key="a", dedup_until=UNTIL) == seq
