"""Theme: what a put stores, and which seq it gets."""

from __future__ import annotations

import msgspec
import pytest

from embedq.lifecycle import Outcome
from embedq.storage.ops import Again, PutRows, Start
from embedq.storage.rows import Stored
from tests.conformance.scenario import (
    EVERYTHING,
    PUT_AT,
    STARTED,
    Scenario,
    Theme,
    checksum,
    plain,
    row,
)

# Around the sizes in which a store may cut its statements.
COUNTS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 31, 32, 33, 63, 99, 100, 101, 132, 250)


class Puts(Theme):
    def test_the_first_message_of_a_new_store_gets_seq_1(self, scene: Scenario) -> None:
        assert scene.store.last_seq == 0
        assert scene.put(scene.queue()) == [1]

    def test_seqs_follow_each_other_within_a_commit_and_between_commits(
        self, scene: Scenario
    ) -> None:
        queue, other = scene.queue(), scene.queue("mail")
        first, second = plain(queue, b"a"), plain(other, b"b", b"c")
        rows, last = PutRows(queue, PUT_AT, [row(b"d"), row(b"e", priority=3)]), plain(queue, b"f")
        scene.commit(first, second, rows, last)
        assert (first.first, second.first, rows.seqs, last.first) == (1, 2, [4, 5], 6)
        assert scene.put(other) == [7]

    def test_last_seq_is_that_of_the_last_put(self, scene: Scenario) -> None:
        queue = scene.queue()
        scene.put(queue, 3)
        assert scene.store.last_seq == 3
        scene.put_row(queue, priority=1)
        assert scene.store.last_seq == 4

    @pytest.mark.parametrize("count", COUNTS)
    def test_a_put_of_many_stores_them_in_order_without_a_gap(
        self, scene: Scenario, count: int
    ) -> None:
        queue = scene.queue()
        scene.put(queue)
        bodies = [b"%d" % number for number in range(count)]
        put = scene.do(plain(queue, *bodies))
        stored = scene.store.range(queue, 1, EVERYTHING)
        assert [message.body for message in stored] == bodies
        assert [message.seq for message in stored] == list(range(put.first, put.first + count))

    @pytest.mark.parametrize("count", COUNTS)
    def test_a_put_alone_does_the_same_as_a_commit(self, scene: Scenario, count: int) -> None:
        queue, other = scene.queue(), scene.queue("mail")
        scene.put(queue)
        bodies = [b"%d" % number for number in range(count)]
        put = scene.put_alone(plain(other, *bodies, kind=2, now=77))
        assert (put.first, scene.store.last_seq) == (2, count + 1)
        stored = scene.store.range(other, 0, EVERYTHING)
        assert [(m.kind, m.put_at, m.crc, m.body) for m in stored] == [
            (2, 77, checksum(body), body) for body in bodies
        ]
        assert [m.seq for m in stored] == list(range(2, count + 2))
        assert scene.put(queue) == [count + 2]

    @pytest.mark.parametrize("count", COUNTS)
    def test_puts_of_single_messages_meet_in_one_commit(self, scene: Scenario, count: int) -> None:
        queue, other = scene.queue(), scene.queue("mail")
        puts = [
            plain((queue, other)[number % 2], b"%d" % number, kind=number % 3, now=number)
            for number in range(count)
        ]
        scene.commit(*puts)
        assert [put.first for put in puts] == list(range(1, count + 1))
        for number, put in enumerate(puts):
            message = scene.message(put.first)
            assert message is not None
            assert message[:4] == (put.first, put.queue, number, number % 3)
            assert message.body == b"%d" % number

    @pytest.mark.parametrize("count", COUNTS)
    def test_rows_of_every_kind_keep_their_order(self, scene: Scenario, count: int) -> None:
        queue = scene.queue()
        rows = [row(b"%d" % number, priority=number % 10) for number in range(count)]
        assert scene.put_rows(queue, *rows) == list(range(1, count + 1))
        stored = scene.store.range(queue, 0, EVERYTHING)
        assert [(m.priority, m.body) for m in stored] == [(r.priority, r.body) for r in rows]

    def test_a_plain_message_has_nothing_but_body_and_kind(self, scene: Scenario) -> None:
        queue = scene.queue()
        seq = scene.do(plain(queue, b"hello", kind=2)).first
        crc = checksum(b"hello")
        assert scene.message(seq) == Stored(
            seq, queue, PUT_AT, 2, crc, 0, None, None, None, None, None, b"hello"
        )

    def test_a_row_keeps_every_option_it_was_put_with(self, scene: Scenario) -> None:
        queue = scene.queue()
        headers = msgspec.msgpack.encode({"wire-id": "ä/7"})
        crc = checksum(b"hello", headers)
        columns = (1, crc, 9, 5_000, 9_000, "customer-ü", 0, headers, b"hello")
        seq = scene.put_row(
            queue,
            b"hello",
            kind=1,
            crc=crc,
            priority=9,
            due=5_000,
            expires=9_000,
            key="customer-ü",
            max_attempts=0,
            headers=headers,
        )
        assert scene.message(seq) == Stored(seq, queue, PUT_AT, *columns)

    @pytest.mark.parametrize(
        "body", [b"", bytes(range(256)), b"\x00", b"x" * 5_000, b"y" * (1 << 20)]
    )
    def test_a_body_comes_back_byte_for_byte(self, scene: Scenario, body: bytes) -> None:
        queue = scene.queue()
        seqs = [scene.do(plain(queue, body)).first, scene.put_row(queue, body, priority=1)]
        assert [m.body for m in scene.store.messages(seqs)] == [body, body]
        assert all(type(m.body) is bytes for m in scene.store.messages(seqs))

    def test_a_checksum_is_kept_as_given_even_if_it_is_wrong(self, scene: Scenario) -> None:
        seq = scene.put_row(scene.queue(), b"hello", crc=7)
        message = scene.message(seq)
        assert message is not None
        assert message.crc == 7

    def test_a_put_of_no_rows_stores_nothing(self, scene: Scenario) -> None:
        queue = scene.queue()
        put = scene.do(PutRows(queue, PUT_AT, []))
        assert (put.seqs, put.stored, scene.seqs(queue)) == ([], [], [])

    def test_a_range_holds_one_queue_in_seq_order_and_can_be_paged(self, scene: Scenario) -> None:
        queue, other = scene.queue(), scene.queue("mail")
        for _ in range(4):
            scene.put(other)
            scene.put(queue)
        assert scene.seqs(queue) == [2, 4, 6, 8]
        assert [m.seq for m in scene.store.range(queue, 2, 2)] == [4, 6]
        assert [m.seq for m in scene.store.range(queue, 6, 2)] == [8]
        assert scene.store.range(queue, 8, 2) == []

    @pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 16, 17, 100, 101, 230])
    def test_any_number_of_messages_is_found_by_seq(self, scene: Scenario, count: int) -> None:
        queue = scene.queue()
        seqs = scene.put(queue, 240)[5 : 5 + count]
        found = scene.store.messages([9_999, *seqs, 8_888])
        assert sorted(m.seq for m in found) == seqs

    def test_messages_that_are_not_there_are_left_out(self, scene: Scenario) -> None:
        seq = scene.put(scene.queue())[0]
        assert [m.seq for m in scene.store.messages([0, seq, seq + 1])] == [seq]
        assert scene.store.messages([]) == []

    def test_a_put_and_the_start_of_its_delivery_fit_in_one_commit(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        scene.put(queue)
        seq = scene.store.last_seq + 1
        put = plain(queue, b"straight to a waiting consumer")
        scene.commit(put, Start(group, STARTED, None, 1, [seq], []))
        assert put.first == seq
        assert scene.open_deliveries(group) == {seq: 1}
        assert scene.waiting(group)[0] == [1]

    def test_whatever_happens_to_a_message_its_content_stays(self, scene: Scenario) -> None:
        queue, group, _ = scene.queue_and_groups()
        seq = scene.put_row(queue, b"hello", priority=4, max_attempts=3)
        before = scene.message(seq)
        scene.start(group, seq)
        scene.fail(group, seq)
        scene.commit(Start(group, STARTED, None, 9, [], [Again(seq, 2, 0)]))
        scene.bury(group, seq)
        assert scene.message(seq) == before
        assert scene.store.deliveries(seq)[-1].outcome == Outcome.DEAD
