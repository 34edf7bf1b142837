"""Who owns a file, asked from outside: nothing is written, no lock is lost."""

import os

import pytest

from embedq.clock import VirtualClock
from embedq.errors import StoreInUse
from embedq.storage.owners import owner_of, owners_kept_out
from embedq.storage.ownership import OwnerLock
from embedq.storage.placement import prepare
from tests.storage.rivals import rival


@pytest.fixture
def placed(tmp_path):
    return prepare(tmp_path / "shop.db")


@pytest.fixture
def lock(placed):
    lock = OwnerLock(placed, VirtualClock())
    yield lock
    lock.release(clean=False)


def test_a_file_that_nobody_ever_owned_has_no_owner(placed):
    assert owner_of(placed.path) is None
    assert not placed.lock_path.exists()


def test_an_owner_in_this_process_is_told_and_keeps_its_lock(placed, lock):
    lock.acquire()
    lock.mark(epoch=7)
    found = owner_of(placed.path)
    assert found is not None
    assert (found.alive, found.pid, found.epoch) == (True, os.getpid(), 7)
    assert found.started_ms == 1_700_000_000_000
    assert rival(placed.path)["code"] == "store_in_use"


@pytest.mark.parametrize("clean", [True, False])
def test_the_last_owner_is_told_with_how_it_ended(placed, lock, clean):
    lock.acquire()
    lock.release(clean=clean)
    before = placed.lock_path.read_bytes()
    found = owner_of(placed.path)
    assert found is not None
    assert (found.alive, found.clean, found.pid) == (False, clean, os.getpid())
    assert found.same_boot in {True, None}
    assert placed.lock_path.read_bytes() == before


def test_a_lock_file_with_nonsense_tells_nothing(placed):
    placed.lock_path.write_bytes(b"\xff{")
    found = owner_of(placed.path)
    assert found is not None
    assert (found.alive, found.pid, found.clean, found.same_boot) == (False, None, False, None)


def test_owners_are_kept_out_and_the_lock_file_stays_as_it_is(placed, lock):
    lock.acquire()
    lock.release(clean=False)
    before = placed.lock_path.read_bytes()
    with owners_kept_out(placed.path):
        assert rival(placed.path)["code"] == "store_in_use"
    assert placed.lock_path.read_bytes() == before
    assert rival(placed.path)["code"] == "owner"


def test_an_owner_is_not_kept_out_but_refused(placed, lock):
    lock.acquire()
    with pytest.raises(StoreInUse) as caught, owners_kept_out(placed.path):
        raise AssertionError
    assert caught.value.pid == os.getpid()
    assert rival(placed.path)["code"] == "store_in_use"


def test_where_there_never_was_an_owner_there_is_nothing_to_lock(placed):
    with owners_kept_out(placed.path):
        assert not placed.lock_path.exists()
