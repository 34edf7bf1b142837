"""Calls that meet: several threads' calls in one group commit, in an order a test chooses.

Knows: that calls made while somebody holds the writer's lock are committed together afterwards.
Does not know: what the calls do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from embedq.broker.engine import Engine
from embedq.storage.writer import Task

_PATIENCE_S = 60.0


def together(engine: Engine, *calls: Callable[[], object]) -> list[object]:
    """Make calls in threads of their own, committed as one group in this order.

    Returns what each returned, or the exception it raised.
    """
    results: list[object] = [None] * len(calls)

    def make(number: int, call: Callable[[], object]) -> None:
        try:
            results[number] = call()
        except BaseException as error:  # noqa: BLE001 - the result, for the test to judge
            results[number] = error

    handed: list[object] = []
    threads = []
    with engine.writer.lock, _watched(engine, handed):
        for number, call in enumerate(calls):
            thread = threading.Thread(target=make, args=(number, call), daemon=True)
            thread.start()
            threads.append(thread)
            # The writing thread takes the first and waits for the lock; the others gather.
            _wait_until(
                lambda thread=thread, number=number: (  # type: ignore[misc]
                    len(handed) > number or not thread.is_alive()
                )
            )
            if len(handed) <= number:
                raise AssertionError(f"a call committed nothing: {results[number]!r}")
    for thread in threads:
        thread.join(_PATIENCE_S)
        if thread.is_alive():
            raise AssertionError("a call that met others never returned")
    return results


@contextmanager
def _watched(engine: Engine, handed: list[object]) -> Iterator[None]:
    """Note in `handed` each task that has been handed over to the writing thread."""
    writer = engine.writer
    hand_over = writer._hand_over

    def watched(task: Task) -> None:
        hand_over(task)
        handed.append(task)

    with patch.object(writer, "_hand_over", watched):
        yield


def _wait_until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not fact():
        if time.monotonic() > deadline:
            raise AssertionError("the calls did not meet")
        time.sleep(0.0002)
