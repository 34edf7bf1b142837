"""What a store in a file remembers of the ends of its earlier hosts."""

import json
import os
from pathlib import Path
from threading import Lock

import pytest

from embedq.clock import VirtualClock
from embedq.errors import StoreFailed
from embedq.storage.lastwords import ELSEWHERE, KEPT
from embedq.storage.ownership import OwnerLock
from embedq.storage.placement import prepare
from embedq.storage.rows import Death
from embedq.storage.sqlite import DEATHS_KEPT
from tests.storage.killed import CRASH, FRAMES, leave
from tests.storage.planted import opened
from tests.storage.rivals import run

HERE = Death(pid=os.getpid(), same_boot=True, record=KEPT)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "q.db"


def die(path: Path, **left: str) -> None:
    """Open the store once more, and end without closing it."""
    opened(path).close(clean=False)
    leave(path, **left)


def test_a_clean_end_is_no_death_and_leaves_no_file(path: Path) -> None:
    opened(path).close(clean=True)
    store = opened(path)
    assert store.deaths == {}
    store.close(clean=True)
    assert sorted(file.name for file in path.parent.iterdir()) == ["q.db", "q.db.lock"]


def test_every_end_is_remembered_by_its_epoch(path: Path) -> None:
    die(path, crash=CRASH)
    die(path)
    die(path, words=ELSEWHERE)
    opened(path).close(clean=True)
    die(path, boot="of another day")
    for _ in range(2):  # also after a clean end: deliveries may still wait to be met
        store = opened(path)
        assert store.deaths == {
            1: HERE._replace(fatal="Segmentation fault", frames=FRAMES),
            2: HERE,
            3: HERE._replace(record=ELSEWHERE),
            5: HERE._replace(same_boot=False),
        }
        assert not store.placement.words_path.exists()
        store.close(clean=True)


def test_the_oldest_ends_are_forgotten(path: Path) -> None:
    store = opened(path)
    values = [(f"death:{n}", b"\x97\x07\xc3\xa0\xa0\xa0\xa0\xc0") for n in range(-150, 0)]
    store.connection.executemany("INSERT INTO meta VALUES (?,?)", values)
    store.close(clean=False)
    store = opened(path)
    assert sorted(store.deaths) == [*range(1 - DEATHS_KEPT, 0), 1]
    stored = store.connection.execute("SELECT count(*) FROM meta WHERE key LIKE 'death:%'")
    assert stored.fetchone()[0] == DEATHS_KEPT
    store.close(clean=True)


def test_damaged_ends_are_unknown_and_harm_nothing(path: Path) -> None:
    die(path)
    store = opened(path)
    damaged = [("death:x", b"\x90"), ("death:7", b"\xc1"), ("death:8", None), ("death:9", 5)]
    store.connection.executemany("INSERT INTO meta VALUES (?,?)", damaged)
    store.close(clean=True)
    store = opened(path)
    assert store.deaths == {1: HERE}
    store.close(clean=True)


def test_a_store_that_stopped_alive_says_so(path: Path) -> None:
    store = opened(path)
    store.stop(StoreFailed("the disk is gone"))
    store.close(clean=True)
    store = opened(path)
    assert store.deaths == {1: HERE._replace(record="", stopped="store_failed")}
    store.close(clean=True)


def test_an_opening_that_comes_to_nothing_does_not_hide_the_end_before_it(path: Path) -> None:
    die(path, crash=CRASH)
    lock = OwnerLock(prepare(path), VirtualClock())
    lock.acquire()
    lock.release(clean=False)
    store = opened(path)
    assert store.deaths == {1: HERE._replace(fatal="Segmentation fault", frames=FRAMES)}
    store.close(clean=True)


def test_what_one_host_said_is_not_taken_for_the_next_ones_words(path: Path) -> None:
    die(path)
    store = opened(path)
    assert json.loads(path.with_name("q.db.lock").read_text())["words"] == ""
    store.close(clean=False)
    leave(path, words="")
    store = opened(path)
    assert store.deaths[2] == HERE._replace(record="")
    store.close(clean=True)


def test_a_file_of_somebody_elses_stays_through_deaths_and_clean_ends(path: Path) -> None:
    file = path.with_name("q.db.fatal")
    file.write_text("my notes")
    for clean in (False, True, True):
        opened(path).close(clean=clean)
    assert file.read_text() == "my notes"


@pytest.mark.reliability
def test_the_lock_file_follows_who_has_faulthandler(path: Path) -> None:
    said, _ = run(
        """
import faulthandler, json, sys
from embedq.storage.sqlite import open_store

store = open_store(sys.argv[1])
words = lambda: store._owner.words
said = [words()]
store.record_crashes()
said.append(words())
store.look_around()
said.append(words())
faulthandler.enable()
store.look_around()
said.append(words())
store.close(clean=True)
said.append(faulthandler.is_enabled())
print(json.dumps(said))
""",
        path,
    )
    assert said == ["", "kept", "kept", "elsewhere", True]
    assert not path.with_name("q.db.fatal").exists()


def test_a_backup_has_what_is_remembered_and_not_the_record_of_the_running_host(
    path: Path,
) -> None:
    die(path, crash=CRASH)
    store = opened(path)
    store.placement.words_path.write_text("embedq last words, epoch 2, process 1\n")
    copy = path.with_name("copy.db")
    store.backup(Lock(), copy, settle=lambda: None)
    store.close(clean=True)
    assert [file.name for file in path.parent.glob("copy.db*")] == ["copy.db"]
    restored = opened(copy)
    # Nobody saw the host of the copy end: it has no lock file, and did not.
    assert restored.deaths[2] == Death()
    assert restored.deaths[1].fatal == "Segmentation fault"
    restored.close(clean=True)
