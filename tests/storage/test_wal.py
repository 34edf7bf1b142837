"""The log is copied when enough has been written, and readers are waited for with patience."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from embedq.clock import VirtualClock
from embedq.storage.connection import open_reader, open_writer
from embedq.storage.wal import WriteAheadLog

EACH = 100
SMALL, LARGE = 10, 1  # commits that wrote what follows: small ones, and a single large one


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "q.db"


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(
        open_writer(str(path), durability="normal", page_size=4096, busy_timeout_s=0)
    ) as opened:
        opened.execute("CREATE TABLE t(a)")
        opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        yield opened


@pytest.fixture
def log(connection: sqlite3.Connection, clock: VirtualClock) -> WriteAheadLog:
    return WriteAheadLog(connection, EACH, clock)


def write(connection: sqlite3.Connection, pages: int) -> None:
    connection.execute("INSERT INTO t VALUES (zeroblob(?))", (4096 * pages,))


def due_at(log: WriteAheadLog, clock: VirtualClock, seconds: float, commits: int) -> int:
    """Return after how many pages a checkpoint is due, at so many seconds for 100 pages."""
    while True:
        clock.advance(seconds / 10)
        log.written += EACH // 10
        log.commits += commits
        if log.is_due():
            return log.written


def test_a_steady_load_is_copied_every_so_many_pages(
    log: WriteAheadLog, clock: VirtualClock
) -> None:
    assert due_at(log, clock, seconds=1, commits=SMALL) == EACH


def test_a_burst_goes_on_to_ten_times_as_many(log: WriteAheadLog, clock: VirtualClock) -> None:
    assert due_at(log, clock, seconds=0.01, commits=SMALL) == 10 * EACH


@pytest.mark.parametrize("each", [50, 100, 200])
def test_what_counts_as_a_burst_does_not_depend_on_the_distance_of_checkpoints(
    connection: sqlite3.Connection, clock: VirtualClock, each: int
) -> None:
    log = WriteAheadLog(connection, each, clock)
    assert due_at(log, clock, seconds=0.02, commits=SMALL) == each


def test_large_commits_go_on_to_three_times_as_many_however_slow(
    log: WriteAheadLog, clock: VirtualClock
) -> None:
    log.written = log.commits = 0
    for _ in range(2):
        log.written += 120
        log.commits += LARGE
        clock.advance(1)
        assert not log.is_due()
    log.written += 120
    log.commits += LARGE
    clock.advance(1)
    assert log.is_due()


def test_a_burst_that_calms_down_is_copied_with_the_next_look(
    log: WriteAheadLog, clock: VirtualClock
) -> None:
    log.written, log.commits = EACH, 50
    assert not log.is_due()
    clock.advance(60)
    log.written += EACH
    assert log.is_due()


def test_below_the_bound_nobody_looks_at_the_clock(log: WriteAheadLog) -> None:
    log._clock = None  # type: ignore[assignment]
    log.written = EACH - 1
    assert not log.is_due()


def test_a_complete_checkpoint_begins_anew(
    log: WriteAheadLog, connection: sqlite3.Connection, path: Path
) -> None:
    write(connection, 20)
    log.written, log.commits = 20, 1
    assert log.checkpoint()
    assert (log.written, log.commits, log.next) == (0, 0, EACH)
    assert (log.health.checkpoints, log.health.blocked) == (1, 0)
    assert log.health.pages >= 20
    size = path.with_name("q.db-wal").stat().st_size
    write(connection, 5)
    assert path.with_name("q.db-wal").stat().st_size == size  # written over, never cut


def test_a_reader_of_an_old_state_makes_checkpoints_rarer_until_it_ends(
    log: WriteAheadLog, connection: sqlite3.Connection, path: Path
) -> None:
    with closing(open_reader(str(path))) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM t").fetchone()
        nexts = []
        for number in range(1, 9):
            write(connection, 3)
            assert not log.checkpoint()
            assert log.health.blocked == number
            nexts.append(log.next // EACH)
        assert nexts == [2, 4, 8, 16, 32, 64, 64, 64]
    write(connection, 3)
    assert log.checkpoint()
    assert (log.health.blocked, log.next) == (0, EACH)


def test_an_error_is_for_the_caller_to_judge(
    log: WriteAheadLog, connection: sqlite3.Connection
) -> None:
    connection.close()
    with pytest.raises(sqlite3.Error):
        log.checkpoint()
    assert log.health.checkpoints == 0
