"""A handler gets what its signature asks for, and one that cannot is refused at once."""

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pytest

from embedq.broker.delivery import Delivery
from embedq.errors import InvalidOption
from embedq.workers.batches import Batch
from embedq.workers.signature import described, is_async, read_signature, unreadable_part

if TYPE_CHECKING:
    from typing import Optional

    import embedq


@dataclasses.dataclass
class Order:
    number: int


class Node(msgspec.Struct):
    name: str
    inner: "Node | None" = None


class Model:
    @classmethod
    def model_validate(cls, value):
        return cls()


class Unreadable:
    pass


class Counter:
    def __call__(self, order: Order) -> Order:
        return order


class Yielding:
    def __call__(self, order):
        yield order


class Mailer:
    def send(self, order: Order):
        return order

    @staticmethod
    async def post(order: Order):
        return order

    @classmethod
    def make(cls, order: Order):
        return order


class AsyncCounter:
    async def __call__(self, order: Order):
        return order

    async def method(self, order: Order):
        return order


def seen(function, **options) -> object:
    return read_signature(function, **options).call("the body", "the delivery")


def test_every_place_for_body_and_delivery_is_found():
    def both(order: Order, delivery: "Delivery[Order]"):
        return order, delivery

    def turned(delivery, order):
        return order, delivery

    def only(delivery: "Delivery"):
        return delivery

    def keywords(*, delivery, order):
        return order, delivery

    def renamed(order, how: "Delivery[Any]", limit=3):
        return order, how, limit

    def skipping(order, limit=3, delivery=None, /):
        return order, limit, delivery

    assert seen(both) == ("the body", "the delivery")
    assert seen(turned) == ("the body", "the delivery")
    assert seen(only) == "the delivery"
    assert seen(keywords) == ("the body", "the delivery")
    assert seen(renamed) == ("the body", "the delivery", 3)
    assert seen(skipping) == ("the body", 3, "the delivery")
    assert seen(lambda: "nothing") == "nothing"
    assert seen(lambda *rest: rest) == ("the body",)
    assert seen(lambda **rest: rest) == {}
    assert seen(functools.partial(lambda limit, order: (limit, order), 9)) == (9, "the body")


def test_a_handler_that_others_call_without_a_delivery_gets_it_from_here():
    def maybe(order: Order, delivery: Delivery[Order] | None = None):
        return order, delivery

    def optional(order: Order, how: "Optional[embedq.Delivery]" = None):  # noqa: UP045
        return order, how

    def annotated(how: Annotated[Delivery, "ours"], order):
        return order, how

    def whatever(order: Order, delivery: Any = None):
        return order, delivery

    for function in (maybe, optional, annotated, whatever):
        assert seen(function) == ("the body", "the delivery")


READABLE = {
    "class": (Order, Order),
    "name": ("Order", Order),
    "list": (list[Order], list[Order]),
    "optional": (Order | None, Order | None),
    "bounded": (Annotated[int, msgspec.Meta(gt=0)], Annotated[int, msgspec.Meta(gt=0)]),
    "bytes": (bytes, bytes),
    "recursive": (Node, Node),
    "model": (Model, Model),
    "models": (list[Model], list[Model]),
    "any": (Any, None),
    "object": (object, None),
}


@pytest.mark.parametrize("case", READABLE)
def test_the_annotation_is_the_type_of_the_body(case: str):
    annotation, wanted = READABLE[case]

    def handle(order):
        return order

    handle.__annotations__["order"] = annotation
    assert read_signature(handle).type == wanted


def test_a_delivery_alone_says_what_its_body_is():
    def only(delivery: Delivery[Order]):
        return delivery

    def both(delivery: Delivery[Order], order: int):
        return order, delivery

    def open_(delivery: Delivery[Any]):
        return delivery

    assert [read_signature(f).type for f in (only, both, open_)] == [Order, int, None]
    assert read_signature(only).takes is None


