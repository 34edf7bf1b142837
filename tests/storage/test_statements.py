"""Every statement can be prepared, and none goes through more rows than it must."""

from __future__ import annotations

import inspect
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import given, strategies as st

from embedq.lifecycle import FINAL, Outcome
from embedq.storage import schema, statements as sql
from embedq.storage.rows import DeadRow, DeliveryRow, Row, Stored

#: Makers of statements: one for each size.
MAKERS = {name: found for name, found in vars(sql).items() if hasattr(found, "cache_info")}
SOURCE = inspect.getsource(sql)

#: Which sizes a maker is called with.
SIZES = {
    name: sql.LADDER if name.startswith(("insert", "start")) else sql.IN_SIZES for name in MAKERS
}

NAMED = {
    name: text
    for name, text in vars(sql).items()
    if isinstance(text, str)
    and re.match(r"(SELECT|INSERT|UPDATE|DELETE) ", text)
    and not name.startswith("_")
}
STATEMENTS = NAMED | {
    f"{name}({size})": maker(size) for name, maker in MAKERS.items() for size in SIZES[name]
}

#: Where a comment says which index a statement uses.
USES = re.findall(r"^#: Uses (\w+)\.\n(\w+) = ", SOURCE, re.MULTILINE)

#: The plan of a scan that is meant: a few rows, the whole point, or a group that goes.
SCANS = {
    "QUEUES": "SCAN queue",
    "GROUPS": "SCAN consumer_group",
    "DEAD_COUNTS": "SCAN dead USING COVERING INDEX dead_queue",
    "OPEN_DELIVERIES": "SCAN delivery",
    "GROUP_DELIVERIES_REMOVE": "SCAN delivery",
    "STAGED_ALL": "SCAN stage USING COVERING INDEX stage_sink",
    "SINK_FORGET": "SCAN sink",
    "SESSIONS_CLOSED": "SCAN session",
    "SESSIONS_NAMED": "SCAN delivery",
}

#: What is sorted afterwards: a chunk, the groups of one queue, a few sessions of many deliveries.
SORTS = {
    *("TOUCHED_BETWEEN", "UNSETTLED_GROUPS", "TALLY_QUEUES", "TALLY_SETTLED"),
    "SESSIONS_NAMED",
}


@pytest.fixture(scope="module")
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema.migrate(connection, 0)
        yield connection


def plan(database: sqlite3.Connection, text: str) -> list[str]:
    """Prepare a statement and return what SQLite would do."""
    numbered = [int(number) for number in re.findall(r"\?(\d+)", text)]
    values = [None] * (max(numbered) if numbered else text.count("?"))
    steps = database.execute(f"EXPLAIN QUERY PLAN {text}", values)
    return [row[3].replace(" TABLE ", " ") for row in steps]  # the word of older SQLites


def test_there_are_statements_to_look_at() -> None:
    assert len(NAMED) > 50
    assert len(MAKERS) > 10
    assert len(USES) >= 7


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_can_be_prepared_and_scans_nothing_large(
    database: sqlite3.Connection, name: str
) -> None:
    steps = plan(database, STATEMENTS[name])
    scans = [step for step in steps if step.startswith("SCAN") and "CONSTANT ROW" not in step]
    assert scans == ([SCANS[name]] if name in SCANS else [])
    sorts = [step for step in steps if "TEMP B-TREE" in step]
    assert bool(sorts) == (name in SORTS)
    assert "AUTOMATIC" not in str(steps)  # an index that is built for each call


@pytest.mark.parametrize(("index", "name"), USES)
def test_a_statement_uses_the_index_that_its_comment_names(
    database: sqlite3.Connection, index: str, name: str
) -> None:
    (step,) = [step for step in plan(database, STATEMENTS[name]) if index in step]
    assert step.startswith("SEARCH")
    assert f"INDEX {index} (" in step


def test_every_index_is_there_for_a_statement(database: sqlite3.Connection) -> None:
    steps = " ".join(str(plan(database, text)) for text in STATEMENTS.values())
    indexes = [
        name
        for (name,) in database.execute(
            "SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE INDEX%'"
        )
    ]
    assert [name for name in indexes if name not in steps] == []


