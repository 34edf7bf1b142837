"""Puts are refused before the disk is full, and acks pass when it is.

Knows: a disk that says what the test wants, and a real small one (a tmpfs, as root).
Does not know: the store; plain sqlite3 stands in for it.
"""

import errno
import os
import sqlite3
import stat
import threading
from contextlib import closing

import pytest

from embedq.errors import InvalidOption, StoreFailed, StoreFull
from embedq.storage import space
from embedq.storage.placement import prepare
from embedq.storage.space import DiskSpace
from tests.storage.mounts import tmpfs

KIB = 1024
MARK = 256 * KIB
BALLAST = 128 * KIB


class Disk:
    """Answers like os.statvfs, with `free` bytes."""

    def __init__(self, free):
        self.free = free
        self.error = None
        self.asked = []

    def __call__(self, path):
        self.asked.append(path)
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error))
        blocks = self.free // KIB
        # Root's reserve (bfree) must not count.
        return os.statvfs_result(
            (4096, KIB, 10**9, blocks * 2, blocks, 10**6, 10**6, 10**6, 0, 255)
        )


@pytest.fixture
def placed(tmp_path):
    return prepare(tmp_path / "shop.db")


@pytest.fixture
def disk():
    return Disk(free=100 * MARK)


@pytest.fixture
def watched(placed, disk):
    return DiskSpace(placed, MARK, BALLAST, disk)


def refused(watched):
    try:
        watched.check()
    except StoreFull:
        return True
    return False


# ------------------------------------------------------------------------- the watermark


def test_nothing_is_touched_before_the_first_look(watched, disk, placed):
    watched.check()
    assert disk.asked == []
    assert not placed.ballast_path.exists()


def test_the_folder_of_the_database_is_what_is_measured(watched, disk, placed):
    watched.refresh()
    assert disk.asked == [str(placed.path.parent)]
    assert watched.free == disk.free


def test_puts_are_refused_below_the_watermark_and_not_at_it(watched, disk):
    disk.free = MARK
    watched.refresh()
    assert not refused(watched)
    disk.free = MARK - KIB
    watched.refresh()
    assert refused(watched)


def test_puts_are_taken_again_only_a_quarter_above_the_watermark(watched, disk):
    disk.free = MARK - KIB
    watched.refresh()
    disk.free = MARK + MARK // 4 - KIB
    watched.refresh()
    assert refused(watched)
    assert watched.resume_bytes == MARK + MARK // 4
    disk.free = watched.resume_bytes
    watched.refresh()
    assert not refused(watched)
    disk.free = MARK
    watched.refresh()
    assert not refused(watched)


def test_the_refusal_names_the_sizes_and_the_way_out(watched, disk, placed):
    disk.free = MARK // 2
    watched.refresh()
    with pytest.raises(StoreFull) as caught:
        watched.check()
    told = str(caught.value)
    assert str(placed.path) in told
    assert "0.1 MiB free" in told
    assert "0.2 MiB are kept for acks" in told
    assert "disk_watermark_bytes" in told
    assert caught.value.retryable
    assert caught.value.details == {
        "free_bytes": MARK // 2,
        "watermark_bytes": MARK,
        "resume_bytes": MARK + MARK // 4,
    }


def test_without_a_watermark_nothing_is_ever_refused(placed, disk):
    watched = DiskSpace(placed, 0, 0, disk)
    disk.free = 0
    watched.refresh()
    assert not refused(watched)


@pytest.mark.parametrize("sizes", [(-1, 0), (0, -1)])
def test_negative_sizes_are_refused(placed, sizes):
    with pytest.raises(InvalidOption, match="-1 is negative"):
        DiskSpace(placed, *sizes)


def test_a_disk_that_does_not_answer_is_a_failure(watched, disk):
    disk.error = errno.EIO
    with pytest.raises(StoreFailed, match="watch the disk"):
        watched.refresh()


def test_the_real_disk_answers(placed):
    watched = DiskSpace(placed, 0, 0)
    watched.refresh()
    assert watched.free > 0


# --------------------------------------------------------------------------- the ballast


def occupies(path, size):
    return path.stat().st_blocks * 512 >= size


def test_the_ballast_is_private_and_really_occupies_the_disk(watched, placed):
    before = os.umask(0)
    try:
        watched.refresh()
    finally:
        os.umask(before)
    assert placed.ballast_path.stat().st_size == BALLAST
    assert stat.S_IMODE(placed.ballast_path.stat().st_mode) == 0o600
    assert occupies(placed.ballast_path, BALLAST)


