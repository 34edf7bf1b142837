"""docs/storage.md describes the file as it is: tables, indexes, and which call writes what."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from embedq import ErrorInfo, QueuePolicy
from embedq.broker.chunks import PlainBodies, encode
from embedq.broker.desk import Desk
from embedq.broker.engine import Engine
from embedq.broker.host import open_engine
from embedq.broker.moves import Claim
from embedq.broker.waiting import Waiter
from embedq.clock import VirtualClock
from embedq.message import draft
from embedq.storage import schema
from embedq.storage.staged import Part
from tests.docs.markdown import ROOT

PAGE = (ROOT / "docs" / "storage.md").read_text(encoding="utf-8")
ERROR = ErrorInfo("ValueError", "no")

Cells = list[str]
Rows = dict[object, tuple]


def table_under(page: str, heading: str) -> list[Cells]:
    """Return the cells of the first table below a heading, without their back quotes."""
    part = re.split(rf"^#+ {re.escape(heading)}$", page, flags=re.MULTILINE)[1]
    lines = re.search(r"(?:^\|.*\n)+", part, flags=re.MULTILINE)
    assert lines is not None, heading
    cells = [
        [cell.strip() for cell in row.strip("|\n").split("|")] for row in lines[0].split("\n")
    ]
    return [row for row in cells[2:] if row != [""]]


def plain(cell: str) -> str:
    return cell.replace("`", "")


# --- tables and indexes -------------------------------------------------------------------------


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema.migrate(connection, 0)
        yield connection


def columns_of(database: sqlite3.Connection, table: str) -> list[Cells]:
    found = []
    for _, name, kind, required, _, key in database.execute(f"PRAGMA table_info({table})"):
        mark = " key" if key else "" if required else "?"
        found.append([name, (kind or "any") + mark])
    return found


def indexes_of(database: sqlite3.Connection) -> list[Cells]:
    found = []
    for name, text in database.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type='index' AND sql IS NOT NULL ORDER BY name"
    ):
        match = re.search(r" ON (\w+) *\(([^)]*)\)(?: +WHERE +(.*))?$", text)
        assert match is not None, text
        found.append([name, f"{match[1]} ({match[2]})", match[3] or "all"])
    return found


@pytest.mark.parametrize("table", schema.TABLES)
def test_the_page_has_every_column_with_its_type(database: sqlite3.Connection, table: str) -> None:
    told = [[plain(name), kind] for name, kind, _ in table_under(PAGE, table)]
    assert told == columns_of(database, table)


def test_the_page_has_every_table_and_no_other(database: sqlite3.Connection) -> None:
    made = database.execute("SELECT name FROM sqlite_schema WHERE type='table'")
    names = {name for (name,) in made if not name.startswith("sqlite_")}
    assert names == set(schema.TABLES) == set(re.findall(r"^### (\w+)$", PAGE, re.MULTILINE))


def test_the_page_has_every_index(database: sqlite3.Connection) -> None:
    told = [[plain(cell) for cell in row[:3]] for row in table_under(PAGE, "Indexes")]
    assert sorted(told) == indexes_of(database)


# --- which call writes what ---------------------------------------------------------------------


class Watched:
    """An engine, and what the file holds."""

    def __init__(self, path: Path) -> None:
        self.clock = VirtualClock()
        self.path = path
        self.engine: Engine = open_engine(path, clock=self.clock, upkeep=False)

    def content(self) -> dict[str, Rows]:
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as database:
            found: dict[str, Rows] = {}
            for table in schema.TABLES:
                info = database.execute(f"PRAGMA table_info({table})").fetchall()
                keys = [position for position, *_, key in info if key]
                rows = database.execute(f"SELECT * FROM {table}").fetchall()
                found[table] = {tuple(row[key] for key in keys): row for row in rows}
            return found


def changes(before: dict[str, Rows], after: dict[str, Rows]) -> str:
    """Say what was added, changed and removed, in the words of the page."""
    found = set()
    for table, old in before.items():
        new = after[table]
        if new.keys() - old.keys():
            found.add(f"{table} +")
        if old.keys() - new.keys():
            found.add(f"{table} -")
        if any(old[key] != new[key] for key in old.keys() & new.keys()):
            found.add(f"{table} ~")
    return ", ".join(sorted(found)) or "nothing"


Call = Callable[[], object]


def put(watched: Watched) -> Call:
    queue = watched.engine.queue("q")

    def call() -> None:
        watched.engine.put(queue, b"1")
        watched.engine.put_many(queue, [b"2", b"3"])
        watched.engine.put_drafts(queue, [draft(b"4", priority=5, ordering_key="k")])

    return call


def put_dedup(watched: Watched) -> Call:
    queue = watched.engine.queue("q")
    return lambda: watched.engine.put_drafts(queue, [draft(b"1", dedup_key="k")])


def prepared(watched: Watched, *names: str, retain_ms: int | None = None) -> tuple:
    engine = watched.engine
    queue = engine.queue("q", QueuePolicy(max_attempts=2, retain_ms=retain_ms))
    groups = [engine.group(queue, name) for name in names or ("default",)]
    engine.put(queue, b"1")
    return engine, groups


def put_to_waiting(watched: Watched) -> Call:
    engine, queue = watched.engine, watched.engine.queue("orders")
    group = engine.group(queue)
    assert engine.claim(group) == []
    engine.writer.run(Claim(engine, group, 1, 30.0, None, waiter=Waiter()))
    return lambda: engine.put(queue, b"body")


def claim(watched: Watched) -> Call:
    engine, (group,) = prepared(watched)
    return lambda: engine.claim(group)


def claim_again(watched: Watched) -> Call:
    engine, (group,) = prepared(watched)
    engine.fail(engine.claim(group)[0], ERROR, 1)
    watched.clock.advance(2)
    return lambda: engine.claim(group)


def ack(watched: Watched) -> Call:
    engine, (group,) = prepared(watched)
    leases = engine.claim(group)
    return lambda: engine.ack(*leases)


def ack_first(watched: Watched) -> Call:
    engine, (group, _) = prepared(watched, "a", "b")
    leases = engine.claim(group)
    return lambda: engine.ack(*leases)


def ack_last(watched: Watched) -> Call:
    engine, (one, other) = prepared(watched, "a", "b")
    engine.ack(*engine.claim(one))
    leases = engine.claim(other)
    return lambda: engine.ack(*leases)


def ack_retained(watched: Watched) -> Call:
    engine, (group,) = prepared(watched, retain_ms=60_000)
    leases = engine.claim(group)
    return lambda: engine.ack(*leases)


def fail(watched: Watched) -> Call:
    engine, (group,) = prepared(watched)
    (lease,) = engine.claim(group)
    return lambda: engine.fail(lease, ERROR)


def fail_last(watched: Watched) -> Call:
    engine, (group,) = prepared(watched)
    engine.fail(engine.claim(group)[0], ERROR)
    (lease,) = engine.claim(group)
    return lambda: engine.fail(lease, ERROR)


def reject(watched: Watched) -> Call:
    engine, (group,) = prepared(watched)
    (lease,) = engine.claim(group)
    return lambda: engine.reject(lease, "why")


def release(watched: Watched) -> Call:
    engine, (group,) = prepared(watched)
    leases = engine.claim(group)
    return lambda: engine.release(leases)


def extend(watched: Watched) -> Call:
    engine, (group,) = prepared(watched)
    (lease,) = engine.claim(group)
    return lambda: engine.extend(lease, 60)


def cancel(watched: Watched) -> Call:
    engine, (group,) = prepared(watched)
    return lambda: engine.cancel(group.queue, group.queue.last)


def declare(watched: Watched) -> Call:
    return lambda: watched.engine.group(watched.engine.queue("q"))


def pause(watched: Watched) -> Call:
    queue = watched.engine.queue("q")
    return lambda: watched.engine.pause(queue)


def staged(watched: Watched) -> tuple[Desk, Part]:
    desk = watched.engine
    assert isinstance(desk, Desk)
    desk.queue("q")
    desk.office.stage_put("q", "sink", "token", 0, encode(PlainBodies(0, [b"1"])))
    return desk, Part("token", 1, 1)


def stage(watched: Watched) -> Call:
    watched.engine.queue("q")
    return lambda: staged(watched)


def publish(watched: Watched) -> Call:
    desk, part = staged(watched)
    return lambda: desk.office.stage_publish("q", "sink", 0, [part])


def publish_again(watched: Watched) -> Call:
    publish(watched)()
    return publish(watched)


CALLS: dict[str, Callable[[Watched], Call]] = {
    "put, put_many, put_drafts": put,
    "put, put_many, put_drafts while a consumer waits": put_to_waiting,
    "put_drafts with a dedup key": put_dedup,
    "claim": claim,
    "claim of a retry": claim_again,
    "ack by the only group": ack,
    "ack while another group waits": ack_first,
    "ack by the last group": ack_last,
    "ack with retain_ms": ack_retained,
    "fail with attempts left": fail,
    "fail of the last attempt": fail_last,
    "reject": reject,
    "release": release,
    "extend": extend,
    "cancel": cancel,
    "queue, group": declare,
    "pause": pause,
    "stage_put": stage,
    "stage_publish": publish,
    "stage_publish of a batch that was published": publish_again,
}
TOLD = {plain(call): tables for call, tables in table_under(PAGE, "Who writes what")}


def test_every_call_of_the_page_is_tried() -> None:
    assert list(TOLD) == list(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_writes_the_tables_that_the_page_names(name: str, tmp_path: Path) -> None:
    watched = Watched(tmp_path / "q.db")
    with watched.engine:
        call = CALLS[name](watched)
        before = watched.content()
        call()
        assert changes(before, watched.content()) == TOLD[name]


# --- the checks above, shown something wrong ----------------------------------------------------


def test_a_planted_column_index_and_change_are_found(database: sqlite3.Connection) -> None:
    columns, indexes = columns_of(database, "dedup"), indexes_of(database)
    database.execute("ALTER TABLE dedup ADD COLUMN extra TEXT")
    database.execute("CREATE INDEX extra ON dedup (extra) WHERE extra IS NOT NULL")
    assert columns_of(database, "dedup") == [*columns, ["extra", "TEXT?"]]
    assert [row for row in indexes_of(database) if row not in indexes] == [
        ["extra", "dedup (extra)", "extra IS NOT NULL"]
    ]
    before: dict[str, Rows] = {"msg": {1: (1,), 2: (2,)}}
    assert changes(before, {"msg": {1: (3,), 4: (4,)}}) == "msg +, msg -, msg ~"
