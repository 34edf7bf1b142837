"""A disk that is really full, a small one of its own: puts are refused, everything else passes.

Knows: how to fill a disk suddenly or slowly, and what a consumer must still be able to do.
Does not know: the ballast, the log and how they make room.
"""

from __future__ import annotations

import dataclasses
import os
import sqlite3
import threading
import time
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.clock import VirtualClock
from embedq.errors import StoreClosed, StoreFull
from embedq.limits import KIB, LIMITS, MIB
from embedq.message import draft
from tests.storage.mounts import tmpfs

pytestmark = pytest.mark.reliability

SMALL = dataclasses.replace(
    LIMITS, disk_watermark_bytes=256 * KIB, ballast_bytes=1 * MIB, checkpoint_pages=100
)
UNWATCHED = dataclasses.replace(SMALL, disk_watermark_bytes=0)
BODY = os.urandom(300)


class Disk:
    """A file system of 12 MiB with one database, and somebody else's file that fills it."""

    engine: Desk

    def __init__(self, folder: Any) -> None:
        self.path = folder / "q.db"
        self.other = folder / "other"
        self.clock = VirtualClock()

    def open(self, limits: Any = SMALL) -> None:
        self.engine = open_engine(self.path, clock=self.clock, limits=limits, upkeep=False)
        self.queue = self.engine.queue("orders")
        self.group = self.engine.group(self.queue)
        self.engine.upkeep.round()

    def fill(self, left: int = 0) -> None:
        """Let another program write until `left` bytes are left."""
        with self.other.open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                if left:
                    file.truncate(file.tell() - left)

    def put_until_full(self, body: bytes = BODY) -> int:
        """Return how many puts were confirmed. Now and then the host looks at the disk."""
        for confirmed in range(100_000):
            try:
                self.engine.put(self.queue, body)
            except StoreFull:
                return confirmed
            if confirmed % 50 == 49:
                self.engine.upkeep.round()
        raise AssertionError("the disk never was full")

    @property
    def stored(self) -> int:
        return len(self.engine.peek(self.queue, 100_000))

    def settle_everything(self) -> int:
        """Claim and ack one by one; return how many there were."""
        settled = 0
        while leases := self.engine.claim(self.group, 1):
            self.engine.ack(*leases)
            settled += 1
        return settled

    def free(self) -> None:
        self.other.unlink()
        self.engine.upkeep.round()
        assert self.engine.upkeep.trouble is None

    def close(self) -> None:
        """Close cleanly; the file must be whole."""
        self.engine.close()
        with sqlite3.connect(self.path) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        database.close()


@contextmanager
def small_disk(tmp_path, limits=SMALL):
    with tmpfs(tmp_path / "disk", "12m") as folder:
        disk = Disk(folder)
        disk.open(limits)
        yield disk
        with suppress(StoreFull):  # closed all the same, only not cleanly
            disk.engine.close()


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path) as one:
        yield one


def acks_pass(disk: Disk) -> None:
    """A disk that is full all at once: the log has grown, nothing was prepared for it."""
    confirmed = 1500
    for _ in range(confirmed):
        disk.engine.put(disk.queue, BODY)
    disk.fill()
    confirmed += disk.put_until_full()
    assert disk.stored == confirmed
    assert disk.settle_everything() == confirmed
    assert disk.queue.stored == 0


def test_acks_pass_on_a_full_disk_and_puts_resume_by_themselves(disk):
    acks_pass(disk)
    with pytest.raises(StoreFull) as refused:
        disk.engine.put(disk.queue, BODY)
    assert refused.value.retryable
    assert str(disk.path) in refused.value.message
    disk.free()
    assert disk.engine.put(disk.queue, BODY)
    disk.close()


def test_the_harness_notices_that_there_is_no_ballast(tmp_path):
    none = dataclasses.replace(SMALL, ballast_bytes=0)
    with small_disk(tmp_path, none) as disk, pytest.raises(StoreFull):
        acks_pass(disk)


@pytest.mark.parametrize("size", [10, 3_000, 30_000])
def test_bodies_of_any_size_fill_a_disk(disk, size):
    body = os.urandom(size)
    disk.fill(left=1 * MIB)
    disk.engine.upkeep.round()
    confirmed = disk.put_until_full(body)
    disk.fill()
    assert disk.settle_everything() == confirmed
    disk.free()
    assert disk.engine.put(disk.queue, body)
    disk.close()