def test_a_ballast_with_a_hole_in_it_would_be_noticed(placed):
    with placed.ballast_path.open("wb") as planted:  # the planted bug
        planted.truncate(BALLAST)
    assert not occupies(placed.ballast_path, BALLAST)


def sparse(fd, _, size):
    os.ftruncate(fd, size)


def unsupported(*_):
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


@pytest.mark.parametrize("allocate", [None, unsupported, sparse])
def test_where_nothing_can_be_allocated_the_ballast_is_written(
    watched, placed, monkeypatch, allocate
):
    if allocate is None:
        monkeypatch.delattr(os, "posix_fallocate")  # macOS
    else:
        monkeypatch.setattr(os, "posix_fallocate", allocate)
    watched.refresh()
    assert placed.ballast_path.stat().st_size == BALLAST
    assert occupies(placed.ballast_path, BALLAST)
    assert placed.ballast_path.read_bytes().count(0) < BALLAST // 64  # not compressible


def test_the_ballast_is_on_disk_before_it_counts(watched, monkeypatch):
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    watched.refresh()
    assert synced


def test_the_ballast_is_made_only_when_there_is_plenty_of_room(watched, placed, disk):
    disk.free = 2 * MARK + BALLAST
    watched.refresh()
    assert not placed.ballast_path.exists()
    assert not refused(watched)
    disk.free += KIB
    watched.refresh()
    assert placed.ballast_path.exists()


def test_a_ballast_that_is_there_is_not_made_again(watched, placed):
    watched.refresh()
    before = placed.ballast_path.stat()
    watched.refresh()
    after = placed.ballast_path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("size", [0, BALLAST - 1, BALLAST + 1])
def test_a_ballast_left_in_another_size_is_made_anew(watched, placed, size):
    placed.ballast_path.write_bytes(b"x" * size)
    watched.refresh()
    assert placed.ballast_path.stat().st_size == BALLAST


def test_a_folder_in_place_of_the_ballast_is_a_failure(watched, placed):
    placed.ballast_path.mkdir()
    with pytest.raises(StoreFailed):
        watched.refresh()
    with pytest.raises(StoreFailed, match="delete the ballast"):
        watched.drop_ballast()


