"""Consumers on threads: whatever a handler does, its message ends and its slot goes on."""

import contextvars
import os
import sys
import threading

import pytest

from embedq.broker.delivery import Delivery
from embedq.decisions import Reject, Retry
from embedq.errors import StoreBusy
from embedq.lifecycle import Outcome, Reason
from embedq.policy import QueuePolicy, RetryPolicy
from embedq.workers import threads


def test_every_message_is_handled_and_acked(bench):
    bench.consume(bench.seen.append, concurrency=3)
    bench.put(*[b"%d" % n for n in range(200)])
    bench.until(bench.drained)
    assert sorted(bench.seen) == list(range(200))
    assert not bench.queue.stored


def test_as_many_run_at_once_as_there_are_slots(bench):
    together = threading.Barrier(4)

    def handle(order):
        together.wait(60)

    bench.consume(handle, concurrency=4)
    bench.put(*[b"0"] * 8)
    bench.until(bench.drained)
    assert not bench.dead()


def test_bodies_are_decoded_to_the_annotation(bench):
    def handle(order: dict[str, int]):
        bench.seen.append(order)

    bench.consume(handle)
    bench.put(b'{"n":1}')
    bench.until(bench.drained)
    assert bench.seen == [{"n": 1}]


def test_a_failure_is_tried_again_and_dies_with_its_attempts(bench):
    def handle(order):
        bench.seen.append(order)
        raise LookupError(f"no stock for {order}")

    bench.consume(handle, retry=RetryPolicy(max_attempts=3, base=0, cap=0))
    bench.put(b"7")
    bench.until(bench.dead)
    assert bench.seen == [7, 7, 7]
    (letter,) = bench.dead()
    assert letter.reason == Reason.MAX_ATTEMPTS
    attempts = bench.attempts()
    assert [a.attempt for a in attempts] == [1, 2, 3]
    error = attempts[-1].error
    assert error is not None
    assert (error.type, error.message) == ("LookupError", "no stock for 7")
    assert "in handle" in error.traceback
    assert "embedq/workers" not in error.traceback


def stop_everything():
    sys.exit(3)


def interrupt():
    raise KeyboardInterrupt


def leave():
    raise GeneratorExit


def too_large():
    raise ValueError("x" * 50_000_000)


class Unpicklable(Exception):
    def __init__(self, one, two):
        super().__init__(one, two)
        self.lock = threading.Lock()

    def __reduce__(self):
        raise TypeError("never")


def unpicklable():
    raise Unpicklable(1, 2)


class Mute(Exception):
    def __str__(self):
        raise SystemExit


def mute():
    raise Mute


@pytest.mark.parametrize(
    "fault", [stop_everything, interrupt, leave, too_large, unpicklable, mute]
)
def test_no_exception_costs_more_than_its_message(bench, fault):
    def handle(order):
        if order == 0:
            fault()
        bench.seen.append(order)

    runner = bench.consume(handle, retry=RetryPolicy(max_attempts=1))
    bench.put(b"0", b"1")
    bench.until(bench.drained)
    assert bench.seen == [1]
    assert len(bench.dead()) == 1
    assert len(bench.dead()[0].attempts or b"") < 10_000
    assert not runner.crews[0].ended


@pytest.mark.parametrize("value", [0, "text", object(), [Retry(1)], Exception("returned")])
def test_whatever_else_is_returned_the_message_is_done(bench, value):
    bench.consume(lambda order: value)
    bench.put(b"1")
    bench.until(bench.drained)
    assert not bench.dead()


def test_retry_and_reject_decide_raised_or_returned(bench):
    def handle(order):
        bench.seen.append(order)
        if bench.seen.count(order) == 1 and order < 2:
            if order == 0:
                raise Retry(0)
            return Retry(0)
        if order == 2:
            raise Reject("raised")
        return Reject("returned") if order == 3 else None

    bench.consume(handle)
    bench.put(b"0", b"1", b"2", b"3")
    bench.until(bench.drained)
    assert sorted(bench.seen) == [0, 0, 1, 1, 2, 3]
    assert sorted(row.detail for row in bench.dead()) == ["raised", "returned"]


