"""Salvage after certain damage: what can be read is saved, and nothing else is made of it."""

import os
import random
import sqlite3
import subprocess
from contextlib import closing

import pytest

from embedq.errors import InvalidOption, NotAnEmbedqFile, SchemaTooNew, StoreCorrupt, StoreFull
from embedq.storage.inspect import check
from embedq.storage.salvage import salvage
from embedq.storage.sqlite import open_store
from tests.storage.salvages import TABLES, Salvage, flip, page_of, same_tables, trunks
from tests.storage.sample_store import KEY, RESERVED, contents, damage, sample

# ------------------------------------------------------------------------- certain damage


def salvage_without(tmp_path, pages, size=4096, how="zeros"):
    base = sample(size)
    data = base.data
    for page in pages:
        data = damage(data, size, page, how, random.Random(5))
    salvaged = Salvage(tmp_path, base, data)
    salvaged.examine(set(pages))
    return salvaged


def test_a_sound_file_comes_over_whole(tmp_path):
    salvaged = Salvage(tmp_path, sample())
    salvaged.examine(set())
    same_tables(salvaged, TABLES)
    assert salvaged.result.whole
    assert salvaged.result.lost == []
    assert salvaged.result.counts["msg"] == len(sample().rows["msg"])
    stored = {row[0]: row[5] for row in salvaged.rows["queue"]}
    assert sum(stored.values()) == len(sample().rows["msg"])


@pytest.mark.parametrize("size", [512, 4096, 8192])
@pytest.mark.parametrize("how", ["zeros", "noise"])
def test_without_the_first_page_nothing_is_lost(tmp_path, size, how):
    salvaged = salvage_without(tmp_path, [1], size, how)
    same_tables(salvaged, TABLES)
    assert not salvaged.result.whole
    assert [row[:4] for row in salvaged.rows["queue"]] == [
        row[:4] for row in sample(size).rows["queue"]
    ]


@pytest.mark.parametrize("size", [512, 4096])
def test_without_root_and_interior_pages_of_the_messages_nothing_is_lost(tmp_path, size):
    walk = sample(size).pages.walk(page_of(sample(size), "msg"))
    assert walk.interior
    salvaged = salvage_without(tmp_path, walk.interior, size)
    same_tables(salvaged, TABLES)
    # What was acked long ago leaves gaps, too; but where there is a message none is suspected.
    assert all(not salvaged.is_said_to_be_lost(seq) for seq in salvaged.messages)


@pytest.mark.parametrize(
    "name",
    [
        "msg_priority",
        "msg_due",
        "msg_key",
        "delivery_due",
        "sqlite_autoindex_dead_1",
        "dead_queue",
    ],
)
def test_without_an_index_nothing_is_lost(tmp_path, name):
    same_tables(salvage_without(tmp_path, [page_of(sample(), name)]), TABLES)


def test_without_the_list_and_without_the_map_of_free_pages_no_acked_message_returns(tmp_path):
    (tmp_path / "list").mkdir()
    same_tables(salvage_without(tmp_path / "list", trunks(sample()), how="noise"), TABLES)
    (tmp_path / "map").mkdir()
    same_tables(salvage_without(tmp_path / "map", [2], how="noise"), TABLES)


def test_without_the_table_of_queues_their_names_come_from_its_index(tmp_path):
    salvaged = salvage_without(tmp_path, [page_of(sample(), "queue")])
    assert [row[:2] for row in salvaged.rows["queue"]] == [
        (1, "orders"),
        (2, "größe"),
        (3, "kept"),
    ]
    same_tables(salvaged, TABLES)
    assert sum("settings of queue" in note for note in salvaged.result.notes) == 3


def test_without_queues_and_their_index_messages_stay_under_a_made_up_name(tmp_path):
    salvaged = salvage_without(
        tmp_path, [page_of(sample(), "queue"), page_of(sample(), "sqlite_autoindex_queue_1")]
    )
    names = [row[1] for row in salvaged.rows["queue"]]
    assert names == ["recovered-1", "recovered-2", "recovered-3"]
    same_tables(salvaged, TABLES)


def test_without_the_table_of_groups_they_get_their_messages_again(tmp_path):
    salvaged = salvage_without(tmp_path, [page_of(sample(), "consumer_group")])
    same_tables(salvaged, TABLES)
    assert sum("had lost its position" in note for note in salvaged.result.notes) == 3


def test_without_groups_and_their_index_those_with_deliveries_stay(tmp_path):
    salvaged = salvage_without(
        tmp_path,
        [
            page_of(sample(), "consumer_group"),
            page_of(sample(), "sqlite_autoindex_consumer_group_1"),
        ],
    )
    same_tables(salvaged, ("msg", "delivery", "dead"))
    assert {(row[0], row[2]) for row in salvaged.rows["consumer_group"]} == {
        (1, "recovered-1"),
        (3, "recovered-3"),
    }


