"""One owner for a database file: who is refused, what keeps the lock, and what breaks it.

Knows: rivals, which are real processes.
Does not know: what an owner leaves behind, forks (files of their own), SQL.
"""

import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest

from embedq.clock import SystemClock, VirtualClock
from embedq.errors import InvalidOption, StoreClosed, StoreFailed, StoreFull, StoreInUse
from embedq.storage import ownership
from embedq.storage.ownership import OwnerLock
from embedq.storage.placement import prepare
from tests.storage.rivals import OWNER, program, rival, say


@pytest.fixture
def placed(tmp_path):
    return prepare(tmp_path / "shop.db")


@pytest.fixture
def lock(placed):
    lock = OwnerLock(placed, VirtualClock())
    yield lock
    lock.release(clean=False)


# ------------------------------------------------------------------------- who is refused


def test_a_second_process_is_told_who_owns_the_store_since_when_and_what_to_do(placed, lock):
    lock.acquire()
    lock.mark(epoch=7, socket="/run/shop.7")
    told = rival(placed.path)
    assert told["code"] == "store_in_use"
    assert told["pid"] == os.getpid()
    assert told["epoch"] == 7
    assert told["socket"] == "/run/shop.7"
    assert told["started_ms"] == 1_700_000_000_000
    assert f"process {os.getpid()}, since 2023-11-14 22:13:20 UTC" in told["text"]
    assert "hint: " in told["text"]


def test_a_refused_rival_leaves_no_trace(placed, lock):
    lock.acquire()
    before = placed.lock_path.read_bytes()
    lock.confirm()  # reading the file has dropped the lock
    assert rival(placed.path)["code"] == "store_in_use"
    assert rival(placed.path)["code"] == "store_in_use"
    assert placed.lock_path.read_bytes() == before


def other_name(placed, kind):
    other = placed.path.with_name("other.db")
    if kind == "same name":
        return placed.path
    if kind == "symbolic link":
        other.symlink_to(placed.path)
    else:
        other.hardlink_to(placed.path)
    return other


@pytest.mark.parametrize("kind", ["same name", "symbolic link", "hard link"])
def test_the_same_file_is_owned_once_in_a_process_whatever_its_name(placed, lock, kind):
    lock.acquire()
    second = OwnerLock(prepare(other_name(placed, kind)), SystemClock())
    with pytest.raises(StoreInUse, match="this process already") as caught:
        second.acquire()
    assert caught.value.pid == os.getpid()
    assert "close the first" in caught.value.hint
    assert not second.held
    second.release()
    assert lock.held
    # To other processes the second name alone is reason enough, before any question of locks.
    expected = "invalid_option" if kind == "hard link" else "store_in_use"
    assert rival(placed.path)["code"] == expected


def test_a_database_with_two_names_has_no_owner(placed, lock):
    other_name(placed, "hard link")
    with pytest.raises(InvalidOption, match="2 names"):
        lock.acquire()
    assert rival(placed.path.with_name("other.db"))["code"] == "invalid_option"
    assert not lock.held


def test_acquiring_twice_is_refused_and_keeps_the_lock(placed, lock):
    lock.acquire()
    with pytest.raises(StoreInUse):
        lock.acquire()
    assert lock.held
    assert rival(placed.path)["code"] == "store_in_use"


def test_a_replaced_database_does_not_make_this_process_free_the_lock(placed, lock):
    lock.acquire()
    placed.path.rename(placed.path.with_name("old.db"))
    second = OwnerLock(prepare(placed.path), SystemClock())
    with pytest.raises(StoreInUse):
        second.acquire()
    assert rival(placed.path)["code"] == "store_in_use"


def test_a_database_that_vanished_after_prepare_is_noticed(placed, lock):
    placed.path.unlink()
    with pytest.raises(StoreFailed, match="deleted"):
        lock.acquire()


def test_two_different_databases_have_two_owners(tmp_path, lock):
    lock.acquire()
    other = OwnerLock(prepare(tmp_path / "other.db"), SystemClock())
    other.acquire()
    assert lock.held
    assert other.held
    other.release()
    assert lock.held


def test_a_lock_nobody_holds_any_longer_by_name_still_counts(placed):
    OwnerLock(placed, SystemClock()).acquire()  # dropped: its connections may live on
    with pytest.raises(StoreInUse):
        OwnerLock(placed, SystemClock()).acquire()
    ownership._owned.identities[(placed.device, placed.inode)].release()


# ------------------------------------------------------------------------ the lock itself


def test_the_rival_notices_a_lock_file_that_was_opened_and_closed_again(placed, lock):
    lock.acquire()
    assert rival(placed.path)["code"] == "store_in_use"
    os.close(os.open(placed.lock_path, os.O_RDONLY))  # the planted bug: this drops the lock
    assert rival(placed.path)["code"] == "owner"


def test_confirm_takes_a_lost_lock_again(placed, lock):
    lock.acquire()
    os.close(os.open(placed.lock_path, os.O_RDONLY))
    lock.confirm()
    assert rival(placed.path)["code"] == "store_in_use"


def test_confirm_fails_when_another_process_has_taken_the_lost_lock(placed, lock):
    lock.acquire()
    os.close(os.open(placed.lock_path, os.O_RDONLY))
    with program(OWNER + "attempt(); sys.stdin.read()", placed.path) as thief:
        assert say(thief)["code"] == "owner"
        with pytest.raises(StoreFailed, match="taken over") as caught:
            lock.confirm()
    assert "lock" in caught.value.hint


