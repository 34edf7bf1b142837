"""Connections have the settings that the promises rest on, and errors mean something."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from embedq.errors import (
    NetworkFilesystem,
    NotAnEmbedqFile,
    StorageError,
    StoreBusy,
    StoreCorrupt,
    StoreFailed,
    StoreFull,
    UnsupportedPlatform,
)
from embedq.storage import connection as module
from embedq.storage.connection import Durability, meaning, open_reader, open_writer

FULL, NORMAL = 2, 1


def writer(path: Path, durability: Durability = "full", page_size: int = 4096, **more):
    return open_writer(
        str(path), durability=durability, page_size=page_size, busy_timeout_s=0.5, **more
    )


def pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "q.db"


@pytest.fixture
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(writer(path)) as connection:
        connection.execute("CREATE TABLE t(a)")
        yield connection


# ------------------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("journal_mode", "wal"),
        ("synchronous", FULL),
        ("fullfsync", 1),
        ("wal_autocheckpoint", 0),
        ("secure_delete", 0),
        ("mmap_size", 0),
        ("cache_size", -16384),
        ("temp_store", 2),
        ("trusted_schema", 0),
        ("cell_size_check", 1),
        ("auto_vacuum", 2),
        ("page_size", 4096),
        ("busy_timeout", 500),
    ],
)
def test_a_setting_of_the_writer_is_in_force(
    opened: sqlite3.Connection, name: str, value: object
) -> None:
    assert pragma(opened, name) == value


def test_the_settings_that_are_stored_are_in_a_file_that_is_opened_again(path: Path) -> None:
    with closing(writer(path, page_size=8192)) as connection:
        connection.execute("CREATE TABLE t(a)")
    with closing(sqlite3.connect(path)) as plain:
        found = [pragma(plain, name) for name in ("page_size", "auto_vacuum", "journal_mode")]
        assert found == [8192, 2, "wal"]
    with closing(writer(path)) as connection:  # another size changes nothing in a file
        assert pragma(connection, "page_size") == 8192


def test_durability_normal_syncs_at_checkpoints_only(path: Path) -> None:
    with closing(writer(path, "normal")) as connection:
        assert pragma(connection, "synchronous") == NORMAL


def test_the_writer_begins_no_transactions_by_itself(opened: sqlite3.Connection) -> None:
    opened.execute("INSERT INTO t VALUES (1)")
    assert not opened.in_transaction
    assert opened.isolation_level is None


def test_the_writer_frees_pages_in_steps_only(opened: sqlite3.Connection, path: Path) -> None:
    opened.execute("CREATE TABLE wide(a)")
    opened.executemany("INSERT INTO wide VALUES (?)", [(b"x" * 9000,)] * 20)
    opened.execute("DROP TABLE wide")
    assert pragma(opened, "freelist_count") != 0


@pytest.mark.parametrize(
    ("name", "value"), [("query_only", 1), ("mmap_size", 0), ("trusted_schema", 0)]
)
def test_a_setting_of_a_reader_is_in_force(
    opened: sqlite3.Connection, path: Path, name: str, value: object
) -> None:
    with closing(open_reader(str(path))) as reader:
        assert pragma(reader, name) == value


def test_a_reader_cannot_write_and_cannot_create(opened: sqlite3.Connection, path: Path) -> None:
    with closing(open_reader(str(path))) as reader:
        reader.execute("PRAGMA query_only=0")  # and still
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader.execute("INSERT INTO t VALUES (1)")
    absent = path.with_name("absent.db")
    with pytest.raises(sqlite3.OperationalError):
        open_reader(str(absent))
    assert not absent.exists()


def test_a_path_may_contain_what_means_something_in_a_uri(tmp_path: Path) -> None:
    path = tmp_path / "50% off?mode=rw#a b&c.db"
    with closing(writer(path)) as connection:
        connection.execute("CREATE TABLE t(a)")
        with closing(open_reader(str(path))) as reader:
            assert reader.execute("SELECT count(*) FROM t").fetchone() == (0,)


# ------------------------------------------------------------------------------- opening


def test_what_looks_at_the_file_first_can_leave_it_as_it_was(path: Path) -> None:
    with closing(sqlite3.connect(path)) as foreign:
        foreign.execute("CREATE TABLE theirs(a)")
    before = path.read_bytes()

    def refuse(connection: sqlite3.Connection) -> None:
        assert pragma(connection, "journal_mode") == "delete"
        raise NotAnEmbedqFile("theirs")

    with pytest.raises(NotAnEmbedqFile, match="theirs"):
        writer(path, inspect=refuse)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_named(path: Path) -> None:
    path.write_bytes(b"Dear diary, " * 500)
    with pytest.raises(NotAnEmbedqFile, match=r"q\.db is not an SQLite database"):
        writer(path)
    assert path.read_bytes() == b"Dear diary, " * 500


def test_a_path_that_cannot_be_opened_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="cannot be opened"):
        writer(tmp_path)
    with pytest.raises(StoreFailed, match="cannot be opened"):
        writer(tmp_path / "no such folder" / "q.db")


def test_a_file_that_somebody_holds_is_busy(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE t(a)")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreBusy):
            open_writer(str(path), durability="full", page_size=4096, busy_timeout_s=0)


def test_where_there_is_no_write_ahead_log_the_file_is_refused() -> None:
    # A database in memory has no log either: the same answer as from a network file system.
    with pytest.raises(NetworkFilesystem, match="WAL"):
        open_writer(":memory:", durability="full", page_size=4096, busy_timeout_s=0)


def test_an_sqlite_that_is_too_old_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OLDEST_SQLITE", (99, 0, 0))
    with pytest.raises(UnsupportedPlatform, match=sqlite3.sqlite_version.replace(".", r"\.")):
        writer(path)
    assert not path.exists()


# -------------------------------------------------------------------------------- errors

PRIMARY = {
    f"SQLITE_{word}": getattr(sqlite3, f"SQLITE_{word}")
    for word in (
        "ERROR INTERNAL PERM ABORT BUSY LOCKED NOMEM READONLY INTERRUPT IOERR CORRUPT NOTFOUND "
        "FULL CANTOPEN PROTOCOL EMPTY SCHEMA TOOBIG CONSTRAINT MISMATCH MISUSE NOLFS AUTH FORMAT "
        "RANGE NOTADB"
    ).split()
}

MEANINGS: dict[str, type[StorageError]] = {
    "SQLITE_FULL": StoreFull,
    "SQLITE_BUSY": StoreBusy,
    "SQLITE_LOCKED": StoreBusy,
    "SQLITE_NOMEM": StoreBusy,
    "SQLITE_INTERRUPT": StoreBusy,
    "SQLITE_IOERR": StoreFailed,
    "SQLITE_CANTOPEN": StoreFailed,
    "SQLITE_READONLY": StoreFailed,
    "SQLITE_PERM": StoreFailed,
    "SQLITE_PROTOCOL": StoreFailed,
    "SQLITE_SCHEMA": StoreFailed,
    "SQLITE_CORRUPT": StoreCorrupt,
    "SQLITE_NOTADB": StoreCorrupt,
}

STOPS = {"store_failed", "store_corrupt"}


def error_of(code: int, name: str) -> sqlite3.Error:
    error = sqlite3.OperationalError("what SQLite says")
    error.sqlite_errorcode = code
    error.sqlite_errorname = name
    return error


def test_the_primary_codes_are_all_there() -> None:
    assert sorted(PRIMARY.values()) == [*range(1, 27)]


@pytest.mark.parametrize("name", PRIMARY)
@pytest.mark.parametrize("extended", [0, 1, 17])
def test_every_code_has_a_meaning(name: str, extended: int) -> None:
    found = meaning(error_of(PRIMARY[name] | extended << 8, name), "var/shop.db")
    assert type(found) is MEANINGS.get(name, StorageError)
    assert "var/shop.db" in found.message
    assert name in found.message
    assert "what SQLite says" in found.message


def test_shared_memory_that_cannot_grow_means_a_full_disk() -> None:
    found = meaning(error_of(sqlite3.SQLITE_IOERR_SHMSIZE, "SQLITE_IOERR_SHMSIZE"), "q.db")
    assert type(found) is StoreFull


def test_only_what_passes_is_worth_repeating_and_only_the_rest_stops_the_store() -> None:
    kinds: set[type[StorageError]] = {*MEANINGS.values(), StorageError}
    for kind in kinds:
        assert kind.retryable == (kind in {StoreFull, StoreBusy})
        assert (kind.code in STOPS) == (kind in {StoreFailed, StoreCorrupt})


def test_an_error_without_a_code_is_told_with_its_type() -> None:
    found = meaning(sqlite3.ProgrammingError("Cannot operate on a closed database."), "q.db")
    assert type(found) is StorageError
    assert "ProgrammingError" in found.message
