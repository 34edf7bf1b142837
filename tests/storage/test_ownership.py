"""One owner for a database file, seen from this process, from rivals and from forked children.

Knows: programs run as other processes, what a lock file may contain.
Does not know: SQL, sockets.
"""

import errno
import fcntl
import json
import os
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import embedq
from embedq.clock import SystemClock, VirtualClock
from embedq.errors import InvalidOption, StoreClosed, StoreFailed, StoreFull, StoreInUse
from embedq.storage import ownership
from embedq.storage.ownership import UNKNOWN, OwnerLock, Previous
from embedq.storage.placement import prepare

_PROGRAM = """
import json, os, signal, sys
from embedq.clock import SystemClock
from embedq.errors import EmbedqError, ForkedBroker
from embedq.storage.ownership import OwnerLock
from embedq.storage.placement import prepare

def line(**facts):
    print(json.dumps(facts), flush=True)

def attempt():
    lock = OwnerLock(prepare(sys.argv[1]), SystemClock())
    try:
        lock.acquire()
    except EmbedqError as error:
        line(code=error.code, text=str(error), **error.details)
    else:
        line(code="owner", pid=os.getpid(), previous=lock.previous)
    return lock

def in_child(work):
    pid = os.fork()
    if pid == 0:
        work()
        sys.exit(0)  # through the whole end of the interpreter, not os._exit
    assert os.waitpid(pid, 0)[1] == 0, "the child failed"
"""


@contextmanager
def program(path, body):
    """Run `body` in another process; it ends with this block at the latest."""
    root = str(Path(embedq.__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", _PROGRAM + body, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def say(process):
    return json.loads(process.stdout.readline())


def run(path, body):
    """Run `body` to its end and return the last thing it said."""
    with program(path, body) as process:
        lines = process.communicate(timeout=60)[0].splitlines()
        assert process.returncode == 0
    return json.loads(lines[-1])


def rival(path):
    """What another process is told that wants to own `path` now."""
    return run(path, "attempt()")


@pytest.fixture
def placed(tmp_path):
    return prepare(tmp_path / "shop.db")


@pytest.fixture
def lock(placed):
    lock = OwnerLock(placed, VirtualClock())
    yield lock
    lock.release(clean=False)


def content(placed):
    return json.loads(placed.lock_path.read_text())


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
    with program(placed.path, "attempt(); sys.stdin.read()") as thief:
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
    with program(placed.path, _SILENT) as owner:
        pid = say(owner)["pid"]
        with pytest.raises(StoreInUse, match=f"process {pid}") as caught:
            lock.acquire()
    assert caught.value.pid == pid
    assert "since" not in str(caught.value)  # that would be the previous owner's time


def test_an_owner_in_another_container_is_not_mistaken_for_ourselves(placed, lock, monkeypatch):
    lock.acquire()
    lock.release()  # its record names our pid, as records of two containers may
    with program(placed.path, _SILENT) as owner:
        say(owner)
        monkeypatch.setattr(ownership, "_holder", lambda _: 0)
        with pytest.raises(StoreInUse, match="another container, since 2023") as caught:
            lock.acquire()
    assert caught.value.pid is None


# -------------------------------------------------------------------- what the last one left


def test_a_new_store_has_no_previous_owner(lock):
    assert lock.acquire() == lock.previous == UNKNOWN


def test_a_clean_end_is_remembered_with_its_epoch(placed, lock):
    lock.acquire()
    lock.mark(epoch=3, socket="/run/shop.3")
    lock.release()
    left = content(placed)
    assert left["clean"]
    assert left["socket"] is None
    assert left["version"] == embedq.__version__
    assert lock.acquire() == Previous(clean=True, same_boot=True, epoch=3, pid=os.getpid())


def test_while_it_is_owned_a_store_is_not_clean(placed, lock):
    lock.acquire()
    lock.release()
    lock.acquire()
    assert not content(placed)["clean"]
    lock.confirm()


def test_an_unclean_release_is_remembered(lock):
    lock.acquire()
    lock.release(clean=False)
    assert not lock.acquire().clean


@pytest.mark.reliability
def test_a_killed_owner_frees_the_store_at_once_and_leaves_it_unclean(placed, lock):
    body = "lock = attempt(); lock.mark(epoch=9); line(marked=True); sys.stdin.read()"
    with program(placed.path, body) as owner:
        pid = say(owner)["pid"]
        say(owner)
        with pytest.raises(StoreInUse):
            lock.acquire()
        owner.kill()
        owner.wait(60)
        left = lock.acquire()
    assert left == Previous(clean=False, same_boot=True, epoch=9, pid=pid)


def test_an_owner_that_dies_before_it_has_an_epoch_does_not_lose_the_last_one(lock):
    lock.acquire()
    lock.mark(epoch=4)
    lock.release(clean=False)
    lock.acquire()
    lock.release(clean=False)
    assert lock.acquire().epoch == 4


@pytest.mark.parametrize(
    ("then", "now", "same"),
    [("a", "a", True), ("a", "b", False), (None, "b", None), ("a", None, None)],
)
def test_a_restart_of_the_machine_is_told_from_one_of_the_process(
    tmp_path, lock, monkeypatch, then, now, same
):
    def boot(name):
        file = tmp_path / f"boot-{name}"
        if name is not None:
            file.write_text(f"{name}\n")
        monkeypatch.setattr(ownership, "_BOOT_ID", file)

    boot(then)
    lock.acquire()
    lock.release()
    boot(now)
    assert lock.acquire().same_boot is same


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\0" * 100,
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 4096,
        b'{"pid": 1}',
        b'{"pid": "1", "started_ms": 0, "clean": true}',
        b'{"pid": 0, "started_ms": 0, "clean": true}',
        b'{"pid": 1, "started_ms": 1e300, "clean": true}',
        b'{"pid": 1, "started_ms": 999999999999999, "clean": true}',
        b'{"pid": 1, "started_ms": 0, "clean": 1}',
    ],
)
def test_a_damaged_lock_file_counts_as_an_unclean_end_of_unknown_time(placed, lock, garbage):
    placed.lock_path.write_bytes(garbage)
    placed.lock_path.chmod(0o600)
    assert lock.acquire() == UNKNOWN
    assert content(placed)["pid"] == os.getpid()


