"""Answers straight from the tables: what the suite that every store runs leaves out."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from embedq.policy import QueuePolicy
from embedq.storage import reads, schema
from embedq.storage.port import Load, LoadDue
from embedq.storage.rows import GroupRow, Stored, Touched

QUEUE, GROUP = 1, 1


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema.migrate(connection, 0)
        yield connection


def put(database: sqlite3.Connection, *seqs: int, queue: int = QUEUE, **columns: object) -> None:
    names = ["seq", "queue", "put_at", "kind", "crc", "body", *columns]
    marks = ",".join("?" * len(names))
    rows = [(seq, queue, 0, 0, 0, b"body", *columns.values()) for seq in seqs]
    database.executemany(f"INSERT INTO msg({','.join(names)}) VALUES ({marks})", rows)


def deliver(database: sqlite3.Connection, seq: int, attempt: int = 1, **columns: object) -> None:
    names = ["seq", "grp", "attempt", "epoch", "counter", "started", *columns]
    marks = ",".join("?" * len(names))
    values = (seq, GROUP, attempt, 1, seq, 0, *columns.values())
    database.execute(f"INSERT INTO delivery({','.join(names)}) VALUES ({marks})", values)


def load(database: sqlite3.Connection, after: int = 0, limit: int = 100, floor: int = 0):
    return reads.load(database, Load(GROUP, 0, after, 1000, limit), QUEUE, floor)


def test_a_chunk_ends_at_its_last_hit_or_at_the_end_of_what_was_looked_at(
    database: sqlite3.Connection,
) -> None:
    put(database, 1, 2, 5, 6)
    put(database, 3, 4, queue=2)
    assert load(database, limit=2) == ([1, 2], [], 2)
    assert load(database, after=2, limit=3) == ([5, 6], [], 1000)
    assert load(database, after=2, limit=1) == ([5], [], 5)


def test_a_look_ends_after_a_span_of_seqs_whatever_it_found(
    database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "SPAN", 4)
    put(database, 3, 9)
    assert load(database) == ([3], [], 4)
    assert load(database, after=4) == ([], [], 8)
    assert load(database, after=8) == ([9], [], 12)


def test_an_urgent_stream_is_read_through_its_index_without_a_span(
    database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "SPAN", 4)
    put(database, 3, 900, priority=5)
    put(database, 5, priority=6)
    assert reads.load(database, Load(GROUP, 5, 0, 1000, 9), QUEUE, 0) == ([3, 900], [], 1000)


def test_nothing_up_to_the_floor_waits(database: sqlite3.Connection) -> None:
    put(database, 1, 2, 3)
    put(database, 4, 5, due=10)
    assert load(database, floor=2).fresh == [3]
    found = reads.load_due(database, LoadDue(GROUP, False, (0, 0), 9), QUEUE, 4)
    assert [row.seq for row in found.rows] == [5]
    assert reads.latest(database, GROUP, 2, QUEUE, 2) is None


def test_what_has_been_delivered_is_told_with_its_latest_delivery(
    database: sqlite3.Connection,
) -> None:
    put(database, 1, 2, 3, 4)
    deliver(database, 1, ended=5, outcome=10)  # settled
    deliver(database, 2, ended=5, outcome=1, due=50)  # waits for its time
    deliver(database, 3, ended=5, outcome=3)
    deliver(database, 3, 2, crashes=1)  # open
    chunk = load(database)
    assert chunk.fresh == [4]
    (other,) = chunk.others
    assert other.touched == Touched(3, 2, 1, 1, 3, True, None)


def test_a_keyed_message_is_part_of_the_stream_whatever_its_time(
    database: sqlite3.Connection,
) -> None:
    put(database, 1, okey="k", due=500)
    put(database, 2, okey="k")
    deliver(database, 2, ended=5, outcome=1, due=70)
    put(database, 3, due=500)
    assert [(w.seq, w.key, w.due) for w in load(database).others] == [(1, "k", 500), (2, "k", 70)]
    due = reads.load_due(database, LoadDue(GROUP, False, (0, 0), 9), QUEUE, 0)
    assert [row.seq for row in due.rows] == [3]
    retries = reads.load_due(database, LoadDue(GROUP, True, (0, 0), 9), QUEUE, 0)
    assert (retries.rows, retries.after, retries.complete) == ([], (70, 2), True)


def test_a_delayed_message_that_was_tried_waits_for_its_retry_only(
    database: sqlite3.Connection,
) -> None:
    put(database, 1, 2, due=10)
    deliver(database, 1, ended=20, outcome=1, due=90)
    delayed = reads.load_due(database, LoadDue(GROUP, False, (0, 0), 9), QUEUE, 0)
    retries = reads.load_due(database, LoadDue(GROUP, True, (0, 0), 9), QUEUE, 0)
    assert [(row.seq, row.due) for row in delayed.rows] == [(2, 10)]
    assert [(row.seq, row.due) for row in retries.rows] == [(1, 90)]


def test_times_go_on_where_a_chunk_ended_even_if_nothing_in_it_counted(
    database: sqlite3.Connection,
) -> None:
    put(database, 1, 2, 3, due=10)
    for seq in (1, 2):
        deliver(database, seq, ended=5, outcome=10)
    first = reads.load_due(database, LoadDue(GROUP, False, (-1, -1), 2), QUEUE, 0)
    assert (first.rows, first.after, first.complete) == ([], (10, 2), False)
    second = reads.load_due(database, LoadDue(GROUP, False, first.after, 2), QUEUE, 0)
    assert [row.seq for row in second.rows] == [3]
    assert second.complete


def test_open_deliveries_of_this_epoch_are_told_for_those_that_are_asked_about(
    database: sqlite3.Connection,
) -> None:
    put(database, 1, 2, 3, 4)
    for seq in (1, 2):
        deliver(database, seq)
    deliver(database, 3, ended=5, outcome=1)
    deliver(database, 4)
    database.execute("UPDATE delivery SET epoch=0 WHERE seq=4")
    assert reads.open_among(database, GROUP, 1, [2, 3, 4, 9]) == {2: 2}
    assert reads.open_among(database, GROUP, 1, []) == {}


@pytest.mark.parametrize("wanted", [[], [2], [1, 2, 3], [3, 1], [7, 2, 2]])
def test_messages_are_read_by_run_or_by_list(
    database: sqlite3.Connection, wanted: list[int]
) -> None:
    put(database, 1, 2, 3)
    found = reads.messages(database, wanted)
    assert {message.seq for message in found} == set(wanted) & {1, 2, 3}
    assert len(found) == len(set(wanted) & {1, 2, 3})
    assert all(type(message) is Stored for message in found)


def test_lists_longer_than_one_statement_takes_are_read_whole(
    database: sqlite3.Connection,
) -> None:
    put(database, *range(1, 200))
    assert len(reads.messages(database, range(1, 200))) == 199
    odd = list(range(1, 200, 2))
    assert [message.seq for message in reads.messages(database, odd)] == odd


def test_a_tally_counts_what_a_floor_covers_within_its_stretch(
    database: sqlite3.Connection,
) -> None:
    put(database, 1, 2, 3, 4)
    put(database, 5, queue=2)
    database.execute("INSERT INTO consumer_group(id,queue,name,floor) VALUES (1,1,'g',2)")
    deliver(database, 2, ended=5, outcome=10)  # below the floor: counted once
    deliver(database, 3, ended=5, outcome=11)
    group = GroupRow(1, 1, "g", 2, 0)
    whole = reads.tally(database, [group], 0, 99)
    assert (whole.stored, whole.last, whole.settled) == ({1: 4, 2: 1}, {1: 4, 2: 5}, {1: 3})
    part = reads.tally(database, [group], 1, 2)
    assert (part.stored, part.settled, part.upto) == ({1: 2}, {1: 2}, 3)
    assert reads.tally(database, [group], 5, 9).upto == 5


def test_a_highest_seq_that_is_not_known_is_told_as_the_bound(
    database: sqlite3.Connection,
) -> None:
    database.execute("INSERT INTO queue(id,name,policy,retained) VALUES (1,'q','two',0)")
    policies = {"two": QueuePolicy(max_attempts=2)}
    ((queue,), groups) = reads.catalogue(database, 77, policies.__getitem__)
    assert (queue.last, queue.paused, groups) == (77, False, [])
    assert queue.policy == QueuePolicy(max_attempts=2)


def test_sessions_that_are_unknown_have_no_name(database: sqlite3.Connection) -> None:
    database.execute("INSERT INTO session(id,name,epoch,opened) VALUES (4,'worker',1,1)")
    assert reads.session_names(database, [3, 4, 5]) == {4: "worker"}
