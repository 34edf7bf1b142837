"""What is made of rows that nobody can trust: no message is lost, none takes another's place."""

import sqlite3
import zlib
from contextlib import closing

import pytest

from embedq.ids import SEQ_MAX
from embedq.lifecycle import Reason
from embedq.policy import QueuePolicy
from embedq.storage import schema
from embedq.storage.rescue import Rescue
from embedq.storage.wreck import GROUP_NAMES, NUMBERS, QUEUE_NAMES, Row, shapes_of

NOW = 1_700_000_000_000
RESERVED = 500


@pytest.fixture
def new():
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema.migrate(connection, 0)
        yield connection


@pytest.fixture
def rescue(new):
    rescue = Rescue(new, shapes_of(new), NOW)
    rescue.add(Row("meta", ("store_key", b"k" * 16)))
    rescue.add(Row("meta", ("epoch", 4)))
    rescue.add(Row("meta", ("seq_reserved", RESERVED)))
    rescue.add(Row("queue", (1, "orders", QueuePolicy().encode().decode(), 0, 0, 0, 0, None)))
    rescue.add(Row("consumer_group", (2, 1, "default", 0, 0)))
    return rescue


def message(seq, body=b"body", *, crc=None, queue=1, **how):
    crc = zlib.crc32(body) if crc is None else crc
    return Row("msg", (seq, queue, 5, 0, crc, 0, None, None, None, None, None, body), **how)


def letter(id_, seq, body=b"body", *, grp=2, crc=None, reason="rejected", **how):
    crc = zlib.crc32(body) if crc is None else crc
    values = (id_, seq, grp, 1, 7, reason, "why", "", None, 5, 0, crc, 0, None, None, None, body)
    return Row("dead", values, **how)


def bodies(new):
    return dict(new.execute("SELECT seq, body FROM msg"))


def letters(new):
    return new.execute("SELECT seq, grp, reason, detail, body FROM dead ORDER BY id").fetchall()


def test_a_damaged_message_is_a_letter_of_the_first_group_under_its_own_number(new, rescue):
    rescue.add(message(9, crc=1))
    rescue.finish()
    assert bodies(new) == {}
    ((seq, group, reason, detail, body),) = letters(new)
    assert (seq, group, reason, body) == (9, 2, Reason.CORRUPT, b"body")
    assert "checksum" in detail
    assert rescue.damaged == 1


def test_of_a_queue_without_groups_it_is_a_letter_of_group_0(new, rescue):
    new.execute("DELETE FROM consumer_group")
    rescue.add(message(9, crc=1))
    rescue.finish()
    assert letters(new)[0][1] == 0


def test_a_damaged_message_from_a_page_that_may_be_free_is_left_out_and_a_sound_one_is_not(
    new, rescue
):
    rescue.add(message(9, crc=1, used=False))
    rescue.add(message(10, used=False))
    rescue.add(letter(1, 11, crc=1, used=False))
    rescue.finish()
    assert bodies(new) == {10: b"body"}
    assert letters(new) == []


def test_the_same_message_twice_is_one(new, rescue):
    rescue.add(message(9))
    rescue.add(message(9))
    rescue.add(message(9, body=b"bodX", crc=zlib.crc32(b"body")))
    rescue.add(message(9, doubt="it is out of order on its page"))
    rescue.finish()
    assert bodies(new) == {9: b"body"}
    assert letters(new) == []


def test_of_two_messages_with_one_number_the_second_gets_a_new_one(new, rescue):
    rescue.add(message(9, b"first"))
    rescue.add(message(9, b"second"))
    rescue.finish()
    assert bodies(new) == {9: b"first"}
    ((seq, _, _, detail, body),) = letters(new)
    assert seq == RESERVED + 1
    assert body == b"second"
    assert "it was number 9" in detail
    assert dict(new.execute("SELECT key, value FROM meta"))["seq_reserved"] == RESERVED + 1


@pytest.mark.parametrize("seq", [0, -5, RESERVED + 2**25, SEQ_MAX + 1])
def test_a_number_that_was_never_given_out_is_replaced(new, rescue, seq):
    rescue.add(message(seq))
    rescue.finish()
    assert bodies(new) == {}
    assert letters(new)[0][0] == RESERVED + 1


def test_a_number_above_the_mark_counts_when_the_mark_may_be_old(new, rescue):
    rescue.add(message(RESERVED + 10_000))
    rescue.finish()
    assert bodies(new) == {RESERVED + 10_000: b"body"}
    assert dict(new.execute("SELECT key, value FROM meta"))["seq_reserved"] == RESERVED + 10_000


