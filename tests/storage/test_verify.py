"""Verification in steps: finds what is damaged, in short snapshots, while the store works."""

import random
import sqlite3
import threading
import zlib
from contextlib import closing

import pytest

from embedq.clock import SystemClock, VirtualClock
from embedq.errors import StoreCorrupt
from embedq.policy import QueuePolicy
from embedq.storage import schema
from embedq.storage.connection import open_writer
from embedq.storage.image import open_still
from embedq.storage.ops import DeclareQueue, PutPlain
from embedq.storage.pages import Pages
from embedq.storage.sqlite import open_store
from embedq.storage.verify import Verifier, is_sound
from tests.storage.sample_store import damage, sample


class File:
    """What the verifier needs of a store, on a file that nobody has open."""

    def __init__(self, path):
        self.path = path
        self.reads = 0

    def read(self, question):
        self.reads += 1
        with closing(open_still(self.path)) as connection:
            connection.execute("BEGIN")
            return question(connection)


def verify(path, **options):
    verifier = Verifier(File(path), **{"rows": 300, "clock": VirtualClock(), **options})
    while not verifier.step():
        pass
    return verifier


def write(tmp_path, data=None):
    return sample().write(tmp_path / "shop.db", data)


def test_a_sound_store_passes_and_every_row_and_entry_is_looked_at(tmp_path):
    verifier = verify(write(tmp_path))
    assert verifier.damaged_messages == []
    assert verifier.damaged_letters == []
    rows = sum(len(rows) for rows in sample().rows.values())
    messages, deliveries = sample().rows["msg"], sample().rows["delivery"]
    entries = (
        len(sample().rows["queue"])
        + len(sample().rows["consumer_group"])
        + sum(row[5] != 0 for row in messages)
        + sum(row[column] is not None for row in messages for column in (6, 7, 8))
        + sum(row[column] is not None for row in deliveries for column in (10, 11))
        + 2 * len(sample().rows["dead"])
        + len(sample().rows["dedup"])
        + sum(row[4] is not None for row in sample().rows["session"])
    )
    assert verifier.checked == rows + entries


def test_after_the_end_a_step_does_nothing_more(tmp_path):
    verifier = verify(write(tmp_path))
    checked = verifier.checked
    assert verifier.step()
    assert verifier.checked == checked


@pytest.mark.parametrize("rows", [2, 7, 10_000])
def test_any_length_of_a_stretch_gives_the_same_answer(tmp_path, rows):
    whole = verify(write(tmp_path)).checked
    assert verify(tmp_path / "shop.db", rows=rows).checked == whole


def flipped(seq, by):
    body = sample().messages()[seq][11]
    at = sample().data.index(body[by : by + 40])  # long bodies lie on several pages
    data = sample().data
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


