"""A file is created, migrated step by step, or left alone: never something in between."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlite_utils

from embedq.errors import NotAnEmbedqFile, SchemaTooNew, StorageError
from embedq.policy import QueuePolicy
from embedq.storage import schema
from embedq.storage.ops import DeclareGroup, DeclareQueue
from embedq.storage.sqlite import open_store
from tests.conformance.scenario import plain

Step = Callable[[sqlite_utils.Database], None]


LOADS = """
import sys
from embedq.storage.sqlite import open_store
open_store(sys.argv[1]).close(clean=True)
print(sorted({"sqlite_utils", "pandas", "numpy"} & set(sys.modules)))
"""


def add_origin(database: sqlite_utils.Database) -> None:
    """Change the format as the recipe in docs/storage.md says: only add."""
    database["msg"].add_column("origin", str)  # type: ignore[union-attr]
    database["archive"].create({"seq": int, "at": int}, pk="seq")  # type: ignore[union-attr]
    database["archive"].create_index(["at"], index_name="archive_at")  # type: ignore[union-attr]


def add_and_fail(database: sqlite_utils.Database) -> None:
    add_origin(database)
    raise RuntimeError("the power failed, so to speak")


NEXT: tuple[schema.Migration, ...] = (*schema.MIGRATIONS, add_origin)


@pytest.fixture
def empty() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        yield connection


def tables_of(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    found = connection.execute("SELECT name, coalesce(sql, '') FROM sqlite_schema ORDER BY name")
    return [(name, " ".join(text.split())) for name, text in found]


def version_of(connection: sqlite3.Connection) -> int:
    return schema.version_of(connection, "q.db")


def mark(path: Path, application: int, version: int, *, table: bool = True) -> bytes:
    """Make a database of somebody's own; return its bytes."""
    with closing(sqlite3.connect(path)) as connection:
        if table:
            connection.execute("CREATE TABLE theirs(a)")
        connection.execute(f"PRAGMA application_id={application}")
        connection.execute(f"PRAGMA user_version={version}")
    path.chmod(0o600)
    return path.read_bytes()


# ---------------------------------------------------------------------------- versions


def test_an_empty_file_has_version_0(empty: sqlite3.Connection) -> None:
    assert version_of(empty) == 0


def test_a_new_file_has_the_newest_version_and_our_mark(empty: sqlite3.Connection) -> None:
    schema.migrate(empty, 0)
    assert version_of(empty) == schema.VERSION == len(schema.MIGRATIONS)
    (application,) = empty.execute("PRAGMA application_id").fetchone()
    assert application.to_bytes(4, "big") == b"embq"
    assert not empty.in_transaction


def test_every_table_there_is_was_meant_to_be_there(empty: sqlite3.Connection) -> None:
    schema.migrate(empty, 0)
    found = {
        name for (name,) in empty.execute("SELECT name FROM sqlite_schema WHERE type='table'")
    }
    assert found - {"sqlite_sequence"} == set(schema.TABLES)


def test_migrating_what_is_newest_touches_nothing(empty: sqlite3.Connection) -> None:
    schema.migrate(empty, 0)
    statements: list[str] = []
    empty.set_trace_callback(statements.append)
    schema.migrate(empty, schema.VERSION)
    assert statements == []


@pytest.mark.parametrize("version", [schema.VERSION + 1, 99])
def test_a_newer_version_is_refused(empty: sqlite3.Connection, version: int) -> None:
    schema.migrate(empty, 0)
    empty.execute(f"PRAGMA user_version={version}")
    with pytest.raises(SchemaTooNew, match=f"version {version}") as caught:
        version_of(empty)
    assert f"up to {schema.VERSION}" in caught.value.message
    assert "install" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("application", "version", "table"),
    [(0, 0, True), (0, 7, False), (0, 7, True), (252006673, 0, False), (252006673, 1, True)],
)
def test_somebody_else_s_database_is_refused_and_stays_as_it_was(
    tmp_path: Path, application: int, version: int, *, table: bool
) -> None:
    path = tmp_path / "theirs.db"
    before = mark(path, application, version, table=table)
    with pytest.raises(NotAnEmbedqFile, match=r"theirs\.db is an SQLite database, but not"):
        open_store(path)
    assert path.read_bytes() == before
    assert {found.name for found in tmp_path.iterdir()} <= {"theirs.db", "theirs.db.lock"}


