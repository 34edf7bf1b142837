"""Consumers on an event loop: the same rules for `async def`."""

import asyncio
import sys
import threading
import time

import pytest

from embedq.broker.delivery import Delivery
from embedq.decisions import Reject
from embedq.lifecycle import Outcome, Reason
from embedq.policy import QueuePolicy, RetryPolicy
from embedq.workers import loop as loop_module
from embedq.workers.crews import ConsumerRunner
from embedq.workers.spec import make_spec


def test_every_message_is_handled_and_acked(bench):
    async def handle(order: int):
        await turn()
        bench.seen.append(order)

    bench.consume(handle, concurrency=20)
    bench.put(*[b"%d" % n for n in range(500)])
    bench.until(bench.drained)
    assert sorted(bench.seen) == list(range(500))


def test_as_many_run_at_once_as_were_asked_for_and_no_more(bench):
    running, most = [0], [0]

    async def handle(order):
        running[0] += 1
        most[0] = max(most[0], running[0])
        await turn()
        running[0] -= 1

    bench.consume(handle, concurrency=7)
    bench.put(*[b"0"] * 70)
    bench.until(bench.drained)
    assert most == [7]


def test_one_slow_message_does_not_keep_the_others_from_being_settled(bench):
    go = threading.Event()

    async def handle(order: int):
        if order == 0:
            await poll(go.is_set)
        bench.seen.append(order)

    bench.consume(handle, concurrency=2)
    bench.put(*[b"%d" % n for n in range(20)])
    bench.until(lambda: len(bench.group.leases) == 1 and bench.queue.stored == 1)
    go.set()
    bench.until(bench.drained)


async def turn():
    """Let the loop go round once."""
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.005, future.set_result, None)
    await future


async def poll(condition):
    """Let the loop go on until a condition is true that other threads bring about."""
    for _ in range(4000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never happened")


async def leave():
    sys.exit(3)


async def interrupt():
    raise KeyboardInterrupt


async def cancelled_inside():
    raise asyncio.CancelledError


async def awaits_what_is_cancelled():
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


@pytest.mark.parametrize("fault", [leave, interrupt, cancelled_inside, awaits_what_is_cancelled])
def test_no_exception_costs_more_than_its_message(bench, fault):
    async def handle(order: int):
        if order == 0:
            await fault()
        bench.seen.append(order)

    bench.consume(handle, retry=RetryPolicy(max_attempts=1))
    bench.put(b"0", b"1")
    bench.until(bench.drained)
    assert bench.seen == [1]
    assert [row.reason for row in bench.dead()] == [Reason.MAX_ATTEMPTS]


def test_failures_rejections_and_undecodable_bodies_end_as_on_threads(bench):
    async def handle(order: int, delivery: Delivery[int]):
        bench.seen.append((order, delivery.attempt))
        if order == 1:
            raise ValueError("no")
        if order == 2:
            raise Reject("never")

    bench.consume(handle, retry=RetryPolicy(max_attempts=2, base=0, cap=0))
    bench.put(b"0", b"1", b"2", b"?")
    bench.until(bench.drained)
    assert sorted(bench.seen) == [(0, 1), (1, 1), (1, 2), (2, 1)]
    assert sorted(row.reason for row in bench.dead()) == [
        Reason.MAX_ATTEMPTS,
        Reason.REJECTED,
        Reason.UNDECODABLE,
    ]


def test_a_handler_may_settle_its_delivery_itself(bench):
    async def handle(order: int, delivery: Delivery[int]):
        if delivery.attempt == 1:
            await delivery.anack(delay=0)
        else:
            await delivery.aack()
            bench.seen.append(delivery.attempt)

    bench.consume(handle)
    bench.put(b"0")
    bench.until(lambda: bench.seen == [2])
    assert bench.drained()


def test_a_timeout_cancels_the_task(bench, monkeypatch):
    monkeypatch.setattr(loop_module, "NOTICE_S", 60.0)

    async def handle(order):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            bench.seen.append("cancelled")
            raise

    bench.consume(handle, timeout=0.05, retry=RetryPolicy(max_attempts=1))
    bench.put(b"0")
    bench.until(bench.dead)
    (attempt,) = bench.attempts()
    assert attempt.error is not None
    assert (attempt.outcome, attempt.error.type) == (Outcome.TIMED_OUT, "Timeout")
    assert bench.seen == ["cancelled"]
    assert not bench.count("stuck_slot")


def test_a_task_that_ignores_its_cancellation_loses_its_slot(bench, monkeypatch):
    monkeypatch.setattr(loop_module, "NOTICE_S", 0.05)
    end = threading.Event()

    async def handle(order: int):
        while order == 0 and not end.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                bench.seen.append("ignored")
        bench.seen.append(order)

    # Far more than the other one takes.
    runner = bench.consume(handle, timeout=1.0, retry=RetryPolicy(max_attempts=1))
    bench.put(b"0", b"1")
    bench.until(bench.drained)
    assert bench.seen == ["ignored", 1]
    assert bench.count("stuck_slot") == 1
    assert runner.stuck == 1
    end.set()
    bench.until(lambda: runner.stuck == 0)


def test_a_blocked_loop_is_reported_with_its_place_and_its_leases_are_kept(bench, monkeypatch):
    monkeypatch.setattr(loop_module, "BLOCKED_S", 0.3)
    bench.desk.queue("orders", QueuePolicy(lease_ms=100))
    notices: list = []
    bench.at.events.on("loop_blocked", notices.append)

    async def handle(order: int):
        bench.seen.append(order)
        if order == 0:
            blocks_the_loop()

    def blocks_the_loop():
        end = time.monotonic() + PATIENCE
        while not notices and time.monotonic() < end:
            threading.Event().wait(0.01)

    bench.consume(handle, concurrency=3)
    bench.put(b"0", b"1", b"2")
    bench.until(bench.drained)
    bench.at.events.flush()
    assert sorted(bench.seen) == [0, 1, 2]
    assert "blocks_the_loop" in notices[0].fields["stack"]
    assert not bench.count("lease_expired")


PATIENCE = 20.0


def test_handlers_run_on_the_loop_they_are_given(bench):
    async def main():
        here = asyncio.get_running_loop()

        async def handle(order):
            bench.seen.append(asyncio.get_running_loop() is here)

        spec = make_spec(handle, queue="orders", concurrency=2)
        runner = ConsumerRunner(bench.at, [spec], loop=here)
        runner.start()
        bench.put(b"0", b"1")
        await poll(bench.drained)
        return await runner.adrain(5)

    report = asyncio.run(main())
    assert bench.seen == [True, True]
    assert report.is_clean


def test_a_loop_that_ends_without_a_drain_leaves_its_messages_to_others(bench):
    async def main():
        async def handle(order):
            bench.seen.append(order)
            await asyncio.Event().wait()

        spec = make_spec(handle, queue="orders")
        runner = ConsumerRunner(bench.at, [spec], loop=asyncio.get_running_loop())
        runner.start()
        bench.put(b"0")
        await poll(lambda: bench.seen)
        return runner

    runner = asyncio.run(main())
    runner.stop()
    assert not bench.group.leases
    (lease,) = bench.desk.claim(bench.group)
    assert lease.attempt == 1
