"""The columns of the source: their types in Spark, and how a part of a feed becomes Arrow.

Knows: every column of messages, history and dead letters, and which raw column it is made of.
Does not know: options, ranges, where parts come from.

Numbers are parsed and bytes are cut by Arrow itself, without a Python object for each value; only
ids, headers, errors and counts of attempts are made one by one, in the rows that have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from embedq.errors import InvalidOption, StoreCorrupt
from embedq.ids import MessageIds
from embedq.lifecycle import Outcome
from embedq.message import ErrorInfo
from embedq.payload import content_type
from embedq.storage import feed
from embedq.storage.feed import Feed, Part

_HEADERS: Final = msgspec.msgpack.Decoder(dict[str, str])
_ATTEMPTS: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_ERROR_OF: Final = 5  # the place of the error in an AttemptRecord
_SECOND_MS: Final = 1000


class Names(NamedTuple):
    """What turns numbers into texts: queues and groups by number, the key of ids."""

    queues: dict[int, str]
    groups: dict[int, str]
    key: bytes
    #: The queue of all rows, where the feed does not say.
    queue: str = ""


class Raw:
    """The raw columns of one part, as Arrow arrays that are made when they are asked for."""

    def __init__(self, kind: Feed, columns: tuple[str, ...], part: Part, names: Names) -> None:
        heading = feed.heading(kind, columns, part.written)
        self.names = names
        self.rows = part.rows
        self._numbers = {name: _parse(part.numbers[name]) for name in heading}
        self._texts = part.texts
        self._same = part.same
        self._made: dict[str, pa.Array] = {}
        lengths = {len(numbers) for numbers in self._numbers.values()}
        if lengths != {part.rows} or not _ascends(self._numbers["position"]):
            raise StoreCorrupt("rows of a feed came back in another order than was asked for")

    def number(self, name: str) -> pa.Array:
        """Return a column of integers."""
        if name in self._same:
            return pa.repeat(pa.scalar(self._same[name], pa.int64()), self.rows)
        # What is neither written nor the same in all rows is the position under its own name.
        return self._numbers.get(name, self._numbers["position"])

    def named(self, name: str, known: dict[int, str]) -> pa.Array:
        """Return a column of texts that stand for integers, NULL for those that have none."""
        if name in self._same:
            number = self._same[name]
            text = None if number is None else known.get(number)
            return pa.repeat(pa.scalar(text, pa.string()), self.rows)
        places = pc.index_in(self.number(name), pa.array(list(known), pa.int64()))
        return pa.array(list(known.values()), pa.string()).take(places)

    def binary(self, name: str) -> pa.Array:
        """Return a column of bytes, cut out of what came as one value."""
        made = self._made.get(name)
        if made is None and name in self._same:
            made = self._made[name] = pa.nulls(self.rows, pa.binary())
        if made is None:
            lengths = self._numbers[name]
            offsets = np.zeros(self.rows + 1, dtype=np.int32)
            np.cumsum(lengths.fill_null(0).to_numpy(), out=offsets[1:])
            if offsets[-1] != len(self._texts[name]):
                raise StoreCorrupt(f"the column {name} of a feed is cut off")
            validity = lengths.buffers()[0] if lengths.null_count else None
            buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(self._texts[name])]
            made = pa.Array.from_buffers(pa.binary(), self.rows, buffers)
            self._made[name] = made
        return made

    def text(self, name: str) -> pa.Array:
        """Return a column of texts; what is damaged in them is replaced."""
        found = self.binary(name)
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            values = found.to_pylist()
            return pa.array(
                [None if value is None else value.decode("utf-8", "replace") for value in values]
            )

    def each(self, name: str, make: Callable[[bytes], Any], kind: pa.DataType) -> pa.Array:
        """Return a column made from bytes value by value, NULL where there are none."""
        found = self.binary(name)
        if found.null_count == len(found):
            return pa.nulls(len(found), kind)
        values = [None if value is None else make(value) for value in found.to_pylist()]
        return pa.array(values, kind)


def _parse(lines: bytes) -> pa.Array:
    """Return the integers of a list of at least one, NULL where a line is empty."""
    if b"\n\n" not in lines and lines[:1].strip() and lines[-1:].strip():
        return pa.array(np.fromstring(lines, dtype=np.int64, sep="\n"))  # a third of the time
    table = csv.read_csv(
        pa.py_buffer(lines + b"\n"),
        read_options=csv.ReadOptions(column_names=["n"], use_threads=False),
        parse_options=csv.ParseOptions(ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(column_types={"n": pa.int64()}, null_values=[""]),
    )
    return table.column("n").combine_chunks()


def _ascends(positions: pa.Array) -> bool:
    values = positions.to_numpy()
    return bool((values[1:] >= values[:-1]).all())


# ------------------------------------------------------------------------- how each is made


def _number(name: str) -> Callable[[Raw], pa.Array]:
    return lambda raw: raw.number(name)


def _small(name: str) -> Callable[[Raw], pa.Array]:
    return lambda raw: raw.number(name).cast(pa.int32(), safe=False)


def _text(name: str) -> Callable[[Raw], pa.Array]:
    return lambda raw: raw.text(name)


def _time(name: str) -> Callable[[Raw], pa.Array]:
    def make(raw: Raw) -> pa.Array:
        return pc.multiply(raw.number(name), _SECOND_MS).view(pa.timestamp("us", tz="UTC"))

    return make


def _named(name: str, texts: Callable[[Names], dict[int, str]]) -> Callable[[Raw], pa.Array]:
    return lambda raw: raw.named(name, texts(raw.names))


def _kind(raw: Raw) -> pa.Array:
    kinds = pc.unique(raw.number("kind")).to_pylist()
    return raw.named("kind", {number: content_type(number) for number in kinds})


def _id(raw: Raw) -> pa.Array:
    encode = MessageIds(raw.names.key).encode
    return pa.array([encode(seq) for seq in raw.number("seq").to_pylist()], pa.string())


_MAP: Final = pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False))


def _headers(raw: Raw) -> pa.Array:
    return raw.each("headers", _read_headers, _MAP)


def _read_headers(value: bytes) -> list[tuple[str, str]] | None:
    try:
        return list(_HEADERS.decode(value).items())
    except (msgspec.MsgspecError, UnicodeDecodeError):  # as a delivery: damaged ones are none
        return None


def _constant_queue(raw: Raw) -> pa.Array:
    return pa.array([raw.names.queue], pa.string()).take(pa.array(np.zeros(raw.rows, np.int32)))


def _error(field: str) -> Callable[[Raw], pa.Array]:
    def make(raw: Raw) -> pa.Array:
        return raw.each(
            "error", lambda value: getattr(ErrorInfo.decode(value), field), pa.string()
        )

    return make


def _last_error(field: str) -> Callable[[Raw], pa.Array]:
    return lambda raw: raw.each("attempts", lambda value: _of_last(value, field), pa.string())


def _of_last(value: bytes, field: str) -> str | None:
    try:
        records = _ATTEMPTS.decode(value)
        last = msgspec.msgpack.decode(records[-1])
        error = msgspec.convert(last[_ERROR_OF], ErrorInfo | None)
    except (msgspec.MsgspecError, UnicodeDecodeError, LookupError):
        return None
    return None if error is None else str(getattr(error, field))


def _attempts(raw: Raw) -> pa.Array:
    return raw.each("attempts", _count_attempts, pa.int32()).fill_null(0)


def _count_attempts(value: bytes) -> int | None:
    try:
        return len(_ATTEMPTS.decode(value))
    except msgspec.MsgspecError:
        return None


_OUTCOMES: Final = {int(outcome): outcome.name.lower() for outcome in Outcome}


# --------------------------------------------------------------------------------- the columns


class Column(NamedTuple):
    """A column: its type, the raw columns that it is made of, how, whether it may be NULL."""

    type: DataType
    raw: tuple[str, ...]
    make: Callable[[Raw], pa.Array]
    nullable: bool = False


_LONG, _INT, _STRING, _TIME = LongType(), IntegerType(), StringType(), TimestampType()
_MAP_TYPE: Final = MapType(_STRING, _STRING, valueContainsNull=False)
_SEQ: Final = Column(_LONG, ("seq",), _number("seq"))
_IDENTIFIER: Final = Column(_STRING, ("seq",), _id)
_PUT_AT: Final = Column(_TIME, ("put_at",), _time("put_at"))
_QUEUE: Final = Column(_STRING, ("queue",), _named("queue", lambda names: names.queues))
_GROUP: Final = Column(_STRING, ("group",), _named("group", lambda names: names.groups), True)
_MESSAGE: Final = {
    "key": Column(_STRING, ("key",), _text("key"), True),
    "kind": Column(_STRING, ("kind",), _kind),
    "body": Column(BinaryType(), ("body",), lambda raw: raw.binary("body")),
    "headers": Column(_MAP_TYPE, ("headers",), _headers, True),
    "priority": Column(_INT, ("priority",), _small("priority")),
    "put_at": _PUT_AT,
}

COLUMNS: Final[dict[Feed, dict[str, Column]]] = {
    "messages": {
        "seq": _SEQ,
        "queue": _QUEUE,
        "id": _IDENTIFIER,
        **_MESSAGE,
        "due_at": Column(_TIME, ("due_at",), _time("due_at"), True),
        "expires_at": Column(_TIME, ("expires_at",), _time("expires_at"), True),
    },
    "history": {
        "queue": Column(_STRING, (), _constant_queue),
        "seq": _SEQ,
        "id": _IDENTIFIER,
        "group": _GROUP,
        "attempt": Column(_INT, ("attempt",), _small("attempt")),
        "worker": Column(_STRING, ("worker",), _text("worker"), True),
        "started_at": Column(_TIME, ("started_at",), _time("started_at")),
        "ended_at": Column(_TIME, ("ended_at",), _time("ended_at"), True),
        "outcome": Column(_STRING, ("outcome",), _named("outcome", lambda _: _OUTCOMES), True),
        "crashes": Column(_INT, ("crashes",), _small("crashes")),
        "error_type": Column(_STRING, ("error",), _error("type"), True),
        "error_message": Column(_STRING, ("error",), _error("message"), True),
        "error_traceback": Column(_STRING, ("error",), _error("traceback"), True),
        "put_at": _PUT_AT._replace(nullable=True),
        "closed": Column(_LONG, ("closed",), _number("closed")),
    },
    "dead": {
        "queue": _QUEUE,
        "seq": _SEQ,
        "id": _IDENTIFIER,
        "group": _GROUP,
        "died_at": Column(_TIME, ("died_at",), _time("died_at")),
        "reason": Column(_STRING, ("reason",), _text("reason")),
        "detail": Column(_STRING, ("detail",), _text("detail")),
        "moved_by": Column(_STRING, ("moved_by",), _text("moved_by")),
        "number": Column(_LONG, ("number",), _number("number")),
        "attempts": Column(_INT, ("attempts",), _attempts),
        "error_type": Column(_STRING, ("attempts",), _last_error("type"), True),
        "error_message": Column(_STRING, ("attempts",), _last_error("message"), True),
        "error_traceback": Column(_STRING, ("attempts",), _last_error("traceback"), True),
        **_MESSAGE,
    },
}


def schema_of(kind: Feed) -> StructType:
    """Return all columns of a feed."""
    fields = COLUMNS[kind].items()
    return StructType([StructField(name, column.type, column.nullable) for name, column in fields])


def check_schema(kind: Feed, schema: StructType) -> None:
    """See that a schema names columns of the feed, with their types. Raises InvalidOption."""
    known = COLUMNS[kind]
    for field in schema.fields:
        column = known.get(field.name)
        if column is None:
            raise _mismatch(
                f"the schema has a column {field.name!r}, which include={kind} has not"
            )
        if not _same(field.dataType, column.type):
            raise _mismatch(
                f"the schema says that {field.name} is {field.dataType.simpleString()}; "
                f"it is {column.type.simpleString()}"
            )
    if not schema.fields:
        raise _mismatch("the schema has no column")


def _same(one: DataType, other: DataType) -> bool:
    return one.simpleString() == other.simpleString()


def _mismatch(what: str) -> InvalidOption:
    return InvalidOption(
        what,
        hint="name columns of the source in .schema(…) to read only those, or leave it out and "
        "select() and cast() afterwards; docs/guide-spark.md lists them",
        argument="schema",
    )


def raw_columns(kind: Feed, schema: StructType) -> tuple[str, ...]:
    """Return the raw columns that the columns of a schema are made of, each once."""
    wanted: Iterable[str] = (
        raw for field in schema.fields for raw in COLUMNS[kind][field.name].raw
    )
    return tuple(dict.fromkeys(wanted))


class Batches:
    """Makes Arrow batches of one schema from the parts of a feed."""

    def __init__(self, kind: Feed, schema: StructType, names: Names) -> None:
        self._kind = kind
        self._raw = raw_columns(kind, schema)
        self._makers = [COLUMNS[kind][field.name].make for field in schema.fields]
        self._names = names
        # The first batch must have it exactly, or Spark refuses it.
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def batch(self, part: Part) -> pa.RecordBatch:
        """Return the rows of a part that has some."""
        raw = Raw(self._kind, self._raw, part, self._names)
        arrays = [
            _cast(make(raw), field) for make, field in zip(self._makers, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _cast(array: pa.Array, field: pa.Field) -> pa.Array:
    return array if array.type == field.type else array.cast(field.type)
