"""The complete check: silent about a sound file, and in words about each thing that is wrong."""

import random
import shutil
import sqlite3
from contextlib import closing

import pytest

from embedq.errors import InvalidOption, NotAnEmbedqFile, SchemaTooNew
from embedq.storage import schema
from embedq.storage.connection import open_reader
from embedq.storage.frames import FRAME_BYTES, HEADER_BYTES
from embedq.storage.inspect import Severity, check
from embedq.storage.sqlite import open_store
from tests.storage.sample_store import HOW, damage, sample


def write(tmp_path, data=None, **options):
    return sample(**options).write(tmp_path / "shop.db", data)


def changed(tmp_path, *statements):
    path = write(tmp_path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
        # Close without leaving a log, as nobody has the file open any more.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


def names(tmp_path):
    return sorted(path.name for path in tmp_path.iterdir())


def test_a_sound_file_has_no_findings_and_nothing_is_left_beside_it(tmp_path):
    path = write(tmp_path)
    before = path.read_bytes()
    report = check(path)
    assert report.findings == []
    assert report.sound
    assert report.messages == len(sample().rows["msg"])
    assert report.letters == len(sample().rows["dead"])
    assert report.pages == len(before) // 4096
    assert names(tmp_path) == ["shop.db"]
    assert path.read_bytes() == before


def test_what_is_only_in_the_log_is_checked_too(tmp_path):
    path = write(tmp_path, log=True)
    report = check(path)
    assert report.sound
    assert report.messages == len(sample(log=True).rows["msg"])
    (finding,) = report.findings
    assert finding.severity is Severity.NOTE
    assert "shop.db-wal" in finding.what


def test_a_damaged_frame_in_the_log_is_told_before_sqlite_forgets_what_follows(tmp_path):
    path = write(tmp_path, log=True)
    log = tmp_path / "shop.db-wal"
    at = HEADER_BYTES + 5 * (FRAME_BYTES + 4096) + 700
    content = log.read_bytes()
    log.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    report = check(path)
    assert not report.sound
    assert "is damaged after frame 2" in report.findings[0].what
    assert "salvage" in report.findings[0].hint


def test_a_live_store_is_checked_by_path_and_by_connection(tmp_path):
    store = open_store(tmp_path / "live.db")
    try:
        assert check(tmp_path / "live.db").sound
        with closing(open_reader(str(tmp_path / "live.db"))) as connection:
            report = check(connection)
            assert connection.execute("SELECT 'text'").fetchone() == ("text",)
        assert report.sound
        assert report.path == str(tmp_path / "live.db")
        report = store.read(check)
        assert report.sound
    finally:
        store.close(clean=True)
    assert check(tmp_path / "live.db").findings == []


#: A change of the file, the severity, and words of what is found.
WRONG = [
    (
        "DELETE FROM msg WHERE seq=1",
        "damage",
        "1 deliveries belong to no message (the first is number 1)",
    ),
    ("UPDATE msg SET queue=77 WHERE seq=2", "damage", "1 messages belong to no queue"),
    ("UPDATE dead SET queue=77 WHERE id=2", "damage", "1 dead letters belong to no queue"),
    ("UPDATE consumer_group SET queue=77 WHERE id=2", "damage", "1 groups belong to no queue"),
    ("UPDATE dedup SET queue=77 WHERE seq=7", "warning", "1 dedup keys belong to no queue"),
    ("UPDATE delivery SET grp=77 WHERE seq=1", "warning", "deliveries belong to no group"),
    ("UPDATE delivery SET outcome=5, ended=1 WHERE seq=1", "damage", "an outcome that cannot be"),
    (
        "UPDATE delivery SET outcome=NULL, ended=1 WHERE seq=1",
        "damage",
        "an outcome that cannot be",
    ),
    (
        "INSERT INTO delivery SELECT 3,1,id,1,1,0,9,1,NULL,NULL,NULL,NULL,NULL FROM queue",
        "warning",
        "several open deliveries",
    ),
    ("UPDATE msg SET priority=10 WHERE seq=2", "damage", "a priority that cannot be"),
    (
        "UPDATE msg SET seq=99999 WHERE seq=2",
        "damage",
        "1 messages have numbers that were never given",
    ),
    (
        "UPDATE dead SET seq=-4 WHERE id=2",
        "damage",
        "1 dead letters have numbers that were never given",
    ),
    (
        "UPDATE consumer_group SET floor=99999 WHERE id=2",
        "damage",
        "1 groups have numbers that were never",
    ),
    ("UPDATE queue SET policy='{' WHERE id=1", "damage", "queue 'orders': the stored settings"),
    ("UPDATE queue SET retained=1 WHERE id=1", "warning", "queue 'orders': `retained`"),
    ("DELETE FROM meta WHERE key='store_key'", "damage", "the store key is missing"),
    ("UPDATE meta SET value='x' WHERE key='epoch'", "damage", "epoch in table meta is 'x'"),
    ("DELETE FROM meta WHERE key='seq_reserved'", "damage", "seq_reserved in table meta is None"),
    (
        "UPDATE msg SET body=X'00' WHERE seq=2",
        "damage",
        "1 messages do not have the content that was put (2)",
    ),
    ("UPDATE msg SET headers='t' WHERE seq=2", "damage", "1 messages do not have the content"),
    (
        "UPDATE dead SET body=X'00' WHERE id<8",
        "damage",
        "7 dead letters do not have the content that was put (1, 2, 3, 4, 5, …)",
    ),
    (
        "UPDATE dead SET body=X'00', reason='corrupt' WHERE id=2",
        "note",
        "1 dead letters are there because",
    ),
    (
        "UPDATE meta SET value=1 WHERE key='clean'",
        "warning",
        "queue 'orders' is noted with 0 rows in msg",
    ),
    ("DROP INDEX msg_due", "damage", "index msg_due is missing"),
    ("CREATE TABLE mine (x)", "warning", "table mine is not one of embedq's"),
    (
        "CREATE TRIGGER mine AFTER DELETE ON msg BEGIN SELECT 1; END",
        "warning",
        "trigger mine is not one",
    ),
    ("ALTER TABLE session ADD COLUMN mine", "warning", "table session is not as embedq makes it"),
    ("PRAGMA application_id=7", "damage", "the mark of an embedq file is damaged"),
]


@pytest.mark.parametrize(("statement", "severity", "words"), WRONG)
def test_each_broken_promise_is_named(tmp_path, statement, severity, words):
    report = check(changed(tmp_path, statement))
    found = [finding for finding in report.findings if words in finding.what]
    assert found, report.findings
    assert found[0].severity == severity
    assert found[0].hint or severity == "note"
    assert report.sound is (severity != "damage")
    order = [list(Severity).index(finding.severity) for finding in report.findings]
    assert order == sorted(order)


def test_the_table_above_would_see_a_check_that_finds_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("embedq.storage.inspect._PROMISES", ())
    with pytest.raises(AssertionError):
        test_each_broken_promise_is_named(tmp_path, *WRONG[1])


@pytest.mark.parametrize("seed", range(12))
def test_damaged_pages_never_end_the_check_and_are_found(tmp_path, seed):
    rng = random.Random(seed)
    base = sample()
    used = [leaf.page for leaf in base.pages.walk(base.roots["msg"]).leaves]
    pages = [*rng.sample(used, 3), base.roots["delivery"], base.roots["dedup"]]
    data = base.data
    for page in pages:
        data = damage(data, 4096, page, rng.choice(HOW), rng)
    report = check(write(tmp_path, data))
    assert not report.sound
    assert all(finding.hint for finding in report.findings)


@pytest.mark.parametrize("how", ["zeros", "noise"])
def test_a_damaged_first_page_is_a_finding(tmp_path, how):
    path = write(tmp_path, damage(sample().data, 4096, 1, how, random.Random(1)))
    report = check(path)
    assert not report.sound
    assert names(tmp_path) == ["shop.db"]


def test_a_truncated_file_is_a_finding(tmp_path):
    report = check(write(tmp_path, sample().data[: 100 * 4096]))
    assert not report.sound


def test_an_empty_file_is_sound_and_noted(tmp_path):
    (tmp_path / "shop.db").write_bytes(b"")
    report = check(tmp_path / "shop.db")
    assert report.sound
    assert "not been opened as a store" in report.findings[0].what


def test_files_of_others_and_of_the_future_are_refused(tmp_path):
    with pytest.raises(InvalidOption, match=r"shop\.db"):
        check(tmp_path / "shop.db")
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE account (id)")
    with pytest.raises(NotAnEmbedqFile):
        check(tmp_path / "other.db")
    with pytest.raises(SchemaTooNew):
        check(changed(tmp_path, f"PRAGMA user_version={schema.VERSION + 1}"))


def test_a_file_in_a_folder_that_cannot_be_written_is_checked(tmp_path):
    folder = tmp_path / "backups"
    folder.mkdir()
    shutil.copy(write(tmp_path), folder / "shop.db")
    folder.chmod(0o500)
    try:
        assert check(folder / "shop.db").findings == []
    finally:
        folder.chmod(0o700)
