"""Looking at a database from outside: what is left beside it, and what is seen."""

import sqlite3
from contextlib import closing

import pytest

from embedq.broker.host import open_engine
from embedq.errors import InvalidOption, NotAnEmbedqFile, SchemaTooNew, StoreCorrupt
from embedq.storage.census import take
from embedq.storage.onlooker import Onlooker


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "q.db"
    with open_engine(path, upkeep=False) as desk:
        queue = desk.queue("q")
        desk.group(queue)
        desk.put_many(queue, [b"%d" % n for n in range(5)])
    return path


def names(path):
    return sorted(file.name for file in path.parent.iterdir())


def test_a_closed_file_is_read_without_leaving_anything_beside_it(path):
    before = names(path)
    onlooker = Onlooker(path)
    assert [stored.body for stored in onlooker.range(1, 0, 9)] == [b"0", b"1", b"2", b"3", b"4"]
    assert take(onlooker, alive=False).queues[0].stored == 5
    assert names(path) == before


def test_what_a_host_committed_is_seen_at_once(path):
    onlooker = Onlooker(path)
    with open_engine(path, upkeep=False) as desk:
        desk.put(desk.queue("q"), b"new")
        assert len(onlooker.range(1, 0, 9)) == 6
    assert len(onlooker.range(1, 0, 9)) == 6


def test_a_file_that_changes_while_it_is_read_is_read_again(path):
    onlooker = Onlooker(path)
    seen = []

    def question(db):
        seen.append(db.execute("SELECT count(*) FROM msg").fetchone()[0])
        if len(seen) == 1:  # a host comes, writes and goes
            with open_engine(path, upkeep=False) as desk:
                desk.put(desk.queue("q"), b"new")
        return seen[-1]

    assert onlooker.read(question) == 6
    assert seen == [5, 6]


def test_a_change_is_noticed_by_its_signature(path):
    onlooker = Onlooker(path)
    before = onlooker.signature()
    assert onlooker.signature() == before
    with open_engine(path, upkeep=False):
        assert onlooker.signature() != before
    assert onlooker.signature() != before


def test_nothing_can_be_written(path):
    onlooker = Onlooker(path)
    with pytest.raises(Exception, match=r"readonly|read-only|written"):
        onlooker.read(lambda db: db.execute("DELETE FROM msg"))
    with open_engine(path, upkeep=False) as desk:
        desk.put(desk.queue("q"), b"x")
        with pytest.raises(Exception, match=r"readonly|read-only|written"):
            onlooker.read(lambda db: db.execute("DELETE FROM msg"))


def test_what_is_no_database_of_ours_is_said(tmp_path, path):
    with pytest.raises(InvalidOption, match="no database file"):
        Onlooker(tmp_path / "none.db")
    text = tmp_path / "text.db"
    text.write_bytes(b"a long text " * 1000)
    with pytest.raises(NotAnEmbedqFile):
        Onlooker(text)
    (tmp_path / "empty.db").touch()
    with pytest.raises(NotAnEmbedqFile, match="empty"):
        Onlooker(tmp_path / "empty.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=99")
    with pytest.raises(SchemaTooNew):
        Onlooker(path)


def test_damage_is_said(path):
    data = bytearray(path.read_bytes())
    for page in range(1, len(data) // 4096):
        data[page * 4096 : page * 4096 + 100] = b"\xa5" * 100
    path.write_bytes(data)
    with pytest.raises(StoreCorrupt):
        Onlooker(path)


def test_a_backup_is_one_moment_although_the_host_goes_on(path, tmp_path):
    with open_engine(path, upkeep=False) as desk:
        queue = desk.queue("q")
        desk.put_many(queue, [b"x" * 4000] * 500)
        steps = []

        def progress(done, total):
            steps.append(done)
            desk.put(queue, b"meanwhile")

        report = Onlooker(path).backup(tmp_path / "copy.db", progress=progress)
    assert len(steps) > 1
    assert steps == sorted(steps)  # it never began anew
    assert report.messages == 505
    assert len(Onlooker(tmp_path / "copy.db").range(1, 0, 9)) == 9
