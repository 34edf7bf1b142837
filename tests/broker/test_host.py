"""A host opens the right store, verifies a file only where that is needed, and lets go of it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from embedq.broker import host as module
from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.clock import SystemClock, VirtualClock
from embedq.errors import EmbedqError, NotAnEmbedqFile, SchemaTooNew, StoreFailed, StoreInUse
from embedq.storage.memory import MemoryStore
from embedq.storage.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "q.db"


def opened(path: Path | str, **more) -> Desk:
    return open_engine(path, durability="normal", upkeep=False, **more)


def die(desk: Desk) -> None:
    desk.writer.close()
    desk.store.close(clean=False)


def lock_file(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def restart_machine(path: Path, boot: str | None) -> None:
    """Make the lock file one of another boot; None: of a system that cannot tell."""
    record = json.loads(lock_file(path).read_text())
    record["boot_id"] = boot
    lock_file(path).write_text(json.dumps(record) + "\n")


# ------------------------------------------------------------------------------- opening


def test_the_path_memory_is_a_store_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with opened(":memory:") as first, opened(":memory:") as second:
        assert isinstance(first.store, MemoryStore)
        first.put(first.queue("orders"), b"body")
        assert second.queues == {}
        assert first.upkeep.verifier is None
    assert list(tmp_path.iterdir()) == []


def test_any_other_path_is_a_file(path: Path) -> None:
    with opened(str(path)) as desk:
        assert isinstance(desk.store, SqliteStore)
        assert desk.store.path == str(path)
    assert path.exists()


def test_a_file_has_one_host(path: Path) -> None:
    with opened(path) as desk:
        with pytest.raises(StoreInUse):
            opened(path)
        desk.put(desk.queue("orders"), b"body")


@pytest.mark.parametrize(("durability", "level"), [("full", 2), ("normal", 1)])
def test_the_durability_is_that_of_the_store(path: Path, durability, level: int) -> None:
    with open_engine(path, durability=durability, upkeep=False) as desk:
        assert isinstance(desk.store, SqliteStore)
        assert desk.store.connection.execute("PRAGMA synchronous").fetchone() == (level,)


def test_one_clock_serves_everybody(path: Path) -> None:
    clock = VirtualClock(start=5.0)
    for where in (":memory:", path):
        with opened(where, clock=clock) as desk:
            assert desk.clock is clock
            assert desk.now_ms() == 5000
    with opened(":memory:") as desk:
        assert isinstance(desk.clock, SystemClock)


def test_upkeep_runs_unless_it_is_left_to_the_caller(path: Path) -> None:
    with open_engine(path, durability="normal") as desk:
        assert desk.upkeep._thread is not None
        assert desk.upkeep._thread.is_alive()
    assert not desk.upkeep._thread.is_alive()
    with opened(path) as desk:
        assert desk.upkeep._thread is None


# ------------------------------------------------------------------------------ verifying


def verifies(path: Path) -> bool:
    desk = opened(path)
    wanted = desk.upkeep.verifier is not None
    desk.close()
    return wanted


def test_a_new_file_is_not_verified(path: Path) -> None:
    assert not verifies(path)


def test_after_an_orderly_end_nothing_is_verified_whatever_became_of_the_machine(
    path: Path,
) -> None:
    opened(path).close()
    restart_machine(path, "another")
    assert not verifies(path)


def test_after_an_unclean_end_on_the_same_boot_the_kernel_has_everything(path: Path) -> None:
    die(opened(path))
    if json.loads(lock_file(path).read_text())["boot_id"] is None:
        pytest.skip("only on systems that tell one boot from another")
    assert not verifies(path)


@pytest.mark.parametrize("boot", ["another", None])
def test_after_an_unclean_end_before_a_restart_the_file_is_verified(
    path: Path, boot: str | None
) -> None:
    die(opened(path))
    restart_machine(path, boot)
    assert verifies(path)
    assert not verifies(path)  # that host ended well


def test_a_lock_file_that_is_lost_or_unreadable_vouches_for_nothing(path: Path) -> None:
    opened(path).close()
    lock_file(path).unlink()
    assert verifies(path)
    lock_file(path).write_text("what is this?\n")
    assert verifies(path)


# ------------------------------------------------------------------------------- refusals


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs(a)")
    path.chmod(0o600)


def newer(path: Path) -> None:
    opened(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=99")


def diary(path: Path) -> None:
    path.write_bytes(b"Dear diary, " * 1000)
    path.chmod(0o600)


@pytest.mark.parametrize(
    ("make", "expected"),
    [(foreign, NotAnEmbedqFile), (newer, SchemaTooNew), (diary, NotAnEmbedqFile)],
)
def test_a_file_that_cannot_be_served_is_named_and_not_changed(
    path: Path, make, expected: type[EmbedqError]
) -> None:
    make(path)
    before = path.read_bytes()
    for _ in range(2):  # nothing of the first try is in the way of the second
        with pytest.raises(expected, match=r"q\.db") as caught:
            opened(path)
        assert caught.value.hint
    assert path.read_bytes() == before


def test_an_engine_that_cannot_begin_lets_go_of_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> Desk:
        raise StoreFailed("the disk is gone")

    with monkeypatch.context() as patched:
        patched.setattr(module, "Desk", broken)
        with pytest.raises(StoreFailed, match="the disk is gone"):
            opened(path)
    with opened(path) as desk:
        assert desk.store.epoch == 2