def test_everything_but_puts_passes_on_a_full_disk(disk):
    engine, queue, group = disk.engine, disk.queue, disk.group
    engine.put_many(queue, [BODY] * 100)
    leases = engine.claim(group, 20)
    disk.fill()
    disk.put_until_full()
    before = disk.stored
    engine.fail(leases[0], None, 1.0)
    engine.reject(leases[1], "no")
    engine.release(leases[2:5])
    engine.extend(leases[5], 60)
    engine.ack(*leases[6:10])
    assert len(engine.cancel(queue, 50, 51)) == 2
    engine.pause(queue)
    engine.pause(queue, paused=False)
    disk.clock.advance(35)
    assert engine.end_leases() == 10
    assert disk.stored == before - 7
    assert disk.settle_everything() == before - 8  # one lease was extended
    disk.free()
    disk.close()


def test_a_put_that_does_not_fit_leaves_nothing(tmp_path):
    with small_disk(tmp_path, UNWATCHED) as disk:
        disk.engine.put(disk.queue, b"before")
        disk.fill(left=600 * KIB)
        large = [os.urandom(300_000)] * 4
        with pytest.raises(StoreFull):
            disk.engine.put_many(disk.queue, large)
        with pytest.raises(StoreFull):
            disk.engine.put_drafts(disk.queue, [draft(body, priority=3) for body in large])
        assert (disk.stored, disk.queue.stored) == (1, 1)
        disk.free()
        disk.engine.put_many(disk.queue, large)
        assert disk.settle_everything() == 5
        disk.close()


def test_a_nearly_full_disk_refuses_puts_while_there_is_room(disk):
    disk.engine.put(disk.queue, BODY)
    disk.fill(left=200 * KIB)
    disk.engine.upkeep.round()
    assert isinstance(disk.engine.upkeep.trouble, StoreFull)
    with pytest.raises(StoreFull) as refused:
        disk.engine.put(disk.queue, BODY)
    assert "has 0." in refused.value.message
    assert disk.settle_everything() == 1
    assert disk.path.with_name("q.db.ballast").exists()
    disk.free()
    assert disk.engine.put(disk.queue, BODY)
    disk.close()


def test_a_host_begins_on_a_disk_that_has_become_full_since_the_last_one(disk):
    disk.engine.put_many(disk.queue, [BODY] * 300)
    disk.engine.close()
    disk.fill()
    disk.open()
    assert not disk.path.with_name("q.db.ballast").exists()
    assert disk.settle_everything() == 300
    disk.free()
    assert disk.engine.put(disk.queue, BODY)
    disk.close()


def test_a_host_that_finds_no_room_at_all_says_so_and_changes_nothing(disk):
    disk.engine.put_many(disk.queue, [BODY] * 300)
    disk.fill()
    disk.engine.close()  # counts are saved where the ballast was
    assert not disk.path.with_name("q.db.ballast").exists()
    disk.fill()
    with pytest.raises(StoreFull):
        disk.open()
    disk.other.unlink()
    disk.open()
    assert disk.settle_everything() == 300
    disk.close()


def test_a_close_that_finds_no_room_still_ends_everything(tmp_path):
    none = dataclasses.replace(UNWATCHED, ballast_bytes=0)
    with small_disk(tmp_path, none) as disk:
        desk = disk.engine
        told: list[str] = []
        desk.events.on("stopped", lambda notice: told.append(notice.name))
        ended: list[str] = []
        empty = desk.group(desk.queue("empty"))

        def wait() -> None:
            try:
                desk.wait_claim(empty)
            except StoreClosed as error:
                ended.append(error.code)

        waiting = threading.Thread(target=wait)
        waiting.start()
        until = time.monotonic() + 20
        while len(empty.waiters) < 1:
            assert time.monotonic() < until
            time.sleep(0.005)
        for _ in range(3):
            desk.put_many(disk.queue, [BODY] * 3000)
        assert len(desk.claim(disk.group, 9000)) == 9000
        disk.fill()
        disk.put_until_full()
        disk.fill()
        with pytest.raises(StoreFull):
            desk.close()
        waiting.join(20)
        assert (told, ended) == (["stopped"], ["store_closed"])
        assert not waiting.is_alive()
        events = desk.events._thread
        assert events is not None
        assert not events.is_alive()
        desk.close()  # there is nothing left to do
        disk.other.unlink()
        disk.open(none)  # the lock is free
        assert not disk.engine.store.clean
        disk.engine.upkeep.count()
        assert disk.settle_everything() >= 9000
        disk.close()
