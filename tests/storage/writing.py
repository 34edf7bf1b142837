"""A writer on a store that only takes notes, tasks that do too, and callers who meet.

Knows: how calls are made to meet in one group, how a commit is made to fail.
Does not know: what a writer must do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import cast
from unittest.mock import patch

from embedq.clock import VirtualClock
from embedq.errors import EmbedqError
from embedq.storage.ops import Op, Pause, PutPlain
from embedq.storage.port import Store
from embedq.storage.writer import Task, Writer

SOON = 20.0  # a hang fails, it does not pass


class Interrupt(BaseException):
    """From outside, like KeyboardInterrupt."""


class FakeStore:
    """Notes what is committed, and fails where it is told to."""

    def __init__(self) -> None:
        self.commits: list[list[int]] = []  # the numbers of the operations
        self.tried: list[list[int]] = []
        self.threads: list[int] = []
        self.settled = self.refused = 0
        self.tidied = 0
        self.untidy = False
        self.fail: Callable[[list[int]], BaseException | None] = lambda _: None
        self.fail_tidying: BaseException | None = None

    def commit(self, batch: Sequence[Op]) -> None:
        numbers = [op.queue for op in batch if isinstance(op, Pause | PutPlain)]
        self.tried.append(numbers)
        self.threads.append(threading.get_ident())
        error = self.fail(numbers)
        if error is not None:
            self.refused += isinstance(error, EmbedqError)
            raise error
        self.commits.append(numbers)

    def put(self, op: PutPlain) -> bool:
        self.commit((op,))
        return self.untidy

    def after_commit(self) -> None:
        self.tidied += 1
        if self.fail_tidying is not None:
            raise self.fail_tidying

    def settle_interrupted(self) -> None:
        self.settled += 1


class FakeBook:
    def __init__(self) -> None:
        self.interruptions = 0

    def interrupted(self) -> None:
        self.interruptions += 1


class Step(Task):
    """A task with a number, that notes what happens to it."""

    def __init__(self, number: int, size: int = 1) -> None:
        super().__init__(size)
        self.number = number
        self.log: list[str] = []
        self.fail: BaseException | None = None

    def prepare(self) -> Sequence[Op]:
        self.log.append("prepare")
        if self.fail is not None:
            raise self.fail
        return (Pause(self.number, paused=True),)

    def apply(self) -> None:
        self.log.append("apply")

    def undo(self) -> None:
        self.log.append("undo")


class Alone(Step):
    alone = True


def make(store: FakeStore, book: FakeBook, most: int = 100, most_bytes: int = 1000) -> Writer:
    fake = cast("Store", store)
    return Writer(fake, book, most=most, most_bytes=most_bytes, clock=VirtualClock())


def put(number: int) -> PutPlain:
    return PutPlain(number, 0, 0, [0, b""], 1)


class Sent:
    """Tasks sent to the writing thread together: one group, unless something cuts it."""

    def __init__(self, writer: Writer, *tasks: Step) -> None:
        self.tasks = tasks
        self._left = threading.Semaphore(0)
        with writer.lock:
            for task in tasks:
                writer.send(task, self._left.release)
        self.wait(writer)

    def wait(self, writer: Writer) -> None:
        for _ in self.tasks:
            assert self._left.acquire(timeout=SOON)
        with writer.lock:  # until the group has been seen to
            pass

    @property
    def errors(self) -> list[str | None]:
        return [None if t.error is None else getattr(t.error, "code", "?") for t in self.tasks]


class Caller:
    """A thread that makes a call; `result` is what it raised."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.result: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - for the test to look at
            self.result = error

    def wait(self) -> BaseException | None:
        self._thread.join(SOON)
        assert not self._thread.is_alive(), "the caller was never answered"
        return self.result


def meet(writer: Writer, *calls: Callable[[], object]) -> list[Caller]:
    """Let calls meet: all have handed over, in this order, before one of them is committed."""
    handed: list[Task] = []
    hand_over = writer._hand_over

    def watched(task: Task) -> None:
        hand_over(task)
        handed.append(task)

    callers = []
    with writer.lock, patch.object(writer, "_hand_over", watched):
        for number, call in enumerate(calls, 1):
            callers.append(Caller(call))
            wait_until(lambda number=number: len(handed) == number)  # type: ignore[misc]
    return callers


def wait_until(fact: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(4000):
        if fact():
            return
        pause.wait(0.005)
    raise AssertionError("it did not happen")
