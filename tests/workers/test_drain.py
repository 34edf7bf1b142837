"""Draining: nothing new starts, what runs may finish, the rest goes back and costs nothing."""

import asyncio
import threading
import time

import pytest

from embedq.broker.delivery import Delivery
from embedq.errors import StoreClosed
from embedq.policy import RetryPolicy
from embedq.workers.batches import Batch


class Gate:
    """Handlers that wait, on threads or on a loop, until the test lets them go."""

    def __init__(self, kind: str) -> None:
        self.started: list[int] = []
        self.go = threading.Event()
        self.handler = self.thread if kind == "thread" else self.task

    def thread(self, order: int) -> None:
        self.started.append(order)
        self.go.wait(60)

    async def task(self, order: int) -> None:
        self.started.append(order)
        while not self.go.is_set():  # noqa: ASYNC110 - another thread opens the gate
            await asyncio.sleep(0.005)


@pytest.fixture(params=["thread", "async"])
def gate(request) -> Gate:
    return Gate(request.param)


def in_background(function, *args) -> tuple[threading.Thread, list]:
    results: list = []
    thread = threading.Thread(target=lambda: results.append(function(*args)), daemon=True)
    thread.start()
    return thread, results


def test_what_runs_may_finish_and_nothing_new_starts(bench, gate):
    runner = bench.consume(gate.handler, concurrency=8)
    bench.put(*[b"%d" % n for n in range(20)])
    bench.until(lambda: len(gate.started) == 8)
    thread, reports = in_background(runner.drain, 20)
    bench.until(lambda: bench.count("drain_started"))
    gate.go.set()
    thread.join(20)
    (report,) = reports
    assert (report.finished, report.released, report.stuck) == (8, 0, 0)
    assert report.is_clean
    assert len(gate.started) == 8
    assert bench.group.waiting == 12
    assert not bench.group.leases
    assert {lease.attempt for lease in bench.desk.claim(bench.group, 100)} == {1}


def test_what_ends_as_soon_as_the_drain_is_told_of_counts_as_finished(bench, gate, monkeypatch):
    runner = bench.consume(gate.handler)
    bench.put(b"0")
    bench.until(lambda: gate.started)
    events = bench.at.events
    emit = events.emit

    def told(name, /, **fields):
        emit(name, **fields)
        if name == "drain_started":
            gate.go.set()
            bench.until(lambda: runner.crews[0].finished)

    monkeypatch.setattr(events, "emit", told)
    assert runner.drain(20).finished == 1


def test_what_does_not_finish_goes_back_at_once_and_free(bench, gate):
    runner = bench.consume(gate.handler, concurrency=8)
    bench.put(*[b"%d" % n for n in range(8)])
    bench.until(lambda: len(gate.started) == 8)
    report = runner.drain(0.05)
    assert (report.finished, report.released) == (0, 8)
    assert not report.is_clean
    leases = bench.desk.claim(bench.group, 100)
    assert [lease.attempt for lease in leases] == [1] * 8
    gate.go.set()
    # Late answers change nothing.
    bench.until(lambda: runner.stuck == 0)
    assert len(bench.group.leases) == 8


def test_an_idle_consumer_drains_at_once(bench, gate):
    runner = bench.consume(gate.handler, concurrency=4)
    report = runner.drain(250)
    assert report.seconds < 250
    assert report.is_clean


def test_a_hurried_drain_does_not_wait_for_its_grace(bench, gate):
    runner = bench.consume(gate.handler)
    bench.put(b"0")
    bench.until(lambda: gate.started)
    thread, reports = in_background(runner.drain, 250)
    bench.until(lambda: bench.count("drain_started"))
    runner.hurry()
    thread.join(20)
    assert reports
    assert reports[0].released == 1
    gate.go.set()


def test_a_second_drain_gets_the_report_of_the_first(bench, gate):
    runner = bench.consume(gate.handler)
    first = runner.drain(1)
    assert runner.drain(1) is first
    assert runner.stop() is first


def test_a_handler_that_heeds_its_token_is_given_back_and_not_stuck(bench):
    def handle(order, delivery: Delivery):
        bench.seen.append(order)
        delivery.cancelled.wait(20)
        bench.seen.append(delivery.cancelled.reason)
        raise InterruptedError

    runner = bench.consume(handle)
    bench.put(b"0")
    bench.until(lambda: bench.seen)
    report = runner.drain(0.05)
    assert bench.seen == [0, "drain"]
    assert (report.released, report.stuck) == (1, 0)
    (lease,) = bench.desk.claim(bench.group)
    assert lease.attempt == 1


def test_a_task_that_is_cancelled_by_the_drain_costs_no_attempt(bench):
    async def handle(order):
        bench.seen.append(order)
        await asyncio.Event().wait()

    runner = bench.consume(handle, retry=RetryPolicy(max_attempts=1))
    bench.put(b"0")
    bench.until(lambda: bench.seen)
    report = runner.drain(0.05)
    assert (report.released, report.stuck) == (1, 0)
    assert not bench.dead()
    (lease,) = bench.desk.claim(bench.group)
    assert lease.attempt == 1


def test_a_batch_that_still_lingers_is_given_back(bench):
    def load(batch: Batch[int]):
        bench.seen.append(list(batch))

    runner = bench.consume(load, batch=10, linger="1m")
    bench.put(b"0", b"1")
    bench.until(lambda: len(bench.group.leases) == 2)
    report = runner.drain(250)
    assert report.seconds < 250
    assert bench.seen == []
    assert [lease.attempt for lease in bench.desk.claim(bench.group, 5)] == [1, 1]


def test_a_blocked_loop_does_not_keep_a_drain_from_giving_back(bench):
    go = threading.Event()

    async def handle(order: int):
        bench.seen.append(order)
        go.wait(20)

    runner = bench.consume(handle)
    bench.put(b"0")
    bench.until(lambda: bench.seen)
    report = runner.drain(0.05)
    assert (report.released, report.stuck) == (1, 1)
    (lease,) = bench.desk.claim(bench.group)
    assert lease.attempt == 1
    go.set()


def test_consumers_end_by_themselves_when_the_broker_closes(bench, gate):
    runner = bench.consume(gate.handler, concurrency=2)
    bench.at.close()
    bench.until(lambda: all(crew.ended for crew in runner.crews))
    assert not bench.count("consumer_error")
    with pytest.raises(StoreClosed):
        bench.at.put(bench.queue, b"0")


def test_nothing_happens_while_nothing_is_to_be_done(bench, gate):
    bench.consume(gate.handler, concurrency=4, timeout="10s")
    gate.go.set()
    bench.put(b"0")
    bench.until(bench.drained)
    groups = bench.desk.writer.groups
    cpu = time.process_time()
    threading.Event().wait(1.0)
    assert time.process_time() - cpu < 0.25  # of 1 s
    assert bench.desk.writer.groups - groups <= 1