def test_without_the_store_key_there_is_a_new_one_and_no_number_is_used_again(tmp_path):
    salvaged = salvage_without(tmp_path, [page_of(sample(), "meta")])
    meta = dict(salvaged.rows["meta"])
    assert meta["store_key"] != KEY
    assert len(meta["store_key"]) == 16
    assert any("store key is lost" in note for note in salvaged.result.notes)
    highest = max(row[1] for row in sample().rows["dead"])
    assert highest <= meta["seq_reserved"] < RESERVED
    assert meta["epoch"] > 3


def test_the_last_ids_of_groups_and_letters_are_kept(tmp_path):
    def last_ids(path):
        with closing(sqlite3.connect(path)) as connection:
            return dict(connection.execute("SELECT name, seq FROM sqlite_sequence"))

    salvaged = salvage_without(tmp_path, [page_of(sample(), "session")])
    assert last_ids(salvaged.target) == last_ids(salvaged.source) | {}


@pytest.mark.parametrize("cut", [0, 100, 4095])
def test_of_a_truncated_file_everything_before_the_cut_is_saved(tmp_path, cut):
    base = sample()
    keep = base.pages.count // 2
    salvaged = Salvage(tmp_path, base, base.data[: keep * 4096 + cut])
    salvaged.examine(set(range(keep + 1, base.pages.count + 1)))
    assert len(salvaged.messages) > 100


# ------------------------------------------------------------------------ damaged contents


def at_message(base, seq):
    """Return where the body of a small message begins in the file."""
    body = base.messages()[seq][11]
    assert base.data.count(body) == 1
    return base.data.index(body)


def small(base, count=1):
    """Return messages that lie on one page each."""
    return [
        seq
        for seq, row in base.messages().items()
        if len(base.places["msg"][seq]) == 1
        and len(row[11]) > 20
        and base.data.count(row[11]) == 1
    ][100 : 100 + count]


def test_a_message_with_a_damaged_body_becomes_a_dead_letter_with_that_body(tmp_path):
    (seq,) = small(sample())
    at = at_message(sample(), seq) + 10
    salvaged = Salvage(tmp_path, sample(), flip(sample().data, at))
    salvaged.examine(sample().places["msg"][seq])
    assert salvaged.result.whole, "SQLite sees nothing wrong with a flipped bit in a body"
    assert salvaged.messages.keys() == sample().messages().keys() - {seq}
    (letter,) = salvaged.letters
    body = sample().messages()[seq][11]
    assert letter[1] == seq
    assert letter[16] == flip(body, 10)
    assert letter[11] == sample().messages()[seq][4]
    assert "checksum" in letter[6]
    assert salvaged.result.damaged == 1
    queue = next(row for row in salvaged.rows["queue"] if row[0] == letter[3])
    assert queue[6] == sum(row[3] == letter[3] for row in salvaged.rows["dead"])


def test_a_message_whose_body_breaks_off_keeps_what_there_is(tmp_path):
    base = sample()
    seq, pages = max(base.places["msg"].items(), key=lambda item: len(item[1]))
    leaf = next(c.page for c in base.pages.walk(page_of(base, "msg")).leaves if c.page in pages)
    body = base.messages()[seq][11]
    chain = pages - {leaf}
    data = base.data
    for page in chain:  # the numbers of the pages that follow
        data = data[: (page - 1) * 4096] + b"\xff\xff\xff\xff" + data[(page - 1) * 4096 + 4 :]
    salvaged = Salvage(tmp_path, base, data)
    salvaged.examine(pages)
    (letter,) = [letter for letter in salvaged.letters if letter[1] == seq]
    assert body.startswith(letter[16])
    assert 1000 < len(letter[16]) < len(body)
    assert "only the beginning" in letter[6]


def test_a_message_with_a_damaged_number_takes_no_place_of_another(tmp_path):
    base = sample()
    seq, taken = small(base, 2)
    leaf = next(iter(base.places["msg"][seq]))
    cells, _ = base.pages.cells(leaf)
    payload = next(cell.payload for cell in cells if cell.rowid == seq)
    number = base.data.index(payload) - 2
    assert base.data[number : number + 2] == bytes([0x80 | seq >> 7, seq & 0x7F])
    changed = bytes([0x80 | taken >> 7, taken & 0x7F])
    salvaged = Salvage(tmp_path, base, base.data[:number] + changed + base.data[number + 2 :])
    salvaged.examine({leaf})
    assert salvaged.messages[taken] == base.messages()[taken]
    letters = [letter for letter in salvaged.letters if letter[16] == base.messages()[seq][11]]
    assert len(letters) == (seq not in salvaged.messages)
    for letter in letters:
        assert letter[1] > RESERVED
        assert "number cannot be trusted" in letter[6]


