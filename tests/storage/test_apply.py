"""What the SQLite store does with operations beyond what every store must do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from embedq.lifecycle import Outcome, Reason
from embedq.policy import QueuePolicy
from embedq.storage import departed, held, ops, reads, schema, staged, tail
from embedq.storage.apply import Applier, Catalogue
from embedq.storage.ops import (
    Ack,
    Again,
    Bury,
    Cancel,
    DeclareGroup,
    DeclareQueue,
    Fail,
    Op,
    PutRows,
    Retire,
    Save,
    Start,
)
from embedq.storage.rows import GroupRow, QueueRow
from tests.conformance.scenario import row

RETAINED = QueuePolicy(retain_ms=1000)


class Bench:
    """An applier on a database in memory, one commit at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.last_seq = 0
        schema.migrate(connection, 0)
        self.applier = Applier(connection, Catalogue([], []), 3, self.take)
        self.statements: list[str] = []

    def take(self, count: int) -> int:
        first = self.last_seq + 1
        self.last_seq += count
        return first

    def apply(self, *batch: Op) -> list[str]:
        """Apply operations; return the statements that ran."""
        statements: list[str] = []
        self.connection.set_trace_callback(statements.append)
        self.applier.closing += 1
        for op in batch:
            if isinstance(op, Ack):
                self.applier.ack([op])
            else:
                self.applier.apply(op)
        self.connection.set_trace_callback(None)
        return statements

    def queue(self, *groups: str, policy: QueuePolicy | None = None) -> None:
        self.apply(DeclareQueue("orders", policy or QueuePolicy()))
        for name in groups:
            self.apply(DeclareGroup(1, name, 0))

    def put(self, count: int) -> list[int]:
        op = PutRows(1, 0, [row() for _ in range(count)])
        self.apply(op)
        return op.seqs

    def ask(self, query: str) -> list[tuple]:
        return self.connection.execute(query).fetchall()


@pytest.fixture
def bench() -> Iterator[Bench]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        yield Bench(connection)


# ------------------------------------------------------------------------------ catalogue


def catalogue(*queues: QueuePolicy, groups: tuple[int, ...]) -> Catalogue:
    rows = [
        QueueRow(number, f"q{number}", policy, paused=False, stored=0, dead=0, last=0)
        for number, policy in enumerate(queues, 1)
    ]
    members = [
        GroupRow(number, queue, f"g{number}", 0, 0) for number, queue in enumerate(groups, 1)
    ]
    return Catalogue(rows, members)


def test_a_group_alone_settles_by_deleting_unless_its_queue_retains() -> None:
    plain, kept = QueuePolicy(), RETAINED
    found = catalogue(plain, plain, kept, plain, groups=(1, 2, 2, 3))
    assert (found.sole, found.retained) == ({1}, {4})


def test_the_catalogue_follows_declarations_and_removals(bench: Bench) -> None:
    bench.queue("a")
    assert bench.applier.catalogue.sole == {1}
    bench.apply(DeclareGroup(1, "b", 0))
    assert bench.applier.catalogue.sole == set()
    bench.apply(ops.RemoveGroup(1))
    assert bench.applier.catalogue.sole == {2}
    bench.apply(DeclareQueue("orders", RETAINED))
    assert (bench.applier.catalogue.sole, bench.applier.catalogue.retained) == (set(), {2})


def test_every_operation_has_its_place(bench: Bench) -> None:
    rooms = {**vars(ops), **vars(tail), **vars(staged), **vars(held), **vars(departed)}
    kinds = {kind for kind in rooms.values() if isinstance(kind, type) and issubclass(kind, Op)}
    merged = {Op, ops.PutPlain, Ack}  # the store merges these
    assert set(bench.applier._handlers) == kinds - merged


# ---------------------------------------------------------------------------------- puts


def test_many_rows_need_few_statements(bench: Bench) -> None:
    bench.queue()
    statements = bench.apply(PutRows(1, 0, [row() for _ in range(250)]))
    assert len(statements) == 5  # 100 + 100 + 32 + 16 + 2
    assert bench.ask("SELECT count(*), min(seq), max(seq) FROM msg") == [(250, 1, 250)]


