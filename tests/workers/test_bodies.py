"""Handlers get what their annotation says; what cannot become it is dead, with the reason."""

import datetime as dt
import decimal
import enum
import os
import uuid
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest

from embedq.broker.delivery import Delivery
from embedq.errors import InvalidOption
from embedq.lifecycle import Reason
from embedq.payload import BYTES, JSON, TEXT
from embedq.workers.batches import Batch
from embedq.workers.spec import make_spec


@dataclass
class Order:
    number: int
    customer: str = "nobody"

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError("numbers begin at zero")


class Item(msgspec.Struct):
    sku: str
    count: int = 1


class Card(msgspec.Struct, tag=True):
    digits: str


class Cash(msgspec.Struct, tag=True):
    amount: int


class Parcel(TypedDict):
    weight: float


class Model(pydantic.BaseModel):
    number: int
    mail: Annotated[str, pydantic.Field(pattern="@")]

    @pydantic.field_validator("number")
    @classmethod
    def is_even(cls, number: int) -> int:
        if number % 2:
            raise ValueError("odd numbers are not sold")
        return number


class Size(enum.Enum):
    SMALL = "small"


class Point(NamedTuple):
    x: int
    y: int


UUID = "5f0c6a64-9a6b-4b6b-8a3e-7d0f6d3c2b1a"
READ: dict[str, tuple[Any, bytes, object]] = {
    "dataclass": (Order, b'{"number":1}', Order(1)),
    "struct": (Item, b'{"sku":"a"}', Item("a")),
    "model": (Model, b'{"number":2,"mail":"a@b"}', Model(number=2, mail="a@b")),
    "models": (list[Model], b'[{"number":2,"mail":"a@b"}]', [Model(number=2, mail="a@b")]),
    "typed dict": (Parcel, b'{"weight":1.5}', {"weight": 1.5}),
    "list": (list[Item], b'[{"sku":"a"}]', [Item("a")]),
    "dict": (dict[str, Item], b'{"x":{"sku":"a"}}', {"x": Item("a")}),
    "tuple": (tuple[int, str], b'[1,"a"]', (1, "a")),
    "named tuple": (Point, b"[1,2]", Point(1, 2)),
    "tagged union": (Card | Cash, b'{"type":"Cash","amount":3}', Cash(3)),
    "plain union": (int | str, b'"a"', "a"),
    "optional": (Order | None, b"null", None),
    "enum": (Size, b'"small"', Size.SMALL),
    "literal": (Literal["a", "b"], b'"b"', "b"),
    "datetime": (
        dt.datetime,
        b'"2026-01-02T03:04:05Z"',
        dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
    ),
    "uuid": (uuid.UUID, f'"{UUID}"'.encode(), uuid.UUID(UUID)),
    "decimal": (decimal.Decimal, b'"1.50"', decimal.Decimal("1.50")),
    "bounded": (Annotated[int, msgspec.Meta(gt=0)], b"7", 7),
    "bytes": (bytes, b"\x00\xff", b"\x00\xff"),
    "anything": (Any, b'{"a":[1]}', {"a": [1]}),
}


def annotated(bench, annotation: object):
    def handle(order):
        bench.seen.append(order)

    handle.__annotations__["order"] = annotation
    return handle


@pytest.mark.parametrize("case", READ)
def test_a_body_becomes_what_the_handler_asks_for(bench, case):
    annotation, body, expected = READ[case]
    bench.consume(annotated(bench, annotation))
    bench.put(body)
    bench.until(bench.drained)
    assert bench.seen == [expected]
    assert type(bench.seen[0]) is type(expected)


