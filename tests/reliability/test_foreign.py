"""Other programs at the same file: readers, writers, rivals, and hands that delete or replace it.

Knows: what each of them does, the named error that follows, and that nothing is lost by it.
Does not know: how the store finds out.
"""

from __future__ import annotations

import dataclasses
import sqlite3
import threading
import time
from contextlib import closing, contextmanager
from typing import Any

import pytest

from embedq.broker.engine import Engine
from embedq.broker.host import open_engine
from embedq.clock import VirtualClock
from embedq.errors import (
    NetworkFilesystem,
    SchemaTooNew,
    StoreBusy,
    StoreFailed,
    StoreInUse,
)
from embedq.limits import LIMITS
from embedq.storage import placement
from embedq.storage.placement import Mount
from embedq.storage.schema import VERSION
from tests.storage.rivals import program, run, say

pytestmark = pytest.mark.reliability

QUICK = dataclasses.replace(LIMITS, busy_timeout_s=0.2, checkpoint_pages=20)


class Host:
    """One engine on one path."""

    engine: Engine

    def __init__(self, path: Any) -> None:
        self.path = path
        self.wal = path.with_name(path.name + "-wal")
        self.open()

    def open(self) -> None:
        self.engine = open_engine(self.path, clock=VirtualClock(), limits=QUICK, upkeep=False)
        self.queue = self.engine.queue("orders")
        self.group = self.engine.group(self.queue)

    def put(self, count: int = 1) -> None:
        for _ in range(count):
            self.engine.put(self.queue, b"x" * 1000)

    def settle_everything(self) -> int:
        settled = 0
        while leases := self.engine.claim(self.group, 10):
            self.engine.ack(*leases)
            settled += len(leases)
        return settled

    def contents(self) -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in self.path.parent.iterdir()}


@pytest.fixture
def host(tmp_path):
    one = Host(tmp_path / "q.db")
    yield one
    one.engine.close()


# ------------------------------------------------------------------------------------ readers


def test_a_reader_that_stays_for_the_whole_run_is_seen_and_does_no_harm(host):
    host.put(50)
    with closing(sqlite3.connect(f"file:{host.path}?mode=ro", uri=True)) as reader:
        reader.execute("BEGIN")
        seen = reader.execute("SELECT count(*) FROM msg").fetchone()
        for _ in range(100):
            host.put(3)
            host.engine.ack(*host.engine.claim(host.group, 2))
        host.engine.upkeep.round()
        assert host.engine.upkeep.trouble is None
        assert host.engine.store.wal.blocked > 0
        assert reader.execute("SELECT count(*) FROM msg").fetchone() == seen
    for _ in range(2):
        host.engine.upkeep.round()
    assert host.engine.store.wal.blocked == 0
    pinned = host.wal.stat().st_size
    for _ in range(100):
        host.put(3)
        host.engine.ack(*host.engine.claim(host.group, 2))
    assert host.wal.stat().st_size == pinned, "the log begins anew instead of growing"
    assert host.settle_everything() == 50 + 600 - 400


# ------------------------------------------------------------------------------------ writers

_WRITER = """
import json, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN IMMEDIATE")
print(json.dumps("locked"), flush=True)
sys.stdin.readline()
database.execute("ROLLBACK")
print(json.dumps("free"), flush=True)
"""


@contextmanager
def locked_by_another_program(path):
    """Let another program hold the write lock for as long as the block takes."""
    with program(_WRITER, path) as writer:
        assert say(writer) == "locked"
        yield
        print(file=writer.stdin, flush=True)
        assert say(writer) == "free"


def test_a_foreign_writer_makes_every_operation_say_busy_and_loses_nothing(host):
    engine, queue, group = host.engine, host.queue, host.group
    host.put(20)
    held = engine.claim(group, 4)
    with locked_by_another_program(host.path):
        for call in (
            lambda: engine.put(queue, b"x"),
            lambda: engine.put_many(queue, [b"x"] * 5),
            lambda: engine.claim(group),
            lambda: engine.ack(*held),
            lambda: engine.fail(held[0]),
            lambda: engine.reject(held[0]),
            lambda: engine.release(held),
            lambda: engine.cancel(queue, 10),
        ):
            with pytest.raises(StoreBusy, match="another program") as busy:
                call()
            assert busy.value.retryable
        engine.upkeep.round()
    assert engine.store.stopped is None
    assert all(lease.is_held for lease in held)
    engine.release(held)
    assert queue.stored == 20
    assert host.settle_everything() == 20


