"""Theme: dead letters keep the message and its attempts; they are put again or purged."""

from __future__ import annotations

import msgspec
import pytest

from embedq.lifecycle import Outcome, Reason
from embedq.limits import LIMITS
from embedq.message import AttemptRecord, ErrorInfo
from embedq.storage.ops import Bury, Fail, PurgeDead, Redrive, Start
from embedq.storage.rows import REDRIVEN_FROM
from tests.conformance.scenario import (
    ENDED,
    PUT_AT,
    RETRY_AT,
    STARTED,
    Scenario,
    Theme,
    attempts_of,
    checksum,
)

REDRIVEN_AT = 9_000


class DeadLetters(Theme):
    def die(self, scene: Scenario, group: int, *seqs: int) -> list[int]:
        dead = [scene.bury(group, seq).dead_id for seq in seqs]
        assert None not in dead
        return [number or 0 for number in dead]

    def redrive(self, scene: Scenario, queue: int, *dead: int) -> list[int | None]:
        origins = [f"id-of-{number}" for number in dead]
        return scene.do(Redrive(queue, list(dead), origins, REDRIVEN_AT)).seqs

    def test_a_letter_holds_the_whole_message_and_says_why(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        headers = msgspec.msgpack.encode({"a": "b"})
        columns = {"kind": 2, "priority": 5, "key": "c-3", "max_attempts": 7, "headers": headers}
        seq = scene.put_row(queue, b"hello", **columns, due=PUT_AT + 1, expires=PUT_AT + 2)
        bury = scene.do(Bury(group, seq, ENDED, Reason.EXPIRED, "too late", "upkeep"))
        letter = scene.store.dead_letter(seq, group)
        assert letter is not None
        assert letter._asdict() == {
            "id": bury.dead_id,
            "seq": seq,
            "group": group,
            "queue": queue,
            "died": ENDED,
            "reason": "expired",
            "detail": "too late",
            "moved_by": "upkeep",
            "attempts": letter.attempts,
            "put_at": PUT_AT,
            "crc": checksum(b"hello", headers),
            "body": b"hello",
            **columns,
        }
        assert attempts_of(letter) == []

    def test_the_message_leaves_when_nobody_else_waits(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        scene.start(group, seq)
        assert scene.bury(group, seq).removed == 1
        assert (scene.message(seq), scene.store.deliveries(seq)) == (None, [])
        assert scene.open_deliveries(group) == {}

    def test_a_running_delivery_ends_as_the_last_attempt(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        session = scene.session("worker-1")
        (seq,) = scene.put(queue)
        first, second = ErrorInfo("ValueError", "once"), ErrorInfo("KeyError", "twice")
        scene.start(group, seq, session=session)
        scene.commit(Fail(group, seq, 1, 2_100, Outcome.TIMED_OUT, 2_200, first.encode()))
        scene.again(group, seq, 2, now=2_300)
        bury = Bury(group, seq, 2_400, Reason.MAX_ATTEMPTS, error=second.encode())
        scene.commit(bury)
        (letter,) = scene.letters(queue)
        assert attempts_of(letter) == [
            AttemptRecord(1, STARTED, 2_100, "worker-1", Outcome.TIMED_OUT, first),
            AttemptRecord(2, 2_300, 2_400, "", Outcome.FAILED, second),
        ]

    def test_a_letter_tells_a_crash_of_the_last_attempt(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        scene.start(group, seq)
        scene.again(group, seq, 2, crashes=1, now=2_300)
        scene.commit(Bury(group, seq, ENDED, Reason.CRASHED, outcome=Outcome.CRASHED))
        (letter,) = scene.letters(queue)
        outcomes = [(record.ended_ms, record.outcome) for record in attempts_of(letter)]
        assert outcomes == [(2_300, Outcome.CRASHED), (ENDED, Outcome.CRASHED)]

    def test_only_the_newest_attempts_are_kept(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        scene.start(group, seq)
        last = LIMITS.attempts_kept + 20
        for attempt in range(2, last + 1):
            scene.again(group, seq, attempt)
        scene.bury(group, seq)
        kept = [record.attempt for record in attempts_of(scene.letters(queue)[0])]
        assert kept == list(range(last - LIMITS.attempts_kept + 1, last + 1))

    def test_while_others_wait_the_delivery_is_closed_as_dead(self, scene: Scenario) -> None:
        queue, group, audit = scene.queue_and_groups()
        (seq,) = scene.put(queue)
        scene.start(group, seq)
        bury = scene.do(Bury(group, seq, ENDED, Reason.REJECTED, error=b"why"))
        assert bury.removed == 0
        (found,) = scene.store.deliveries(seq)
        assert (found.attempt, found[-5:]) == (1, (ENDED, Outcome.DEAD, None, None, b"why"))
        assert scene.store.unsettled(seq) == [audit]
        assert scene.open_deliveries(group) == {}

    def test_while_others_wait_a_death_without_delivery_is_attempt_0(
        self, scene: Scenario
    ) -> None:
        queue, group, audit = scene.queue_and_groups()
        (seq,) = scene.put(queue)
        scene.bury(group, seq)
        (found,) = scene.store.deliveries(seq)
        assert (found.attempt, found.epoch, found.outcome) == (0, scene.store.epoch, Outcome.DEAD)
        assert (found.counter, found.crashes, found.session) == (0, 0, None)
        assert (found.started, found.ended, found.due) == (ENDED, ENDED, None)
        assert scene.store.unsettled(seq) == [audit]
        assert attempts_of(scene.letters(queue)[0]) == []

    def test_a_message_that_waits_for_its_retry_can_die(self, scene: Scenario) -> None:
        queue, group, _ = scene.queue_and_groups()
        (seq,) = scene.put(queue)
        scene.start(group, seq)
        scene.fail(group, seq, due=RETRY_AT)
        scene.bury(group, seq)
        (letter,) = scene.letters(queue)
        assert [record.attempt for record in attempts_of(letter)] == [1]
        settled, failed = scene.store.deliveries(seq)
        assert (settled.attempt, settled.outcome) == (0, Outcome.DEAD)
        assert (failed.attempt, failed.outcome, failed.due) == (1, Outcome.FAILED, None)
        assert scene.retries(group) == []

    def test_the_last_group_removes_the_message_by_burying_it(self, scene: Scenario) -> None:
        queue, group, audit = scene.queue_and_groups()
        first, second = scene.put(queue, 2)
        scene.start_and_ack(group, first)
        assert scene.bury(audit, first).removed == 1
        assert (scene.bury(audit, second).removed, scene.bury(group, second).removed) == (0, 1)
        assert scene.seqs(queue) == []
        assert len(scene.letters(queue)) == 3

    def test_what_is_gone_or_settled_cannot_die(self, scene: Scenario) -> None:
        queue, group, audit = scene.queue_and_groups()
        acked, dead, below = scene.put(queue, 3)
        late = scene.group(queue, "late", floor=below)
        scene.start_and_ack(group, acked)
        scene.bury(group, dead)
        for where, seq in ((group, acked), (group, dead), (late, below), (audit, 12_345)):
            bury = scene.bury(where, seq)
            assert (bury.dead_id, bury.removed) == (None, 0)
        assert len(scene.letters(queue)) == 1

    def test_one_message_may_die_once_in_each_group(self, scene: Scenario) -> None:
        queue, group, audit = scene.queue_and_groups()
        (seq,) = scene.put(queue)
        self.die(scene, audit, seq)
        self.die(scene, group, seq)
        assert [letter.group for letter in scene.letters(queue)] == [audit, group]
        for where in (group, audit):
            letter = scene.store.dead_letter(seq, where)
            assert letter is not None
            assert letter.group == where
        assert scene.store.dead_letter(seq, 12_345) is None

    def test_letters_are_listed_in_the_order_of_dying(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        other = scene.queue("mail")
        elsewhere = scene.group(other)
        seqs = scene.put(queue, 4)
        (foreign,) = scene.put(other)
        order = [seqs[2], seqs[0], seqs[3], seqs[1]]
        self.die(scene, group, *order[:2])
        self.die(scene, elsewhere, foreign)
        self.die(scene, group, *order[2:])
        listed = scene.letters(queue)
        assert [letter.seq for letter in listed] == order
        assert scene.store.dead(queue, listed[0].id, 2) == listed[1:3]
        assert scene.store.dead(queue, listed[3].id, 2) == []

    def test_a_redriven_letter_is_a_new_message_that_says_where_it_came_from(
        self, scene: Scenario
    ) -> None:
        queue, group = scene.queue_and_group()
        headers = msgspec.msgpack.encode({"a": "b"})
        columns = {"kind": 2, "priority": 5, "key": "c-3", "max_attempts": 7}
        seq = scene.put_row(queue, b"hello", **columns, headers=headers, due=1, expires=2)
        (dead,) = self.die(scene, group, seq)
        assert self.redrive(scene, queue, dead) == [seq + 1]
        message = scene.message(seq + 1)
        assert message is not None
        assert message.headers is not None
        found = message._asdict()
        assert msgspec.msgpack.decode(found.pop("headers")) == {
            "a": "b",
            REDRIVEN_FROM: f"id-of-{dead}",
        }
        assert found == {
            "seq": seq + 1,
            "queue": queue,
            "put_at": REDRIVEN_AT,
            "crc": checksum(b"hello", message.headers),
            "due": None,
            "expires": None,
            "body": b"hello",
            **columns,
        }
        assert scene.letters(queue) == []

    def test_a_redriven_message_is_delivered_like_a_new_one(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        scene.start(group, seq)
        (dead,) = self.die(scene, group, seq)
        (new,) = self.redrive(scene, queue, dead)
        assert scene.fresh(group) == [new]
        assert scene.store.deliveries(new or 0) == []

    def test_a_message_may_be_redriven_more_than_once(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        (dead,) = self.die(scene, group, seq)
        (second,) = self.redrive(scene, queue, dead)
        (dead,) = self.die(scene, group, second or 0)
        (third,) = self.redrive(scene, queue, dead)
        message = scene.message(third or 0)
        assert message is not None
        assert msgspec.msgpack.decode(message.headers or b"") == {REDRIVEN_FROM: f"id-of-{dead}"}

    def test_redriving_answers_for_each_letter(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        other = scene.queue("mail")
        elsewhere = scene.group(other)
        seqs = scene.put(queue, 3)
        (foreign,) = self.die(scene, elsewhere, *scene.put(other))
        first, second, third = self.die(scene, group, *seqs)
        found = self.redrive(scene, queue, third, 12_345, foreign, first, first)
        assert found == [5, None, None, 6, None]
        assert [letter.id for letter in scene.letters(queue)] == [second]
        assert len(scene.letters(other)) == 1

    def test_purging_removes_letters_of_one_queue(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        other = scene.queue("mail")
        elsewhere = scene.group(other)
        seqs = scene.put(queue, 3)
        (foreign,) = self.die(scene, elsewhere, *scene.put(other))
        first, second, third = self.die(scene, group, *seqs)
        purge = scene.do(PurgeDead(queue, [first, third, foreign, 12_345]))
        assert purge.removed == 2
        assert [letter.id for letter in scene.letters(queue)] == [second]
        assert [letter.id for letter in scene.letters(other)] == [foreign]

    def test_later_letters_sort_after_those_that_are_left(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        seqs = scene.put(queue, 4)
        first, second = self.die(scene, group, *seqs[:2])
        scene.commit(PurgeDead(queue, [first]))
        third, fourth = self.die(scene, group, *seqs[2:])
        assert [letter.id for letter in scene.letters(queue)] == [second, third, fourth]

    def test_letters_are_there_after_reopening(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        scene.start(group, seq)
        self.die(scene, group, seq)
        before = scene.letters(queue)
        scene.reopen()
        assert scene.letters(queue) == before

    @pytest.mark.parametrize("reason", list(Reason))
    def test_every_reason_can_be_kept(self, scene: Scenario, reason: Reason) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        scene.commit(
            Start(group, STARTED, None, 1, [seq], []), Bury(group, seq, ENDED, reason, "dětail")
        )
        (letter,) = scene.letters(queue)
        assert (letter.reason, letter.detail) == (reason.value, "dětail")
