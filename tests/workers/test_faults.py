"""Handlers that do what none should: the message is not lost for it, the consumer goes on."""

import asyncio
import ctypes
import functools
import gc
import threading
import time
from pathlib import Path

import pytest

from embedq.broker.removal import remove_group
from embedq.decisions import Reject
from embedq.lifecycle import Reason
from embedq.policy import RetryPolicy
from embedq.workers import loop as loop_module, threads
from embedq.workers.batches import Batch
from embedq.workers.crews import ConsumerRunner
from embedq.workers.spec import make_spec

ONCE = RetryPolicy(max_attempts=1)


async def never_awaited():
    raise AssertionError("nobody awaits it")


def never_iterated():
    yield 1


async def never_iterated_either():
    yield 1


class Awaitable:
    def __await__(self):
        raise AssertionError("nobody awaits it")


def through(function):
    """Wrap a function as decorators do that know nothing of generators and coroutines."""

    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


UNFINISHED = {
    "coroutine": (lambda order: never_awaited(), "await it"),
    "generator": (lambda order: never_iterated(), "yield"),
    "async generator": (lambda order: never_iterated_either(), "yield"),
    "awaitable": (lambda order: Awaitable(), "await it"),
    "wrapped coroutine": (through(lambda order: never_awaited()), "wrapped around it"),
}


@pytest.mark.parametrize("kind", ["thread", "async", "batch"])
@pytest.mark.parametrize("case", UNFINISHED)
def test_what_is_returned_unfinished_is_a_failure_and_not_an_end(bench, case, kind):
    returns, said = UNFINISHED[case]

    async def on_loop(order):
        return returns(order)

    handler = on_loop if kind == "async" else returns
    bench.consume(handler, retry=ONCE, batch=5 if kind == "batch" else None)
    bench.put(b"0")
    bench.until(bench.dead)
    error = bench.attempts()[0].error
    assert error is not None
    assert error.type == "TypeError"
    assert said in error.message


class Mine(BaseException):
    pass


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_an_exception_outside_exception_is_the_message_s_failure(bench, kind):
    def handle(order: int):
        bench.seen.append(order)
        if order == 0:
            raise Mine("not even an Exception")

    async def ahandle(order: int):
        handle(order)

    bench.consume(ahandle if kind == "async" else handle, retry=ONCE)
    bench.put(b"0", b"1")
    bench.until(bench.drained)
    assert bench.seen == [0, 1]
    assert [row.reason for row in bench.dead()] == [Reason.MAX_ATTEMPTS]


def test_a_task_that_cancels_itself_fails_instead_of_coming_back_for_ever(bench):
    async def handle(order):
        bench.seen.append(order)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.Event().wait()

    bench.consume(handle, retry=RetryPolicy(max_attempts=2, base=0, cap=0))
    bench.put(b"0")
    bench.until(bench.dead)
    assert bench.seen == [0, 0]
    assert "cancelled" in [attempt.error for attempt in bench.attempts()][-1].message


def test_tasks_of_a_group_may_decide(bench):
    async def refuse():
        raise Reject("by a task")

    async def handle(order):
        async with asyncio.TaskGroup() as group:
            group.create_task(refuse())

    bench.consume(handle)
    bench.put(b"0")
    bench.until(bench.dead)
    assert [row.detail for row in bench.dead()] == ["by a task"]


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_exceptions_of_50_megabytes_do_not_stay_in_memory(bench, kind):
    def handle(order: int):
        raise ValueError("x" * 50_000_000)

    async def ahandle(order: int):
        handle(order)

    def resident() -> float:
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

    if not Path("/proc/self/statm").exists():
        pytest.skip("only on Linux: reads /proc")
    bench.consume(ahandle if kind == "async" else handle, retry=ONCE, concurrency=2)
    bench.put(b"0")
    bench.until(bench.drained)
    before = resident()
    bench.put(*[b"1"] * 8)
    bench.until(bench.drained)
    assert resident() - before < 100
    assert len(bench.dead()) == 9
    assert max(len(row.attempts or b"") for row in bench.dead()) < 10_000


# ------------------------------------------------------------------------------------ the loop


def test_only_the_consumer_that_blocks_the_loop_is_named(bench, monkeypatch):
    monkeypatch.setattr(loop_module, "BLOCKED_S", 0.3)
    notices: list = []
    bench.at.events.on("loop_blocked", notices.append)
    go = threading.Event()

    async def patient(order):
        bench.seen.append("patient")
        while not go.is_set():  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(0.01)

    async def blocks(order):
        end = time.monotonic() + 20
        while not notices and time.monotonic() < end:
            threading.Event().wait(0.01)
        threading.Event().wait(0.5)

    specs = [
        make_spec(patient, queue="orders", group="patient"),
        make_spec(blocks, queue="orders", group="blocks", name="blocks"),
    ]
    runner = ConsumerRunner(bench.at, [specs[0]])
    bench.runners.append(runner)
    runner.start()
    bench.put(b"0")
    bench.until(lambda: bench.seen)
    runner.add(specs[1])
    bench.until(lambda: len(bench.queue.groups) > 1)
    bench.put(b"1")
    bench.until(lambda: notices)
    go.set()
    bench.until(lambda: not runner.running)
    bench.at.events.flush()
    assert {notice.fields["consumer"] for notice in notices} == {"blocks"}


