"""From parts to Arrow, without a session: what is damaged stays within its row, or is refused."""

from __future__ import annotations

import msgspec
import pytest

from embedq.errors import InvalidOption, MessagesGone, StoreCorrupt
from embedq.ids import MessageIds
from embedq.message import AttemptRecord, ErrorInfo
from embedq.storage.feed import Extent, Member, Part, Survey

pytestmark = pytest.mark.spark  # PySpark's types are needed, but no JVM

KEY = bytes(16)


def batch(kind, columns, part):
    from pyspark.sql.types import StructType

    from embedq.spark.columns import Batches, Names, check_schema, schema_of

    schema = StructType([schema_of(kind)[name] for name in columns.split()])
    check_schema(kind, schema)
    return Batches(kind, schema, Names({1: "q"}, {2: "g"}, KEY, "q")).batch(part)


def test_numbers_texts_and_ids_arrive_in_their_rows():
    seqs = b"1\n2\n5"
    numbers = {"position": seqs, "seq": seqs, "queue": b"1\n1\n7", "key": b"3\n\n0"}
    part = Part(9, 3, numbers, {"key": b"abc"})
    found = batch("messages", "id seq queue key", part).to_pydict()
    assert found["seq"] == [1, 2, 5]
    assert found["key"] == ["abc", None, ""]
    assert found["queue"] == ["q", "q", None]  # a queue made since the range was planned: unknown
    assert found["id"] == [MessageIds(KEY).encode(seq) for seq in (1, 2, 5)]


def test_text_that_is_no_utf8_is_replaced_and_headers_that_are_damaged_are_none():
    headers = msgspec.msgpack.encode({"a": "b"})
    numbers = {"position": b"1\n2", "key": b"1\n1", "headers": b"%d\n1" % len(headers)}
    part = Part(2, 2, numbers, {"key": b"\xffx", "headers": headers + b"\xc1"})
    found = batch("messages", "key headers", part).to_pydict()
    assert found["key"] == ["�", "x"]
    assert found["headers"] == [[("a", "b")], None]


@pytest.mark.parametrize(
    ("positions", "lengths", "body"),
    [
        (b"2\n1", b"1\n1", b"xy"),
        (b"1\n2\n3", b"1\n1\n1", b"xyz"),
        (b"1\n2", b"1", b"x"),
        (b"1\n2", b"1\n1", b"x"),
    ],
)
def test_rows_in_another_order_or_number_and_bytes_that_are_cut_off_are_refused(
    positions, lengths, body
):
    part = Part(2, 2, {"position": positions, "body": lengths}, {"body": body})
    with pytest.raises(StoreCorrupt):
        batch("messages", "body", part)


def test_what_is_the_same_in_all_rows_fills_its_column():
    same = {"queue": 1, "key": None, "kind": 0, "priority": 7, "put_at": 5, "due_at": None}
    part = Part(2, 2, {"position": b"1\n4"}, {"key": b""}, (), same)
    found = batch("messages", "seq queue key kind priority put_at due_at", part).to_pydict()
    assert (found["seq"], found["queue"], found["key"]) == ([1, 4], ["q", "q"], [None, None])
    assert (found["kind"], found["priority"]) == (["application/octet-stream"] * 2, [7, 7])
    assert (found["due_at"], len(set(found["put_at"]))) == ([None, None], 1)


def test_a_single_row_without_a_value_is_a_row():
    numbers = {"position": b"7", "due_at": b"", "priority": b"-1"}
    found = batch("messages", "due_at priority", Part(7, 1, numbers, {})).to_pydict()
    assert found == {"due_at": [None], "priority": [-1]}


def test_the_last_error_of_a_dead_letter_is_the_one_that_is_shown():
    records = [
        AttemptRecord(1, 0, 1, "w", None, ErrorInfo("First", "1")),
        AttemptRecord(2, 0, 1, "w", None, ErrorInfo("Last", "2")),
    ]
    stored = msgspec.msgpack.encode(records)
    none = msgspec.msgpack.encode([AttemptRecord(1, 0, 1, "w", None)])
    lengths = b"%d\n%d\n1\n" % (len(stored), len(none))
    numbers = {"position": b"1\n2\n3\n4", "attempts": lengths}
    part = Part(4, 4, numbers, {"attempts": stored + none + b"\xc1"})
    found = batch("dead", "attempts error_type error_message", part)
    assert found.to_pydict() == {
        "attempts": [2, 1, 0, 0],
        "error_type": ["Last", None, None, None],
        "error_message": ["2", None, None, None],
    }


@pytest.mark.parametrize(
    ("name", "kind", "told"),
    [
        ("seq", "int", "seq is int; it is bigint"),
        ("value", "binary", "has a column 'value'"),
        ("headers", "string", "headers is string; it is map<string,string>"),
    ],
)
def test_a_schema_that_does_not_fit_names_the_column(name, kind, told):
    from pyspark.sql import types

    from embedq.spark.columns import check_schema

    kinds = {"int": types.IntegerType, "binary": types.BinaryType, "string": types.StringType}
    with pytest.raises(InvalidOption, match=told):
        check_schema("messages", types.StructType().add(name, kinds[kind]()))


def test_a_schema_without_columns_is_refused():
    from pyspark.sql.types import StructType

    from embedq.spark.columns import check_schema

    with pytest.raises(InvalidOption, match="no column"):
        check_schema("messages", StructType())


def start(seq, **options):
    """Check a start against a file with offsets up to 100 whose group `g` is at 50."""
    from embedq.spark.ranges import Chosen, check_start
    from embedq.spark.reading import parse

    given = {"endpoint": "x", "subscribe": "q", "group": "g", **options}
    survey = Survey({1: "q"}, (), {2: Member(1, "g", 50)}, Extent(51, 90, 100), KEY)
    check_start(parse(given), Chosen(survey, (1,), (2,)), seq)


def test_a_start_within_what_is_held_is_right_and_one_outside_is_told_with_numbers(caplog):
    start(50)
    start(100)
    with pytest.raises(MessagesGone, match=r"after offset 49.*'g'.*up to 50"):
        start(49)
    with pytest.raises(MessagesGone, match=r"offset 101 .*\(up to 100\)"):
        start(101)
    start(49, include="history")  # positions of the history are no seqs
    assert not caplog.records
    start(49, failOnDataLoss="false")
    assert "goes on with what there is" in caplog.text


def test_a_range_is_cut_into_shares_and_there_is_always_one():
    from embedq.spark.places import FilePlace
    from embedq.spark.ranges import Chosen, Stretch, cut
    from embedq.spark.reading import parse

    survey = Survey({1: "q"}, (1,), {}, Extent(41, 100, 100), KEY)
    reading = parse({"path": "x", "subscribe": "q", "maxRecordsPerPartition": "25"})

    def edges(after, through):
        found = cut(FilePlace("x"), Chosen(survey, (1,), ()), reading, after, through)
        assert all(isinstance(part, Stretch) for part in found)
        return [(part.after, part.through) for part in found if isinstance(part, Stretch)]

    assert edges(0, 100) == [(40, 60), (60, 80), (80, 100)]
    assert edges(100, 100) == [(100, 100)]
