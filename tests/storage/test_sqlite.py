"""The store in a file: seqs are never used twice, counts are exact or not, the end is orderly."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from embedq.errors import (
    StorageError,
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreFailed,
    StoreInUse,
)
from embedq.lifecycle import Reason
from embedq.policy import QueuePolicy
from embedq.storage.ops import Bury, DeclareGroup, DeclareQueue, Pause, PutRows, Redrive, Save
from embedq.storage.sqlite import SEQ_BLOCK, SqliteStore
from tests.conformance.scenario import plain, row
from tests.storage.planted import error_of, fail_at, meta, opened, put, seqs


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "q.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    one = opened(path)
    one.commit([DeclareQueue("orders", QueuePolicy()), DeclareGroup(1, "default", 0)])
    yield one
    one.close(clean=False)


# ----------------------------------------------------------------------------------- seqs


def test_seqs_are_reserved_in_blocks_so_that_a_put_writes_one_row(store: SqliteStore) -> None:
    assert meta(store, "seq_reserved") == SEQ_BLOCK
    statements: list[str] = []
    store.connection.set_trace_callback(statements.append)
    assert put(store) == 1
    (statement,) = statements
    assert statement.startswith("INSERT INTO msg")
    assert meta(store, "seq_reserved") == SEQ_BLOCK


def test_a_block_that_is_used_up_is_followed_by_the_next_one(store: SqliteStore) -> None:
    store.last_seq = SEQ_BLOCK - 2
    assert put(store, 2) == SEQ_BLOCK - 1
    assert meta(store, "seq_reserved") == SEQ_BLOCK
    assert put(store) == SEQ_BLOCK + 1
    assert meta(store, "seq_reserved") == 2 * SEQ_BLOCK + 1


@pytest.mark.parametrize("kind", ["put", "commit", "rows", "redrive"])
def test_no_way_of_storing_passes_what_is_reserved(store: SqliteStore, kind: str) -> None:
    store.last_seq = SEQ_BLOCK
    if kind == "put":
        put(store)
    elif kind == "commit":
        store.commit([plain(1, b"a"), plain(1, b"b", b"c")])
    elif kind == "rows":
        store.commit([PutRows(1, 0, [row(), row()])])
    else:
        put(store)
        bury = Bury(1, store.last_seq, 1, Reason.REJECTED)
        store.commit([bury])
        store.last_seq = int(meta(store, "seq_reserved"))
        store.commit([Redrive(1, [bury.dead_id or 0], ["origin"], 2)])
    assert SEQ_BLOCK < store.last_seq <= meta(store, "seq_reserved")


def test_after_a_crash_seqs_go_on_above_all_that_were_reserved(path: Path) -> None:
    store = opened(path)
    store.commit([DeclareQueue("orders", QueuePolicy())])
    assert put(store, 3) == 1
    store.close(clean=False)
    store = opened(path)
    assert not store.clean
    assert put(store) == SEQ_BLOCK + 1
    store.close(clean=False)


def test_after_exact_counts_seqs_go_on_without_a_gap(path: Path) -> None:
    store = opened(path)
    store.commit([DeclareQueue("orders", QueuePolicy())])
    put(store, 3)
    store.commit([Save([(1, 3, 0, 3)], [], exact=True)])
    store.close(clean=True)
    store = opened(path)
    assert (store.clean, store.last_seq) == (True, 3)
    assert put(store) == 4
    store.close(clean=False)


def test_a_seq_that_was_given_out_in_vain_is_not_given_out_again(store: SqliteStore) -> None:
    fail_at(store, "INSERT INTO msg", error_of(sqlite3.SQLITE_BUSY))
    with pytest.raises(StoreBusy):
        put(store, 3)
    assert put(store) == 4
    fail_at(store, "COMMIT", error_of(sqlite3.SQLITE_BUSY))
    with pytest.raises(StoreBusy):
        store.commit([plain(1, b"a", b"b")])
    assert put(store) == 7
    assert seqs(store) == [4, 7]


def test_a_reservation_that_was_rolled_back_does_not_count(path: Path) -> None:
    store = opened(path)
    store.commit([DeclareQueue("orders", QueuePolicy())])
    store.last_seq = SEQ_BLOCK - 1
    fail_at(store, "COMMIT", error_of(sqlite3.SQLITE_BUSY))
    with pytest.raises(StoreBusy):
        store.commit([plain(1, b"a", b"b")])
    assert meta(store, "seq_reserved") == SEQ_BLOCK
    assert put(store) == SEQ_BLOCK + 2
    reserved = meta(store, "seq_reserved")
    assert reserved > SEQ_BLOCK + 2
    store.close(clean=False)
    store = opened(path)
    assert store.last_seq == reserved
    store.close(clean=False)


def test_after_an_interruption_what_is_stored_is_believed(store: SqliteStore) -> None:
    """The put was stored; its caller was interrupted before it could say so."""
    store.connection.execute(
        "INSERT INTO msg(seq,queue,put_at,kind,crc,body) VALUES (9,1,0,0,0,'')"
    )
    store.settle_interrupted()
    assert put(store) == 10


def test_an_interrupted_transaction_is_undone(store: SqliteStore) -> None:
    store.connection.execute("BEGIN IMMEDIATE")
    store.connection.execute("UPDATE queue SET paused=1")
    store.settle_interrupted()
    assert not store.connection.in_transaction
    assert not store.catalogue()[0][0].paused


def test_an_interruption_that_cannot_be_settled_stops_the_store(store: SqliteStore) -> None:
    fail_at(store, "SELECT max(seq)", error_of(sqlite3.SQLITE_IOERR_READ))
    with pytest.raises(StoreFailed):
        store.settle_interrupted()
    with pytest.raises(StoreFailed, match="planted"):
        store.settle_interrupted()


# --------------------------------------------------------------------------------- counts


def test_exact_counts_are_exact_until_the_next_commit(store: SqliteStore) -> None:
    store.commit([Save([(1, 7, 1, 9)], [(1, 2, 3)], exact=True)])
    assert meta(store, "clean") == 1
    put(store)
    assert meta(store, "clean") == 0
    ((queue,), (group,)) = store.catalogue()
    assert (queue.stored, queue.dead, queue.last) == (7, 1, 9)
    assert (group.floor, group.settled) == (2, 3)


FOLLOWING: dict[str, Callable[[SqliteStore], object]] = {
    "a put": put,
    "a pause": lambda store: store.commit([Pause(1, paused=True)]),
    "counts that may be wrong": lambda store: store.commit([Save([], [], exact=False)]),
}


@pytest.mark.parametrize("following", FOLLOWING)
def test_whatever_follows_makes_them_inexact(store: SqliteStore, following: str) -> None:
    store.commit([Save([], [], exact=True)])
    FOLLOWING[following](store)
    assert meta(store, "clean") == 0


def test_a_commit_that_failed_leaves_them_exact(store: SqliteStore) -> None:
    store.commit([Save([], [], exact=True)])
    fail_at(store, "COMMIT", error_of(sqlite3.SQLITE_BUSY))
    with pytest.raises(StoreBusy):
        store.commit([Pause(1, paused=True)])
    assert meta(store, "clean") == 1
    put(store)
    assert meta(store, "clean") == 0


# --------------------------------------------------------------------------- opening, end


def test_every_opening_is_a_new_epoch_and_says_so(path: Path) -> None:
    epochs, keys = [], set()
    for _ in range(3):
        store = opened(path)
        epochs.append(store.epoch)
        keys.add(store.key)
        assert f'"epoch":{store.epoch}' in store.placement.lock_path.read_text().replace(" ", "")
        store.close(clean=True)
    assert (epochs, len(keys)) == ([1, 2, 3], 1)


def test_a_file_has_one_store_at_a_time(store: SqliteStore, path: Path) -> None:
    with pytest.raises(StoreInUse):
        opened(path)
    assert put(store) == 1


def test_closing_is_final_and_gives_the_file_back(path: Path) -> None:
    store = opened(path)
    store.close(clean=True)
    store.close(clean=False)  # once is enough
    with pytest.raises(StoreClosed):
        store.commit([])
    assert not path.with_name("q.db-wal").exists()
    store = opened(path)
    assert store.previous.clean
    store.close(clean=True)


@pytest.mark.parametrize("reason", [StoreFailed("planted"), StoreCorrupt("planted")])
def test_a_store_that_had_to_stop_does_not_end_cleanly(path: Path, reason: StorageError) -> None:
    store = opened(path)
    store.stop(reason)
    store.close(clean=True)
    store = opened(path)
    assert not store.previous.clean
    store.close(clean=True)


def test_an_opening_that_fails_gives_the_file_back_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(path).close(clean=True)

    def broken(*_: object) -> None:
        raise error_of(sqlite3.SQLITE_IOERR_READ)

    with monkeypatch.context() as patched:
        patched.setattr("embedq.storage.schema.migrate", broken)
        with pytest.raises(StoreFailed, match="planted"):
            opened(path)
    store = opened(path)
    assert store.previous.clean
    store.close(clean=True)


def test_a_page_size_is_that_of_the_first_opening(path: Path) -> None:
    store = opened(path, page_size=8192)
    assert store.connection.execute("PRAGMA page_size").fetchone() == (8192,)
    store.close(clean=True)
    store = opened(path, page_size=4096)
    assert store.connection.execute("PRAGMA page_size").fetchone() == (8192,)
    store.close(clean=True)
