"""Every call that may block has a twin for coroutines with the same arguments, or a reason."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from embedq import Broker, Delivery, Queue
from embedq.app.group import Group
from embedq.app.letters import DeadLetters

CLASSES: list[type] = [Broker, Queue, Group, DeadLetters, Delivery]

#: Methods without a twin, and why.
REASONS = {
    "Broker.queue": "a declaration, made where a program is imported",
    "Broker.add_consumer": "keeps a consumer for the start; never waits",
    "Broker.accompany": "keeps a companion for the start; never waits",
    "Broker.listen": "a declaration; where the broker runs it binds, which never waits",
    "Broker.override": "changes settings before anything is opened; never waits",
    "Broker.on": "keeps a listener; never waits",
    "Broker.start": "`async with broker` and `broker.lifespan` are the twins",
    "Broker.run": "owns the main thread and its signals; coroutines use `async with broker`",
    "Broker.opened": "answers from memory",
    "Broker.close_at_exit": "for the end of the interpreter, when no loop runs",
    "Queue.consumer": "a declaration, made where a program is imported",
    "Queue.spark_options": "for Spark, which blocks its callers anyway",
    "Queue.watch_folder": "a declaration, too; files are looked at while the broker runs",
}


def methods(cls: type) -> dict[str, Callable[..., Any]]:
    return {
        name: member
        for name, member in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_")
    }


def without_twin(cls: type) -> Iterator[str]:
    """Go through the methods that are no twin and have none, or one that takes something else."""
    found = methods(cls)
    twins = {name for name in found if name.startswith("a") and name[1:] in found}
    for name, method in found.items():
        if name in twins:
            continue
        twin = found.get(f"a{name}")
        if twin is None:
            yield name
        elif not inspect.iscoroutinefunction(twin):
            yield f"a{name} is no coroutine"
        elif arguments(twin) != arguments(method):
            yield f"a{name} takes other arguments"


def arguments(method: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    taken = inspect.signature(method).parameters.values()
    return [(each.name, each.kind, each.default) for each in taken]


@pytest.mark.parametrize("cls", CLASSES)
def test_every_method_has_a_twin_or_a_reason(cls: type) -> None:
    lacking = {f"{cls.__name__}.{name}" for name in without_twin(cls)}
    assert lacking == {name for name in REASONS if name.startswith(f"{cls.__name__}.")}


def test_a_method_without_a_twin_and_a_twin_that_differs_are_noticed() -> None:
    class Clerk:
        def work(self) -> None: ...
        def rest(self, hours: int) -> None: ...
        async def arest(self) -> None: ...
        def eat(self) -> None: ...
        def aeat(self) -> None: ...
        def sleep(self) -> None: ...
        async def asleep(self) -> None: ...

    assert set(without_twin(Clerk)) == {
        "work",
        "arest takes other arguments",
        "aeat is no coroutine",
    }
