"""Batch consumers: how many messages come together, and that each ends by itself."""

import asyncio
import threading

import pytest

from embedq.lifecycle import Outcome, Reason
from embedq.policy import RetryPolicy
from embedq.workers.batches import Batch


def test_what_is_ready_comes_together(bench):
    bench.put(*[b"%d" % n for n in range(25)])

    def load(batch: Batch[int]):
        bench.seen.append(list(batch))

    bench.consume(load, batch=10)
    bench.until(bench.drained)
    assert bench.seen == [list(range(10)), list(range(10, 20)), list(range(20, 25))]


def test_a_list_of_bodies_will_do(bench):
    bench.put(b"1", b"2")

    def load(orders: list[int]):
        bench.seen.append(orders)

    bench.consume(load, batch=5)
    bench.until(bench.drained)
    assert bench.seen == [[1, 2]]


def test_a_batch_that_may_linger_waits_for_more(bench):
    def load(batch: Batch[int]):
        bench.seen.append(list(batch))

    bench.consume(load, batch=3, linger="15s")
    for body in (b"1", b"2", b"3"):
        bench.put(body)
    bench.until(bench.drained)
    assert bench.seen == [[1, 2, 3]]


def test_a_batch_does_not_linger_for_ever(bench):
    bench.consume(lambda batch: bench.seen.append(list(batch)), batch=3, linger=0.05)
    bench.put(b"1")
    bench.until(bench.drained)
    assert bench.seen == [[1]]


def test_each_message_has_its_own_outcome(bench):
    def load(batch: Batch[int]):
        bench.seen.append(list(batch))
        for index, order in enumerate(batch):
            if order == 1:
                batch.reject(index, "one")
            if order == 2 and len(bench.seen) == 1:
                batch.retry(index, 0)

    bench.put(b"0", b"1", b"2", b"3")
    bench.consume(load, batch=10)
    bench.until(bench.drained)
    assert bench.seen == [[0, 1, 2, 3], [2]]
    assert [row.detail for row in bench.dead()] == ["one"]


def test_what_was_done_before_an_exception_is_not_done_again(bench):
    def load(batch: Batch[int]):
        bench.seen.append(list(batch))
        if len(bench.seen) == 1:
            batch.ack(0)
            raise ValueError("in the middle")

    bench.put(b"0", b"1", b"2")
    bench.consume(load, batch=10)
    bench.until(bench.drained)
    assert bench.seen[0] == [0, 1, 2]
    assert sorted(n for later in bench.seen[1:] for n in later) == [1, 2]


def test_an_undecodable_body_does_not_reach_the_batch(bench):
    def load(batch: Batch[int]):
        bench.seen.append(list(batch))

    bench.put(b"0", b"?", b"2")
    bench.consume(load, batch=10)
    bench.until(bench.drained)
    assert bench.seen == [[0, 2]]
    assert [row.reason for row in bench.dead()] == [Reason.UNDECODABLE]


def test_deliveries_may_be_settled_one_by_one(bench):
    def load(batch: Batch[int]):
        first, second = batch.deliveries
        bench.seen.append((first.id != second.id, first.attempt))
        first.reject("by hand")

    bench.put(b"0", b"1")
    bench.consume(load, batch=10)
    bench.until(bench.drained)
    assert bench.seen == [(True, 1)]
    assert [row.detail for row in bench.dead()] == ["by hand"]


def test_an_async_handler_gets_batches_too(bench):
    async def load(batch: Batch[int]):
        await asyncio.to_thread(bench.drained)
        bench.seen.append(list(batch))
        if len(bench.seen) == 1:
            raise SystemExit

    bench.put(b"0", b"1")
    bench.consume(load, batch=10)
    bench.until(bench.drained)
    assert bench.seen[0] == [0, 1]
    assert sorted(n for later in bench.seen[1:] for n in later) == [0, 1]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_batch_that_takes_too_long_times_out_but_keeps_what_is_done(bench, is_async):
    release = threading.Event()

    def load(batch: Batch[int]):
        batch.ack(0)
        release.wait(60)

    async def aload(batch: Batch[int]):
        batch.ack(0)
        await asyncio.Event().wait()

    bench.put(b"0", b"1")
    handler = aload if is_async else load
    bench.consume(handler, batch=2, timeout=0.05, retry=RetryPolicy(max_attempts=1))
    bench.until(bench.drained)
    release.set()
    assert [row.body for row in bench.dead()] == [b"1"]
    assert [attempt.outcome for attempt in bench.attempts()] == [Outcome.TIMED_OUT]