@pytest.mark.parametrize("replaced", [True, False])
def test_confirm_notices_a_deleted_lock_file(placed, lock, replaced):
    lock.acquire()
    lock.confirm()
    placed.lock_path.unlink()
    if replaced:
        placed.lock_path.touch()
    with pytest.raises(StoreFailed, match="deleted or replaced"):
        lock.confirm()


def test_confirm_hands_on_what_the_system_says(lock, monkeypatch):
    lock.acquire()

    def broken(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "lockf", broken)
    with pytest.raises(StoreFailed, match="Input/output"):
        lock.confirm()


def test_the_lock_file_is_private_and_not_inherited(placed, lock):
    before = os.umask(0o777)
    try:
        lock.acquire()
    finally:
        os.umask(before)
    assert stat.S_IMODE(placed.lock_path.stat().st_mode) == 0o600
    assert not os.get_inheritable(lock._fd)


def test_a_lock_file_deleted_while_it_is_being_locked_is_not_taken_for_the_real_one(
    placed, lock, monkeypatch
):
    real = ownership._try_lock
    seen: list[int] = []

    def late(fd):
        if not seen:
            placed.lock_path.unlink()
        seen.append(fd)
        return real(fd)

    monkeypatch.setattr(ownership, "_try_lock", late)
    lock.acquire()
    assert len(seen) == 2
    assert rival(placed.path)["code"] == "store_in_use"


def test_a_lock_that_is_free_whenever_one_asks_but_never_taken_ends_in_an_error(lock, monkeypatch):
    monkeypatch.setattr(ownership, "_try_lock", lambda _: False)
    with pytest.raises(StoreInUse, match="changes hands") as caught:
        lock.acquire()
    assert caught.value.pid is None


_SILENT = """
import fcntl
fd = os.open(sys.argv[1] + ".lock", os.O_RDWR)
fcntl.lockf(fd, fcntl.LOCK_EX)
line(pid=os.getpid())
sys.stdin.read()
"""


def test_an_owner_that_has_not_written_yet_is_named_by_the_kernel(placed, lock):
    lock.acquire()
    lock.release()
    with program(OWNER + _SILENT, placed.path) as owner:
        pid = say(owner)["pid"]
        with pytest.raises(StoreInUse, match=f"process {pid}") as caught:
            lock.acquire()
    assert caught.value.pid == pid
    assert "since" not in str(caught.value)  # that would be the previous owner's time


def test_an_owner_in_another_container_is_not_mistaken_for_ourselves(placed, lock, monkeypatch):
    lock.acquire()
    lock.release()  # its record names our pid, as records of two containers may
    with program(OWNER + _SILENT, placed.path) as owner:
        say(owner)
        monkeypatch.setattr(ownership, "_holder", lambda _: 0)
        with pytest.raises(StoreInUse, match="another container, since 2023") as caught:
            lock.acquire()
    assert caught.value.pid is None


# --------------------------------------------------------------------------- when it fails


@pytest.mark.parametrize(
    ("call", "number", "kind"),
    [
        ("pwrite", errno.ENOSPC, StoreFull),
        ("pwrite", errno.EIO, StoreFailed),
        ("fsync", errno.EIO, StoreFailed),
        ("open", errno.EACCES, StoreFailed),
    ],
)
def test_a_lock_that_cannot_be_written_is_not_kept(placed, lock, monkeypatch, call, number, kind):
    def broken(*_):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, broken)
        with pytest.raises(kind) as caught:
            lock.acquire()
    assert str(placed.path) in str(caught.value)
    assert not lock.held
    assert rival(placed.path)["code"] == "owner"
    lock.acquire()


def test_a_short_write_counts_as_a_full_disk(lock, monkeypatch):
    lock.acquire()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda *_: 3)
        with pytest.raises(StoreFull):
            lock.mark(epoch=1)


def test_a_failing_last_word_frees_the_store_all_the_same(placed, lock, monkeypatch):
    lock.acquire()

    def broken(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", broken)
        with pytest.raises(StoreFailed):
            lock.release()
    assert not lock.held
    told = rival(placed.path)
    assert told["code"] == "owner"
    assert told["previous"][0] is False
    lock.acquire()


def test_releasing_twice_or_never_acquired_does_nothing(placed):
    lock = OwnerLock(placed, SystemClock())
    lock.release()
    assert not placed.lock_path.exists()
    lock.acquire()
    lock.release()
    lock.release()
    assert not lock.held


@pytest.mark.parametrize("use", [OwnerLock.mark, OwnerLock.confirm])
def test_a_lock_that_is_not_held_cannot_be_used(placed, use):
    lock = OwnerLock(placed, SystemClock())
    with pytest.raises(StoreClosed):
        use(lock)
    lock.acquire()
    lock.release()
    with pytest.raises(StoreClosed):
        use(lock)


def open_descriptors():
    return len(list(Path("/dev/fd").iterdir()))


def test_no_descriptor_is_left_behind(placed, lock):
    before = open_descriptors()
    lock.acquire()
    with pytest.raises(StoreInUse):
        OwnerLock(placed, SystemClock()).acquire()
    lock.release()
    with program(OWNER + "attempt(); sys.stdin.read()", placed.path) as owner:
        say(owner)
        with pytest.raises(StoreInUse):
            lock.acquire()
    after = open_descriptors()
    assert after == before
