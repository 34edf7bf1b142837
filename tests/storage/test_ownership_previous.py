"""What an owner of a database leaves behind for the next one.

Knows: clean ends, kills, restarts of the machine, damaged lock files.
Does not know: SQL, sockets.
"""

import json
import os

import pytest

import embedq
from embedq.clock import VirtualClock
from embedq.errors import StoreInUse
from embedq.storage import ownership
from embedq.storage.ownership import UNKNOWN, OwnerLock, Previous
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


def content(placed):
    return json.loads(placed.lock_path.read_text())


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
    with program(OWNER + body, placed.path) as owner:
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
