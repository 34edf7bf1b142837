"""What the store in a file does when SQLite, the disk or a value fails it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from embedq.errors import (
    EmbedqError,
    GroupNotFound,
    StorageError,
    StoreBusy,
    StoreCorrupt,
    StoreFailed,
    StoreFull,
)
from embedq.policy import QueuePolicy
from embedq.storage.ops import Ack, DeclareGroup, DeclareQueue, Pause, PutRows, Start
from embedq.storage.sqlite import SqliteStore
from tests.conformance.scenario import plain, row
from tests.storage.planted import error_of, fail_at, opened, put, seqs


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "q.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    one = opened(path)
    one.commit([DeclareQueue("orders", QueuePolicy()), DeclareGroup(1, "default", 0)])
    yield one
    one.close(clean=False)


# --------------------------------------------------------------------------------- failure


@pytest.mark.parametrize("statement", ["BEGIN", "INSERT INTO msg", "COMMIT"])
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (sqlite3.SQLITE_IOERR_FSYNC, StoreFailed),
        (sqlite3.SQLITE_READONLY, StoreFailed),
        (sqlite3.SQLITE_CORRUPT, StoreCorrupt),
    ],
)
def test_after_a_failure_of_the_file_nothing_is_served(
    store: SqliteStore, statement: str, code: int, expected: type[StorageError]
) -> None:
    fail_at(store, statement, error_of(code))
    with pytest.raises(expected, match="planted") as first:
        store.commit([plain(1, b"a")])
    assert store.stopped is first.value
    for act in (
        lambda: store.commit([]),
        lambda: put(store),
        store.catalogue,
        lambda: store.range(1, 0, 9),
        store.begin_tally,
        store.settle_interrupted,
    ):
        with pytest.raises(expected) as later:
            act()
        assert later.value is first.value
    assert not store.checkpoint()
    store.rest(10)
    store.look_around()


def test_a_put_alone_stops_the_store_too(store: SqliteStore) -> None:
    fail_at(store, "INSERT INTO msg", error_of(sqlite3.SQLITE_IOERR_WRITE))
    with pytest.raises(StoreFailed):
        put(store)
    assert isinstance(store.stopped, StoreFailed)


def test_the_first_reason_to_stop_is_the_one_that_is_told(store: SqliteStore) -> None:
    store.stop(StoreFailed("first"))
    store.stop(StoreCorrupt("second"))
    with pytest.raises(StoreFailed, match="first"):
        put(store)


@pytest.mark.parametrize(
    ("error", "expected", "says"),
    [
        (error_of(sqlite3.SQLITE_BUSY), StoreBusy, "another program"),
        (error_of(sqlite3.SQLITE_LOCKED), StoreBusy, "another program"),
        (MemoryError(), StoreBusy, "no memory"),
        (error_of(sqlite3.SQLITE_CONSTRAINT, sqlite3.IntegrityError), StorageError, "refused"),
        (OverflowError("int too large"), StorageError, "cannot be stored: int too large"),
        (GroupNotFound("as it is"), GroupNotFound, "as it is"),
    ],
)
def test_what_passes_is_told_and_the_store_goes_on(
    store: SqliteStore, error: Exception, expected: type[EmbedqError], says: str
) -> None:
    fail_at(store, "COMMIT", error)
    with pytest.raises(expected, match=says) as caught:
        store.commit([plain(1, b"a")])
    assert type(caught.value) is expected
    assert store.stopped is None
    assert put(store) > 0
    assert len(seqs(store)) == 1


def test_another_program_s_transaction_makes_commits_busy_until_it_ends(
    store: SqliteStore, path: Path
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for act in (lambda: put(store), lambda: store.commit([Pause(1, paused=True)])):
            with pytest.raises(StoreBusy) as caught:
                act()
            assert caught.value.retryable
        other.execute("ROLLBACK")
    assert put(store) > 0


def test_a_value_that_sqlite_cannot_store_fails_alone(store: SqliteStore) -> None:
    with pytest.raises(StorageError, match="cannot be stored"):
        store.commit([plain(1, b"a"), PutRows(1, 0, [row(due=1 << 70)])])
    assert (seqs(store), store.stopped) == ([], None)


def test_a_failure_that_sqlite_has_rolled_back_by_itself_is_not_hidden(
    store: SqliteStore,
) -> None:
    execute: Any = store.connection.execute

    def full(text: str, *values: Any) -> sqlite3.Cursor:
        if text == "COMMIT":
            execute("ROLLBACK")
            raise error_of(sqlite3.SQLITE_BUSY)
        return execute(text, *values)

    store._execute = full
    with pytest.raises(StoreBusy, match="planted"):
        store.commit([plain(1, b"a")])


@pytest.mark.parametrize("statement", ["ROLLBACK", "SELECT value FROM meta"])
def test_a_commit_that_cannot_be_undone_stops_the_store(
    store: SqliteStore, statement: str
) -> None:
    execute: Any = store.connection.execute

    def broken(text: str, *values: Any) -> sqlite3.Cursor:
        if text == "COMMIT" or text.startswith(statement):
            raise error_of(sqlite3.SQLITE_BUSY)
        return execute(text, *values)

    store._execute = broken
    with pytest.raises(StoreFailed, match="could not be undone: planted"):
        store.commit([Pause(1, paused=True)])
    store._execute = execute
    with pytest.raises(StoreFailed, match="could not be undone"):
        store.commit([])


def test_what_a_failed_commit_declared_is_not_there(store: SqliteStore) -> None:
    fail_at(store, "COMMIT", error_of(sqlite3.SQLITE_BUSY))
    with pytest.raises(StoreBusy):
        store.commit([DeclareQueue("mail", QueuePolicy()), DeclareGroup(1, "audit", 0)])
    queues, groups = store.catalogue()
    assert ([q.name for q in queues], [g.name for g in groups]) == (["orders"], ["default"])
    put(store)
    store.commit([Start(1, 1, None, 1, [store.last_seq], []), ack := Ack(1, 2, [store.last_seq])])
    assert ack.removed == 1  # the only group, again


# ------------------------------------------------------------------------------- disk full


def test_an_ack_that_finds_the_disk_full_gets_the_ballast(store: SqliteStore) -> None:
    store.space.refresh()
    ballast = store.placement.ballast_path
    assert ballast.exists()
    seq = put(store)
    store.commit([Start(1, 1, None, 1, [seq], [])])
    failed = fail_at(store, "COMMIT", error_of(sqlite3.SQLITE_FULL))
    ack = Ack(1, 2, [seq])
    store.commit([ack])
    assert (ack.removed, seqs(store), failed) == (1, [], ["COMMIT"])
    assert not ballast.exists()
    with pytest.raises(StoreFull, match="puts are refused"):
        put(store)  # until there is room again
    store.space.refresh()
    assert put(store) > seq
    assert store.stopped is None


@pytest.mark.parametrize("ballast", [True, False])
def test_a_disk_that_stays_full_is_told(store: SqliteStore, *, ballast: bool) -> None:
    if ballast:
        store.space.refresh()
    failed = fail_at(store, "COMMIT", error_of(sqlite3.SQLITE_FULL), times=99)
    with pytest.raises(StoreFull, match="the disk is full"):
        store.commit([Pause(1, paused=True)])
    assert len(failed) == 1 + ballast
    assert store.stopped is None
    assert not store.placement.ballast_path.exists()


def test_a_put_does_not_get_the_ballast(store: SqliteStore) -> None:
    store.space.refresh()
    fail_at(store, "COMMIT", error_of(sqlite3.SQLITE_FULL), times=2)
    for batch in ([plain(1, b"a")], [PutRows(1, 0, [row()]), Pause(1, paused=True)]):
        with pytest.raises(StoreFull):
            store.commit(batch)
    assert store.placement.ballast_path.exists()


def test_a_truly_full_database_refuses_puts_and_goes_on(store: SqliteStore) -> None:
    (pages,) = store.connection.execute("PRAGMA page_count").fetchone()
    store.connection.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StoreFull):
        store.put(plain(1, bytes(90_000)))
    assert store.stopped is None
    store.connection.execute("PRAGMA max_page_count=1000000")
    assert put(store) > 0


def test_a_checkpoint_that_finds_the_disk_full_is_tried_again_with_the_ballast_gone(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.space.refresh()
    there = []

    def full(_log: object) -> bool:
        there.append(store.placement.ballast_path.exists())
        raise error_of(sqlite3.SQLITE_FULL)

    with monkeypatch.context() as patched:
        patched.setattr(type(store._wal), "checkpoint", full)
        assert not store.checkpoint()
    assert there == [True, False]
    assert store.stopped is None
    assert store.checkpoint()


@pytest.mark.parametrize(
    ("code", "stops"),
    [
        (sqlite3.SQLITE_BUSY, False),
        (sqlite3.SQLITE_IOERR_FSYNC, True),
        (sqlite3.SQLITE_CORRUPT, True),
    ],
)
def test_a_checkpoint_that_fails_stops_the_store_unless_it_was_only_in_the_way(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, code: int, *, stops: bool
) -> None:
    def fail(_log: object) -> bool:
        raise error_of(code)

    monkeypatch.setattr(type(store._wal), "checkpoint", fail)
    assert not store.checkpoint()
    assert (store.stopped is not None) == stops


def test_the_log_is_copied_after_enough_was_written(store: SqliteStore) -> None:
    checkpoints = store.wal.checkpoints
    for _ in range(50):
        op = plain(1, bytes(4096 * 20))
        if store.put(op):
            store.after_commit()
    assert store.wal.checkpoints > checkpoints
    assert store.wal.blocked == 0
