"""Bodies: what can be one, and what comes back.

Knows: the kinds of content and how annotations read them.
Does not know: more of pydantic than its errors; a class with the same methods stands for it.
"""

import contextlib
import dataclasses
import enum
import json
import math
import re
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pydantic
import pytest
from hypothesis import given, strategies as st

from embedq.errors import InvalidPayload
from embedq.payload import BYTES, JSON, TEXT, content_type, decode, encode


@dataclass
class Order:
    number: int
    customer: str
    amount: float | None = None


class Point(msgspec.Struct):
    x: int
    y: int


class Colour(enum.StrEnum):
    RED = "red"


class Model:
    """The part of a pydantic model that embedq uses."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return self.value == other.value

    def __hash__(self):
        return hash(str(self.value))

    def model_dump_json(self):
        if self.value == "broken":
            raise ValueError("the serializer says no")
        return json.dumps(self.model_dump(mode="json"))

    def model_dump(self, *, mode):
        if mode == "json" and isinstance(self.value, float) and not math.isfinite(self.value):
            return {"value": None}
        return {"value": self.value}

    @classmethod
    def model_validate(cls, data):
        if not isinstance(data, dict) or "value" not in data:
            raise ValueError("value: field required")
        return cls(data["value"])

    @classmethod
    def model_validate_json(cls, body):
        return cls.model_validate(json.loads(body))


@dataclass
class Holder:
    models: list[Model]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(st.binary())
def test_bytes_are_kept_as_they_are(body):
    assert encode(body) == (BYTES, body)
    assert decode(BYTES, body) == body
    for kind in (bytes, bytearray, memoryview):
        assert encode(kind(body)) == (BYTES, body)
        assert decode(BYTES, body, kind) == kind(body)


@given(st.text())
def test_text_comes_back(text):
    kind, body = encode(text)
    assert kind == TEXT
    assert decode(kind, body) == text
    assert decode(kind, body, str) == text
    assert decode(kind, body, object) == text


@given(json_values.filter(lambda value: not isinstance(value, str)))
def test_json_values_come_back(value):
    kind, body = encode(value)
    assert kind == JSON
    assert decode(kind, body) == value
    assert decode(kind, body, Any) == value


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (Order(1, "é", 2.5), Order),
        (Order(1, "é"), Order),
        (Point(1, 2), Point),
        (Model("x"), Model),
        ([Model("x"), Model(None)], list[Model]),
        (Holder([Model(5)]), Holder),
        ({"a": Order(1, "x")}, dict[str, Order]),
        ({1, 2}, set[int]),
        ((1, "a"), tuple[int, str]),
        (datetime(2030, 1, 2, tzinfo=UTC), datetime),
        (uuid.UUID(int=5), uuid.UUID),
        (Decimal("1.10"), Decimal),
        (Colour.RED, Colour),
        ([Colour.RED], list[Colour]),
        (10**30, int),
        (None, int | None),
        (7, Annotated[int, msgspec.Meta(ge=0)]),
    ],
)
def test_objects_come_back_as_the_type_that_is_asked_for(value, type_):
    assert decode(*encode(value), type_) == value


def test_bytes_and_str_are_the_body_itself_whatever_its_kind():
    assert decode(JSON, b'{"a": 1}', bytes) == b'{"a": 1}'
    assert decode(JSON, b'{"a": 1}', str) == '{"a": 1}'
    assert decode(BYTES, "é".encode(), str) == "é"
    assert decode(99, b"?", bytes) == b"?"


def test_a_body_without_a_content_type_is_read_by_the_annotation():
    assert decode(BYTES, b'{"number": 1, "customer": "x"}', Order) == Order(1, "x")
    assert decode(TEXT, b'{"number": 1, "customer": "x"}', Order) == Order(1, "x")
    assert decode(TEXT, b"5", int) == 5
    assert decode(TEXT, b"red", Colour) is Colour.RED
    assert decode(TEXT, b'{"value": 3}', Model) == Model(3)


def test_types_that_cannot_be_hashed_are_read_too():
    annotation = Annotated[int, ["a list has no hash"]]
    assert decode(JSON, b"5", annotation) == 5


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (object(), "object"),
        ([object()], "list"),
        ({"a": {object}}, "dict"),
        (lambda: None, "function"),
        (Order, "type"),
        ({(1, 2): 3}, "dict"),
        ("\ud800", "lone surrogate"),
        (["\ud800"], "list"),
        (Model("broken"), "Model"),
        (Model("\ud800").model_dump, "method"),
        (dataclasses.make_dataclass("Bag", ["thing"])(object()), "Bag"),
    ],
)
def test_what_has_no_form_in_json_is_refused_by_its_type(value, named):
    with pytest.raises(InvalidPayload, match=named) as caught:
        encode(value)
    assert caught.value.hint


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_does_not_have_are_refused_wherever_they_hide(number):
    for value in (
        number,
        [None, number],
        {"a": [number]},
        Order(1, "null", number),
        {1.0, number},
        [10**30, number],
        Holder([number]),
        Model(number),
        [Model(number)],
    ):
        with pytest.raises(InvalidPayload, match="infinite or not a number"):
            encode(value)


@pytest.mark.parametrize(
    "value",
    [None, [None], "null", {"null": 1}, [None, 10**30], Order(1, "null"), Holder([Model(None)])],
)
def test_a_null_is_not_mistaken_for_a_number(value):
    assert decode(*encode(value), bytes)


def test_bytes_that_only_look_like_infinity_are_accepted():
    lookalike = int.from_bytes(b"\xcb\x7f\xf0\x00\x00\x00\x00\x01")
    assert decode(*encode([None, lookalike])) == [None, lookalike]


def nested(depth):
    value: list[object] = []
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_that_is_too_deep_is_refused_both_ways():
    circle: list[object] = []
    circle.append(circle)
    for value in (nested(100_000), circle):
        with pytest.raises(InvalidPayload, match="nested too deeply"):
            encode(value)
    for body in (b"[" * 5_000_000, b'{"a":' * 1_000_000):
        for type_ in (None, list, Order, Model):
            with pytest.raises(InvalidPayload, match="is not"):
                decode(JSON, body, type_)
    assert decode(*encode(nested(100))) == nested(100)


@pytest.mark.parametrize(
    ("kind", "body", "type_", "text"),
    [
        (JSON, b"{", None, "is not JSON"),
        (JSON, b"", None, "is not JSON"),
        (JSON, b'{"number": "x", "customer": "y"}', Order, "is not Order"),
        (JSON, b"[1, true]", list[int], r"is not list\[int\]"),
        (JSON, b"{}", Model, "is not Model.*field required"),
        (JSON, b"[{}]", list[Model], "field required"),
        (JSON, b"5", type(uuid), "is not module"),
        (TEXT, b"\xff", None, "not UTF-8"),
        (TEXT, b"\xff", int, "not UTF-8"),
        (BYTES, b"\xff", str, "not UTF-8"),
        (BYTES, b"\xff", Order, "is not Order"),
        (TEXT, b"five", int, "is not int"),
        (99, b"x", None, "kind 99 is unknown"),
        (99, b"x", Order, "kind 99 is unknown"),
    ],
)
def test_a_body_that_is_something_else_is_refused_with_the_reason(kind, body, type_, text):
    with pytest.raises(InvalidPayload, match=text) as caught:
        decode(kind, body, type_)
    assert caught.value.hint


def test_a_long_reason_is_shortened():
    with pytest.raises(InvalidPayload) as caught:
        decode(TEXT, b"x" * 100_000, Colour)
    assert len(str(caught.value)) < 600


@given(st.integers(0, 3), st.binary())
def test_no_body_does_anything_but_decode_or_be_refused(kind, body):
    for type_ in (None, bytes, str, int, Order, list[Model]):
        with contextlib.suppress(InvalidPayload):
            decode(kind, body, type_)


def test_kinds_have_content_types():
    assert content_type(BYTES) == "application/octet-stream"
    assert content_type(TEXT) == "text/plain;charset=utf-8"
    assert content_type(JSON) == "application/json"
    assert content_type(99) == "application/octet-stream"


def test_the_numbers_of_the_kinds_never_change():
    assert (BYTES, TEXT, JSON) == (0, 1, 2)


class Account(pydantic.BaseModel):
    mail: str
    codes: list[int] = []


@pytest.mark.parametrize(
    ("wanted", "body", "said"),
    [
        (Account, b'{"codes":["s3cret"]}', "Field required - at `$.mail`; .*at `$.codes[0]`"),
        (Account, b'"s3cret"', "at `$`"),
        (Account, b"s3cret", "Invalid JSON.*at `$`"),
        (list[Account], b'[{"mail":"a","codes":"s3cret"}]', "at `$.codes` - at `$[0]`"),
    ],
)
def test_what_pydantic_says_is_one_line_without_the_values(wanted, body, said):
    with pytest.raises(InvalidPayload) as caught:
        decode(JSON, body, wanted)
    message = caught.value.message
    assert re.search(re.sub(r"([$\[\]])", r"\\\1", said), message), message
    assert "s3cret" not in message
    assert "\n" not in message
    assert "http" not in message
