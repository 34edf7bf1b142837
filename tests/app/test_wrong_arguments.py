"""Whatever is wrong with a call is said at the call: the argument, and what to do; no harm done.

Knows: every public call, its arguments, and values that are wrong for each.
Does not know: what the calls do with good ones.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_type_hints

import pytest

from embedq import Broker, EmbedqError, Queue, UsageError
from embedq.app.group import Group
from embedq.app.letters import DeadLetters
from embedq.app.options import ConsumerOptions, PutOptions, QueueOptions
from embedq.broker.delivery import Delivery
from embedq.clock import VirtualClock
from tests.net.lines import LINES

NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001
HUGE = 10**400


@dataclass
class Order:
    number: int


class Bench:
    """A broker with a message that waits, one that is leased, and a dead letter."""

    def __init__(self) -> None:
        self.broker = Broker(":memory:", clock=VirtualClock())
        self.orders: Queue[Any] = self.broker.queue("orders", Order)
        self.orders.put_many([Order(1), Order(2), Order(3)])
        self.orders.get(0).reject("bad")
        self.delivery = self.orders.get(0)
        self.id = self.orders.peek(1)[0].id

    @property
    def state(self) -> tuple[object, ...]:
        stats = self.orders.stats()
        queues = sorted(queue.name for queue in self.broker.queues)
        return queues, stats.stored, stats.dead, stats.groups, self.delivery.settled

    def consume(self, **options: Any) -> object:
        return self.orders.consumer(**options)(lambda body: None)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.broker.stop()


Call = Callable[..., object]
_DURATIONS = ["soon", -1, math.nan, math.inf, True, b"1s", [1], "", HUGE]
_PUT: dict[str, list[Any]] = {
    "timeout": _DURATIONS,
    "delay": [*_DURATIONS, "400d"],
    "at": [NAIVE, "tomorrow", math.nan, math.inf, -math.inf, True, [1], HUGE, 1e12],
    "ttl": [*_DURATIONS, "400d", 0],
    "priority": [10, -1, True, "5", 1.0, None],
    "dedup_key": ["", 5, "\ud800", "a\nb", "x" * 256],
    "ordering_key": ["", 5, "\ud800", "a\nb", "x" * 256],
    "max_attempts": [0, -1, 256, True, "3", 2.0],
    "headers": ["a=b", {"a": 1}, {1: "a"}, {"": "a"}, {"a": "\ud800"}, [("a", "b")]],
    "nonsense": [1],
}
_FILTERS: dict[str, list[Any]] = {
    "reason": ["bored", 5, [1]],
    "since": ["yesterday", -1, NAIVE, True, [1], math.nan, HUGE],
    "group": [5, b"default", [1], ""],
    "error": [5, b"x", [1]],
}
_IDS = ["", "nonsense", 5, None, b"0" * 32, "0" * 32, ["0" * 32]]

#: For each call: how it is made, and for each argument values that are wrong.
WRONG: dict[str, tuple[Call, dict[str, list[Any]]]] = {
    "Broker": (
        lambda bench, **said: Broker(**{"path": "x.db", **said}),
        {
            "path": [3, b"x.db", "", "a\0b", [1], "tcp://host", "tcp:/host:1", "tcp://*:1"],
            "durability": ["off", 3, [1], True],
            "sidecar": ["perhaps", 1, [True]],
            "role": ["boss", 3, [1]],
            "grace": ["soon", -1, math.nan, True, [1], b"1"],
            "redact": ["(", 3, [3], ["("]],
            "endpoint": ["127.0.0.1:5555", "tcp://host", "ipc:///x", 3, "tcp://h:70000", ""],
            "keys": [3, "", b"keys", "a\0b", [1]],
            "clock": [3, "now"],
            "limits": [3, {}],
        },
    ),
    "Broker.queue": (
        lambda bench, **said: bench.broker.queue(**{"name": "other", **said}),
        {
            "name": ["", 3, None, b"q", "a\nb", "x" * 256, "\ud800"],
            "type": [
                3,
                "Order",
                b"x",
                print,
                lambda: 1,
                {"id": int},
                [int],
                (int, str),
                True,
                Order(1),
            ],
            "retry": [3, "5"],
            "max_attempts": [0, -1, 256, True, "3"],
            "max_crashes": [-1, 256, True, "3", None],
            "lease": [*_DURATIONS, "1ms", "13h", None],
            "retain": [*_DURATIONS, "1000000d"],
            "dedup_window": [*_DURATIONS, "400d", None],
            "max_length": [0, -1, "5", True, 1 << 60],
            "when_full": ["panic", None, 3, [1]],
            "nonsense": [1],
        },
    ),
    "Broker.on": (
        lambda bench, **said: bench.broker.on(
            said.get("event", "dead"),
            said.get("listener", print),
            queue=said.get("queue"),
        ),
        {
            "event": ["deed", "put", 5, None, [1]],
            "listener": [3, "print", Broker(":memory:").queue("q").aput],
            "queue": [5, "", b"q", "a\nb"],
        },
    ),
    "Broker.listen": (
        lambda bench, **said: bench.broker.listen(
            **{"url": "lines://127.0.0.1:0", "transport": LINES, **said}
        ),
        {
            "url": ["", "lines", 5, None, b"lines://", "lines://h:x", "lines://h/path"],
            "auth": [5, "users", [1]],
            "tls": [5, "cert.pem", True],
            "allow": [5, ["here"], [None], "10.0.0.1/8"],
            "insecure": [1, "no", None],
            "limits": [5, {"connections": 5}],
            "transport": [5, "lines"],
        },
    ),
    "Broker.stop": (
        lambda bench, **said: bench.broker.stop(**said),
        {"grace": _DURATIONS},
    ),
    "Broker.run": (
        lambda bench, **said: bench.broker.run(**said),
        {"grace": _DURATIONS},
    ),
    "Queue.put": (
        lambda bench, **said: bench.orders.put(**{"body": Order(4), **said}),
        {"body": ["text", object(), 5, None, {"number": 1}], **_PUT},
    ),
    "Queue.put_many": (
        lambda bench, **said: bench.orders.put_many(**{"bodies": [Order(4)], **said}),
        {"bodies": [5, "text", b"x", {"a": 1}, None, [Order(1), "x"], Order(1)], **_PUT},
    ),
    "Queue.get": (
        lambda bench, **said: bench.orders.get(**{"timeout": 0, **said}),
        {
            "timeout": _DURATIONS,
            "group": ["", 5, None, "a\nb", b"g", [1]],
            "auto_ack": ["yes", 1, None],
        },
    ),
    "Queue.get_many": (
        lambda bench, **said: bench.orders.get_many(**{"most": 1, **said}),
        {
            "most": [0, -1, True, "5", 1.0, 10_001, None],
            "timeout": _DURATIONS,
            "group": ["", 5, None, "a\nb", b"g", [1]],
            "auto_ack": ["yes", 1, None],
        },
    ),
    "Queue.settle": (
        lambda bench, **said: bench.orders.settle(
            **{"deliveries": [bench.delivery], "how": "nack", **said}
        ),
        {
            "deliveries": [5, None, "x", [5], [None], b"x"],
            "how": ["eat", 5, None, [1]],
            "delay": [*_DURATIONS, "400d"],
            "reason": [5, None, b"why"],
        },
    ),
    "Queue.consumer": (
        lambda bench, **said: (
            bench.orders.consumer(said["function"])
            if "function" in said
            else bench.consume(**said)
        ),
        {
            "function": [3, "f"],
            "group": ["", 5, None, "a\nb"],
            "concurrency": [0, -1, True, "5", 1_001],
            "timeout": [*_DURATIONS, 0],
            "batch": [0, "5", True, 10_001],
            "linger": [*_DURATIONS, "1s"],
            "pool": ["fibre", 5, "process", [1]],
            "retry": [5, "3"],
            "compete": ["yes", 1, None],
            "name": [5, ""],
            "max_messages": [0, "5", True],
            "max_rss": [0, "much", True],
            "max_age": [*_DURATIONS, 0],
            "spark": [5, "local[2]", int],
            "nonsense": [1],
        },
    ),
    "Queue.group": (
        lambda bench, **said: bench.orders.group(**said),
        {
            "name": ["", 5, None, "a\nb", b"g", [1]],
            "start": ["middle", 5, [1], ""],
        },
    ),
    "Queue.spark_options": (
        lambda bench, **said: bench.orders.spark_options(**said),
        {"more": [b"text", [1], {1}, {"a": {1}}]},
    ),
    "Queue.watch_folder": (
        lambda bench, **said: bench.orders.watch_folder(**{"path": "somewhere", **said}),
        {
            "path": [5, "", b"a", "a\0b", None],
            "pattern": [5, "", None, "a/b", ["*"]],
            "recursive": [1, "yes", None],
            "settle": ["soon", -1, "1w", None],
            "existing": [0, "no", None],
        },
    ),
    "Queue.purge": (
        lambda bench, **said: bench.orders.purge(**said),
        {"progress": [5, "bar"]},
    ),
    "Queue.cancel": (
        lambda bench, **said: bench.orders.cancel(said["ids"]),
        {"ids": _IDS},
    ),
    "Queue.peek": (
        lambda bench, **said: bench.orders.peek(**said),
        {
            "most": [0, -1, True, "5", 10_001, None],
            "after": [-1, True, "5", None, "0" * 32, 1.0, HUGE],
        },
    ),
    "Group.purge": (
        lambda bench, **said: bench.orders.group().purge(**said),
        {"progress": [5, "bar"]},
    ),
    "Group.settle_by_id": (
        lambda bench, **said: bench.orders.group().settle_by_id(
            **{"message_id": bench.id, "how": "reject", **said}
        ),
        {
            "message_id": _IDS,
            "how": ["eat", 5, None, [1]],
            "reason": [5, None, b"why"],
        },
    ),
    "DeadLetters.list": (
        lambda bench, **said: bench.orders.dead.list(**said),
        {
            **_FILTERS,
            "limit": [0, -1, True, "5", None],
            "after": [-1, True, "5", None, "0" * 32, HUGE],
        },
    ),
    "DeadLetters.show": (
        lambda bench, **said: bench.orders.dead.show(**{"message_id": bench.id, **said}),
        {"message_id": _IDS, "group": [5, b"default", [1], ""]},
    ),
    "DeadLetters.redrive": (
        lambda bench, **said: bench.orders.dead.redrive(
            *([said.pop("ids")] if "ids" in said else []), **said
        ),
        {
            "ids": _IDS,
            **_FILTERS,
            "limit": [0, -1, True, "5"],
            "by": [5, None, b"me"],
            "progress": [5, "bar"],
        },
    ),
    "DeadLetters.purge": (
        lambda bench, **said: bench.orders.dead.purge(
            *([said.pop("ids")] if "ids" in said else []), **said
        ),
        {"ids": _IDS, **_FILTERS, "limit": [0, -1, True, "5"], "progress": [5, "bar"]},
    ),
    "Delivery.nack": (
        lambda bench, **said: bench.delivery.nack(**said),
        {"delay": [*_DURATIONS, "400d"], "error": [5, [1], ValueError]},
    ),
    "Delivery.reject": (
        lambda bench, **said: bench.delivery.reject(**said),
        {"reason": [5, None, b"why"], "error": [5, [1], ValueError]},
    ),
    "Delivery.extend": (
        lambda bench, **said: bench.delivery.extend(**said),
        {"duration": [*_DURATIONS, "1ms", "13h", None]},
    ),
}

#: What an error calls an argument, where that is another word.
WORDS = {
    "ids": "id",
    "message_id": "id",
    "function": "cannot be called",
    "body": "queue 'orders'",
    "bodies": "queue 'orders'",
    "headers": "headers?",
}

#: Arguments that take anything, or are not for applications.
ANYTHING = {
    "Broker.add_consumer.spec": "made by Queue.consumer",
    "Broker.listen.options": "those of a protocol, checked by it when it begins to listen",
    "Broker.accompany.companion": "for the classes of this library",
    "Broker.override.given": "the settings of Broker, checked by the same functions",
    "Broker.state_of.name": "for the classes of this library",
    "Broker.opened.name": "for the classes of this library",
}

CASES = [
    pytest.param(call, argument, value, id=f"{call}-{argument}-{number}")
    for call, (_, wrong) in WRONG.items()
    for argument, values in wrong.items()
    for number, value in enumerate(values)
]


@pytest.mark.parametrize(("call", "argument", "value"), CASES)
def test_a_wrong_argument_is_named_with_a_way_out_and_changes_nothing(
    bench: Bench, call: str, argument: str, value: Any
) -> None:
    make, _ = WRONG[call]
    before = bench.state
    with pytest.raises(EmbedqError) as caught:
        make(bench, **{argument: value})
    error = caught.value
    word = WORDS.get(argument, argument).replace("_", " ")
    told = f"{error.message} {error.details.get('argument')}".replace("_", " ")
    assert re.search(rf"(?<!\w)({word})(?!\w)", told), str(error)
    assert error.hint, str(error)
    assert len(str(error)) < 600
    assert isinstance(error, UsageError) or error.code in {"unknown_message", "group_not_found"}
    assert bench.state == before


def arguments_of(method: Callable[..., Any]) -> set[str]:
    """Return what a call takes; options are those of their TypedDict."""
    options = {each.__name__: each for each in (PutOptions, QueueOptions, ConsumerOptions)}
    found: set[str] = set()
    for name, parameter in inspect.signature(method).parameters.items():
        own = method in (Broker.override, Broker.listen, Queue.spark_options)
        if parameter.kind is parameter.VAR_KEYWORD and not own:
            (kind,) = [made for key, made in options.items() if key in str(parameter.annotation)]
            found |= set(get_type_hints(kind))
        elif name != "self":
            found.add(name)
    return found


def test_every_argument_of_every_public_call_is_in_the_table() -> None:
    calls: dict[str, Callable[..., Any]] = {"Broker": Broker.__init__}
    for cls in (Broker, Queue, Group, DeadLetters, Delivery):
        members = dict(inspect.getmembers(cls, inspect.isfunction))
        for name, member in members.items():
            if not name.startswith("_") and not (name[0] == "a" and name[1:] in members):
                calls[f"{cls.__name__}.{name}"] = member
    missing = {
        f"{call}.{argument}"
        for call, method in calls.items()
        for argument in arguments_of(method)
        if argument not in WRONG.get(call, (None, {}))[1]
    }
    assert missing == set(ANYTHING)


@pytest.mark.parametrize(
    "body", [object(), math.nan, [math.inf], "\ud800", {1, object()}, lambda: 1, 1j]
)
def test_a_body_that_cannot_be_stored_is_refused_with_the_name_of_its_queue(
    bench: Bench, body: object
) -> None:
    queue = bench.broker.queue("any")
    for put in (queue.put, lambda body: queue.put_many([b"fine", body])):
        with pytest.raises(UsageError, match="queue 'any'") as caught:
            put(body)
        assert caught.value.code == "invalid_payload"
        assert caught.value.hint
    assert queue.stats().stored == 0
