"""A loop that is closed while coroutines wait in it: nothing goes to them, and nothing is said."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from embedq import Broker, Queue


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)


@contextmanager
def closed_loop(queue: Queue[Any], is_waiting: Callable[[], bool]) -> Iterator[asyncio.Task[Any]]:
    """A loop that was closed around a coroutine that waits for a message."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(queue.aget())

    async def waits() -> None:
        while not is_waiting():  # noqa: ASYNC110  # the host tells nobody who waits
            await asyncio.sleep(0.005)

    loop.run_until_complete(asyncio.wait_for(waits(), 60))
    loop.close()
    try:
        yield task
    finally:
        quiet: Any = task
        quiet._log_destroy_pending = False  # asyncio would complain
        quiet.get_coro().close()


def waiters(queue: Queue[Any]) -> int:
    return sum(group.waiters for group in queue.stats().groups)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "q.db") as broker:
        yield broker


@pytest.mark.parametrize("options", [{}, {"priority": 3}])
def test_what_is_put_goes_to_those_who_can_still_have_it(host: Broker, options: Any) -> None:
    queue = host.queue("q")
    with closed_loop(queue, lambda: waiters(queue) == 1):
        queue.put(b"x", **options)
        assert queue.get(timeout=20).attempt == 1  # a lease has 30 s


def test_a_client_that_has_left_is_not_told_what_its_coroutine_had_got(host: Broker) -> None:
    queue = host.queue("q")
    client = Broker(host.place, role="client")
    with closed_loop(client.queue("q"), lambda: waiters(queue) == 1):
        queue.put(b"x")
        until(lambda: queue.stats().groups[0].leased == 1)
        client.stop()
    with queue.get(timeout=60) as delivery:
        assert delivery.body == b"x"
