"""Options and columns that do not fit are named before anything is written; rows become chunks."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from embedq.broker.chunks import PlainBodies, Wish, Wishes
from embedq.errors import InvalidName, InvalidOption, InvalidPayload

pytestmark = pytest.mark.spark

GIVEN = {"endpoint": "q.db", "queue": "orders"}


def schema(**columns):
    from pyspark.sql import types

    kinds = {
        "binary": types.BinaryType(),
        "string": types.StringType(),
        "int": types.IntegerType(),
        "double": types.DoubleType(),
        "timestamp": types.TimestampType(),
        "timestamp_ntz": types.TimestampNTZType(),
        "map<string,string>": types.MapType(types.StringType(), types.StringType()),
        "map<string,int>": types.MapType(types.StringType(), types.IntegerType()),
    }
    return types.StructType(
        [types.StructField(name, kinds[kind]) for name, kind in columns.items()]
    )


def parse(options=None, columns=None, *, streams=False, overwrite=False):
    from embedq.spark import writing

    given = {**GIVEN, **(options or {})}
    wanted = schema(**(columns or {"body": "binary"}))
    return writing.parse(given, wanted, streams=streams, overwrite=overwrite)


def chunks(*batches, columns=("body",), body="body"):
    from embedq.spark import rows

    decoder = msgspec.msgpack.Decoder(PlainBodies | Wishes)
    return [decoder.decode(made.data) for made in rows.chunks(batches, body, columns)]


def batch(**columns):
    import pyarrow as pa

    return pa.RecordBatch.from_pydict(columns)


# ---------------------------------------------------------------------------- columns


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"x": "int"}, "neither body nor value"),
        ({"body": "string", "value": "string"}, "both body and value"),
        ({"body": "int"}, "'body' is int, not binary or string"),
        ({"body": "string", "priority": "string"}, "'priority' is string, not a whole number"),
        ({"body": "string", "headers": "map<string,int>"}, "'headers' is map<string,int>"),
        ({"body": "string", "seq": "int"}, "'seq' is given by the queue"),
        ({"body": "string", "colour": "int"}, "'colour' is none of a message"),
        ({"body": "string", "delay_s": "int", "due_at": "timestamp"}, "delay_s and due_at"),
        ({"body": "string", "due_at": "timestamp_ntz"}, "'due_at' is timestamp_ntz"),
    ],
)
def test_columns_that_do_not_fit_are_named(columns, text):
    with pytest.raises(InvalidPayload) as caught:
        parse(columns=columns)
    assert text in caught.value.message
    assert "select what a message is made from: body" in str(caught.value)


# ---------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"endpoint": ""}, "endpoint"),
        ({"mode": "fast"}, "neither atomic nor direct"),
        ({"batchId": "1"}, "batchId without sinkId"),
        ({"sinkId": "s"}, "sinkId without batchId"),
        ({"sinkId": "s", "batchId": "-1"}, "no whole number"),
        ({"sinkId": "once:s", "batchId": "1"}, "begins with once:"),
        ({"sinkld": "s"}, "did you mean sinkid?"),
        ({"putTimeout": "soon"}, "no duration"),
        ({"olderBatches": "never"}, "neither error nor skip"),
    ],
)
def test_options_that_do_not_fit_are_named(options, text):
    with pytest.raises(InvalidOption) as caught:
        parse(options)
    assert text in str(caught.value)


def test_a_sink_needs_a_queue():
    with pytest.raises(InvalidName):
        parse({"queue": ""})


def test_a_queue_is_never_overwritten():
    with pytest.raises(InvalidOption, match="cannot be overwritten") as caught:
        parse(overwrite=True)
    assert "append" in str(caught.value)


def test_a_stream_counts_by_itself():
    with pytest.raises(InvalidOption, match="for foreachBatch"):
        parse({"sinkId": "s", "batchId": "1"}, streams=True)
    assert parse(streams=True).sink is None
    assert parse({"sinkId": "s"}, streams=True).sink == "s"


def test_each_plain_write_is_a_sink_of_its_own():
    one, other = parse(), parse()
    assert one.sink != other.sink
    assert (one.batch, one.direct, one.timeout_s) == (0, False, 60.0)


def test_the_path_of_the_file_will_do_for_the_endpoint():
    given = parse({"endpoint": "", "path": "q.db", "putTimeout": "90"})
    assert (given.endpoint, given.timeout_s) == ("q.db", 90.0)


# ------------------------------------------------------------------------------- rows


def test_bodies_alone_stay_as_they_are():
    made = chunks(batch(body=[b"a", b""]), batch(body=[]), batch(body=[b"c"]))
    assert made == [PlainBodies(0, [b"a", b"", b"c"])]
    assert chunks(batch(body=["ü"])) == [PlainBodies(1, ["ü".encode()])]
    assert chunks() == []


def test_a_chunk_ends_at_its_number_of_messages_and_of_bytes():
    many = chunks(batch(body=[b"x"] * 7_000), batch(body=[b"x"] * 7_000))
    assert [len(made.bodies) for made in many] == [10_000, 4_000]
    large = chunks(batch(body=[b"x" * 1_500_000] * 5))
    assert [len(made.bodies) for made in large] == [2, 2, 1]


def test_every_column_becomes_what_is_said_of_a_message():
    at = datetime(2030, 1, 1, 0, 0, 0, 123_456, tzinfo=UTC)
    columns = {
        "value": ["a", "b"],
        "headers": [{"h": "v"}, None],
        "kind": ["application/json", None],
        "key": ["k", None],
        "priority": [7, None],
        "delay_s": [1.5, None],
        "expires_at": [at, None],
        "dedup_key": ["d", None],
        "max_attempts": [3, None],
    }
    import pyarrow as pa

    arrays = dict(columns)
    arrays["headers"] = pa.array([[("h", "v")], None], pa.map_(pa.string(), pa.string()))
    arrays["expires_at"] = pa.array([at, None], pa.timestamp("us", "UTC"))
    (made,) = chunks(batch(**arrays), columns=tuple(columns), body="value")
    expires = int(at.timestamp() * 1000)
    full = Wish(b"a", 2, {"h": "v"}, 7, 1500, None, expires, "d", "k", 3)
    assert made == Wishes([full, Wish(b"b", 1)])


def test_a_body_that_is_null_is_refused():
    with pytest.raises(InvalidPayload, match="1 of 2 rows have no body"):
        chunks(batch(body=["a", None]))


def test_a_kind_of_content_that_nobody_knows_is_refused():
    with pytest.raises(InvalidPayload, match="'jpeg'"):
        chunks(batch(body=["a"], kind=["jpeg"]), columns=("body", "kind"))
