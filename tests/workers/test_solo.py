"""Every kind of consumer in worker processes: the same as anywhere else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.workers.pooled import App, until

pytestmark = pytest.mark.slow

KINDS = """
import dataclasses, functools, multiprocessing

@dataclasses.dataclass
class Order:
    id: int
    customer: str

def logged(function):
    @functools.wraps(function)
    def inner(*args):
        note("logged", function.__name__)
        return function(*args)
    return inner

class Shop:
    def bill(self, order: Order) -> None:
        note("bill", order.id)

def child(n):
    note("grandchild", n, os.getppid())

orders = broker.queue("orders", Order)
bills = broker.queue("bills", Order)
thrice = RetryPolicy(max_attempts=3, base=0, cap=0, give_up_on=KeyError)
tries = broker.queue("tries", retry=thrice)

@orders.consumer(pool="process")
@logged
def ship(order: Order, delivery: Delivery) -> None:
    note("ship", order.id, order.customer, delivery.attempt, os.getpid())
    bills.put(order, priority=3)
    raised = "nothing"
    try:
        broker.start()
    except Exception as error:
        raised = type(error).__name__
    note("desk", type(broker.desk).__name__, raised, os.getcwd(), os.environ["POOL_TEST"])
    process = multiprocessing.get_context("spawn").Process(target=child, args=(order.id,))
    process.start()
    process.join()

bill = bills.consumer(pool="process")(Shop().bill)

@tries.consumer(pool="process")
def try_it(how: str, delivery: Delivery) -> None:
    note("try", how, delivery.attempt)
    if how == "retry" and delivery.attempt == 1:
        raise Retry("0s")
    if how == "reject":
        raise Reject("unwanted")
    if how == "key":
        raise KeyError(how)
    if how == "exit":
        sys.exit(3)
    if how == "fail":
        raise ValueError(how)
"""


def test_handlers_do_in_a_worker_what_they_do_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POOL_TEST", "inherited")
    with App(tmp_path, KINDS) as app:
        app.put("orders", {"id": 7, "customer": "ann"}, {"id": "seven"})
        app.put("tries", "retry", "reject", "key", "exit", "fail", "fine")
        app.wait("orders", "bills", "tries")
        said = app.said()
        worker = next(words[4] for words in said if words[0] == "ship")
        (undecoded,) = app.letters("orders")
        tried = {letter.body.decode(): letter for letter in app.letters("tries")}
    for words in (
        ["logged", "ship"],
        ["ship", "7", "ann", "1", worker],
        ["bill", "7"],
        ["desk", "WorkerDesk", "UsageError", os.getcwd(), "inherited"],  # noqa: PTH109
        ["grandchild", "7", worker],
    ):
        assert said.count(words) == 1, words
    assert str(undecoded.reason) == "undecodable"
    attempts = {words[1]: int(words[2]) for words in said if words[0] == "try"}
    assert attempts == {"retry": 2, "reject": 1, "key": 1, "exit": 3, "fail": 3, "fine": 1}
    assert {how: str(letter.reason) for how, letter in tried.items()} == {
        "reject": "rejected",
        "key": "rejected",
        "exit": "max_attempts",
        "fail": "max_attempts",
    }
    assert tried["exit"].attempts[-1].error.type == "SystemExit"
    assert not app.told("worker_died")


BATCHES = """
numbers = broker.queue("numbers", retry=AT_ONCE)
waits = broker.queue("waits")

@numbers.consumer(pool="process", batch=10, linger="300ms")
def add(batch: Batch[int]) -> None:
    note("batch", *batch)
    for item, delivery in zip(batch, batch.deliveries):
        if item == 3 and delivery.attempt == 1:
            delivery.nack()

@waits.consumer(pool="process")
async def wait(n: int) -> None:
    await asyncio.sleep(0.001)
    note("waited", n)
"""


def test_batches_and_coroutines(tmp_path: Path) -> None:
    with App(tmp_path, BATCHES) as app:
        app.put("numbers", 1, 2)
        until(lambda: app.told("consumer_registered"))
        app.put("numbers", 3)
        app.put("waits", *range(5))
        app.wait("numbers", "waits")
        said = app.said()
    batches = [words[1:] for words in said if words[0] == "batch"]
    assert sorted(number for batch in batches for number in batch) == ["1", "2", "3", "3"]
    assert sorted(words[1] for words in said if words[0] == "waited") == list("01234")


SECRETS = """
broker = Broker(FOLDER / "app.db", redact=["secret-[0-9]+"])
jobs = broker.queue("jobs", max_attempts=1)

@jobs.consumer(pool="process")
def work(n: int) -> None:
    raise ValueError("the password is secret-123")
"""


def test_secrets_are_hidden_before_they_leave_a_worker(tmp_path: Path) -> None:
    with App(tmp_path, SECRETS) as app:
        app.put("jobs", 1)
        app.wait("jobs")
        until(lambda: app.told("handler_failed"))
        (letter,) = app.letters("jobs")
    assert "[hidden]" in letter.attempts[0].error.message
    assert "secret-123" not in letter.attempts[0].error.traceback
    assert "[hidden]" in app.told("handler_failed")[0]["error"]
