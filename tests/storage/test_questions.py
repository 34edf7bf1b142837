"""Questions are answered from the right connection, in short looks, or say why not."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from embedq.errors import GroupNotFound, StorageError, StoreClosed, StoreFailed
from embedq.policy import QueuePolicy
from embedq.storage import reads
from embedq.storage.ops import Ack, DeclareGroup, DeclareQueue, PutRows, Save, Start
from embedq.storage.port import Load, LoadDue
from embedq.storage.sqlite import SqliteStore
from tests.conformance.scenario import row
from tests.storage.planted import error_of, opened, put


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "q.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    one = opened(path)
    one.commit([DeclareQueue("orders", QueuePolicy()), DeclareGroup(1, "default", 0)])
    yield one
    one.close(clean=False)


#: What is asked of a snapshot of its own, from any thread.
READS: dict[str, Callable[[SqliteStore], object]] = {
    "load": lambda store: store.load(Load(1, 0, 0, 99, 9)),
    "load_due": lambda store: store.load_due(LoadDue(1, False, (0, 0), 9)),
    "messages": lambda store: store.messages([1]),
    "range": lambda store: store.range(1, 0, 9),
    "expired": lambda store: store.expired(9, 9),
    "unsettled": lambda store: store.unsettled(1),
    "deliveries": lambda store: store.deliveries(1),
    "dead": lambda store: store.dead(1, 0, 9),
    "dead_letter": lambda store: store.dead_letter(1, 1),
    "begin_tally": lambda store: store.begin_tally()(),
    "session_names": lambda store: store.session_names([1]),
}

#: What is asked of the writing connection, under the lock.
ASKED: dict[str, Callable[[SqliteStore], object]] = {
    "catalogue": lambda store: store.catalogue(),
    "next_of_key": lambda store: store.next_of_key(1, "k", 0),
    "latest": lambda store: store.latest(1, 1),
    "open_deliveries": lambda store: store.open_deliveries(1, [1]),
}


@pytest.mark.parametrize("name", READS)
def test_a_read_neither_needs_nor_disturbs_the_writing_connection(
    store: SqliteStore, name: str
) -> None:
    put(store)
    statements: list[str] = []
    store.connection.set_trace_callback(statements.append)
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(READS[name](store)))
    thread.start()
    thread.join(20)
    assert len(answers) == 1
    assert statements == []


@pytest.mark.parametrize("name", ASKED)
def test_what_is_asked_under_the_lock_sees_what_is_not_committed_yet(
    store: SqliteStore, name: str
) -> None:
    statements: list[str] = []
    store.connection.set_trace_callback(statements.append)
    ASKED[name](store)
    assert statements != []


@pytest.mark.parametrize("name", [*READS, *ASKED])
def test_a_closed_store_answers_nothing(path: Path, name: str) -> None:
    store = opened(path)
    store.commit([DeclareQueue("orders", QueuePolicy()), DeclareGroup(1, "default", 0)])
    store.close(clean=True)
    with pytest.raises(StoreClosed, match=r"q\.db is closed"):
        (READS | ASKED)[name](store)


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda store: store.load(Load(7, 0, 0, 9, 9)), id="load"),
        pytest.param(lambda store: store.load_due(LoadDue(7, True, (0, 0), 9)), id="load_due"),
        pytest.param(lambda store: store.next_of_key(7, "k", 0), id="next_of_key"),
        pytest.param(lambda store: store.latest(7, 1), id="latest"),
    ],
)
def test_a_group_that_is_not_there_is_named(
    store: SqliteStore, ask: Callable[[SqliteStore], object]
) -> None:
    with pytest.raises(GroupNotFound, match="number 7"):
        ask(store)


def test_the_longest_looks_are_cut_into_short_ones(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "SPAN", 10)
    store.commit([DeclareQueue("mail", QueuePolicy())])
    store.commit([PutRows(2, 0, [row() for _ in range(35)])])
    put(store, 3)
    looks: list[int] = []
    read = store.read

    def watched(question):
        looks.append(1)
        return read(question)

    monkeypatch.setattr(store, "read", watched)
    chunk = store.load(Load(1, 0, 0, 38, 9))
    assert (chunk.fresh, chunk.after, len(looks)) == ([36, 37, 38], 38, 4)
    looks.clear()
    chunk = store.load(Load(1, 0, 0, 38, 2))
    assert (chunk.fresh, chunk.after) == ([36, 37], 37)
    assert store.load(Load(1, 0, 37, 38, 2)).fresh == [38]


def test_a_load_beyond_the_last_message_ends(store: SqliteStore) -> None:
    put(store)
    assert store.load(Load(1, 0, 5, 3, 9)) == ([], [], 5)
    store.commit([Save([], [(1, 9, 1)], exact=False)])
    assert store.load(Load(1, 0, 0, 5, 9)) == ([], [], 5)


def test_an_error_of_the_file_while_reading_stops_the_store(store: SqliteStore) -> None:
    def broken(_connection: sqlite3.Connection) -> None:
        raise error_of(sqlite3.SQLITE_IOERR_READ)

    with pytest.raises(StoreFailed, match="planted"):
        store.read(broken)
    with pytest.raises(StoreFailed, match="planted"):
        put(store)


def test_a_question_that_is_wrong_stops_nothing(store: SqliteStore) -> None:
    for ask in (store.read, store.ask):
        with pytest.raises(StorageError, match="no such table"):
            ask(lambda connection: connection.execute("SELECT * FROM lost"))
    assert put(store) > 0


def test_a_tally_that_cannot_begin_or_end_is_an_error_of_ours(
    store: SqliteStore, path: Path
) -> None:
    count = store.begin_tally()
    store._readers.drop_idle()
    path.rename(path.with_name("elsewhere.db"))
    assert count().stored == {}  # its snapshot was open
    with pytest.raises(StoreFailed, match="cannot be opened"):
        store.begin_tally()


def test_a_tally_counts_the_moment_at_which_it_began(store: SqliteStore) -> None:
    put(store, 3)
    count = store.begin_tally()
    put(store, 2)
    store.commit([Start(1, 1, None, 1, [1], []), Ack(1, 2, [1])])
    assert count().stored == {1: 3}
    with pytest.raises(StorageError, match="closed"):
        count()  # once only: its snapshot is gone