def test_messages_and_letters_with_a_damaged_body_are_listed(tmp_path):
    chosen = [seq for seq, row in sample().messages().items() if len(row[11]) > 300][:3]
    path = write(tmp_path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for seq in chosen:
            connection.execute("UPDATE msg SET body=body || X'00' WHERE seq=?", (seq,))
        connection.execute("UPDATE dead SET body=zeroblob(5) WHERE id IN (4,9)")
        connection.execute("UPDATE dead SET reason='corrupt' WHERE id=9")
        connection.execute("UPDATE msg SET headers='text' WHERE seq=1")
    verifier = verify(path)
    assert verifier.damaged_messages == sorted({1, *chosen})
    assert verifier.damaged_letters == [4]


def test_a_flipped_bit_on_the_disk_is_found(tmp_path):
    seq = next(seq for seq, row in sample().messages().items() if len(row[11]) > 5000)
    assert verify(write(tmp_path, flipped(seq, 4500))).damaged_messages == [seq]


def entry_of(name):
    """Return where the last byte of some entry in the middle of an index is."""
    base = sample()
    leaves = base.pages.walk(base.roots[name]).leaves
    cells, _ = base.pages.cells(leaves[len(leaves) // 2].page)
    payload = cells[len(cells) // 2].payload
    start = (leaves[len(leaves) // 2].page - 1) * base.page_size
    return base.data.index(payload, start) + len(payload) - 1


INDEXES = (
    "sqlite_autoindex_queue_1",
    "sqlite_autoindex_consumer_group_1",
    "msg_priority",
    "msg_due",
    "msg_expires",
    "msg_key",
    "delivery_due",
    "delivery_closed",
    "sqlite_autoindex_dead_1",
    "dead_queue",
    "dedup_expires",
)


def with_a_wrong_entry(tmp_path, name):
    at = entry_of(name)
    data = sample().data
    return write(tmp_path, data[:at] + bytes([data[at] ^ 0x15]) + data[at + 1 :])


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_that_contradicts_its_table_is_damage(tmp_path, name):
    path = with_a_wrong_entry(tmp_path, name)
    with pytest.raises(StoreCorrupt, match=name) as caught:
        verify(path)
    assert str(path) in caught.value.message
    assert caught.value.hint


def test_the_harness_sees_a_verifier_that_does_not_search(tmp_path, monkeypatch):
    def nothing(self, connection, tree, window, other, values):
        return None

    monkeypatch.setattr(Verifier, "_search", nothing)
    with pytest.raises(pytest.fail.Exception):
        test_a_row_that_its_index_does_not_have_is_damage(tmp_path)


def change_behind_the_index(path, sql):
    """Change table msg while SQLite does not know its index msg_priority."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema=1")
        hidden = connection.execute("SELECT * FROM sqlite_schema WHERE name='msg_priority'")
        row = hidden.fetchone()
        connection.execute("DELETE FROM sqlite_schema WHERE name='msg_priority'")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(sql)
        connection.execute("PRAGMA writable_schema=1")
        connection.execute("INSERT INTO sqlite_schema VALUES (?,?,?,?,?)", row)


def test_an_entry_that_leads_to_no_row_is_damage(tmp_path):
    path = write(tmp_path)
    change_behind_the_index(
        path, "DELETE FROM msg WHERE seq=(SELECT max(seq) FROM msg WHERE priority <> 0)"
    )
    with pytest.raises(StoreCorrupt, match="msg_priority: 1 entries lead to no such row"):
        verify(path)


def test_a_row_that_its_index_does_not_have_is_damage(tmp_path):
    path = write(tmp_path)
    change_behind_the_index(
        path, "UPDATE msg SET priority=4 WHERE seq=(SELECT max(seq) FROM msg WHERE priority=0)"
    )
    with pytest.raises(StoreCorrupt, match="msg_priority: 1 rows of table msg are not found"):
        verify(path)


@pytest.mark.parametrize("how", ["zeros", "noise", "head"])
def test_a_damaged_page_of_the_messages_is_damage(tmp_path, how):
    walk = sample().pages.walk(sample().roots["msg"])
    for page in (walk.leaves[9].page, walk.interior[0]):
        data = damage(sample().data, 4096, page, how, random.Random(3))
        with pytest.raises(StoreCorrupt):
            verify(write(tmp_path, data))


def test_a_wrong_key_above_the_messages_is_damage(tmp_path):
    base = sample()
    root = base.pages.walk(base.roots["msg"]).interior[0]
    page = base.pages.page(root)
    pointer = int.from_bytes(page[12 + 2 * 20 : 14 + 2 * 20], "big")
    at = (root - 1) * 4096 + pointer + 5
    data = base.data[:at] + bytes([base.data[at] ^ 1]) + base.data[at + 1 :]
    assert Pages(data, 4096).walk(root).leaves
    with pytest.raises(StoreCorrupt, match="table msg"):
        verify(write(tmp_path, data))


def test_a_missing_table_is_damage(tmp_path):
    path = write(tmp_path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP TABLE dedup")
    with pytest.raises(StoreCorrupt, match="dedup"):
        verify(path)


def test_a_damaged_first_page_is_damage(tmp_path):
    with pytest.raises(StoreCorrupt):
        verify(write(tmp_path, damage(sample().data, 4096, 1, "noise", random.Random(4))))


def test_errors_that_are_no_damage_stay_what_they_are(tmp_path):
    class Busy(File):
        def read(self, question):
            raise sqlite3.OperationalError("database is locked")

    with pytest.raises(sqlite3.OperationalError, match="locked"):
        Verifier(Busy(write(tmp_path))).step()
    closed = Closed(tmp_path / "shop.db")
    with pytest.raises(sqlite3.ProgrammingError):
        Verifier(closed).step()


class Closed(File):
    """A store whose connection somebody closed."""

    def read(self, question):
        connection = open_still(self.path)
        connection.close()
        return question(connection)


# ----------------------------------------------------------------------- short, and meanwhile


def many(path, rows):
    connection = open_writer(str(path), durability="normal", page_size=4096, busy_timeout_s=1)
    schema.migrate(connection, 0)
    connection.execute("INSERT INTO queue(name,policy,retained) VALUES ('q','{}',0)")
    body = b"x" * 20
    connection.execute("BEGIN")
    connection.executemany(
        "INSERT INTO msg(seq,queue,put_at,kind,crc,priority,body) VALUES (?,1,0,0,?,5,?)",
        ((seq, zlib.crc32(body), body) for seq in range(1, rows + 1)),
    )
    connection.execute("COMMIT")
    return connection


class Live(File):
    """A store at work: its database changes between two steps."""

    def read(self, question):
        self.reads += 1
        address = f"file:{self.path}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            return question(connection)


def test_a_step_is_a_bounded_number_of_rows_also_within_one_priority(tmp_path):
    with closing(many(tmp_path / "shop.db", 20_000)):
        file = Live(tmp_path / "shop.db")
        verifier = Verifier(file, rows=1_000, clock=VirtualClock())
        done, most = False, 0
        while not done:
            before = verifier.checked
            done = verifier.step()
            most = max(most, verifier.checked - before)
        assert most <= 1_000
        assert verifier.checked >= 40_000
        assert file.reads < 70


def test_a_step_that_takes_too_long_makes_the_next_ones_shorter(tmp_path):
    class Slow(VirtualClock):
        """Each look at the clock takes 20 ms."""

        def monotonic(self):
            self.advance(0.02)
            return super().monotonic()

    with closing(many(tmp_path / "shop.db", 300)):
        verifier = Verifier(Live(tmp_path / "shop.db"), clock=Slow())
        steps, before, sizes = 0, 0, []
        while not verifier.step():
            sizes.append(verifier.checked - before)
            before = verifier.checked
            steps += 1
        assert min(size for size in sizes[3:] if size) <= 10
        assert verifier.damaged_messages == []


def test_changes_between_the_steps_are_no_damage(tmp_path):
    rng = random.Random(11)
    with closing(many(tmp_path / "shop.db", 3_000)) as connection:
        verifier = Verifier(Live(tmp_path / "shop.db"), rows=40, clock=VirtualClock())
        done = False
        while not done:
            done = verifier.step()
            seq = rng.randrange(1, 3_000)
            connection.execute("DELETE FROM msg WHERE seq BETWEEN ? AND ?", (seq, seq + 4))
            connection.execute(
                "INSERT INTO msg(queue,put_at,kind,crc,priority,due,okey,body) "
                "VALUES (1,0,0,?,3,?,'k',X'61')",
                (zlib.crc32(b"a"), rng.randrange(9)),
            )
        assert verifier.damaged_messages == []


def test_a_store_is_verified_through_its_own_read_while_another_thread_puts(tmp_path):
    store = open_store(tmp_path / "shop.db", durability="normal")
    lock = threading.Lock()
    try:
        declare = DeclareQueue("q", QueuePolicy())
        with lock:
            store.commit([declare])
        assert declare.row is not None
        items: list[int | bytes] = [zlib.crc32(b"abc"), b"abc"]
        for _ in range(300):
            store.commit([PutPlain(declare.row.id, 0, 0, items, 1)])
        verifier = Verifier(store, rows=50, clock=SystemClock())
        while not verifier.step():
            store.commit([PutPlain(declare.row.id, 0, 0, items, 1)])
        assert verifier.damaged_messages == []
        assert verifier.checked > 300
    finally:
        store.close(clean=True)


def test_a_body_is_sound_only_with_its_checksum_and_its_type():
    crc = zlib.crc32(b"body", zlib.crc32(b"head"))
    assert is_sound(crc, b"head", b"body", 1)
    assert is_sound(zlib.crc32(b"body"), None, b"body", 1)
    assert not is_sound(crc, b"head", b"body", 0)
    assert not is_sound(crc, None, b"body", 1)
    assert not is_sound(crc, b"head", None, 1)
    assert not is_sound(None, b"head", b"body", 1)