def test_a_newer_file_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    open_store(path).close(clean=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version={schema.VERSION + 1}")
    before = path.read_bytes()
    for _ in range(2):  # and the lock is given back
        with pytest.raises(SchemaTooNew):
            open_store(path)
    assert path.read_bytes() == before


# --------------------------------------------------------------------------- migrations


def test_a_migrated_file_is_like_a_new_one(empty: sqlite3.Connection) -> None:
    schema.migrate(empty, 0)
    schema.migrate(empty, schema.VERSION, NEXT)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as new:
        schema.migrate(new, 0, NEXT)
        assert tables_of(new) == tables_of(empty)
        assert ("archive_at", 'CREATE INDEX "archive_at" ON "archive" ("at")') in tables_of(new)
    assert empty.execute("PRAGMA user_version").fetchone() == (len(NEXT),)


def test_a_step_that_fails_leaves_the_older_version_whole(empty: sqlite3.Connection) -> None:
    schema.migrate(empty, 0)
    before = tables_of(empty)
    with pytest.raises(RuntimeError, match="the power failed"):
        schema.migrate(empty, schema.VERSION, (*schema.MIGRATIONS, add_and_fail))
    assert tables_of(empty) == before
    assert version_of(empty) == schema.VERSION
    assert not empty.in_transaction
    schema.migrate(empty, schema.VERSION, NEXT)  # the next opening goes on from there
    assert empty.execute("PRAGMA user_version").fetchone() == (len(NEXT),)


def test_a_new_file_loads_no_library_that_loads_others(tmp_path: Path) -> None:
    words = [sys.executable, "-c", LOADS, str(tmp_path / "new.db")]
    assert subprocess.check_output(words, text=True, timeout=60) == "[]\n"


def test_each_step_is_a_transaction_of_its_own(empty: sqlite3.Connection) -> None:
    def fail(database: sqlite_utils.Database) -> None:
        database["unwanted"].create({"seq": int})  # type: ignore[union-attr]
        raise RuntimeError("the power failed, so to speak")

    with pytest.raises(RuntimeError):
        schema.migrate(empty, 0, (*NEXT, fail))
    assert empty.execute("PRAGMA user_version").fetchone() == (len(NEXT),)
    assert {"archive", "unwanted"} & dict(tables_of(empty)).keys() == {"archive"}


def test_a_new_file_whose_creation_fails_stays_empty(empty: sqlite3.Connection) -> None:
    def stop(database: sqlite_utils.Database) -> None:
        first = schema.MIGRATIONS[0]
        assert isinstance(first, schema.Script)
        first.run(database.conn)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        schema.migrate(empty, 0, (stop,))
    assert tables_of(empty) == []
    assert version_of(empty) == 0


def test_a_step_that_ended_the_transaction_itself_shows_its_own_error(
    empty: sqlite3.Connection,
) -> None:
    def careless(database: sqlite_utils.Database) -> None:
        database.conn.execute("ROLLBACK")
        raise RuntimeError("the first error")

    with pytest.raises(RuntimeError, match="the first error"):
        schema.migrate(empty, 0, (careless,))


def test_the_recipe_keeps_every_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "q.db"
    store = open_store(path)
    declared = DeclareQueue("orders", QueuePolicy())
    store.commit([declared])
    assert declared.row is not None
    store.commit([DeclareGroup(declared.row.id, "default", 0), plain(1, b"a", b"b")])
    before = store.range(declared.row.id, 0, 9)
    store.close(clean=True)

    monkeypatch.setattr(schema, "MIGRATIONS", NEXT)
    monkeypatch.setattr(schema, "VERSION", len(NEXT))
    monkeypatch.setattr(schema.migrate, "__defaults__", (NEXT,))
    for _ in range(2):  # the second opening migrates nothing
        store = open_store(path)
        assert store.connection.execute("PRAGMA user_version").fetchone() == (len(NEXT),)
        assert store.range(declared.row.id, 0, 9) == before
        store.close(clean=True)

    monkeypatch.undo()
    with pytest.raises(SchemaTooNew):
        open_store(path)


def test_a_migration_that_fails_gives_the_file_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "q.db"
    open_store(path).close(clean=True)

    def break_(database: sqlite_utils.Database) -> None:
        database.conn.execute("CREATE TABLE meta(a)")

    with monkeypatch.context() as patched:
        patched.setattr(schema.migrate, "__defaults__", ((*schema.MIGRATIONS, break_),))
        with pytest.raises(StorageError, match="meta"):
            open_store(path)
    store = open_store(path)
    assert store.previous.clean
    store.close(clean=True)