@pytest.mark.parametrize("call", ["open", "posix_fallocate", "fsync"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_too_full_for_the_ballast_does_without(watched, placed, monkeypatch, call, number):
    def full(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, full)
    watched.refresh()
    assert not placed.ballast_path.exists()
    assert not refused(watched)


def test_a_ballast_whose_making_was_interrupted_does_not_count(watched, placed, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", sparse)
        patch.setattr(os, "pwrite", interrupted)
        with pytest.raises(KeyboardInterrupt):
            watched.refresh()
    watched.refresh()
    assert occupies(placed.ballast_path, BALLAST)


def test_a_short_write_of_the_ballast_counts_as_a_full_disk(watched, placed, monkeypatch):
    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    monkeypatch.setattr(os, "pwrite", lambda *_: 1)
    watched.refresh()
    assert not placed.ballast_path.exists()


@pytest.mark.parametrize("call", ["posix_fallocate", "fsync"])
def test_a_disk_that_fails_under_the_ballast_is_a_failure(watched, placed, monkeypatch, call):
    def broken(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, call, broken)
    with pytest.raises(StoreFailed, match="Input/output"):
        watched.refresh()
    assert not placed.ballast_path.exists()


def test_dropping_the_ballast_frees_it_once_and_refuses_puts(watched, placed):
    watched.refresh()
    assert watched.drop_ballast() is True
    assert not placed.ballast_path.exists()
    assert refused(watched)
    assert watched.drop_ballast() is False
    assert refused(watched)


def test_after_a_full_disk_puts_wait_for_the_ballast(watched, placed, disk):
    watched.refresh()
    watched.drop_ballast()
    with pytest.raises(StoreFull, match="was full"):
        watched.check()
    disk.free = 2 * MARK + BALLAST
    watched.refresh()
    assert refused(watched)
    disk.free = watched.resume_bytes + KIB
    watched.refresh()
    assert not refused(watched)
    assert placed.ballast_path.exists()


def test_a_quota_that_statvfs_does_not_see_keeps_puts_refused(watched, monkeypatch):
    watched.refresh()
    watched.drop_ballast()

    def full(*_):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        watched.refresh()
    assert refused(watched)
    watched.refresh()
    assert not refused(watched)


def test_without_a_ballast_a_full_disk_still_refuses_and_recovers(placed, disk):
    watched = DiskSpace(placed, MARK, 0, disk)
    watched.refresh()
    assert watched.drop_ballast() is False
    assert refused(watched)
    watched.refresh()
    assert not refused(watched)


def test_dropping_waits_for_a_ballast_in_the_making(watched, placed, monkeypatch):
    making, go_on = threading.Event(), threading.Event()
    real = space._allocate

    def slow(fd, size):
        making.set()
        assert go_on.wait(60)
        real(fd, size)

    monkeypatch.setattr(space, "_allocate", slow)
    refresh = threading.Thread(target=watched.refresh)
    refresh.start()
    assert making.wait(60)
    dropped = []
    drop = threading.Thread(target=lambda: dropped.append(watched.drop_ballast()))
    drop.start()
    go_on.set()
    refresh.join(60)
    drop.join(60)
    assert dropped == [True]
    assert not placed.ballast_path.exists()
    assert watched.low


# ---------------------------------------------------------------------- a real full disk


@pytest.fixture
def small_disk(tmp_path):
    with tmpfs(tmp_path / "small", "2m") as point:
        yield point


class SmallStore:
    """What a store does to a disk: short transactions, a checkpoint after every few."""

    def __init__(self, path):
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.executescript(
            "PRAGMA auto_vacuum=incremental; PRAGMA journal_mode=wal; PRAGMA synchronous=full;"
            "PRAGMA wal_autocheckpoint=0; PRAGMA secure_delete=off;"
            "CREATE TABLE msg (seq INTEGER PRIMARY KEY, body BLOB)"
        )
        self.commits = 0

    def put(self):
        return self._commit("INSERT INTO msg (body) VALUES (randomblob(3000))")

    def ack(self):
        return self._commit("DELETE FROM msg WHERE seq = (SELECT min(seq) FROM msg)")

    def checkpoint(self, mode="passive"):
        self.connection.execute(f"PRAGMA wal_checkpoint({mode})")

    def count(self):
        return self.connection.execute("SELECT count(*) FROM msg").fetchone()[0]

    def shrink(self):
        self.connection.executescript("PRAGMA incremental_vacuum")
        self.checkpoint("truncate")

    def is_intact(self):
        return self.connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)

    def close(self):
        self.connection.close()

    def _commit(self, statement):
        try:
            self.connection.execute(statement)
            self.commits += 1
            if self.commits % 8 == 0:
                self.checkpoint()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                raise
            return False
        return True


def take_what_is_left(point):
    """Occupy the last free page of a disk."""
    try:
        with (point / "filler").open("ab", buffering=0) as filler:
            while filler.write(b"x" * 4 * KIB):
                continue
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


@pytest.mark.reliability
@pytest.mark.parametrize("ballast", [256 * KIB, 0])
def test_on_a_really_full_disk_acks_pass_because_of_the_ballast(small_disk, ballast):
    # Without a ballast this is the planted bug: the harness must then see acks fail.
    placed = prepare(small_disk / "shop.db")
    watched = DiskSpace(placed, 128 * KIB, ballast)
    watched.refresh()
    with closing(SmallStore(placed.path)) as store:
        while store.put():
            pass
        take_what_is_left(small_disk)
        waiting = store.count()
        assert waiting > 300
        assert not store.ack()
        assert watched.drop_ballast() is (ballast > 0)
        passed = 0
        while passed < waiting and store.ack():
            passed += 1
        assert passed == (waiting if ballast else 0)
        assert store.count() == waiting - passed
        assert store.is_intact()


@pytest.mark.reliability
def test_puts_stop_early_on_a_filling_disk_and_resume_by_themselves(small_disk):
    placed = prepare(small_disk / "shop.db")
    watched = DiskSpace(placed, 512 * KIB, 128 * KIB)
    watched.refresh()
    with closing(SmallStore(placed.path)) as store:
        while not refused(watched):
            assert store.put(), "the disk was full before puts were refused"
            watched.refresh()
        while store.count():
            assert store.ack(), "the disk was full although puts were refused"
        assert placed.ballast_path.exists()  # never needed
        watched.refresh()
        assert refused(watched)
        store.shrink()
        watched.refresh()
        assert not refused(watched)
        assert store.put()


@pytest.mark.reliability
def test_after_a_really_full_disk_the_ballast_comes_back_with_the_space(small_disk):
    placed = prepare(small_disk / "shop.db")
    watched = DiskSpace(placed, 128 * KIB, 256 * KIB)
    watched.refresh()
    with closing(SmallStore(placed.path)) as store:
        take_what_is_left(small_disk)
        assert not store.put()
        assert watched.drop_ballast()
        watched.refresh()
        assert refused(watched)
        assert not placed.ballast_path.exists()
        (small_disk / "filler").unlink()
        watched.refresh()
        assert not refused(watched)
        assert occupies(placed.ballast_path, 256 * KIB)
        assert store.put()
