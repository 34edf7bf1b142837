"""Handlers by name: what can be found in another process, and what is said of the others."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from embedq import Broker
from embedq.errors import InvalidOption
from embedq.workers.finding import NoHandler, find
from embedq.workers.reference import Reference, refer


def ship(body: int) -> None:
    """Do nothing."""


def wrapped(function: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(function)
    def inner(*args: Any) -> object:
        return function(*args)

    return inner


def unnamed(function: Callable[..., object]) -> Callable[..., object]:
    def inner(*args: Any) -> object:
        return function(*args)

    return inner


class Service:
    def handle(self, body: int) -> None:
        """Do nothing."""

    @staticmethod
    def static(body: int) -> None:
        """Do nothing."""

    def __call__(self, body: int) -> None:
        """Do nothing."""


SERVICE = Service()


def consumer(function: Callable[..., object]) -> None:
    Broker(":memory:").queue("orders").consumer(pool="process")(function)


@pytest.mark.parametrize(
    "function",
    [ship, wrapped(ship), Service.static, SERVICE.handle],
    ids=["function", "decorated", "static method", "method"],
)
def test_what_has_a_name_can_be_found(function: Callable[..., object]) -> None:
    found = refer(function, "orders", "default", "ship")
    assert found.module == __name__
    consumer(function)


@pytest.mark.parametrize(
    ("function", "why", "hint"),
    [
        (lambda body: None, "is a lambda", "write a def"),
        (unnamed(ship), "made inside another function", "functools.wraps"),
        (functools.partial(ship, 1), "no plain function", "write a def"),
        (SERVICE, "no plain function", "write a def"),
    ],
    ids=["lambda", "closure", "partial", "object"],
)
def test_what_has_none_is_refused_where_it_is_declared(
    function: Callable[..., object], why: str, hint: str
) -> None:
    with pytest.raises(InvalidOption, match=why) as caught:
        consumer(function)
    assert "by name" in str(caught.value)
    assert hint in (caught.value.hint or "")


def test_a_function_of_an_interactive_session_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def typed(body: int) -> None:
        """Do nothing."""

    typed.__module__, typed.__qualname__ = "__main__", "typed"
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    with pytest.raises(InvalidOption, match="interactive session"):
        refer(typed, "orders", "default", "typed")


@pytest.mark.parametrize("how", [["-c"], ["-"]], ids=["option", "stdin"])
def test_a_program_that_is_no_file_is_refused(how: list[str]) -> None:
    source = (
        "from embedq import Broker\n"
        "@Broker(':memory:').queue('q').consumer(pool='process')\n"
        "def work(body): ...\n"
    )
    stdin = source if how == ["-"] else None
    command = [sys.executable, *how, *([source] if stdin is None else [])]
    done = subprocess.run(
        command, check=False, input=stdin, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "typed into an interactive session" in done.stderr
    assert "put it into a file" in done.stderr


def test_a_consumer_is_found_by_all_it_is_named_by() -> None:
    broker = Broker(":memory:")
    broker.queue("found-here").consumer(pool="process", group="a", compete=True)(ship)
    where = Reference(__name__, "ship", "found-here", "a", "ship")
    spec, consumers = find(where)
    assert (spec.queue, spec.group) == ("found-here", "a")
    assert list(consumers) == [spec]
    for other in (
        where._replace(queue="elsewhere"),
        where._replace(group="b"),
        where._replace(name="other"),
        where._replace(qualname="handle"),
    ):
        with pytest.raises(NoHandler, match="registers no consumer"):
            find(other)
