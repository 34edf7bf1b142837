"""The options and the columns of the sink: read, checked, and named when they are wrong.

Knows: every option for writing, every column a message can be made from, and their types.
Does not know: PySpark beyond its types, tasks, where the messages go.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final, Literal, NamedTuple, cast
from uuid import uuid4

from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from embedq.broker.staging import ONCE
from embedq.clock import parse_duration
from embedq.errors import InvalidOption, InvalidPayload
from embedq.names import check_key, check_queue_name
from embedq.spark import reading

_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
_NUMBER: Final = (*_WHOLE, FloatType, DoubleType, DecimalType)

#: Columns of a message, with what their types are called and which they are.
COLUMNS: Final[Mapping[str, tuple[str, tuple[type[DataType], ...]]]] = {
    "body": ("binary or string", (BinaryType, StringType)),
    "value": ("binary or string", (BinaryType, StringType)),
    "headers": ("map<string,string>", (MapType,)),
    "kind": ("string", (StringType,)),
    "key": ("string", (StringType,)),
    "priority": ("a whole number", _WHOLE),
    "delay_s": ("a number", _NUMBER),
    "due_at": ("timestamp", (TimestampType,)),
    "expires_at": ("timestamp", (TimestampType,)),
    "dedup_key": ("string", (StringType,)),
    "max_attempts": ("a whole number", _WHOLE),
}
#: Columns that the source has and nobody can choose.
_GIVEN: Final = ("id", "seq", "queue", "put_at")

_KEYS: Final = "endpoint path keys queue sinkid batchid mode olderbatches puttimeout".split()
_BATCH_MAX: Final = (1 << 63) - 1


class Writing(NamedTuple):
    """How messages are to be written.

    `sink`: the name under which batches are published; None: that of the streaming query, which
    only its tasks know. `batch`: its number, where it is not the stream that counts. `body`: the
    column that is the body. `timeout_s`: how long a full queue is waited for.
    """

    endpoint: str
    keys: str | None
    queue: str
    sink: str | None
    batch: int | None
    direct: bool
    older: Literal["error", "skip"]
    timeout_s: float
    columns: tuple[str, ...]
    body: str


def parse(
    options: Mapping[str, str], schema: StructType, *, streams: bool, overwrite: bool
) -> Writing:
    """Read the options of a sink, and check the columns. Raises InvalidOption, InvalidPayload."""
    given = {name.lower(): value for name, value in options.items()}
    for name, value in given.items():
        near = get_close_matches(name, _KEYS, 1, 0.8)
        if near and name not in _KEYS and name not in map(str.lower, reading.OPTIONS):
            raise reading.wrong(name, value, f"is no option; did you mean {near[0]}?")
    if overwrite:
        raise InvalidOption(
            "a queue only takes messages in: it cannot be overwritten",
            hint="write with mode('append'); streams: outputMode('append') or 'update'",
            argument="mode",
        )
    endpoint = given.get("endpoint") or given.get("path")
    if not endpoint:
        raise InvalidOption(
            "the option endpoint does not say where the queue is",
            hint="set it to what Broker takes; queue.spark_options() has it",
            argument="endpoint",
        )
    queue = given.get("queue", "")
    check_queue_name(queue)
    mode, older = given.get("mode", "atomic"), given.get("olderbatches", "error")
    if mode not in {"atomic", "direct"}:
        raise reading.wrong("mode", mode, "is neither atomic nor direct")
    if older not in {"error", "skip"}:
        raise reading.wrong("olderBatches", older, "is neither error nor skip")
    sink, batch = _sink(given, streams=streams)
    columns, body = _columns(schema)
    timeout = given.get("puttimeout", "60s")
    try:
        timeout_s = parse_duration(float(timeout) if timeout.isdigit() else timeout, "putTimeout")
    except InvalidOption as error:
        raise reading.wrong("putTimeout", timeout, "is no duration, as 60s or 5m") from error
    return Writing(
        *(endpoint, given.get("keys") or None, queue, sink, batch, mode == "direct"),
        *(cast('Literal["error", "skip"]', older), timeout_s, columns, body),
    )


def _sink(given: Mapping[str, str], *, streams: bool) -> tuple[str | None, int | None]:
    sink, batch = given.get("sinkid") or None, given.get("batchid")
    if sink is not None:
        check_key(sink, "sinkId")
        if sink.startswith(ONCE):
            raise reading.wrong("sinkId", sink, f"begins with {ONCE}, as none may")
    if streams:
        if batch is not None:
            raise reading.wrong("batchId", batch, "is for foreachBatch: a stream counts by itself")
        return sink, None
    if batch is None and sink is None:
        return f"{ONCE}{uuid4().hex}", 0
    if batch is None or sink is None:
        missing, there = ("batchId", "sinkId") if batch is None else ("sinkId", "batchId")
        raise InvalidOption(
            f"{there} without {missing} says of no batch which one it is",
            hint="in foreachBatch set both: batchId to its second argument, sinkId to a name of "
            "your own for this write; else set neither",
            argument=missing,
        )
    if not batch.isdecimal() or int(batch) > _BATCH_MAX:
        raise reading.wrong("batchId", batch, "is no whole number of 0 or more")
    return sink, int(batch)


def _columns(schema: StructType) -> tuple[tuple[str, ...], str]:
    names = tuple(field.name for field in schema.fields)
    bodies = [name for name in names if name in {"body", "value"}]
    if len(bodies) != 1:
        which = "both body and value" if bodies else "neither body nor value"
        raise _bad_columns(f"there is {which} among the columns {', '.join(names)}")
    if "delay_s" in names and "due_at" in names:
        raise _bad_columns("delay_s and due_at say the same in two ways")
    for field in schema.fields:
        if field.name not in COLUMNS:
            why = "is given by the queue" if field.name in _GIVEN else "is none of a message"
            raise _bad_columns(f"the column {field.name!r} {why}")
        text, kinds = COLUMNS[field.name]
        kind = field.dataType
        fits = isinstance(kind, kinds)
        if isinstance(kind, MapType):
            fits = isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
        if not fits:
            raise _bad_columns(f"the column {field.name!r} is {kind.simpleString()}, not {text}")
    return names, bodies[0]


def _bad_columns(message: str) -> InvalidPayload:
    return InvalidPayload(
        message,
        hint="select what a message is made from: body (binary or string; or value), and if "
        f"wanted {', '.join(name for name in COLUMNS if name not in {'body', 'value'})}",
    )