def test_nobody_waits_longer_than_the_busy_timeout_however_many_wait(host):
    """Sixteen callers share one wait: they do not queue up behind each other's."""
    outcomes: list[float] = []

    def caller() -> None:
        began = time.monotonic()
        with pytest.raises(StoreBusy):
            host.engine.put(host.queue, b"x")
        outcomes.append(time.monotonic() - began)

    with locked_by_another_program(host.path):
        threads = [threading.Thread(target=caller) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(outcomes) == 16
    assert max(outcomes) < 10 * QUICK.busy_timeout_s
    host.put()
    assert host.settle_everything() == 1


def test_readers_are_served_while_a_foreign_writer_holds_the_lock(host):
    host.put(3)
    with locked_by_another_program(host.path):
        assert len(host.engine.peek(host.queue)) == 3
        assert host.group.waiting == 3


# ------------------------------------------------------------------------------------- rivals

_RIVAL = """
import json, sys
from embedq.broker.host import open_engine
from embedq.errors import EmbedqError
try:
    open_engine(sys.argv[1])
except EmbedqError as error:
    print(json.dumps({"code": error.code, "text": str(error)}))
"""


def test_a_second_owner_is_refused_in_this_process_and_in_another(host, tmp_path):
    host.put()
    link = tmp_path / "link.db"
    link.symlink_to(host.path)
    for path in (host.path, link):
        with pytest.raises(StoreInUse):
            open_engine(path)
        told, _ = run(_RIVAL, path)
        assert told["code"] == "store_in_use"
    assert host.settle_everything() == 1


def test_a_newer_schema_is_refused_and_left_alone(host):
    host.put()
    host.engine.close()
    with closing(sqlite3.connect(host.path)) as database:
        database.execute("PRAGMA user_version=99")
    before = host.path.read_bytes()
    with pytest.raises(SchemaTooNew, match="99"):
        host.open()
    assert host.path.read_bytes() == before
    with closing(sqlite3.connect(host.path)) as database:
        database.execute(f"PRAGMA user_version={VERSION}")
    host.open()
    assert host.settle_everything() == 1


def test_a_network_file_system_is_refused_before_anything_is_created(tmp_path, monkeypatch):
    mounts = [Mount("/", "ext4"), Mount(str(tmp_path.resolve()), "nfs4")]
    monkeypatch.setattr(placement, "read_mounts", lambda: mounts)
    with pytest.raises(NetworkFilesystem, match="nfs4"):
        open_engine(tmp_path / "q.db")
    assert list(tmp_path.iterdir()) == []


# -------------------------------------------------------------- hands that delete and replace


def notices(host: Host) -> None:
    """Within one round the host stops, says why, and goes on saying it."""
    host.engine.upkeep.round()
    assert isinstance(host.engine.upkeep.trouble, StoreFailed)
    for call in (
        lambda: host.engine.put(host.queue, b"x"),
        lambda: host.engine.put_many(host.queue, [b"x"] * 5),
        lambda: host.engine.claim(host.group),
        lambda: host.engine.peek(host.queue),
    ):
        with pytest.raises(StoreFailed) as failed:
            call()
        assert host.path.name in failed.value.message
        assert failed.value.hint
    host.engine.close()


def test_a_database_that_is_deleted_is_noticed(host):
    host.put()
    host.path.unlink()
    notices(host)


def test_a_database_that_is_moved_is_noticed_and_whole_at_its_new_place(host, tmp_path):
    host.put(5)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for file in (host.path, host.wal):
        file.rename(moved / file.name)
    notices(host)
    host.path = moved / "q.db"
    host.open()
    assert host.settle_everything() == 5


def test_a_database_that_is_replaced_is_noticed(host, tmp_path):
    host.put()
    other = tmp_path / "other.db"
    open_engine(other, upkeep=False).close()
    other.rename(host.path)
    notices(host)


def test_a_lock_file_that_is_deleted_is_noticed(host):
    host.put()
    host.path.with_name("q.db.lock").unlink()
    notices(host)
    host.open()
    assert host.settle_everything() == 1


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_a_log_that_is_deleted_is_noticed(host, suffix):
    host.put()
    host.path.with_name(f"q.db{suffix}").unlink()
    notices(host)  # and what was in the log is saved at the end, as it is still open
    host.open()
    assert host.settle_everything() == 1