def test_a_record_of_a_later_release_is_understood(placed, lock):
    later = {"pid": 5, "started_ms": 0, "clean": True, "epoch": 2, "colour": "blue"}
    placed.lock_path.write_text(json.dumps(later))
    assert lock.acquire() == Previous(clean=True, same_boot=None, epoch=2, pid=5)


def test_a_record_overwritten_but_not_yet_shortened_is_read(placed, lock):
    placed.lock_path.write_text('{"pid": 5, "started_ms": 0, "clean": true}\n": null}\n')
    assert lock.acquire().pid == 5


def test_a_socket_path_that_is_not_utf8_survives(placed, lock):
    lock.acquire()
    lock.mark(socket=os.fsdecode(b"/run/\xff.sock"))
    assert rival(placed.path)["socket"] == "/run/\udcff.sock"


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
    with program(placed.path, "attempt(); sys.stdin.read()") as owner:
        say(owner)
        with pytest.raises(StoreInUse):
            lock.acquire()
    after = open_descriptors()
    assert after == before


# ----------------------------------------------------------------------------------- forks

_CHILD_USES = """
lock = attempt()
descriptor = lock._fd
def child():
    assert not lock.held
    try:
        os.fstat(descriptor)
    except OSError:
        pass
    else:
        sys.exit("the child keeps the parent's descriptor")
    for use in (lock.mark, lock.confirm):
        try:
            use()
        except ForkedBroker as error:
            assert str(os.getppid()) in str(error)
        else:
            sys.exit("the child may use the lock")
    lock.release()
    lock.release(clean=False)
in_child(child)
lock.confirm()
line(held=lock.held)
sys.stdin.read()
"""


def test_a_forked_child_neither_owns_nor_frees_the_store(placed):
    with program(placed.path, _CHILD_USES) as owner:
        assert say(owner)["code"] == "owner"
        assert say(owner) == {"held": True}
        told = rival(placed.path)
        assert (told["code"], told["pid"]) == ("store_in_use", owner.pid)
    assert not content(placed)["clean"]


_CHILD_WANTS = """
lock = attempt()
in_child(attempt)
"""


def test_a_forked_child_that_opens_the_store_is_told_that_its_parent_owns_it(placed):
    with program(placed.path, _CHILD_WANTS) as owner:
        assert say(owner)["code"] == "owner"
        told = say(owner)
        assert (told["code"], told["pid"]) == ("store_in_use", owner.pid)


# The child opens the store after its parent has given it up: whatever the child still has of the
# parent's must not drop the child's own lock, also when that is destroyed.
_CHILD_INHERITS = """
import gc
lock = attempt()
ask, told = os.pipe()
if os.fork() == 0:
    os.read(ask, 1)
    mine = attempt()
    del lock
    gc.collect()
    mine.confirm()
    line(child=mine.held)
    sys.stdin.read()
    sys.exit(0)
lock.release()
os.write(told, b"x")
os.wait()
"""


def test_a_forked_child_can_become_the_owner_after_its_parent(placed):
    with program(placed.path, _CHILD_INHERITS) as parent:
        assert say(parent)["code"] == "owner"
        told = say(parent)
        assert told["code"] == "owner"
        assert told["previous"][0] is True
        assert say(parent) == {"child": True}
        refused = rival(placed.path)
        assert (refused["code"], refused["pid"]) == ("store_in_use", told["pid"])
        parent.stdin.close()
        parent.wait(60)


_LOCKED_WHILE_FORKING = """
import threading
from embedq.storage import ownership
entered, leave = threading.Event(), threading.Event()
def hold():
    with ownership._owned.lock:
        entered.set()
        leave.wait()
thread = threading.Thread(target=hold)
thread.start()
entered.wait()
in_child(attempt)
leave.set()
thread.join()
"""


def test_a_fork_in_the_middle_of_an_acquisition_does_not_hang_the_child(placed):
    # From Python 3.12 on forking with threads warns; that applications do it is the point here.
    body = "import warnings; warnings.simplefilter('ignore')\n" + _LOCKED_WHILE_FORKING
    # The registry learns of forks with the first acquisition.
    assert run(placed.path, "attempt().release()\n" + body)["code"] == "owner"
