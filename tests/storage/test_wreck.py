"""Rows are told apart by their shape, free pages are left out, and gaps are counted right."""

import sqlite3
from contextlib import closing

import pytest
from hypothesis import given, strategies as st

from embedq.storage import schema
from embedq.storage.image import guess_page_size, make_image, open_still
from embedq.storage.records import BadText
from embedq.storage.wreck import Range, Wreck, gaps, roots_of, shapes_of
from tests.storage.sample_store import sample


@pytest.fixture(scope="module")
def shapes():
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema.migrate(connection, 0)
        return shapes_of(connection)


@pytest.mark.parametrize("size", [512, 4096])
def test_of_a_sound_file_exactly_its_rows_are_found(shapes, size):
    base = sample(size)
    found: dict[str, list] = {table: [] for table in schema.TABLES}
    wreck = Wreck(base.pages, roots_of(base.pages), shapes)
    for row in wreck.rows():
        assert row.whole
        assert row.used
        assert not row.doubt
        assert not row.outside
        if row.table in found:
            found[row.table].append(row.values)
    for table, rows in found.items():
        assert sorted(rows, key=repr) == sorted(base.rows[table], key=repr), table
    assert wreck.holes == {}
    assert wreck.unreadable == []


@pytest.mark.parametrize("size", [512, 4096])
def test_without_any_root_the_numbered_rows_and_deliveries_are_found_all_the_same(shapes, size):
    base = sample(size)
    found: dict[str, list] = {table: [] for table in schema.TABLES}
    for row in Wreck(base.pages, {}, shapes).rows():
        found[row.table].append(row.values)
    assert found.pop("meta") == []
    for table, rows in found.items():
        assert sorted(rows, key=repr) == sorted(base.rows[table], key=repr), table


def test_a_row_fits_only_its_own_table(shapes):
    for table, rows in sample().rows.items():
        for row in rows[:50]:
            fitting = [
                name
                for name, shape in shapes.items()
                if shape.numbered is shapes[table].numbered and shape.fit(list(row)) is not None
            ]
            assert fitting == [table]


def test_a_text_where_a_blob_belongs_is_the_same_bytes(shapes):
    row = list(sample().rows["msg"][0])
    row[11] = "text"
    assert shapes["msg"].fit(row)[11] == b"text"
    row[11] = BadText(b"\xff")
    assert shapes["msg"].fit(row)[11] == b"\xff"
    row[1] = "1"
    assert shapes["msg"].fit(row) is None
    row[1] = None
    assert shapes["msg"].fit(row) is None


RANGES = st.lists(
    st.tuples(st.none() | st.integers(1, 30), st.none() | st.integers(1, 30)).map(Range._make),
    max_size=5,
)
SPANS = st.lists(
    st.tuples(st.integers(1, 30), st.integers(0, 6)).map(lambda s: Range(s[0], s[0] + s[1])),
    max_size=8,
)


@given(RANGES, SPANS, st.integers(0, 35))
def test_gaps_are_the_numbers_in_holes_that_no_span_covers(holes, spans, end):
    expected = {
        number
        for hole in holes
        for number in range(hole.first or 1, (end if hole.last is None else hole.last) + 1)
        if number <= end and not any(span.first <= number <= span.last for span in spans)
    }
    found = [
        n for gap in gaps(holes, spans, end) for n in range(gap.first or 0, (gap.last or 0) + 1)
    ]
    assert len(found) == len(set(found))
    assert set(found) == expected


@pytest.mark.parametrize("size", [512, 1024, 4096, 8192, 65536])
def test_the_page_size_is_seen_in_the_pages_themselves(tmp_path, size):
    path = sample(size).write(tmp_path / "shop.db", bytes(100) + sample(size).data[100:])
    assert guess_page_size(path) == size


def test_an_image_has_the_log_laid_over_it(tmp_path):
    base = sample(log=True)
    source = base.write(tmp_path / "shop.db")
    image = make_image(source, tmp_path / "image.db")
    assert image.sound
    assert image.page_size == 4096
    assert image.version == schema.VERSION
    assert image.application == schema.APPLICATION_ID
    with closing(open_still(image.path)) as connection:
        assert connection.execute("SELECT * FROM msg").fetchall() == base.rows["msg"]
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
