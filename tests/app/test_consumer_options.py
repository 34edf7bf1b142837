"""What is wrong with a consumer is said where it is written: the argument, and what to write."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from embedq import Broker, InvalidName, InvalidOption, RetryPolicy
from embedq.errors import UsageError


def ship(order: int) -> None: ...


def load(orders: list[int]) -> None: ...


CONSUMER: list[tuple[dict[str, Any], str, str]] = [
    ({"concurency": 2}, "no option 'concurency'", "did you mean concurrency="),
    ({"retries": 2}, "no option 'retries'", "did you mean retry="),
    ({"queue": "x"}, "no option 'queue'", "options are group, concurrency"),
    ({"concurrency": "4"}, "concurrency='4'", "a whole number from 1 to"),
    ({"concurrency": 2.0}, "concurrency=2.0", "a whole number from 1 to"),
    ({"concurrency": None}, "concurrency=None", "a whole number from 1 to"),
    ({"timeout": "soon"}, "timeout='soon'", '"30s"'),
    ({"timeout": True}, "timeout=True", '"30s"'),
    ({"timeout": float("nan")}, "timeout=nan", '"30s"'),
    ({"timeout": -1}, "timeout=-1", '"30s"'),
    ({"timeout": timedelta(0)}, "timeout=", "None lets a handler run for ever"),
    ({"linger": "1s"}, "linger='1s'", "add batch="),
    ({"batch": 5, "linger": "2h"}, "linger='2h'", "at most 3600"),
    ({"batch": "5"}, "batch='5'", "a whole number from 1 to"),
    ({"batch": True}, "batch=True", "a whole number from 1 to"),
    ({"pool": "fibre"}, "pool='fibre'", "leave it out"),
    ({"retry": 3}, "retry=3", "RetryPolicy(max_attempts=3)"),
    ({"retry": RetryPolicy}, "retry=<class", "RetryPolicy(max_attempts=3)"),
    ({"compete": "yes"}, "compete='yes'", "True or False"),
    ({"name": 3}, "name=3", "leave it out"),
    ({"group": None}, "group name is a str", "1 to 255 bytes"),
    ({"group": ""}, "group name is empty", "1 to 255 bytes"),
]


@pytest.mark.parametrize(("options", "named", "fix"), CONSUMER, ids=[row[1] for row in CONSUMER])
def test_a_wrong_option_of_a_consumer_is_named_with_the_fix(
    options: dict[str, Any], named: str, fix: str
) -> None:
    orders = Broker("never-opened.db").queue("orders")
    with pytest.raises((InvalidOption, InvalidName)) as caught:
        orders.consumer(**options)(load if "batch" in options else ship)
    assert named in caught.value.message
    assert fix in str(caught.value)
    orders.consumer(ship)  # nothing was registered


POLICY: list[tuple[dict[str, Any], str, str]] = [
    ({"max_attempts": "3"}, "max_attempts='3'", "None is endless"),
    ({"max_attempts": 0}, "max_attempts=0", "None is endless"),
    ({"base": "fast"}, "base='fast'", '"30s"'),
    ({"base": "20m"}, "base='20m'", "at most cap=600"),
    ({"cap": None}, "cap=None", '"30s"'),
    ({"factor": "2"}, "factor='2'", "a number from 1 to 100"),
    ({"factor": 0.5}, "factor=0.5", "a number from 1 to 100"),
    ({"jitter": True}, "jitter=True", '"full", "equal" or "none"'),
    ({"max_age": "old"}, "max_age='old'", '"30s"'),
    ({"retry_on": ValueError()}, "retry_on=", "a class of exceptions"),
    ({"give_up_on": "ValueError"}, "give_up_on='ValueError'", "a class of exceptions"),
    ({"retry_on": KeyError, "give_up_on": LookupError}, "KeyError", "give_up_on, which wins"),
]


@pytest.mark.parametrize(("options", "named", "fix"), POLICY, ids=[row[1] for row in POLICY])
def test_a_wrong_option_of_a_policy_is_named_with_the_fix(
    options: dict[str, Any], named: str, fix: str
) -> None:
    with pytest.raises(InvalidOption) as caught:
        RetryPolicy(**options)
    assert named in caught.value.message
    assert fix in str(caught.value)


def test_an_unknown_option_of_a_policy_is_named() -> None:
    with pytest.raises(TypeError, match="'attempts'"):
        RetryPolicy(attempts=3)  # type: ignore[call-arg]


class Mailer:
    def send(self, order: int) -> None: ...


def generator(order: int) -> Any:
    yield order


def two(order: int, customer: str) -> None: ...


HANDLERS: list[tuple[Any, str, str]] = [
    ("audit", "cannot be called", "@queue.consumer(group=...)"),
    (3, "cannot be called", "decorate a function"),
    (Mailer, "is a class", "an instance that can be called"),
    (Mailer.send, "is a method", "queue.consumer(Mailer().send)"),
    (generator, "yields", "remove the yield"),
    (two, "'customer' is unknown here", "give the parameter a default"),
]


@pytest.mark.parametrize(("handler", "named", "fix"), HANDLERS, ids=[row[2] for row in HANDLERS])
def test_what_cannot_handle_a_message_is_refused_with_the_fix(
    handler: Callable[..., Any], named: str, fix: str
) -> None:
    orders = Broker("never-opened.db").queue("orders")
    with pytest.raises(UsageError) as caught:
        orders.consumer(handler)
    assert named in caught.value.message
    assert fix in str(caught.value)