def test_a_key_known_to_one_queue_is_unknown_to_another(bench: Bench) -> None:
    bench.queue()
    bench.apply(DeclareQueue("mail", QueuePolicy()))
    first = PutRows(1, 0, [row(dedup_key="k", dedup_until=10)])
    second = PutRows(2, 0, [row(dedup_key="k", dedup_until=10)])
    third = PutRows(2, 9, [row(dedup_key="k", dedup_until=10), row(dedup_key="k", dedup_until=10)])
    bench.apply(first, second, third)
    assert (first.seqs, second.seqs, third.seqs, third.stored) == ([1], [2], [2, 2], [])


# ----------------------------------------------------------------------------- deliveries


def test_counters_go_on_from_fresh_ones_to_further_ones(bench: Bench) -> None:
    bench.queue("a")
    seqs = bench.put(7)
    bench.apply(Start(1, 5, None, 100, seqs[:5], [Again(6, 2, 1), Again(7, 3, 0)]))
    assert bench.ask(
        "SELECT seq, attempt, counter, epoch, crashes FROM delivery ORDER BY seq"
    ) == [
        *[(seq, 1, 99 + seq, 3, 0) for seq in seqs[:5]],
        (6, 2, 105, 3, 1),
        (7, 3, 106, 3, 0),
    ]


def test_messages_are_read_with_the_start_only_when_that_is_wanted(bench: Bench) -> None:
    bench.queue("a")
    bench.put(3)
    start = Start(1, 5, None, 1, [1, 3], [Again(2, 2, 0)])
    bench.apply(start)
    assert start.messages is None
    reading = Start(1, 5, None, 1, [1, 3], [Again(2, 2, 0)])
    reading.reads = True
    bench.apply(ops.Release(1, [(1, 1), (3, 1)]), reading)
    assert sorted(message.seq for message in reading.messages or []) == [1, 2, 3]


def test_only_the_attempt_that_is_named_is_closed(bench: Bench) -> None:
    bench.queue("a")
    bench.put(1)
    bench.apply(Start(1, 5, None, 1, [1], []))
    bench.apply(Fail(1, 1, 2, 9, Outcome.FAILED, 20), ops.Release(1, [(1, 2)]))
    assert bench.ask("SELECT attempt, ended, due FROM delivery") == [(1, None, None)]


# ----------------------------------------------------------------------------- settlement


def test_acks_at_one_time_are_one_statement_and_counted_once(bench: Bench) -> None:
    bench.queue("a")
    seqs = bench.put(300)
    bench.apply(Start(1, 5, None, 1, seqs, []))
    acks = [Ack(1, 9, seqs[:100]), Ack(1, 9, seqs[100:200]), Ack(1, 9, seqs[200:])]
    statements: list[str] = []
    bench.connection.set_trace_callback(statements.append)
    bench.applier.ack(acks)
    assert len(statements) == 2  # a run without a gap: deliveries, then messages
    assert [ack.removed for ack in acks] == [300, 0, 0]
    assert bench.ask("SELECT count(*) FROM delivery") == [(0,)]


@pytest.mark.parametrize("seqs", [[1, 3, 5], [5, 4, 3], [2], [2, 2], [9, 1]])
def test_acks_with_gaps_remove_what_they_name(bench: Bench, seqs: list[int]) -> None:
    bench.queue("a")
    bench.put(6)
    bench.apply(Start(1, 5, None, 1, [1, 2, 3, 4, 5, 6], []))
    ack = Ack(1, 9, seqs)
    bench.apply(ack)
    gone = set(seqs) & set(range(1, 7))
    assert ack.removed == len(gone)
    assert {seq for (seq,) in bench.ask("SELECT seq FROM msg")} == set(range(1, 7)) - gone
    assert {seq for (seq,) in bench.ask("SELECT seq FROM delivery")} == set(range(1, 7)) - gone


def test_more_seqs_than_one_list_holds_are_settled_all_the_same(bench: Bench) -> None:
    bench.queue("a", "b")
    bench.put(250)
    odd = list(range(1, 251, 2))
    for group in (1, 2):
        bench.apply(Start(group, 5, None, 1, odd, []))
    first, second = Ack(1, 9, odd), Ack(2, 9, odd)
    bench.apply(first, second)
    assert (first.removed, second.removed) == (0, 125)
    assert bench.ask("SELECT count(*) FROM delivery") == [(0,)]


