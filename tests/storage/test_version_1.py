"""A file that an embedq of version 1 wrote is opened with all that is in it.

`version_1.sql` is such a file, as text: messages of every kind, deliveries, a dead letter.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from embedq.broker.host import open_engine
from embedq.clock import VirtualClock
from embedq.errors import SchemaTooNew
from embedq.storage import schema
from embedq.storage.inspect import check
from embedq.storage.salvage import salvage
from embedq.storage.sqlite import open_store
from tests.processes import PATIENCE_S, kill

DUMP = Path(__file__).with_name("version_1.sql")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(DUMP.read_text(encoding="utf-8"))
        connection.execute("PRAGMA journal_mode=WAL")
    path.chmod(0o600)
    return path


def contents(path: Path) -> dict[str, list[tuple]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return {
            table: connection.execute(f"SELECT * FROM {table}").fetchall()
            for table in schema.FIRST_TABLES
            if table != "meta"
        }


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def test_a_file_of_version_1_keeps_every_row_and_is_migrated_once(old: Path) -> None:
    before = contents(old)
    assert version_of(old) == 1
    for _ in range(2):
        open_store(old).close(clean=True)
        assert version_of(old) == schema.VERSION
        assert contents(old) == before
    assert check(old).findings == []


def test_what_waited_in_a_file_of_version_1_is_delivered(old: Path) -> None:
    with open_engine(old, clock=VirtualClock(), upkeep=False) as engine:
        queue = engine.queues["orders"]
        bodies = [lease.message.body for lease in engine.claim(queue.groups[0], 99)]
    assert {f"plain {n}".encode() for n in range(2, 12)} <= set(bodies)


def test_a_file_of_version_1_can_be_checked_and_salvaged_without_being_opened(
    old: Path, tmp_path: Path
) -> None:
    assert check(old).findings == []
    assert version_of(old) == 1
    new = tmp_path / "new.db"
    salvaged = salvage(old, new)
    assert salvaged.whole
    assert contents(new)["msg"] == contents(old)["msg"]
    assert version_of(new) == schema.VERSION


def test_a_program_killed_in_the_middle_of_the_migration_leaves_version_1_whole(
    old: Path,
) -> None:
    before = contents(old)
    died = subprocess.run([sys.executable, "-c", KILLED, str(old)], check=False, timeout=60)
    assert died.returncode == -signal.SIGKILL
    assert version_of(old) == 1
    assert contents(old) == before
    open_store(old).close(clean=True)
    assert (version_of(old), contents(old)) == (schema.VERSION, before)


#: The child alone has a migration that ends it after its first statement.
KILLED = """
import os, signal, sys
from embedq.storage import schema, sqlite

def killed(database):
    schema.MIGRATIONS[1].run(database.conn)
    os.kill(os.getpid(), signal.SIGKILL)

schema.migrate.__defaults__ = ((schema.MIGRATIONS[0], killed),)
sqlite.open_store(sys.argv[1])
"""


def test_programs_that_open_a_file_of_version_1_at_once_lose_nothing(old: Path) -> None:
    start, go = os.pipe()
    command = [sys.executable, "-c", RIVAL, str(old)]
    with ExitStack() as stack:
        programs = []
        for _ in range(4):
            program = subprocess.Popen(command, stdin=start, stdout=subprocess.PIPE)
            stack.callback(kill, program)
            programs.append(program)
        os.close(start)
        os.close(go)
        ids = [id for each in programs for id in each.communicate(timeout=PATIENCE_S)[0].split()]
    assert [each.returncode for each in programs] == [0] * 4
    assert len(set(ids)) == 40
    assert version_of(old) == schema.VERSION
    with closing(sqlite3.connect(old)) as connection:
        found = "SELECT count(*) FROM msg JOIN queue ON queue.id = queue WHERE name = 'many'"
        assert connection.execute(found).fetchone() == (40,)
    assert check(old).findings == []


#: Whoever comes first is the host and migrates, the others are its clients.
RIVAL = """
import sys
from embedq import Broker

broker = Broker(sys.argv[1])
sys.stdin.read()
with broker:
    for _ in range(10):
        print(broker.queue("many").put(b"x").id)
"""


def test_an_embedq_of_version_1_refuses_the_file_from_then_on(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_store(old).close(clean=True)
    monkeypatch.setattr(schema, "VERSION", 1)
    with pytest.raises(SchemaTooNew, match="schema version 2; this embedq reads versions up to 1"):
        open_store(old)
