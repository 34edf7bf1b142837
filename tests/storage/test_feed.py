"""Feeds: everything in its order and nothing twice, whatever is in it and however it is cut."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import pairwise

import msgspec
import pytest

from embedq.broker.host import open_engine
from embedq.lifecycle import Outcome
from embedq.message import ErrorInfo, draft
from embedq.policy import QueuePolicy
from embedq.storage import feed
from embedq.storage.connection import open_reader
from embedq.storage.feed import Wanted
from tests import processes

KEPT = QueuePolicy(retain_ms=86_400_000, max_attempts=2)
BODIES = [b"", b"\0", b"a\0b", b"line\n1,2", "Grüße".encode(), b"\xff\xfe", b"x" * 5000]


@pytest.fixture
def path(tmp_path):
    """Two queues that take turns; the first has one message of each sort of body."""
    path = tmp_path / "q.db"
    with open_engine(path, upkeep=False) as desk:
        first, second = desk.queue("first", KEPT), desk.queue("second", KEPT)
        for n, body in enumerate(BODIES):
            headers = {"n": str(n), "ü": "\n,"} if n % 2 else None
            key = f"key,{n}" if n % 3 == 0 else None
            desk.put_drafts(first, [draft(body, 1, headers, priority=n % 10, ordering_key=key)])
            desk.put(second, b"other")
    return path


@pytest.fixture
def connection(path):
    with closing(open_reader(str(path))) as connection:
        yield connection


def everything(connection, wanted):
    """Read a range part by part; return rows as dicts."""
    rows = []
    after = wanted.after
    while after < wanted.through:
        part = feed.read(connection, wanted)
        assert part.reached > after
        rows += rows_of(wanted, part)
        after = part.reached
        wanted = wanted.going_on(part)
    return rows


def rows_of(wanted, part):
    places = dict.fromkeys(part.texts, 0)
    lists = {
        name: [int(one) if one else None for one in lines.decode().split("\n")]
        for name, lines in part.numbers.items()
    }
    rows = []
    for n in range(part.rows):
        row = {name: numbers[n] for name, numbers in lists.items()} | part.same
        for name in set(part.texts) & row.keys() - part.same.keys():
            if (length := row[name]) is not None:
                row[name] = part.texts[name][places[name] : places[name] + length]
                places[name] += length
        row.update(dict.fromkeys(set(wanted.columns) - row.keys(), row["position"]))
        rows.append(row)
    assert not part.rows or {len(numbers) for numbers in lists.values()} == {part.rows}
    assert places == {name: len(data) for name, data in part.texts.items()}
    return rows


ALL = tuple(feed.NUMBERS["messages"]) + tuple(feed.TEXTS["messages"])


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_every_message_comes_once_in_order_however_it_is_cut(connection, rows):
    head = feed.extent(connection, "messages").head
    got = everything(connection, Wanted("messages", (1,), 0, head, ALL, rows))
    assert [row["body"] for row in got] == BODIES
    assert [row["priority"] for row in got] == [n % 10 for n in range(len(BODIES))]
    assert [row["key"] for row in got] == [
        b"key,%d" % n if n % 3 == 0 else None for n in range(len(BODIES))
    ]
    headers = [msgspec.msgpack.decode(row["headers"]) if row["headers"] else None for row in got]
    assert headers == [{"n": str(n), "ü": "\n,"} if n % 2 else None for n in range(len(BODIES))]
    assert (
        [row["position"] for row in got]
        == [row["seq"] for row in got]
        == sorted(row["seq"] for row in got)
    )
    assert all(row["due_at"] is None and row["put_at"] > 0 for row in got)


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_columns_that_are_the_same_in_all_rows_come_as_one_value(connection, rows):
    head = feed.extent(connection, "messages").head
    wanted = Wanted("messages", (1,), 0, head, ALL, rows)
    listed = everything(connection, wanted)
    believed = msgspec.structs.replace(wanted, varying=())
    assert everything(connection, believed) == listed
    part = feed.read(connection, believed)
    assert {"queue", "due_at", "seq"}.isdisjoint(part.numbers)
    assert (part.same["queue"], part.same["due_at"]) == (1, None)


def test_a_column_that_begins_to_differ_is_listed_from_there_on(connection):
    wanted = Wanted("messages", (1,), 0, 99, ("priority",), 1, varying=())
    first = feed.read(connection, wanted)
    assert (first.same, first.written) == ({"priority": 0}, ())
    both = feed.read(connection, msgspec.structs.replace(wanted, rows=2))
    assert (both.numbers["priority"], both.same) == (b"0\n1", {})
    assert both.written == ("priority",) == wanted.going_on(both).varying


def test_a_column_that_nobody_knows_is_left_out(connection):
    wanted = Wanted("messages", (1,), 0, 99, ("seq", "colour"), 2, varying=())
    part = feed.read(connection, wanted)
    assert (part.rows, set(part.numbers), part.same) == (2, {"position"}, {})


def test_a_column_where_only_some_rows_have_a_value_is_listed(connection):
    wanted = Wanted("messages", (1,), 0, 99, ("key",), 2, varying=())
    part = feed.read(connection, wanted)
    assert (part.numbers["key"], part.texts["key"], part.same) == (b"5\n", b"key,0", {})


def test_ranges_that_follow_each_other_have_everything_of_several_queues(connection):
    head = feed.extent(connection, "messages").head
    cuts = [0, 3, 4, 9, head]
    got = []
    for after, through in pairwise(cuts):
        got += everything(connection, Wanted("messages", (1, 2), after, through, ("seq",)))
    assert [row["seq"] for row in got] == list(range(1, head + 1))


def test_old_sqlite_that_stops_at_a_zero_gives_the_same(connection, monkeypatch):
    monkeypatch.setattr(feed, "_joining", [False])
    got = everything(connection, Wanted("messages", (1,), 0, 99, ("body",), 2))
    assert [row["body"] for row in got] == BODIES


def test_whether_sqlite_joins_zeros_is_asked_of_it(connection, monkeypatch):
    monkeypatch.setattr(feed, "_joining", [])
    version = sqlite3.sqlite_version_info
    assert feed.joins_blobs(connection) or version < (3, 40)


def test_large_bodies_are_read_in_smaller_parts(connection, monkeypatch):
    monkeypatch.setattr(feed, "PART_BYTES", 5010)
    wanted = Wanted("messages", (1,), 0, 99, ("body",), 64)
    part = feed.read(connection, wanted)
    assert part.rows < len(BODIES)
    assert [row["body"] for row in everything(connection, wanted)] == BODIES
    assert connection.getlimit(sqlite3.SQLITE_LIMIT_LENGTH) > 5010  # it was put back


def test_a_row_larger_than_a_part_is_a_part_of_its_own(connection, monkeypatch):
    monkeypatch.setattr(feed, "PART_BYTES", 1000)
    got = everything(connection, Wanted("messages", (1,), 0, 99, ("body",), 64))
    assert [row["body"] for row in got] == BODIES


def test_a_queue_without_messages_is_looked_through_in_steps(connection, monkeypatch):
    monkeypatch.setattr(feed, "_SPAN", 5)
    part = feed.read(connection, Wanted("messages", (3,), 0, 12, ("body",)))
    assert part == feed.Part(5, 0, {"position": b"", "body": b""}, {"body": b""})
    assert everything(connection, Wanted("messages", (3,), 0, 12, ("body",))) == []


def test_values_that_are_damaged_stay_within_their_row(path):
    with closing(sqlite3.connect(path)) as writer, writer:
        writer.execute("UPDATE msg SET put_at='1,2\n3', okey=x'ff' WHERE seq=3")
    with closing(open_reader(str(path))) as connection:
        got = everything(connection, Wanted("messages", (1,), 0, 99, ("put_at", "key", "body")))
    assert [row["body"] for row in got] == BODIES
    assert (got[1]["put_at"], got[1]["key"]) == (1, b"\xff")


@pytest.fixture
def worked(tmp_path):
    """A retained queue: one acked at the second attempt, two dead, one open."""
    path = tmp_path / "worked.db"
    with open_engine(path, upkeep=False) as desk:
        queue = desk.queue("q", KEPT)
        group = desk.group(queue)
        desk.put_many(queue, [b"acked", b"failed", b"rejected", b"open"])
        error = ErrorInfo("ValueError", "no", "line 1")
        acked, failed, rejected, _ = desk.claim(group, 4)
        desk.fail(acked, error, delay_s=0)
        desk.fail(failed, error, delay_s=0)
        desk.reject(rejected, "bad")
        for lease in desk.claim(group, 2):
            desk.ack(lease) if lease.seq == acked.seq else desk.fail(lease, error, delay_s=0)
    return path


HISTORY = tuple(feed.NUMBERS["history"]) + tuple(feed.TEXTS["history"])
DEAD = tuple(feed.NUMBERS["dead"]) + tuple(feed.TEXTS["dead"])


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_the_history_has_each_closed_delivery_in_the_order_of_closing(worked, rows):
    with closing(open_reader(str(worked))) as connection:
        reach = feed.extent(connection, "history")
        got = everything(connection, Wanted("history", (1,), 0, reach.head, HISTORY, rows))
    assert reach.head < reach.ceiling
    assert [row["closed"] for row in got] == sorted(row["closed"] for row in got)
    assert sorted((row["seq"], row["attempt"], row["outcome"]) for row in got) == [
        (1, 1, Outcome.FAILED),
        (1, 2, Outcome.ACKED),
        (2, 1, Outcome.FAILED),
        (2, 2, Outcome.DEAD),
        (3, 1, Outcome.DEAD),
    ]
    failed = next(row for row in got if row["outcome"] == Outcome.FAILED)
    assert ErrorInfo.decode(failed["error"]) == ErrorInfo("ValueError", "no", "line 1")


def test_deliveries_that_one_commit_closed_are_never_parted(tmp_path):
    path = tmp_path / "q.db"
    with open_engine(path, upkeep=False) as desk:
        queue = desk.queue("q", KEPT)
        group = desk.group(queue)
        desk.put_many(queue, [b"x"] * 20)
        for _ in range(2):
            desk.ack(*desk.claim(group, 10))
        with closing(open_reader(str(path))) as connection:
            head = feed.extent(connection, "history").head
            wanted = Wanted("history", (1,), 0, head, ("seq",), 3)
            part = feed.read(connection, wanted)
            got = everything(connection, wanted)
    assert part.rows == 10
    assert [row["seq"] for row in got] == list(range(1, 21))


def test_states_are_a_filter_of_the_history_and_of_dead_letters(worked):
    with closing(open_reader(str(worked))) as connection:
        head = feed.extent(connection, "history").head
        wanted = Wanted("history", (1,), 0, head, ("seq",), 1, (int(Outcome.ACKED),))
        assert [row["seq"] for row in everything(connection, wanted)] == [1]
        wanted = Wanted("dead", (1,), 0, 99, ("seq",), 1, ("rejected",))
        assert [row["seq"] for row in everything(connection, wanted)] == [3]


def test_dead_letters_come_in_the_order_of_dying(worked):
    with closing(open_reader(str(worked))) as connection:
        reach = feed.extent(connection, "dead")
        got = everything(connection, Wanted("dead", (1,), 0, reach.head, DEAD, 1))
    assert (reach.head, reach.ceiling) == (2, 2)
    assert [(row["body"], row["reason"]) for row in got] == [
        (b"rejected", b"rejected"),
        (b"failed", b"max_attempts"),
    ]
    assert len(msgspec.msgpack.decode(got[1]["attempts"])) == 2


def test_an_empty_file_reaches_nowhere_but_knows_what_it_may_have_given(tmp_path):
    path = tmp_path / "q.db"
    with open_engine(path, upkeep=False) as desk:
        group = desk.group(desk.queue("q"))
        desk.put_many(desk.queue("q"), [b"x"] * 3)
        desk.ack(*desk.claim(group, 3))
    with closing(open_reader(str(path))) as connection:
        reach = feed.extent(connection, "messages")
        assert reach.head == 0
        assert reach.ceiling >= 3
        assert len(feed.store_key(connection)) == 16


def test_times_and_numbers_of_rows_become_positions(worked):
    with closing(open_reader(str(worked))) as connection:
        assert feed.first_since(connection, "messages", (1,), 0) == 1
        assert feed.first_since(connection, "messages", (1,), 1 << 52) is None
        assert feed.first_since(connection, "dead", (1,), 0) == 1
        first = feed.first_since(connection, "history", (1,), 0)
        assert first == feed.nth_after(connection, "history", (1,), 0, 1)
        assert (
            feed.nth_after(connection, "history", (1,), 0, 5)
            == feed.extent(connection, "history").head
        )
        assert feed.nth_after(connection, "history", (1,), 0, 6) is None


WRITER = """
import sys
from embedq.broker.host import open_engine
with open_engine(sys.argv[1]) as desk:
    queue = desk.queue("q")
    while True:
        desk.put_many(queue, [b"%d" % n for n in range(50)])
        print(flush=True)
"""


def test_while_another_process_puts_ranges_stay_what_they_were(tmp_path):
    path = tmp_path / "q.db"
    with (
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
        ) as writer,
        processes.patience(writer),
    ):
        try:
            processes.line_of(writer)
            with closing(open_reader(str(path), busy_timeout_s=30)) as connection:
                heads = [0]
                got: list[dict] = []
                while len(got) < 1500:
                    heads.append(feed.extent(connection, "messages").head)
                    wanted = Wanted("messages", (1,), heads[-2], heads[-1], ("seq", "body"), 700)
                    got += everything(connection, wanted)
                again = everything(
                    connection, Wanted("messages", (1,), 0, heads[-1], ("seq", "body"), 64)
                )
        finally:
            writer.kill()
    assert got == again
    assert [row["seq"] for row in got] == list(range(1, heads[-1] + 1))
    assert [row["body"] for row in got] == [b"%d" % (n % 50) for n in range(len(got))]