@pytest.mark.parametrize("ends_at_once", [False, True])
def test_a_consumer_whose_task_is_cancelled_by_others_says_so(bench, monkeypatch, ends_at_once):
    async def main():
        async def handle(order): ...

        spec = make_spec(handle, queue="orders")
        runner = ConsumerRunner(bench.at, [spec], loop=asyncio.get_running_loop())
        bench.runners.append(runner)
        runner.start()
        # The pump, and the claim that waits beside it.
        while len(others := asyncio.all_tasks() - {asyncio.current_task()}) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        for task in others:
            task.cancel()
        until = asyncio.get_running_loop().time() + (0 if ends_at_once else 20)
        while not bench.count("consumer_error"):
            await asyncio.sleep(0.005)
            if asyncio.get_running_loop().time() >= until:
                break

    if not ends_at_once:
        monkeypatch.setattr(loop_module, "_TORN_DOWN_S", 0.01)
    asyncio.run(main())
    assert bench.count("consumer_error") == (0 if ends_at_once else 1)


def test_a_handler_that_stops_the_loop_stops_nobody(bench):
    async def handle(order: int):
        bench.seen.append(order)
        asyncio.get_running_loop().stop()

    runner = bench.consume(handle)
    bench.put(b"0")
    bench.until(bench.drained)
    bench.put(b"1")
    bench.until(bench.drained)
    assert bench.seen == [0, 1]
    assert runner.drain(5).is_clean


def test_a_task_survives_a_defect_around_its_handler(bench, monkeypatch):
    async def handle(order: int):
        bench.seen.append(order)

    monkeypatch.setattr("embedq.workers.runner._DEFECT_S", 0.01)
    runner = bench.consume(handle)
    inner = runner.crews[0].runner
    returned, left = inner.returned, [1]

    def defect(run, value):
        if left[0]:
            left[0] -= 1
            raise LookupError("a defect of ours")
        return returned(run, value)

    monkeypatch.setattr(inner, "returned", defect)
    bench.put(b"0")
    bench.until(bench.drained)
    assert bench.seen == [0, 0]
    assert bench.count("consumer_error") == 1


# ----------------------------------------------------------------------------------- the slots


def test_threads_that_are_not_replaced_any_more_are_told_of(bench, monkeypatch):
    monkeypatch.setattr(threads, "STUCK_MAX", 1)
    told: list = []
    bench.at.events.on("consumer_error", told.append)
    release = threading.Event()
    runner = bench.consume(lambda order: release.wait(60), timeout=0.02)
    bench.put(*[b"0"] * 5)
    bench.until(lambda: runner.stuck == 2)
    bench.until(lambda: told)
    assert "2 threads are stuck" in told[0].text
    release.set()


def test_a_message_is_settled_although_no_thread_can_take_the_place_of_a_stuck_one(
    bench, monkeypatch
):
    release = threading.Event()

    def refuse() -> None:
        raise RuntimeError("can't start new thread")

    def handle(order: int):
        monkeypatch.setattr(crew, "_add_slot", refuse)
        release.wait(60)

    runner = bench.consume(handle, timeout=0.1, retry=ONCE)
    (crew,) = runner.crews
    bench.put(b"0")
    bench.until(bench.dead)
    assert bench.count("consumer_error") == 1
    release.set()


def test_a_thread_that_is_ended_beside_its_handler_is_replaced(bench):
    def handle(order: int):
        bench.seen.append((order, threading.get_ident()))

    bench.consume(handle)
    bench.put(b"0")
    bench.until(bench.drained)
    # As libraries do to end what takes too long: here too late, when the handler has ended.
    ended = ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(bench.seen[0][1]), ctypes.py_object(SystemExit)
    )
    assert ended == 1
    bench.put(b"1")
    bench.until(lambda: bench.count("consumer_error"))
    bench.put(b"2")
    bench.until(lambda: bench.seen[-1][0] == 2)
    bench.until(lambda: len(bench.seen) == 3 or bench.group.leases)


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_a_consumer_of_a_group_that_is_removed_ends_and_says_so_once(bench, kind):
    async def ahandle(order): ...

    runner = bench.consume(ahandle if kind == "async" else bench.seen.append, group="audit")
    (group,) = [each for each in bench.queue.groups if each.name == "audit"]
    remove_group(bench.desk, group)
    bench.until(lambda: runner.crews[0].ended)
    assert bench.count("consumer_error") == 1


def test_a_batch_may_be_told_wrong_things_and_is_not_done_for_it(bench):
    def load(batch: Batch[int]):
        bench.seen.append(list(batch))
        batch.retry(0, "soon")

    bench.consume(load, batch=2, retry=ONCE)
    bench.put(b"0", b"1")
    bench.until(bench.drained)
    assert len(bench.dead()) == 2


# ------------------------------------------------------------------------------ the same again


def test_a_function_that_is_defined_again_takes_over_from_the_former_one(bench):
    def defined(version: int):
        space: dict = {"seen": bench.seen, "__name__": "app", "version": version}
        exec("def handle(order): seen.append((version, order))", space)
        return make_spec(space["handle"], queue="orders")

    first, second = defined(1), defined(2)
    runner = ConsumerRunner(bench.at, [first])
    bench.runners.append(runner)
    runner.start()
    bench.put(b"0")
    bench.until(lambda: bench.seen)
    runner.add(second, instead_of=[first])
    bench.until(lambda: runner.crews[0].ended)
    bench.put(*[b"1"] * 20)
    bench.until(lambda: len(bench.seen) == 21)
    assert bench.seen == [(1, 0)] + [(2, 1)] * 20
    # Before the start it does not even begin.
    waiting = ConsumerRunner(bench.at, [first])
    bench.runners.append(waiting)
    waiting.add(second, instead_of=[first])
    waiting.start()
    assert [crew.spec for crew in waiting.crews] == [second]
