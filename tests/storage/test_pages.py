"""The page reader sees what SQLite sees in a sound file, and never fails on a damaged one."""

import random
import sqlite3

import pytest

from embedq.storage import schema
from embedq.storage.image import open_still
from embedq.storage.pages import INDEX_LEAF, TABLE_INTERIOR, TABLE_LEAF, Pages
from embedq.storage.records import record
from tests.storage.sample_store import HOW, damage, sample

WITHOUT_ROW_NUMBERS = ("meta", "delivery", "dedup")


def rows_of(pages, root, table):
    walk = pages.walk(root)
    assert walk.holes == []
    numbers = [leaf.page for leaf in walk.leaves]
    if table in WITHOUT_ROW_NUMBERS:
        numbers += walk.interior
    rows = []
    for number in numbers:
        cells, bad = pages.cells(number)
        assert bad == 0
        for cell in cells:
            assert cell.whole
            values = record(cell.payload)
            if cell.rowid is not None:
                assert values[0] is None
                values[0] = cell.rowid
            rows.append(tuple(values))
    return rows


@pytest.mark.parametrize("size", [512, 1024, 4096, 65536])
def test_every_table_reads_as_sqlite_reads_it(size):
    base = sample(size)
    for table in schema.TABLES:
        rows = rows_of(base.pages, base.roots[table], table)
        assert sorted(rows, key=repr) == sorted(base.rows[table], key=repr), table


@pytest.mark.parametrize("size", [512, 4096])
def test_the_list_and_the_map_of_free_pages_agree(tmp_path, size):
    base = sample(size)
    path = base.write(tmp_path / "shop.db")
    connection = open_still(path)
    count = connection.execute("PRAGMA freelist_count").fetchone()[0]
    connection.close()
    free, known = base.pages.mapped_free()
    assert base.pages.free() == (free, True)
    assert len(free) == count > 5
    reached = {page for root in base.roots.values() for page in base.pages.walk(root).pages}
    assert not free & reached
    assert all(
        base.pages.is_map(page) for page in range(2, base.pages.count + 1) if page not in known
    )


def test_keys_bound_the_pages_of_a_table():
    base = sample(512)
    leaves = base.pages.walk(base.roots["msg"]).leaves
    assert [leaf.low for leaf in leaves[1:]] == [leaf.high for leaf in leaves[:-1]]
    assert leaves[0].low is None
    assert leaves[-1].high is None
    for leaf in leaves:
        for cell in base.pages.cells(leaf.page)[0]:
            assert leaf.low is None or cell.rowid > leaf.low
            assert leaf.high is None or cell.rowid <= leaf.high


def test_around_a_damaged_interior_page_the_walk_goes_on_and_names_the_hole():
    base = sample(512)
    sound = base.pages.walk(base.roots["msg"])
    lost = sound.interior[2]
    walk = Pages(damage(base.data, 512, lost, "zeros", random.Random(1)), 512).walk(
        base.roots["msg"]
    )
    assert [hole.page for hole in walk.holes] == [lost]
    below = {leaf.page for leaf in sound.leaves} - {leaf.page for leaf in walk.leaves}
    (hole,) = walk.holes
    for leaf in sound.leaves:
        inside = (hole.low or 0) <= (leaf.low or 0) and (leaf.high or 9**9) <= (hole.high or 9**9)
        assert (leaf.page in below) is inside


def test_a_tree_that_leads_back_to_itself_ends():
    base = sample()
    root = base.roots["msg"]
    at = (root - 1) * 4096
    data = base.data[: at + 8] + root.to_bytes(4, "big") + base.data[at + 12 :]
    walk = Pages(data, 4096).walk(root)
    assert walk.holes[-1].page == root


def test_an_overflow_chain_that_leads_back_to_itself_ends():
    base = sample(512)
    number, places = max(base.places["msg"].items(), key=lambda item: len(item[1]))
    leaf = next(page for page in places if base.pages.kind(page) == TABLE_LEAF)
    (cell,) = [cell for cell in base.pages.cells(leaf)[0] if cell.rowid == number]
    at = (cell.pages[3] - 1) * 512
    data = base.data[:at] + cell.pages[2].to_bytes(4, "big") + base.data[at + 4 :]
    (broken,) = [c for c in Pages(data, 512).cells(leaf)[0] if c.rowid == number]
    assert not broken.whole
    assert cell.payload.startswith(broken.payload)


@pytest.mark.parametrize("at", [3, 5, 1])
def test_a_page_whose_head_hides_entries_does_not_pass_for_whole(at):
    base = sample()
    leaf = base.pages.walk(base.roots["msg"]).leaves[3].page
    assert base.pages.cells(leaf)[1] == 0
    start = (leaf - 1) * 4096 + at
    data = base.data[:start] + b"\x00\x05" + base.data[start + 2 :]
    assert Pages(data, 4096).cells(leaf)[1] >= 1


def test_a_map_page_with_an_impossible_entry_is_not_believed():
    base = sample()
    data = base.data[:4096] + b"\x09" + base.data[4097:]
    assert Pages(data, 4096).mapped_free() == (set(), set())


def test_a_broken_list_of_free_pages_says_so():
    base = sample()
    trunk = int.from_bytes(base.data[32:36], "big")
    for page in (1, trunk):
        found, whole = Pages(damage(base.data, 4096, page, "noise", random.Random(1)), 4096).free()
        assert found == set()
        assert not whole


def test_pages_outside_and_cut_pages_read_as_zeros():
    pages = Pages(b"\x0d" * 600, 512)
    assert pages.count == 2
    assert pages.page(2) == b"\x0d" * 88 + bytes(424)
    assert pages.page(3) == pages.page(0) == pages.page(-1) == bytes(512)
    assert pages.kind(3) is None


def test_kinds_of_pages():
    base = sample()
    assert base.pages.kind(base.roots["msg"]) == TABLE_INTERIOR
    assert base.pages.kind(base.roots["meta"]) == INDEX_LEAF
    assert base.pages.kind(2) is None


@pytest.mark.parametrize("seed", range(40))
def test_no_damage_makes_the_reader_fail(seed):
    rng = random.Random(seed)
    size = rng.choice([512, 4096])
    base = sample(size)
    data = base.data
    for _ in range(rng.randint(1, 40)):
        data = damage(data, size, rng.randint(1, base.pages.count), rng.choice(HOW), rng)
    pages = Pages(data[: rng.randint(1, len(data))], size)
    for root in [*base.roots.values(), 1, 0, 10**9]:
        pages.walk(root)
    for number in range(pages.count + 2):
        pages.cells(number)
    pages.free()
    pages.mapped_free()


def test_the_sample_is_what_sqlite_finds_sound(tmp_path):
    for size in (512, 4096):
        connection = sqlite3.connect(sample(size).write(tmp_path / f"{size}.db"))
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()