def test_an_annotation_that_only_type_checkers_see_spoils_no_other():
    def handle(order: Order, other: "Missing" = None):  # type: ignore[name-defined] # noqa: F821
        return order

    assert read_signature(handle).type is Order


def test_methods_and_callable_objects_are_handlers():
    assert read_signature(Counter()).type is Order
    assert read_signature(AsyncCounter().method).type is Order
    assert read_signature(AsyncCounter()).is_async
    assert not read_signature(Counter()).is_async
    assert read_signature(Mailer().send).type is Order
    assert read_signature(Mailer.make).type is Order
    assert read_signature(Mailer.post).is_async
    static = Mailer.__dict__["post"]  # as a decorator inside the class gets it
    assert read_signature(static).is_async
    assert read_signature(static).type is Order


def test_what_a_decorator_wraps_is_read_through_it():
    def handle(order: Order, delivery):
        return order, delivery

    @functools.wraps(handle)
    def wrapper(*args, **kwargs):
        return handle(*args, **kwargs)

    assert read_signature(wrapper).type is Order
    assert seen(wrapper) == ("the body", "the delivery")


def test_a_batch_comes_as_batch_or_as_list():
    def one(batch: Batch[Order]):
        return batch

    def plain(orders: list[Order]):
        return orders

    def untyped(orders):
        return orders

    found = [read_signature(f, batch=True) for f in (one, plain, untyped)]
    assert [(s.takes, s.type) for s in found] == [
        ("batch", Order),
        ("bodies", Order),
        ("batch", None),
    ]


def later(order: "Missing"):  # type: ignore[name-defined] # noqa: F821
    return order


def strange(order: Unreadable):
    return order


def hidden(order: dict[str, list[Unreadable]]):
    return order


def extra(order, customer):
    return order, customer


def twice(delivery: "Delivery", other: "Delivery"):
    return delivery, other


def generator(order):
    yield order


async def async_generator(order):
    yield order


def nameless(delivery: "Delivery[Missing]"):  # type: ignore[name-defined] # noqa: F821
    return delivery


def batch_of(batch: Batch[Order]):
    return batch


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (later, "'order'.*'Missing'"),
        (strange, "'order'.*Unreadable"),
        (hidden, "'order'.*Unreadable"),
        (extra, "'customer'"),
        (twice, "'other'"),
        (generator, "yields"),
        (async_generator, "yields"),
        (Yielding(), "yields"),
        (functools.partial(generator), "yields"),
        (Order, "class"),
        (Mailer.send, "method.*'self'"),
        (nameless, "'delivery'.*'Missing'|Missing"),
        (batch_of, "batch="),
    ],
)
def test_a_handler_that_cannot_work_is_refused_by_name(function: Callable, named: str):
    with pytest.raises(InvalidOption, match=named) as caught:
        read_signature(function)
    assert caught.value.hint


def batch_of_missing(batch: "Batch[Missing]"):  # type: ignore[name-defined] # noqa: F821
    return batch


@pytest.mark.parametrize("function", [strange, lambda order, delivery: None, batch_of_missing])
def test_a_batch_handler_that_cannot_work_is_refused(function: Callable):
    with pytest.raises(InvalidOption):
        read_signature(function, batch=True)


def test_something_that_cannot_be_called_is_refused():
    for what, hint in (
        (3, "decorate a function"),
        ("audit", "by name"),
        (Mailer.__dict__["make"], "when the class is complete"),
    ):
        with pytest.raises(InvalidOption, match="cannot be called") as caught:
            read_signature(what)  # type: ignore[arg-type]
        assert hint in str(caught.value)


def test_async_is_seen_through_partial_and_objects():
    async def handle(order):
        return order

    assert is_async(handle)
    assert is_async(functools.partial(handle))
    assert is_async(AsyncCounter())
    assert not is_async(Order)
    assert not is_async(lambda: None)


def test_a_recursive_type_is_readable():
    assert unreadable_part(Node) is None


def test_the_place_of_a_handler_is_told():
    assert "test_signature.py:" in described(extra)
    assert "Counter" in described(Counter())
