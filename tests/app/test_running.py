"""Starting and stopping in places where nobody should, and changing what runs."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from embedq import Broker, RetryPolicy, StoreFailed, UsageError
from embedq.errors import EmbedqError
from tests.processes import line_of

ONCE = RetryPolicy(max_attempts=1)


def poll(condition: Callable[[], object]) -> None:
    pause = threading.Event()
    for _ in range(4_000):
        if condition():
            return
        pause.wait(0.005)
    raise AssertionError("it did not happen")


async def apoll(condition: Callable[[], object]) -> None:
    for _ in range(4_000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


def test_a_handler_cannot_wait_for_its_own_end(path: Path) -> None:
    broker = Broker(path, grace="1m")
    threads, tasks = (broker.queue(name, retry=ONCE) for name in ("threads", "tasks"))
    told: list[EmbedqError] = []

    @threads.consumer
    def handle(body: object) -> None:
        try:
            broker.stop()
        except UsageError as error:
            told.append(error)

    @tasks.consumer
    async def ahandle(body: object) -> None:
        try:
            await broker.astop()
        except UsageError as error:
            told.append(error)
        broker.stop()

    with broker:
        threads.put(1)
        tasks.put(1)
        poll(lambda: len(told) == 2 and tasks.stats().dead)
        assert broker.running
        (letter,) = tasks.dead.list()
        error = letter.attempts[0].error
        assert error is not None
        assert error.type.endswith("UsageError")
    assert all("waited for" in error.message and error.hint for error in told)


def test_the_loop_of_the_handlers_is_not_blocked_by_a_stop(path: Path) -> None:
    broker = Broker(path, grace="1m")
    orders = broker.queue("orders")
    seen: list[object] = []
    go = asyncio.Event()

    @orders.consumer
    async def handle(body: object) -> None:
        seen.append("begun")
        await go.wait()
        seen.append("done")

    async def main() -> None:
        async with broker:
            await orders.aput(1)
            await apoll(lambda: seen)
            with pytest.raises(UsageError, match="run on this loop") as caught:
                broker.stop()
            assert "astop" in str(caught.value)
            asyncio.get_running_loop().call_later(0.05, go.set)
            report = await broker.astop()
            assert report is not None
            assert report.is_clean
        assert not broker.running

    asyncio.run(main())
    assert seen == ["begun", "done"]


def test_a_block_inside_a_coroutine_may_end_there(path: Path) -> None:
    broker = Broker(path)
    orders = broker.queue("orders")
    seen: list[object] = []

    @orders.consumer
    async def handle(body: object) -> None:
        seen.append(body)

    async def main() -> None:
        with broker:  # its handlers run on a loop of their own
            await orders.aput(1)
            await apoll(lambda: seen)

    asyncio.run(main())
    assert seen == [1]


def test_a_function_defined_again_while_it_runs_takes_over(path: Path) -> None:
    broker = Broker(path)
    orders = broker.queue("orders")
    seen: list[object] = []

    def define(version: int) -> None:
        space: dict = {"seen": seen, "orders": orders, "version": version, "__name__": "cell"}
        exec("@orders.consumer\ndef handle(body): seen.append((version, body))", space)

    with broker:
        define(1)
        orders.put("a")
        poll(lambda: seen)
        define(2)
        orders.put_many(["b"] * 20)
        poll(lambda: len(seen) == 21)
    assert seen.count((2, "b")) >= 19  # the former one may just have been waiting for the first
    with broker:
        orders.put("c")
        poll(lambda: seen[-1] == (2, "c"))


def test_cancelling_what_drains_ends_the_grace(path: Path) -> None:
    broker = Broker(path, grace="10m")
    orders = broker.queue("orders")
    seen: list[object] = []
    go = threading.Event()

    @orders.consumer
    def handle(body: object) -> None:
        seen.append(body)
        go.wait(60)

    async def main() -> None:
        async with broker:
            await orders.aput("x")
            await apoll(lambda: seen)
            raise KeyError

    async def cancelled() -> None:
        task = asyncio.create_task(main())
        await apoll(lambda: seen)
        await apoll(lambda: broker.desk.events.count("drain_started"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(cancelled(), 60))
    go.set()
    with Broker(path).queue("orders").get(0) as delivery:
        assert delivery.attempt == 1


INTERRUPTED = """
import asyncio, os, signal, sys, threading
from embedq import Broker

broker = Broker(sys.argv[1], grace="10m")
orders = broker.queue("orders", str)

@orders.consumer
def handle(body):
    print("begun", flush=True)
    threading.Event().wait(600)

async def main():
    async with broker:
        orders.put("x")
        await asyncio.Event().wait()

def block():
    with broker:
        orders.put("x")
        threading.Event().wait()

broker.on("drain_started", lambda notice: print("drains", flush=True))
try:
    asyncio.run(main()) if sys.argv[2] == "async" else block()
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_a_second_ctrl_c_ends_the_drain_of_a_block(path: Path, kind: str) -> None:
    program = [sys.executable, "-W", "error", "-c", INTERRUPTED, str(path), kind]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        try:
            for line in ("begun\n", "drains\n"):
                assert line_of(process) == line
                os.kill(process.pid, signal.SIGINT)
            rest, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    assert rest == "interrupted\n"
    assert process.returncode == 0
    with Broker(path) as broker:
        assert broker.queue("orders").get(0).attempt == 1
        assert "unclean_start" not in broker.stats().events


DEAF = """
import signal, sys, threading
from embedq import Broker

broker = Broker(sys.argv[1], grace="10m")
orders = broker.queue("orders", str)
begun = threading.Event()

@orders.consumer
def handle(body):
    begun.set()
    threading.Event().wait(600)

broker.on("drain_started", lambda notice: print("drains", flush=True))
try:
    with broker:
        orders.put("x")
        begun.wait()
        # Other threads get it: as one that comes right before this one falls asleep, it wakes
        # nobody here.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_ctrl_c_that_does_not_wake_the_main_thread_ends_the_drain_of_a_block(
    path: Path,
) -> None:
    program = [sys.executable, "-W", "error", "-c", DEAF, str(path)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert line_of(process) == "drains\n"
            os.kill(process.pid, signal.SIGINT)
            rest, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    assert rest == "interrupted\n"
    with Broker(path) as broker:
        assert broker.queue("orders").get(0).attempt == 1


def test_a_service_whose_store_has_stopped_ends_with_the_reason(path: Path) -> None:
    broker = Broker(path)
    orders = broker.queue("orders")

    @orders.consumer
    def handle(_order: object) -> None:
        """Do nothing."""

    def break_down() -> None:
        poll(lambda: broker.running)
        broker.desk.store.stop(StoreFailed("the disk is gone"))  # type: ignore[attr-defined]

    breaker = threading.Thread(target=break_down)
    breaker.start()
    with pytest.raises(StoreFailed, match="the disk is gone"):
        broker.run()
    breaker.join()
    assert not broker.running


def test_a_store_that_stops_before_the_service_waits_ends_it_all_the_same(path: Path) -> None:
    broker = Broker(path)
    broker.start()
    broker.desk.store.stop(StoreFailed("the disk is gone"))  # type: ignore[attr-defined]
    stopped: list[str] = []
    with (
        pytest.raises(StoreFailed, match="the disk is gone"),
        broker.backing.ending_on_failure(lambda: stopped.append("yes")),
    ):
        assert stopped == ["yes"]
    broker.stop()