def test_closings_are_numbered_only_where_history_is_kept(bench: Bench) -> None:
    bench.queue("a", policy=RETAINED)
    bench.put(4)
    bench.apply(Start(1, 5, None, 1, [1, 2, 3], []))
    closing = bench.applier.closing
    bench.apply(Ack(1, 9, [1]))
    bench.apply(Fail(1, 2, 1, 9, Outcome.FAILED, 20), Bury(1, 3, 9, Reason.REJECTED))
    bench.apply(Bury(1, 4, 9, Reason.EXPIRED))
    assert bench.ask("SELECT seq, closed FROM delivery ORDER BY seq") == [
        (1, closing + 1),
        (2, closing + 2),
        (3, closing + 2),
        (4, closing + 3),
    ]


def test_a_burial_of_what_is_gone_settled_or_of_no_group_changes_nothing(bench: Bench) -> None:
    bench.queue("a", "b")
    bench.put(2)
    bench.apply(Start(1, 5, None, 1, [1], []), Ack(1, 9, [1]))
    for group, seq in ((1, 1), (1, 9), (7, 2)):
        bury = Bury(group, seq, 9, Reason.REJECTED)
        bench.apply(bury)
        assert (bury.dead_id, bury.removed) == (None, 0)
    bench.apply(Save([], [(1, 2, 2)], exact=False))
    below = Bury(1, 2, 9, Reason.REJECTED)
    bench.apply(below)
    assert below.dead_id is None
    assert bench.ask("SELECT count(*) FROM dead") == [(0,)]


def test_a_cancel_removes_only_what_is_in_its_queue(bench: Bench) -> None:
    bench.queue("a")
    bench.apply(DeclareQueue("mail", QueuePolicy()))
    bench.put(1)
    bench.apply(PutRows(2, 0, [row()]))
    cancel = Cancel(1, [1, 2, 3])
    bench.apply(cancel)
    assert cancel.removed == [1]
    assert [seq for (seq,) in bench.ask("SELECT seq FROM msg")] == [2]


# -------------------------------------------------------------------------------- upkeep


def test_a_floor_only_rises_and_takes_the_deliveries_below_it_with_it(bench: Bench) -> None:
    bench.queue("a", "b")
    bench.put(4)
    bench.apply(Start(1, 5, None, 1, [1, 2, 3], []), Ack(1, 9, [1, 2, 3]))
    bench.apply(Start(2, 5, None, 9, [1], []))
    bench.apply(Save([], [(1, 2, 2)], exact=False))
    assert bench.ask("SELECT seq, grp FROM delivery ORDER BY seq, grp") == [(1, 2), (3, 1)]
    bench.apply(Save([], [(1, 1, 3)], exact=False))
    assert bench.ask("SELECT floor, settled FROM consumer_group WHERE id=1") == [(2, 3)]
    assert bench.applier.catalogue.groups[1].floor == 2


def test_where_history_is_kept_a_floor_takes_nothing(bench: Bench) -> None:
    bench.queue("a", policy=RETAINED)
    bench.put(2)
    bench.apply(Start(1, 5, None, 1, [1, 2], []), Ack(1, 9, [1, 2]))
    bench.apply(Save([], [(1, 2, 2)], exact=False))
    assert bench.ask("SELECT count(*) FROM delivery") == [(2,)]


def test_retiring_looks_at_no_more_than_it_is_told(bench: Bench) -> None:
    bench.queue("a", policy=RETAINED)
    bench.put(9)
    for seq in range(1, 10):
        bench.apply(Start(1, 5, None, seq, [seq], []), Ack(1, 9, [seq]))
    first = Retire(1, 10, 0, 4)
    statements = bench.apply(first)
    assert first.removed == 4
    assert "LIMIT 4" in next(text for text in statements if "closed>" in text)
    second = Retire(1, 10, first.reached or 0, 4)
    bench.apply(second)
    assert (second.removed, len(bench.ask("SELECT seq FROM msg"))) == (4, 1)


def test_reads_beside_the_applier_see_what_it_did(bench: Bench) -> None:
    bench.queue("a")
    seqs = bench.put(2)
    assert [message.seq for message in reads.messages(bench.connection, [*seqs, 99])] == seqs
