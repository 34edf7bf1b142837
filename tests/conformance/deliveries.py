"""Theme: deliveries are opened, closed, given back and looked up."""

from __future__ import annotations

import pytest

from embedq.errors import GroupNotFound
from embedq.lifecycle import Outcome
from embedq.storage.ops import Again, Fail, PutRows, Release, Start
from embedq.storage.port import Load, LoadDue
from embedq.storage.rows import DeliveryRow
from tests.conformance.scenario import (
    ENDED,
    PUT_AT,
    RETRY_AT,
    STARTED,
    Scenario,
    Theme,
    plain,
    row,
)

OPEN = (None, None, None, None, None)


class Deliveries(Theme):
    def test_a_first_delivery_is_attempt_1_and_open(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        session = scene.session("worker-1")
        (counter,) = scene.start(group, seq, session=session)
        epoch = scene.store.epoch
        expected = DeliveryRow(seq, group, 1, epoch, counter, 0, session, STARTED, *OPEN)
        assert scene.store.deliveries(seq) == [expected]
        assert scene.store.latest(group, seq) == expected

    @pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 17, 33, 101, 140])
    def test_deliveries_are_counted_on_through_one_start(
        self, scene: Scenario, count: int
    ) -> None:
        queue, group = scene.queue_and_group()
        seqs = scene.put(queue, count)
        scene.start(group, *seqs, now=STARTED)
        scene.commit(Start(group, STARTED, None, 500, [], [Again(s, 2, 1) for s in seqs]))
        assert scene.open_deliveries(group) == dict(zip(seqs, range(500, 999), strict=False))
        some = [seqs[-1] + 9, seqs[0]]
        assert scene.store.open_deliveries(group, some) == {seqs[0]: 500}
        assert scene.store.open_deliveries(group, []) == {}
        more = scene.put(queue, 2)
        start = Start(group, STARTED, None, 900, more, [Again(seqs[0], 3, 2)])
        scene.commit(start)
        found = scene.open_deliveries(group)
        assert [found[seq] for seq in (*more, seqs[0])] == [900, 901, 902]

    def test_a_start_may_answer_with_the_messages(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        seqs = scene.put(queue, 5)
        scene.start(group, seqs[4])
        start = Start(group, STARTED, None, 50, seqs[1:3], [Again(seqs[4], 2, 0)])
        start.reads = True
        scene.commit(start)
        assert scene.open_deliveries(group) == {seqs[1]: 50, seqs[2]: 51, seqs[4]: 52}
        if start.messages is not None:  # else they are asked for
            by_seq = sorted(start.messages)
            assert by_seq == sorted(scene.store.messages([*seqs[1:3], seqs[4]]))

    def test_a_start_that_does_not_ask_is_not_answered(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        start = Start(group, STARTED, None, 50, scene.put(queue, 2), [])
        scene.commit(start)
        assert start.messages is None

    @pytest.mark.parametrize("count", [1, 2, 5, 33, 140])
    def test_deliveries_may_begin_with_their_messages(self, scene: Scenario, count: int) -> None:
        queue, group, audit = scene.queue_and_groups()
        before, put, after = plain(queue, b"other"), plain(queue, *[b"body"] * count), row()
        first = Start(group, STARTED, None, 50, list(range(count)), [])
        last = Start(audit, STARTED, scene.session("worker-1"), 700, [count - 1], [])
        first.put = last.put = put
        scene.commit(before, put, first, PutRows(queue, PUT_AT, [after]), last)
        seqs = list(range(put.first, put.first + count))
        assert scene.seqs(queue) == [before.first, *seqs, seqs[-1] + 1]
        assert scene.open_deliveries(group) == dict(zip(seqs, range(50, 999), strict=False))
        assert scene.open_deliveries(audit) == {seqs[-1]: 700}
        assert scene.waiting(group)[0] == [before.first, seqs[-1] + 1]
        found = scene.store.latest(group, seqs[0])
        assert found is not None
        assert (found.attempt, found.started, found.ended) == (1, STARTED, None)

    def test_a_duplicate_begins_no_delivery(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        scene.put_row(queue, dedup_key="d", dedup_until=PUT_AT + 10)
        rows = [row(b"a"), row(b"b", dedup_key="d", dedup_until=PUT_AT + 10), row(b"c", key="k")]
        put = PutRows(queue, PUT_AT, rows)
        start = Start(group, STARTED, None, 50, [0, 1, 2], [])
        start.put = put
        scene.commit(put, start)
        assert put.stored == [0, 2]
        assert scene.open_deliveries(group) == {put.seqs[0]: 50, put.seqs[2]: 51}

    def test_the_next_start_closes_an_open_delivery_as_crashed(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        (first,) = scene.start(group, seq)
        second = scene.again(group, seq, 2, crashes=1, now=STARTED + 50)
        epoch = scene.store.epoch
        crashed = (STARTED + 50, Outcome.CRASHED, None, None, None)
        assert scene.store.deliveries(seq) == [
            # Counted here, too: the second delivery may be given back, which leaves no row.
            DeliveryRow(seq, group, 1, epoch, first, 1, None, STARTED, *crashed),
            DeliveryRow(seq, group, 2, epoch, second, 1, None, STARTED + 50, *OPEN),
        ]

    @pytest.mark.parametrize("retain_ms", [None, 60_000])
    def test_the_next_start_says_why_the_open_delivery_ended(
        self, scene: Scenario, retain_ms: int | None
    ) -> None:
        queue, group = scene.queue_and_group(retain_ms=retain_ms)
        (seq,) = scene.put(queue)
        scene.start(group, seq)
        scene.again(group, seq, 2, crashes=1, words=b"SIGSEGV")
        scene.again(group, seq, 3, crashes=2)
        errors = [row.error for row in scene.store.deliveries(seq)]
        assert errors == [b"SIGSEGV", None, None]

    @pytest.mark.parametrize("retain_ms", [None, 60_000])
    def test_the_next_start_may_close_an_open_delivery_as_something_else_than_crashed(
        self, scene: Scenario, retain_ms: int | None
    ) -> None:
        queue, group = scene.queue_and_group(retain_ms=retain_ms)
        (seq,) = scene.put(queue)
        scene.start(group, seq)
        scene.again(group, seq, 2, words=b"host", outcome=Outcome.TIMED_OUT)
        scene.again(group, seq, 3, crashes=1, outcome=Outcome.CRASHED)
        found = [(row.outcome, row.crashes, row.error) for row in scene.store.deliveries(seq)]
        assert found == [
            (Outcome.TIMED_OUT, 0, b"host"),
            (Outcome.CRASHED, 1, None),
            (None, 1, None),
        ]

    def test_the_next_start_changes_no_error_of_a_closed_delivery(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        scene.start(group, seq)
        scene.commit(Fail(group, seq, 1, ENDED, Outcome.FAILED, RETRY_AT, b"its own"))
        scene.again(group, seq, 2, words=b"SIGSEGV")
        scene.again(group, seq, 3, words=b"SIGKILL")
        errors = [row.error for row in scene.store.deliveries(seq)]
        assert errors == [b"its own", b"SIGKILL", None]

    def test_the_next_start_clears_the_retry_time_and_keeps_the_rest(
        self, scene: Scenario
    ) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        scene.start(group, seq)
        scene.commit(Fail(group, seq, 1, ENDED, Outcome.TIMED_OUT, RETRY_AT, b"slow"))
        scene.again(group, seq, 2, now=RETRY_AT)
        first = scene.store.deliveries(seq)[0]
        assert first[-5:] == (ENDED, Outcome.TIMED_OUT, None, None, b"slow")

    def test_starting_the_same_attempt_once_more_replaces_it(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        scene.start(group, seq)
        counter = scene.again(group, seq, 1, now=STARTED + 50)
        (found,) = scene.store.deliveries(seq)
        assert (found.attempt, found.counter, found.started) == (1, counter, STARTED + 50)
        assert (found.ended, found.outcome) == (None, None)

    @pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CRASHED])
    def test_a_failed_delivery_is_closed_with_what_is_known(
        self, scene: Scenario, outcome: Outcome
    ) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        scene.start(group, seq)
        scene.commit(Fail(group, seq, 1, ENDED, outcome, RETRY_AT, b"why"))
        found = scene.store.latest(group, seq)
        assert found is not None
        assert found[-5:] == (ENDED, outcome, RETRY_AT, None, b"why")
        assert scene.open_deliveries(group) == {}
        assert scene.store.unsettled(seq) == [group]

    def test_a_failure_of_an_attempt_that_is_not_open_changes_nothing(
        self, scene: Scenario
    ) -> None:
        queue, group = scene.queue_and_group()
        failed, running, waiting = scene.put(queue, 3)
        scene.start(group, failed, running)
        scene.fail(group, failed, due=RETRY_AT)
        before = [scene.store.deliveries(seq) for seq in (failed, running, waiting)]
        scene.fail(group, failed, 1, due=9_999)
        scene.fail(group, failed, 2, due=9_999)
        scene.fail(group, running, 2, due=9_999)
        scene.fail(group, waiting, 1, due=9_999)
        scene.fail(group, 12_345, 1, due=9_999)
        assert [scene.store.deliveries(seq) for seq in (failed, running, waiting)] == before

    def test_a_released_delivery_never_happened(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        seqs = scene.put(queue, 3)
        scene.start(group, *seqs)
        scene.commit(Release(group, [(seqs[0], 1), (seqs[2], 1)]))
        assert [scene.store.deliveries(seq) for seq in (seqs[0], seqs[2])] == [[], []]
        assert scene.store.latest(group, seqs[0]) is None
        assert list(scene.open_deliveries(group)) == [seqs[1]]

    def test_releasing_what_is_not_open_changes_nothing(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        failed, running = scene.put(queue, 2)
        scene.start(group, failed, running)
        scene.fail(group, failed)
        before = [scene.store.deliveries(seq) for seq in (failed, running)]
        scene.commit(Release(group, [(failed, 1), (running, 2), (12_345, 1)]))
        assert [scene.store.deliveries(seq) for seq in (failed, running)] == before

    def test_after_a_release_the_earlier_attempt_is_the_latest(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        scene.start(group, seq)
        scene.fail(group, seq)
        scene.again(group, seq, 2)
        scene.release(group, seq, 2)
        found = scene.store.latest(group, seq)
        assert found is not None
        assert (found.attempt, found.outcome, found.due) == (1, Outcome.FAILED, None)

    def test_groups_do_not_see_each_others_deliveries(self, scene: Scenario) -> None:
        queue, group, audit = scene.queue_and_groups()
        (seq,) = scene.put(queue)
        scene.start(group, seq)
        assert scene.store.latest(audit, seq) is None
        assert scene.open_deliveries(audit) == {}
        scene.commit(Release(audit, [(seq, 1)]))
        scene.fail(audit, seq)
        assert list(scene.open_deliveries(group)) == [seq]

    def test_deliveries_are_listed_by_group_and_attempt(self, scene: Scenario) -> None:
        queue, group, audit = scene.queue_and_groups()
        (seq,) = scene.put(queue)
        scene.start(audit, seq)
        scene.start(group, seq)
        scene.again(audit, seq, 2)
        scene.again(group, seq, 2)
        listed = [(found.group, found.attempt) for found in scene.store.deliveries(seq)]
        assert listed == [(group, 1), (group, 2), (audit, 1), (audit, 2)]
        assert scene.store.deliveries(12_345) == []

    def test_the_latest_delivery_is_that_with_the_highest_attempt(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        scene.start(group, seq)
        for attempt in range(2, 13):
            scene.again(group, seq, attempt)
        found = scene.store.latest(group, seq)
        assert found is not None
        assert found.attempt == 12

    def test_a_settled_or_missing_message_has_no_latest_delivery(self, scene: Scenario) -> None:
        queue, group, _ = scene.queue_and_groups()
        acked, dead, waiting = scene.put(queue, 3)
        scene.start(group, acked, dead)
        scene.ack(group, acked)
        scene.bury(group, dead)
        found = [scene.store.latest(group, seq) for seq in (acked, dead, waiting, 12_345)]
        assert found == [None] * 4

    def test_only_deliveries_of_this_epoch_count_as_open(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        old, new = scene.put(queue, 2)
        scene.start(group, old)
        scene.reopen()
        (counter,) = scene.start(group, new)
        assert scene.open_deliveries(group) == {new: counter}
        found = scene.store.latest(group, old)
        assert found is not None
        assert (found.epoch, found.ended) == (scene.store.epoch - 1, None)

    def test_sessions_have_names(self, scene: Scenario) -> None:
        first, second = scene.session("worker-1"), scene.session("wörker-2")
        assert first != second
        names = scene.store.session_names([first, second, 12_345])
        assert names == {first: "worker-1", second: "wörker-2"}
        assert scene.store.session_names([]) == {}

    def test_a_group_that_does_not_exist_is_named(self, scene: Scenario) -> None:
        queue = scene.queue()
        scene.put(queue)
        questions = (
            lambda: scene.store.load(Load(777, 0, 0, 10, 10)),
            lambda: scene.store.load_due(LoadDue(777, False, (0, 0), 10)),
            lambda: scene.store.next_of_key(777, "key", 0),
            lambda: scene.store.latest(777, 1),
        )
        for question in questions:
            with pytest.raises(GroupNotFound, match="777"):
                question()