REFUSED: dict[str, tuple[Any, bytes, str]] = {
    "a field is missing": (Order, b"{}", "not Order: .*`number`"),
    "a field is of another type": (Order, b'{"number":"1"}', r"Expected `int`.*\$\.number"),
    "a check of its own": (Order, b'{"number":-1}', "numbers begin at zero"),
    "a struct": (Item, b'{"sku":1}', r"\$\.sku"),
    "a model": (Model, b'{"number":3,"mail":"a@b"}', "odd numbers are not sold"),
    "a pattern of a model": (Model, b'{"number":2,"mail":"x"}', r"not Model: .*\$\.mail"),
    "a model in a list": (list[Model], b'[{"number":3,"mail":"a@b"}]', "odd numbers"),
    "a typed dict": (Parcel, b'{"weight":"heavy"}', r"\$\.weight"),
    "an item of a list": (list[Item], b'[{"sku":"a"},{}]', r"`sku`.*\$\[1\]"),
    "no such tag": (Card | Cash, b'{"type":"Cheque"}', "Cheque"),
    "outside a union": (int | str, b"[1]", "Expected `int . str`"),
    "no JSON": (Order, b"number=1", "malformed"),
    "cut off": (Order, b'{"number":1', "truncated"),
    "nothing": (Order, b"", "truncated"),
    "out of bounds": (Annotated[int, msgspec.Meta(gt=0)], b"0", ">= 1"),
}


#: Where a handler works, and its kind. A body becomes what the kind asks for in the same place of
#: the code wherever that is: in a short run one kind shows it for clients.
PLACES = [
    (place, kind)
    for place in ("host", "client")
    for kind in ("thread", "batch", "async", "delivery")
    if (place, kind) == ("client", "thread")
    or place == "host"
    or os.environ.get("EMBEDQ_TEST_LONG")
]


@pytest.mark.parametrize(("bench", "kind"), PLACES, indirect=["bench"])
@pytest.mark.parametrize("case", REFUSED)
def test_a_body_that_cannot_become_it_is_dead_at_once_with_the_reason(bench, case, kind):
    annotation, body, said = REFUSED[case]
    handler = handlers(bench, annotation)[kind]
    bench.consume(handler, batch=5 if kind == "batch" else None)
    bench.put(body)
    bench.until(bench.drained)
    (letter,) = bench.dead()
    assert (letter.reason, letter.body) == (Reason.UNDECODABLE, body)
    assert_matches(said, letter.detail)
    (attempt,) = bench.attempts()
    assert attempt.error is not None
    assert attempt.error.type == "embedq.errors.InvalidPayload"
    assert bench.seen == []


def handlers(bench, annotation: Any) -> dict:
    async def ahandle(order):
        bench.seen.append(order)

    def load(batch):
        bench.seen.extend(batch)

    def with_delivery(order, delivery: Delivery):
        bench.seen.append(order)

    ahandle.__annotations__["order"] = annotation
    with_delivery.__annotations__["order"] = annotation
    load.__annotations__["batch"] = Batch[annotation]
    thread = annotated(bench, annotation)
    return {"thread": thread, "batch": load, "async": ahandle, "delivery": with_delivery}


def assert_matches(said: str, detail: str | None) -> None:
    with pytest.raises(LookupError, match=said):
        raise LookupError(detail)


@pytest.mark.parametrize(
    ("kind", "body", "annotation", "expected"),
    [
        (TEXT, b"5", int, 5),
        (TEXT, b"small", Size, Size.SMALL),
        (TEXT, UUID.encode(), uuid.UUID, uuid.UUID(UUID)),
        (TEXT, b'{"number":1}', Order, Order(1)),
        (BYTES, b'{"number":1}', Order, Order(1)),
        (JSON, b'{"number":1}', str, '{"number":1}'),
        (JSON, b'{"number":1}', bytes, b'{"number":1}'),
    ],
)
def test_what_a_producer_called_it_is_in_nobody_s_way(bench, kind, body, annotation, expected):
    bench.consume(annotated(bench, annotation))
    bench.put(body, kind=kind)
    bench.until(bench.drained)
    assert bench.seen == [expected]


def test_the_body_of_a_delivery_alone_is_what_the_annotation_says(bench):
    def handle(delivery: Delivery[Order]):
        bench.seen.append(delivery.body)

    bench.consume(handle)
    bench.put(b'{"number":1}')
    bench.until(bench.drained)
    assert bench.seen == [Order(1)]


class Both:
    """A class that only its module's other classes can tell apart from another."""


@pytest.mark.parametrize("annotation", [Order | Item, Order | dict, list[Both], Both])
def test_what_no_body_can_become_is_refused_at_the_handler(bench, annotation):
    with pytest.raises(InvalidOption, match=r"'order'.*no body can become that") as caught:
        make_spec(annotated(bench, annotation), queue="orders")
    assert "dataclass" in (caught.value.hint or "")
