"""Rows are decoded as SQLite encoded them, and bytes that are no row are refused."""

import random
import sqlite3
import struct
from contextlib import closing

import pytest
from hypothesis import given, settings, strategies as st

from embedq.storage.pages import Pages
from embedq.storage.records import BadText, Malformed, record, signed, varint

INTEGERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([2**n + d for n in (0, 7, 8, 15, 16, 23, 31, 47, 62) for d in (-1, 0, 1)]),
)
VALUES = st.one_of(
    st.none(),
    INTEGERS,
    st.floats(allow_nan=False),
    st.binary(max_size=300),
    st.text(st.characters(codec="utf-8"), max_size=100),
)


def as_sqlite_stores(values):
    """Return a row read back by SQLite, and its bytes in the file."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        columns = ", ".join(f"c{n}" for n in range(len(values)))
        connection.execute(f"CREATE TABLE t ({columns})")
        marks = ", ".join("?" * len(values))
        connection.execute(f"INSERT INTO t VALUES ({marks})", values)
        row = connection.execute("SELECT * FROM t").fetchone()
        (cell,) = Pages(connection.serialize(), 4096).cells(2)[0]
    return row, cell.payload


@settings(max_examples=150)
@given(st.lists(VALUES, min_size=1, max_size=12))
def test_a_row_is_decoded_as_it_was_stored(values):
    row, payload = as_sqlite_stores(values)
    assert tuple(record(payload)) == row


@given(INTEGERS)
def test_a_row_number_is_decoded_as_it_was_stored(number):
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
        connection.execute("INSERT INTO t VALUES (?)", (number,))
        (cell,) = Pages(connection.serialize(), 4096).cells(2)[0]
    assert cell.rowid == number


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_a_row_or_malformed(payload, whole):
    try:
        values = record(payload, whole=whole)
    except Malformed:
        return
    assert all(isinstance(value, int | float | str | bytes | None) for value in values)


@pytest.mark.parametrize("seed", range(30))
def test_a_damaged_row_is_a_row_or_malformed(seed):
    rng = random.Random(seed)
    _, payload = as_sqlite_stores([None, 5, 2**40, "text", b"blob" * 20, 1.5])
    content = bytearray(payload)
    for _ in range(3):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    try:
        assert len(record(bytes(content))) > 0
    except Malformed:
        return


def test_of_a_row_that_breaks_off_the_last_value_is_cut():
    row, payload = as_sqlite_stores([None, 7, "name", b"0123456789"])
    assert record(payload[:-4], whole=False) == [None, 7, "name", b"012345"]
    assert record(payload[:-10], whole=False) == [None, 7, "name"]
    with pytest.raises(Malformed):
        record(payload[:-4])
    assert list(row) == record(payload)


def test_text_that_is_no_utf8_is_marked():
    _, payload = as_sqlite_stores(["abcd"])
    (value,) = record(payload.replace(b"bc", b"\xff\xfe"))
    assert value == b"a\xff\xfed"
    assert isinstance(value, BadText)


def test_reserved_types_and_left_over_bytes_are_malformed():
    with pytest.raises(Malformed):
        record(bytes([2, 10]))
    with pytest.raises(Malformed):
        record(bytes([2, 8, 0]))
    with pytest.raises(Malformed):
        record(b"")
    assert record(bytes([3, 8, 9])) == [0, 1]
    assert record(bytes([2, 7]) + struct.pack(">d", -2.5)) == [-2.5]


def test_a_varint_has_at_most_nine_bytes():
    assert varint(b"\x81\x00", 0) == (128, 2)
    assert varint(b"\xff" * 9, 0) == (2**64 - 1, 9)
    assert signed(2**64 - 1) == -1
    for cut in (b"", b"\x80", b"\xff" * 8):
        with pytest.raises(Malformed):
            varint(cut, 0)
