"""A log that cannot be rewound names who is in the way."""

import logging
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from embedq.broker.host import open_engine
from embedq.limits import LIMITS
from embedq.storage.pinning import readers_of
from tests.processes import line_of

READER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN")
db.execute("SELECT count(*) FROM msg").fetchone()
print("reading", flush=True)
sys.stdin.read()
"""


@contextmanager
def reader(path: Path) -> Iterator[int]:
    child = subprocess.Popen(
        [sys.executable, "-c", READER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert line_of(child) == b"reading\n"
        yield child.pid
    finally:
        child.kill()
        child.communicate()


def test_a_process_that_pins_the_log_is_named_and_the_log_recovers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "q.db"
    limits = replace(LIMITS, checkpoint_pages=10, wal_limit_bytes=100_000)
    with open_engine(path, limits=limits, upkeep=False) as engine:
        queue = engine.queue("orders")
        with reader(path) as pid:
            for _ in range(60):
                engine.put_many(queue, [bytes(2_000)] * 10)
            with caplog.at_level(logging.WARNING, "embedq.storage"):
                engine.upkeep.round()
                engine.upkeep.round()
            health = engine.store.wal  # type: ignore[attr-defined]
            assert health.oversize
            assert readers_of(str(path)) == [pid] == health.readers
            assert len(caplog.records) == 1, "said once, not every second"
            assert str(pid) in caplog.text
        with engine.writer.lock:
            assert engine.store.checkpoint()  # type: ignore[attr-defined]
        engine.upkeep.round()
        assert not health.oversize
        assert queue.stored == 600


def test_our_own_process_is_not_named(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    with open_engine(path, upkeep=False):
        own = sqlite3.connect(path)
        own.execute("BEGIN")
        own.execute("SELECT count(*) FROM msg").fetchone()
        assert readers_of(str(path)) == []
        own.close()


def test_a_system_without_a_list_of_locks_names_nobody(tmp_path: Path) -> None:
    assert readers_of(str(tmp_path / "q.db"), tmp_path / "absent") == []