def test_a_number_that_the_page_above_does_not_expect_waits_for_a_better_claim(new, rescue):
    rescue.add(message(9, b"claims 9", outside=True))
    rescue.add(message(10, b"claims 10", outside=True))
    rescue.add(message(9, b"has 9"))
    rescue.finish()
    assert bodies(new) == {9: b"has 9", 10: b"claims 10"}
    assert [row[4] for row in letters(new)] == [b"claims 9"]


def test_the_number_of_a_damaged_message_outside_its_page_is_not_believed(new, rescue):
    rescue.add(message(9, crc=1, outside=True))
    rescue.finish()
    assert letters(new)[0][0] == RESERVED + 1


def test_a_damaged_queue_column_does_not_make_a_queue(new, rescue):
    rescue.add(message(9, crc=1, queue=77))
    rescue.finish()
    assert new.execute("SELECT name FROM queue").fetchall() == [("orders",)]
    assert new.execute("SELECT queue FROM dead").fetchall() == [(1,)]


def test_a_sound_message_of_an_unknown_queue_makes_one(new, rescue):
    new.execute("INSERT INTO queue(name,policy,retained) VALUES ('recovered-77','{}',0)")
    rescue.add(message(9, queue=77))
    rescue.add(Row(QUEUE_NAMES, ("named", 78)))
    rescue.finish()
    names = dict(new.execute("SELECT id, name FROM queue"))
    assert names[77] == "recovered-77-2"
    assert names[78] == "named"
    assert len(rescue.notes) == 2


def test_groups_come_back_from_their_names_and_their_deliveries(new, rescue):
    rescue.add(message(9))
    rescue.add(Row("delivery", (9, 5, 1, 4, 1, 0, None, 1, None, None, None, None, None)))
    rescue.add(Row("delivery", (9, 6, 1, 4, 1, 0, None, 1, None, None, None, None, None)))
    rescue.add(Row(GROUP_NAMES, (1, "audit", 6)))
    rescue.finish()
    groups = new.execute("SELECT id, queue, name FROM consumer_group ORDER BY id").fetchall()
    assert groups == [(2, 1, "default"), (5, 1, "recovered-5"), (6, 1, "audit")]
    assert len(new.execute("SELECT * FROM delivery").fetchall()) == 2


def test_impossible_ids_are_not_counted_on_from(new, rescue):
    rescue.add(Row("consumer_group", (2**60, 1, "far", 0, 0)))
    rescue.add(Row(NUMBERS, ("consumer_group", 2**40)))
    rescue.add(Row(NUMBERS, ("dead", 12)))
    rescue.add(Row(NUMBERS, ("dead", -1)))
    rescue.add(letter(2**60, 3, b"far", grp=40))
    rescue.finish()
    assert rescue.dropped == {"consumer_group": 1}
    numbers = dict(new.execute("SELECT name, seq FROM sqlite_sequence"))
    assert numbers == {"consumer_group": 40, "dead": 12}


def test_letters_that_claim_one_id_or_one_number_are_all_kept_but_doubles_are_not(new, rescue):
    rescue.add(letter(1, 3, b"first"))
    rescue.add(letter(1, 4, b"second"))
    rescue.add(letter(1, 3, b"first"))
    rescue.add(letter(5, -3, b"third"))
    rescue.add(letter(6, 8, b"fourth", crc=1))
    rescue.add(letter(7, 9, b"fifth", crc=1, reason="corrupt"))
    rescue.finish()
    found = {row[4]: row for row in letters(new)}
    assert list(found) == [b"first", b"second", b"third", b"fourth", b"fifth"]
    assert found[b"third"][0] == RESERVED + 1
    assert found[b"fourth"][2] == Reason.CORRUPT
    assert "rejected: why" in found[b"fourth"][3]
    assert found[b"fifth"][3] == "why"
    assert rescue.damaged == 1


def test_without_a_mark_the_highest_number_that_is_there_counts(new):
    rescue = Rescue(new, shapes_of(new), NOW)
    rescue.add(message(70))
    rescue.add(Row("meta", ("later", "release")))
    rescue.finish()
    meta = dict(new.execute("SELECT key, value FROM meta"))
    assert meta["seq_reserved"] == 70
    assert meta["epoch"] == 1
    assert meta["later"] == "release"
    assert len(meta["store_key"]) == 16
