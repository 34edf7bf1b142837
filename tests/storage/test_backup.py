"""Backups: whole whatever happens meanwhile, never in the way, never half a file."""

import fcntl
import os
import sqlite3
import subprocess
import threading
import zlib
from contextlib import closing
from pathlib import Path

import pytest

from embedq.errors import (
    InvalidOption,
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreFailed,
    StoreFull,
)
from embedq.storage import schema
from embedq.storage.backup import backup
from embedq.storage.connection import open_writer

TABLES = ("meta", "queue", "consumer_group", "msg", "delivery", "dead", "dedup", "session")


class Source:
    """A database with its writing connection and the lock that goes with it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.Lock()
        self.connection = open_writer(
            str(path), durability="normal", page_size=4096, busy_timeout_s=1
        )
        schema.migrate(self.connection, 0)
        self.connection.execute("INSERT INTO queue(name,policy,retained) VALUES ('q','{}',0)")
        self.last = 0

    def put(self, count: int = 1, size: int = 300) -> None:
        """Store messages in one transaction; the caller holds the lock or is alone."""
        rows = []
        for seq in range(self.last + 1, self.last + 1 + count):
            body = f"{seq}:".encode() + os.urandom(size)
            rows.append((seq, 1, 0, 0, zlib.crc32(body), seq % 3, body))
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany(
            "INSERT INTO msg(seq,queue,put_at,kind,crc,priority,body) VALUES (?,?,?,?,?,?,?)", rows
        )
        self.connection.execute("COMMIT")
        self.last += count

    def run(self, sql: str) -> None:
        self.connection.executescript(sql)


@pytest.fixture
def source(tmp_path):
    source = Source(tmp_path / "shop.db")
    source.put(4000)
    yield source
    source.connection.close()


def contents(path):
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in TABLES}


def seqs(path):
    return {row[0] for row in contents(path)["msg"]}


def neighbours(path):
    return {other.name for other in path.parent.iterdir() if other.name.startswith(path.name)}


def test_a_backup_is_one_whole_private_file(source, tmp_path):
    target = tmp_path / "copy.db"
    report = backup(source.connection, source.lock, target)
    assert contents(target) == contents(source.path)
    assert target.stat().st_mode & 0o777 == 0o600
    assert neighbours(target) >= {"copy.db"}
    assert not (tmp_path / "copy.db.part").exists()
    assert report.path == target
    assert report.messages == 4000
    assert report.pages == target.stat().st_size // 4096
    assert report.seconds > 0
    with closing(sqlite3.connect(target)) as connection:
        assert connection.execute("PRAGMA application_id").fetchone()[0] == schema.APPLICATION_ID
        assert connection.execute("PRAGMA user_version").fetchone()[0] == schema.VERSION
        assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"


def disturb(source, step):
    """What a busy store does between two steps: behind and before the copied part."""
    source.put(30)
    source.run(f"DELETE FROM msg WHERE seq BETWEEN {step * 40} AND {step * 40 + 25}")
    source.run("INSERT OR REPLACE INTO meta VALUES ('epoch', 7)")
    if step % 3 == 1:
        source.run("PRAGMA wal_checkpoint(PASSIVE)")
    if step % 4 == 2:
        source.run("PRAGMA incremental_vacuum(8)")


def test_what_is_committed_between_two_steps_is_in_the_backup(source, tmp_path):
    steps = []

    def between(done, total):
        steps.append((done, total))
        if done == total:
            return  # the last step is over: the copy is complete
        with source.lock:
            disturb(source, len(steps))

    target = tmp_path / "copy.db"
    backup(source.connection, source.lock, target, pages=20, progress=between)
    assert len(steps) > 10
    assert contents(target) == contents(source.path)


def test_the_harness_sees_a_copy_that_misses_what_was_written_meanwhile(source, tmp_path):
    # The planted bug: pages copied one after the other, without regard to what changes.
    target = tmp_path / "copy.db"
    source.run("PRAGMA wal_checkpoint(TRUNCATE)")
    with source.path.open("rb") as file, target.open("wb") as copy:
        step = 0
        while block := file.read(20 * 4096):
            copy.write(block)
            step += 1
            disturb(source, step)
    with pytest.raises((AssertionError, sqlite3.DatabaseError)):
        assert contents(target) == contents(source.path)


class Producer:
    """A thread that puts one message at a time; `confirmed` are those it knows to be stored."""

    def __init__(self, source):
        self.source = source
        self.confirmed = source.last
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        while not self.stop.is_set():
            with self.source.lock:
                self.source.put()
                self.confirmed = self.source.last

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.stop.set()
        self.thread.join()


def puts_during(source, target, lock):
    with Producer(source) as producer:
        with source.lock:
            before = producer.confirmed
        backup(source.connection, lock, target, pages=20)
        with source.lock:
            return before, producer.confirmed


def test_puts_go_on_during_a_backup_and_those_confirmed_before_it_are_in_it(source, tmp_path):
    target = tmp_path / "copy.db"
    before, after = puts_during(source, target, source.lock)
    assert after - before > 10, "hardly a put got in between the steps"
    found = seqs(target)
    assert found >= set(range(1, before + 1))
    assert found == set(range(1, max(found) + 1)), "the copy is not one moment of the store"


def test_the_harness_sees_a_backup_that_never_lends_the_lock(source, tmp_path):
    class Kept:
        """The planted bug: the lock is only given back at the end."""

        def __init__(self):
            self.depth = 0

        def acquire(self):
            if self.depth == 0:
                source.lock.acquire()
            self.depth = 2
            return True

        def release(self):
            self.depth -= 1
            if not copying.is_set():
                self.depth = 0
                source.lock.release()

    copying = threading.Event()
    kept = Kept()
    source.lock.acquire()
    copying.set()
    kept.depth = 2
    with Producer(source) as producer:
        backup(source.connection, kept, tmp_path / "copy.db", pages=20)
        during = producer.confirmed
        source.lock.release()
    assert during == 4000


def test_an_open_transaction_is_settled_before_its_pages_could_be_copied(source, tmp_path):
    def interrupted():
        source.connection.execute("BEGIN IMMEDIATE")
        source.connection.execute("DELETE FROM msg")

    settled = []

    def settle():
        settled.append(True)
        source.connection.execute("ROLLBACK")

    def between(done, total):
        if len(settled) < 2:
            interrupted()

    interrupted()
    target = tmp_path / "copy.db"
    backup(source.connection, source.lock, target, pages=50, progress=between, settle=settle)
    assert len(settled) == 2
    assert seqs(target) == set(range(1, 4001))


def test_an_open_transaction_that_nobody_settles_ends_the_backup(source, tmp_path):
    source.connection.execute("BEGIN IMMEDIATE")
    source.connection.execute("DELETE FROM msg")
    with pytest.raises(StoreBusy, match="transaction"):
        backup(source.connection, source.lock, tmp_path / "copy.db")
    assert neighbours(tmp_path / "copy.db") == set()
    assert source.lock.acquire(blocking=False)


@pytest.mark.parametrize("what", ["exists", "folder", "link", "itself", "in use", "no folder"])
def test_a_target_that_is_not_free_is_refused_and_stays_as_it_is(source, tmp_path, what):
    target = tmp_path / "copy.db"
    overwrite = what != "exists"
    if what == "exists":
        target.write_bytes(b"precious")
    elif what == "folder":
        target.mkdir()
    elif what == "link":
        target.symlink_to(source.path)
    elif what == "itself":
        target = source.path
    elif what == "in use":
        target.write_bytes(b"precious")
        (tmp_path / "copy.db-wal").write_bytes(b"log")
    else:
        target = tmp_path / "missing" / "copy.db"
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    with pytest.raises(InvalidOption) as caught:
        backup(source.connection, source.lock, target, overwrite=overwrite)
    assert str(target) in str(caught.value)
    assert caught.value.hint
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_an_older_backup_is_replaced_when_asked(source, tmp_path):
    target = tmp_path / "copy.db"
    backup(source.connection, source.lock, target)
    target.chmod(0o644)
    source.put(10)
    report = backup(source.connection, source.lock, target, overwrite=True)
    assert report.messages == 4010
    assert len(seqs(target)) == 4010
    assert target.stat().st_mode & 0o777 == 0o600


def test_the_part_file_of_a_killed_backup_is_taken_over(source, tmp_path):
    part = tmp_path / "copy.db.part"
    part.write_bytes(b"half of a backup" * 100_000)
    part.chmod(0o666)
    backup(source.connection, source.lock, tmp_path / "copy.db")
    assert not part.exists()
    assert contents(tmp_path / "copy.db") == contents(source.path)


def test_the_part_file_of_a_running_backup_is_left_alone(source, tmp_path):
    part = tmp_path / "copy.db.part"
    with part.open("wb") as other:
        other.write(b"the other backup")
        other.flush()
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(StoreBusy, match="another backup"):
            backup(source.connection, source.lock, tmp_path / "copy.db")
    assert part.read_bytes() == b"the other backup"
    assert not (tmp_path / "copy.db").exists()


def test_a_backup_to_a_full_disk_leaves_nothing_and_the_store_goes_on(source, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only on a machine where we are root: it mounts a small tmpfs")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", disk], check=True)
    try:
        with pytest.raises(StoreFull) as caught:
            backup(source.connection, source.lock, disk / "copy.db", pages=20)
        assert "free space in" in str(caught.value)
        assert caught.value.retryable
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", disk], check=True)
    with source.lock:
        source.put()
    backup(source.connection, source.lock, tmp_path / "copy.db")
    assert max(seqs(tmp_path / "copy.db")) == 4001


def test_a_failing_sync_fails_the_backup_and_keeps_the_older_one(source, tmp_path, monkeypatch):
    target = tmp_path / "copy.db"
    target.write_bytes(b"older")

    def fsync(fd):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StoreFailed, match="Input/output error"):
        backup(source.connection, source.lock, target, overwrite=True)
    assert target.read_bytes() == b"older"
    assert neighbours(target) == {"copy.db"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_exception_of_the_caller_ends_the_backup_cleanly(source, tmp_path, error):
    def between(done, total):
        raise error

    with pytest.raises(error):
        backup(source.connection, source.lock, tmp_path / "copy.db", pages=20, progress=between)
    assert neighbours(tmp_path / "copy.db") == set()
    assert source.lock.acquire(blocking=False), "the lock was not given back"
    source.put()


def test_ctrl_c_while_waiting_for_the_lock_does_not_release_what_another_thread_holds(
    source, tmp_path
):
    class Interrupted:
        """A lock whose third taking is interrupted once."""

        def __init__(self):
            self.takes = 0
            self.held = False

        def acquire(self):
            self.takes += 1
            if self.takes == 3:
                raise KeyboardInterrupt
            self.held = True
            return True

        def release(self):
            assert self.held
            self.held = False

    lock = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        backup(source.connection, lock, tmp_path / "copy.db", pages=20)
    assert lock.takes == 4
    assert not lock.held


def test_a_damaged_database_is_no_backup(source, tmp_path):
    source.run("PRAGMA wal_checkpoint(TRUNCATE)")
    root = source.connection.execute("SELECT rootpage FROM sqlite_schema WHERE name='msg'")
    offset = (root.fetchone()[0] - 1) * 4096
    source.connection.close()
    with source.path.open("r+b") as file:
        file.seek(offset)
        file.write(b"\xff" * 200)
    damaged = open_writer(str(source.path), durability="normal", page_size=4096, busy_timeout_s=1)
    target = tmp_path / "copy.db"
    target.write_bytes(b"older")
    with closing(damaged), pytest.raises(StoreCorrupt, match=r"shop\.db"):
        backup(damaged, source.lock, target, overwrite=True)
    assert target.read_bytes() == b"older"
    assert neighbours(target) == {"copy.db"}


def test_a_store_closed_meanwhile_ends_the_backup(source, tmp_path):
    def between(done, total):
        source.connection.close()

    with pytest.raises(StoreClosed):
        backup(source.connection, source.lock, tmp_path / "copy.db", pages=20, progress=between)
    assert neighbours(tmp_path / "copy.db") == set()
    assert source.lock.acquire(blocking=False)
    with pytest.raises(StoreClosed):
        backup(source.connection, threading.Lock(), tmp_path / "copy.db")


def test_a_step_without_pages_is_refused(source, tmp_path):
    with pytest.raises(InvalidOption, match="pages=0"):
        backup(source.connection, source.lock, tmp_path / "copy.db", pages=0)
