"""What the writer commits: tasks, and how a group of them is cut.

Knows: what a task does before and after its commit, that some want one of their own.
Does not know: who commits (writer.py), SQL, what operations mean.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

from embedq.storage.ops import Op


class Task:
    """Work for the writer: operations to commit, what to do before and after under the lock."""

    __slots__ = ("done", "error", "gate", "size")

    #: Rough number of bytes to store; bounds a group.
    size: int

    #: Whether `prepare` must find every task that came before applied, and those that come later
    #: what this one leaves: it then has a commit of its own.
    alone: ClassVar[bool] = False

    def __init__(self, size: int = 0) -> None:
        self.size = size
        self.gate: threading.Lock | None = None
        self.error: BaseException | None = None
        self.done: Callable[[], object] | None = None

    def prepare(self) -> Sequence[Op]:
        """Return the operations, as things stand now. Called again if a commit is repeated."""
        raise NotImplementedError

    def apply(self) -> None:
        """Bring memory up to date: the operations are committed."""
        raise NotImplementedError

    def undo(self) -> None:
        """Take back what `prepare` did: nothing was committed."""


class Book(Protocol):
    """What is kept in memory beside the store, from the writer's point of view."""

    def interrupted(self) -> None:
        """Forget and look again: a commit was interrupted and may or may not have happened."""
        ...


def parts(batch: list[Task]) -> list[list[Task]]:
    """Cut a group where a task wants a commit of its own."""
    if len(batch) == 1 or not any(task.alone for task in batch):
        return [batch]
    found: list[list[Task]] = []
    for task in batch:
        if not found or task.alone or found[-1][-1].alone:
            found.append([])
        found[-1].append(task)
    return found
