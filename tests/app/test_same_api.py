"""The same calls do the same things in the host, in a client, and beside a sidecar."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from embedq import Broker, DuplicateConsumer, Empty, Queue, QueueFull, RetryPolicy
from tests.ipc.peer import eventually

ONCE = RetryPolicy(max_attempts=1)


@pytest.fixture(scope="module", params=["host", "client", "sidecar"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A broker that runs; each test has a queue of its own."""
    path = tmp_path_factory.mktemp(request.param) / "app.db"
    with ExitStack() as stack:
        if request.param == "client":
            stack.enter_context(Broker(path, role="host"))
            broker = Broker(path, role="client")
        else:
            broker = Broker(path, sidecar=request.param == "sidecar")
        yield stack.enter_context(broker)


@pytest.fixture
def queue(broker: Broker, request: pytest.FixtureRequest) -> Queue[Any]:
    return broker.queue(request.node.originalname.removeprefix("test_"), retry=ONCE)


def test_what_is_put_is_got_once_and_gone_after_its_ack(queue: Queue[Any]) -> None:
    receipts = queue.put_many([{"n": n} for n in range(3)], headers={"from": "here"})
    with queue.get(60) as first:
        assert (first.body, dict(first.headers), first.attempt) == ({"n": 0}, {"from": "here"}, 1)
    second = queue.get(60)
    second.reject("no")
    assert queue.cancel(receipts[2].id)
    with pytest.raises(Empty):
        queue.get(0)
    assert (queue.stats().stored, queue.stats().dead) == (0, 1)


def test_handlers_run_on_threads_and_on_a_loop(broker: Broker, queue: Queue[Any]) -> None:
    done: list[tuple[str, Any]] = []
    queue.consumer(group="threads")(lambda body: done.append(("thread", body)))

    @queue.consumer(group="tasks")
    async def handle(body: object) -> None:
        await asyncio.sleep(0)
        done.append(("task", body))

    queue.put("x")
    eventually(lambda: len(done) == 2)
    assert sorted(done) == [("task", "x"), ("thread", "x")]
    assert broker.running


def test_what_fails_is_a_dead_letter_that_can_be_put_again(queue: Queue[Any]) -> None:
    fail = threading.Event()
    fail.set()
    done: list[str] = []

    @queue.consumer
    def handle(body: str) -> None:
        if fail.is_set():
            raise ValueError(f"not {body}")
        done.append(body)

    queue.put("x")
    eventually(lambda: len(queue.dead) == 1)
    (letter,) = queue.dead.list()
    assert "not x" in str(letter.attempts[-1].error)
    fail.clear()
    assert len(queue.dead.redrive()) == 1
    eventually(lambda: done == ["x"])


def test_one_name_is_for_one_consumer(queue: Queue[Any]) -> None:
    queue.consumer(name="mine")(lambda _: None)
    with pytest.raises(DuplicateConsumer):
        queue.consumer(name="mine")(lambda _: 1)


def test_a_queue_is_looked_at_paused_and_emptied(broker: Broker, queue: Queue[Any]) -> None:
    heard = threading.Event()
    off = broker.on("paused", lambda _: heard.set(), queue=queue.name)
    queue.put_many(["a", "b"])
    queue.pause()
    assert heard.wait(20)
    off()
    with pytest.raises(Empty):
        queue.get(0)
    assert [message.body for message in queue.peek(5)] == [b"a", b"b"]
    queue.resume()
    assert queue.purge() == 2
    assert queue.name in [each.name for each in broker.queues]
    assert broker.stats().queues


def test_a_full_queue_refuses(broker: Broker) -> None:
    full = broker.queue("full", max_length=1, when_full="reject")
    full.put("x")
    with pytest.raises(QueueFull):
        full.put("y")


def test_a_key_is_put_once(queue: Queue[Any]) -> None:
    first, second = (queue.put("x", dedup_key="k") for _ in range(2))
    assert (first.id, second.duplicate) == (second.id, True)


def test_coroutines_put_and_get(queue: Queue[Any]) -> None:
    async def run() -> list[object]:
        await asyncio.gather(*(queue.aput(n) for n in range(20)))
        found = []
        for _ in range(20):
            async with await queue.aget(10) as delivery:
                found.append(delivery.body)
        return found

    assert sorted(asyncio.run(run())) == list(range(20))  # type: ignore[type-var]