def test_a_coroutine_that_nobody_awaits_is_a_failure(bench):
    async def inner():
        bench.seen.append("never")

    bench.consume(lambda order: inner(), retry=RetryPolicy(max_attempts=1))
    bench.put(b"0")
    bench.until(bench.dead)
    error = bench.attempts()[0].error
    assert error is not None
    assert "async def" in error.message


def test_an_undecodable_body_is_dead_and_the_next_one_proceeds(bench):
    def handle(order: int):
        bench.seen.append(order)

    bench.consume(handle)
    bench.put(b"no number", b"2")
    bench.until(bench.drained)
    assert bench.seen == [2]
    (letter,) = bench.dead()
    assert (letter.reason, letter.body) == (Reason.UNDECODABLE, b"no number")


def test_what_the_handler_settles_itself_is_not_settled_again(bench):
    def handle(order: int, delivery: Delivery[int]):
        bench.seen.append((order, delivery.attempt))
        if order == 0:
            delivery.ack()
            raise ValueError("after the ack")
        if order == 1 and delivery.attempt == 1:
            delivery.nack(delay=0)
        if order == 2:
            delivery.reject("by hand")

    bench.consume(handle)
    bench.put(b"0", b"1", b"2")
    bench.until(bench.drained)
    assert sorted(bench.seen) == [(0, 1), (1, 1), (1, 2), (2, 1)]
    assert [row.detail for row in bench.dead()] == ["by hand"]


def test_what_one_message_sets_in_the_context_the_next_does_not_see(bench):
    name = contextvars.ContextVar("name", default="nobody")
    name.set("the starter")

    def handle(order):
        bench.seen.append(name.get())
        name.set("a handler")

    bench.consume(handle)
    bench.put(b"0", b"1")
    bench.until(bench.drained)
    assert bench.seen == ["the starter", "the starter"]


def test_a_handler_that_runs_longer_than_its_lease_keeps_it(bench):
    bench.desk.queue("orders", QueuePolicy(lease_ms=100))
    go = threading.Event()

    def handle(order):
        bench.seen.append(order)
        go.wait(60)

    bench.consume(handle, concurrency=2)
    bench.put(b"0")
    bench.until(lambda: bench.seen)
    threading.Event().wait(0.5)
    go.set()
    bench.until(bench.drained)
    assert bench.seen == [0]
    assert not bench.count("lease_expired")


def test_a_handler_learns_that_its_message_is_no_longer_its_own(bench):
    def handle(order, delivery: Delivery):
        bench.seen.append(delivery.lease)
        delivery.cancelled.wait(60)
        bench.seen.append(delivery.cancelled.reason)

    bench.consume(handle)
    bench.put(b"0")
    bench.until(lambda: bench.seen)
    bench.desk.settle_by_id(bench.group, bench.seen[0].seq)  # as an operator would
    bench.until(lambda: len(bench.seen) == 2)
    assert bench.seen[1] == "lease_lost"
    assert bench.drained()


# ------------------------------------------------------------------------------- timeouts


def test_a_stuck_slot_is_reported_and_replaced_and_its_message_tried_again(bench):
    release = threading.Event()
    calls = []

    def handle(order):
        calls.append(order)
        if order == 0 and calls.count(0) == 1:
            release.wait(60)
        bench.seen.append(order)

    runner = bench.consume(handle, timeout=1.0)  # far more than the others take
    bench.put(b"0", b"1", b"2")
    bench.until(bench.drained)
    assert sorted(bench.seen) == [0, 1, 2]
    assert calls.count(0) == 2
    assert (bench.count("handler_timeout"), bench.count("stuck_slot")) == (1, 1)
    assert bench.count("slot_replaced") == 1
    assert runner.stuck == 1
    release.set()
    bench.until(lambda: not runner.stuck)
    assert runner.crews[0].running == 0
    bench.put(b"3")
    bench.until(lambda: 3 in bench.seen)