def test_a_damaged_dead_letter_says_so(tmp_path):
    rows = sample().rows["dead"]
    row = next(row for row in rows[7:] if sample().data.count(row[16]) == 1)
    at = sample().data.index(row[16]) + 20
    salvaged = Salvage(tmp_path, sample(), flip(sample().data, at))
    found = salvaged.rows["dead"][rows.index(row)]
    assert found[5] == "corrupt"
    assert "rejected: why" in found[6]
    assert found[16] == flip(row[16], 20)
    assert salvaged.result.damaged == 1
    assert check(salvaged.target).sound


def test_an_impossible_position_of_a_group_hides_no_message(tmp_path):
    base = sample()
    source = base.write(tmp_path / "old.db")
    with closing(sqlite3.connect(source, isolation_level=None)) as connection:
        connection.execute(f"UPDATE consumer_group SET floor={2**47} WHERE id=1")
        connection.execute("UPDATE delivery SET outcome=77, ended=1 WHERE seq=10")
        connection.execute("UPDATE queue SET policy='{', paused=9 WHERE id=2")
    result = salvage(source, tmp_path / "new.db")
    rows = contents(tmp_path / "new.db")
    assert rows["consumer_group"][0][3] == 0
    assert not [row for row in rows["delivery"] if row[0] == 10]
    assert rows["queue"][1][4] == 0
    assert result.dropped["delivery"] >= 1
    assert len(result.notes) == 2
    assert check(tmp_path / "new.db").sound


# ------------------------------------------------------------------------------- the result


def test_a_salvaged_store_opens_and_goes_on_counting_where_the_old_one_stopped(tmp_path):
    salvaged = salvage_without(tmp_path, [1])
    store = open_store(salvaged.target)
    try:
        assert store.key == KEY
        assert store.last_seq >= RESERVED
        assert store.epoch == 4
        assert not store.clean
        queues, groups = store.catalogue()
        assert [queue.name for queue in queues] == ["orders", "größe", "kept"]
        assert len(groups) == 3
        assert [row.seq for row in store.messages([1, 2, 3])] == [1, 2, 3]
    finally:
        store.close(clean=True)
    assert salvaged.target.stat().st_mode & 0o777 == 0o600


def test_progress_is_told(tmp_path):
    told = []
    source = sample().write(tmp_path / "old.db")
    salvage(source, tmp_path / "new.db", progress=lambda doing, rows: told.append(doing))
    assert told[0] == "copying"
    assert told[-1] == "syncing"


@pytest.mark.parametrize("what", ["source", "target", "folder", "part"])
def test_paths_that_cannot_be_are_refused(tmp_path, what):
    source, target = tmp_path / "old.db", tmp_path / "new.db"
    if what != "source":
        sample().write(source)
    if what == "target":
        target.write_bytes(b"precious")
    if what == "folder":
        target = tmp_path / "missing" / "new.db"
    if what == "part":
        (tmp_path / "new.db.part").write_bytes(b"of another salvage")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InvalidOption) as caught:
        salvage(source, target)
    assert str(tmp_path) in caught.value.message
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("size", [0, 10, 4096, 100_000])
def test_a_file_without_anything_of_ours_gives_no_new_one(tmp_path, size):
    (tmp_path / "old.db").write_bytes(random.Random(1).randbytes(size))
    with pytest.raises(StoreCorrupt, match="nothing of embedq"):
        salvage(tmp_path / "old.db", tmp_path / "new.db")
    assert [path.name for path in tmp_path.iterdir()] == ["old.db"]


def test_a_sound_database_of_others_is_refused(tmp_path):
    with closing(sqlite3.connect(tmp_path / "old.db")) as connection:
        connection.execute("CREATE TABLE account (id INTEGER PRIMARY KEY)")
    with pytest.raises(NotAnEmbedqFile):
        salvage(tmp_path / "old.db", tmp_path / "new.db")
    assert [path.name for path in tmp_path.iterdir()] == ["old.db"]


def test_a_newer_schema_is_refused_and_a_damaged_version_is_not(tmp_path):
    source = sample().write(tmp_path / "old.db")
    with closing(sqlite3.connect(source, isolation_level=None)) as connection:
        connection.execute("PRAGMA user_version=9999")
    salvage(source, tmp_path / "new.db")
    assert contents(tmp_path / "new.db")["msg"] == sample().rows["msg"]
    with closing(sqlite3.connect(source, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE of_tomorrow (id INTEGER PRIMARY KEY)")
    with pytest.raises(SchemaTooNew, match="9999"):
        salvage(source, tmp_path / "other.db")
    assert not (tmp_path / "other.db").exists()


def test_a_full_disk_leaves_nothing_behind(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only on a machine where we are root: it mounts a small tmpfs")
    disk = tmp_path / "disk"
    disk.mkdir()
    source = sample().write(tmp_path / "old.db")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1200k", "none", disk], check=True)
    try:
        with pytest.raises(StoreFull):
            salvage(source, disk / "new.db")
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", disk], check=True)