@pytest.mark.parametrize("name", ["LOAD_PLAIN", "RANGE", "TALLY_QUEUES", "TALLY_FLOOR"])
def test_what_walks_the_log_itself_begins_at_a_seq(
    database: sqlite3.Connection, name: str
) -> None:
    assert "NOT INDEXED" in STATEMENTS[name]
    first = plan(database, STATEMENTS[name])[0]
    assert first.startswith("SEARCH msg USING INTEGER PRIMARY KEY (rowid>?")


@pytest.mark.parametrize(
    "name",
    [
        "CLEAR_DUE",
        "CLOSE_EARLIER",
        "DELIVERIES_OF",
        "FAIL",
        "RELEASE",
        "CLOSE_DEAD",
        "touched_in(4)",
    ],
)
def test_deliveries_of_one_message_are_found_by_its_seq(
    database: sqlite3.Connection, name: str
) -> None:
    (step,) = plan(database, STATEMENTS[name])
    assert step.startswith("SEARCH delivery USING PRIMARY KEY (seq=? AND grp=?")


def test_a_scan_would_be_noticed(database: sqlite3.Connection) -> None:
    assert plan(database, "SELECT * FROM msg WHERE put_at=?") == ["SCAN msg"]
    assert plan(database, NAMED["LOAD_DELAYED"].replace("queue=?", "+queue=?"))[0].startswith(
        "SCAN"
    )


# ----------------------------------------------------------------- columns and constants


def test_columns_are_in_the_order_of_the_records() -> None:
    as_stored = {"okey": "key", "grp": "group"}
    for columns, record in (
        (sql._COLUMNS, Stored),
        (sql.DELIVERY_COLUMNS, DeliveryRow),
        (sql.DEAD_COLUMNS, DeadRow),
    ):
        assert tuple(as_stored.get(name, name) for name in columns.split(",")) == record._fields


def test_a_row_to_put_has_the_columns_that_follow_the_time_of_the_put() -> None:
    assert Row._fields[:9] == Stored._fields[3:]
    assert Stored._fields[:3] == ("seq", "queue", "put_at")


def test_the_numbers_in_statements_are_those_of_the_life_cycle() -> None:
    assert {int(number) for number in re.findall(r"outcome>=(\d+)", SOURCE)} == {FINAL}
    assert f"outcome={Outcome.ACKED}," in sql.close_acked(1)
    assert f"outcome={Outcome.DEAD}," in sql.CLOSE_DEAD
    assert f"?7={Outcome.CRASHED}" in sql.CLOSE_EARLIER
    assert f"?2={Outcome.CRASHED}" in sql.FAIL


# ------------------------------------------------------------------------------- cutting


@given(count=st.integers(0, 1000))
def test_any_number_of_rows_is_cut_along_the_ladder(count: int) -> None:
    cuts = sql.rungs(count)
    assert [start for start, _ in cuts] == [sum(s for _, s in cuts[:n]) for n in range(len(cuts))]
    assert sum(size for _, size in cuts) == count
    assert {size for _, size in cuts} <= set(sql.LADDER)
    assert len(cuts) <= count // 100 + len(sql.LADDER)


@given(values=st.lists(st.integers(1, 9999), max_size=250))
def test_lists_are_cut_into_sizes_that_are_prepared_and_lose_nothing(values: list[int]) -> None:
    chunks = sql.in_chunks(values)
    assert {value for _, part in chunks for value in part} == set(values)
    assert all(len(part) == size and size in sql.IN_SIZES for size, part in chunks)
    assert len(chunks) == -(-len(values) // 100)


@pytest.mark.parametrize(
    ("seqs", "is_run"),
    [([], False), ([5], False), ([5, 6], True), ([5, 7], False), ([6, 5], False), ([5, 5], False)],
)
def test_a_run_has_no_gap(seqs: list[int], *, is_run: bool) -> None:
    assert sql.is_run(seqs) is is_run