PATIENCE = 20.0


def test_the_last_timeout_is_a_dead_letter_that_says_so(bench):
    never = threading.Event()

    def handle(order):
        never.wait(60)

    bench.consume(handle, timeout=0.05, retry=RetryPolicy(max_attempts=2, base=0, cap=0))
    bench.put(b"0")
    bench.until(bench.dead)
    never.set()
    attempts = bench.attempts()
    assert [a.outcome for a in attempts] == [Outcome.TIMED_OUT] * 2
    assert attempts[0].error is not None
    assert "0.05 seconds" in attempts[0].error.message


def test_a_handler_that_heeds_its_token_is_not_stuck(bench, monkeypatch):
    monkeypatch.setattr(threads, "NOTICE_S", 60.0)

    def handle(order, delivery: Delivery):
        delivery.cancelled.wait(60)
        bench.seen.append(delivery.cancelled.reason)
        raise TimeoutError("I was told to stop")

    bench.consume(handle, timeout=0.05, retry=RetryPolicy(max_attempts=1))
    bench.put(b"0")
    bench.until(bench.dead)
    (attempt,) = bench.attempts()
    assert attempt.error is not None
    assert (attempt.outcome, attempt.error.type) == (Outcome.TIMED_OUT, "TimeoutError")
    assert bench.seen == ["timeout"]
    assert not bench.count("stuck_slot")


def test_the_work_of_a_handler_that_ends_after_all_is_not_thrown_away(bench, monkeypatch):
    monkeypatch.setattr(threads, "NOTICE_S", 60.0)

    def handle(order, delivery: Delivery):
        delivery.cancelled.wait(60)

    bench.consume(handle, timeout=0.05)
    bench.put(b"0")
    bench.until(bench.drained)
    assert not bench.dead()
    assert bench.count("handler_timeout") == 1


def test_a_late_answer_of_a_stuck_handler_changes_nothing(bench):
    release = threading.Event()
    told: list[BaseException] = []

    def handle(order, delivery: Delivery):
        if delivery.attempt > 1:
            return
        release.wait(60)
        try:
            delivery.reject("too late")
        except BaseException as error:
            told.append(error)
            raise

    runner = bench.consume(handle, timeout=0.05)
    threads_notice = threads.NOTICE_S
    assert threads_notice <= 1.0
    bench.put(b"0")
    bench.until(bench.drained)
    release.set()
    bench.until(lambda: not runner.stuck)
    assert [type(error).__name__ for error in told] == ["StaleLease"]
    assert not bench.dead()


def test_slots_are_not_replaced_without_end(bench, monkeypatch):
    monkeypatch.setattr(threads, "STUCK_MAX", 2)
    release = threading.Event()
    runner = bench.consume(lambda order: release.wait(60), timeout=0.02)
    bench.put(*[b"0"] * 10)
    bench.until(lambda: runner.stuck == 3)
    assert runner.crews[0].ended
    release.set()


# ------------------------------------------------------------------------------- the store


def test_an_ack_that_cannot_be_stored_at_once_is_tried_again(bench, monkeypatch):
    store = bench.desk.store
    commit = store.commit
    left = [3]

    def busy(ops):
        if left[0] and bench.seen:
            left[0] -= 1
            raise StoreBusy("another program holds the lock")
        return commit(ops)

    monkeypatch.setattr(store, "commit", busy)
    bench.consume(bench.seen.append)
    bench.put(b"0")
    bench.until(bench.drained)
    assert bench.seen == [0]
    assert bench.count("consumer_error") == 3


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_handler_that_forks_and_comes_back_twice_is_acked_once(bench):
    def handle(order):
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            bench.seen.append(status)

    bench.consume(handle)
    bench.put(b"0")
    bench.until(bench.drained)
    assert bench.seen == [0]
