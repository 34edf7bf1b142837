"""Readers are lent to one question at a time and never keep a snapshot open."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from embedq.storage import readers as module, schema
from embedq.storage.connection import open_writer
from embedq.storage.readers import Readers


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "q.db"


@pytest.fixture
def writer(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(
        open_writer(str(path), durability="normal", page_size=4096, busy_timeout_s=0)
    ) as opened:
        schema.migrate(opened, 0)
        yield opened


@pytest.fixture
def readers(writer: sqlite3.Connection, path: Path) -> Iterator[Readers]:
    lent = Readers(str(path))
    yield lent
    lent.close()


def count(connection: sqlite3.Connection) -> int:
    found: int = connection.execute("SELECT count(*) FROM meta").fetchone()[0]
    return found


def add(writer: sqlite3.Connection, key: str) -> None:
    writer.execute("INSERT INTO meta VALUES (?, 1)", (key,))


def pinned(writer: sqlite3.Connection) -> bool:
    """Whether somebody keeps an old state open."""
    busy, pages, copied = writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return bool(busy) or pages != copied


def test_a_connection_is_used_again_and_sees_what_is_new(
    readers: Readers, writer: sqlite3.Connection
) -> None:
    first = readers.run(lambda connection: (connection, count(connection)))
    add(writer, "a")
    second = readers.run(lambda connection: (connection, count(connection)))
    assert first[0] is second[0]
    assert (first[1], second[1]) == (0, 1)


def test_a_question_sees_one_moment(readers: Readers, writer: sqlite3.Connection) -> None:
    def ask(connection: sqlite3.Connection) -> tuple[int, int]:
        before = count(connection)
        add(writer, "a")
        return before, count(connection)

    assert readers.run(ask) == (0, 0)
    add(writer, "b")
    assert not pinned(writer)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_question_that_fails_leaves_no_snapshot_behind(
    readers: Readers, writer: sqlite3.Connection, error: type[BaseException]
) -> None:
    failed: list[sqlite3.Connection] = []

    def ask(connection: sqlite3.Connection) -> None:
        failed.append(connection)
        count(connection)
        raise error

    with pytest.raises(error):
        readers.run(ask)
    add(writer, "a")
    assert not pinned(writer)
    assert readers.run(lambda connection: connection) is not failed[0]
    with pytest.raises(sqlite3.ProgrammingError):
        failed[0].execute("SELECT 1")


def test_questions_at_the_same_time_have_connections_of_their_own_and_few_are_kept(
    readers: Readers,
) -> None:
    together = threading.Barrier(6)
    used: list[sqlite3.Connection] = []

    def ask(connection: sqlite3.Connection) -> None:
        together.wait(20)
        used.append(connection)

    threads = [threading.Thread(target=readers.run, args=(ask,)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len({id(connection) for connection in used}) == 6
    assert len(readers._idle) == module._KEPT


def test_a_snapshot_keeps_its_moment_until_it_is_closed(
    readers: Readers, writer: sqlite3.Connection
) -> None:
    with closing(readers.snapshot()) as snapshot:
        add(writer, "a")
        assert count(snapshot) == 0
        assert pinned(writer)
        assert readers.run(count) == 1
    assert not pinned(writer)


def test_a_snapshot_that_cannot_be_taken_leaves_nothing_open(tmp_path: Path) -> None:
    empty = tmp_path / "empty.db"
    with closing(sqlite3.connect(empty)) as other:
        other.execute("CREATE TABLE t(a)")
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        Readers(str(empty)).snapshot()


def test_idle_connections_can_be_dropped_and_closed_ones_are_not_kept(
    readers: Readers, writer: sqlite3.Connection
) -> None:
    before = readers.run(lambda connection: connection)
    readers.drop_idle()
    assert readers.run(lambda connection: connection) is not before
    readers.close()
    last = readers.run(lambda connection: connection)  # it was on its way when we closed
    with pytest.raises(sqlite3.ProgrammingError):
        last.execute("SELECT 1")


def test_a_forked_child_never_touches_the_connections_of_its_parent(readers: Readers) -> None:
    theirs = readers.run(lambda connection: connection)
    readers.forked_in_child()
    assert not readers._idle
    assert theirs.execute("SELECT 1").fetchone() == (1,)
    theirs.close()
