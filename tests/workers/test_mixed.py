"""Everything together: random handlers, drains in the middle, and a ledger that must balance."""

import asyncio
import functools
import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from embedq.broker.endings import DONE
from embedq.broker.host import open_engine
from embedq.decisions import Reject, Retry
from embedq.policy import RetryPolicy
from embedq.workers import loop as loop_module, threads as threads_module
from embedq.workers.batches import Batch
from embedq.workers.crews import ConsumerRunner
from embedq.workers.spec import make_spec
from embedq.workers.verdict import Judge

COUNT = 150
FATES = ["done", "done", "done", "flaky", "raise", "reject", "retry", "garbage", "exit", "slow"]
GROUPS = ("threads", "tasks", "batches")


class Ledger:
    """What each message is to do, what was started and what came to its end, for each group."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.fates = [draw.choice(FATES) for _ in range(COUNT)]
        self.started = {group: Counter[int]() for group in GROUPS}
        self.done = {group: Counter[int]() for group in GROUPS}
        self.lock = threading.Lock()

    def start(self, group: str, number: int) -> tuple[str, int]:
        with self.lock:
            self.started[group][number] += 1
            return self.fates[number], self.started[group][number]

    def end(self, group: str, number: int) -> None:
        with self.lock:
            self.done[group][number] += 1

    def act(self, group: str, number: int) -> object:
        fate, time = self.start(group, number)
        if fate == "raise" or (fate == "flaky" and time == 1):
            raise LookupError(number)
        if fate == "reject":
            raise Reject("no")
        if fate == "exit":
            raise SystemExit
        if fate == "retry" and time < 3:
            return Retry(0.001)
        self.end(group, number)
        return b"garbage" if fate == "garbage" else None

    def dead(self) -> set[int]:
        return {n for n, fate in enumerate(self.fates) if fate in {"raise", "reject", "exit"}}


def in_batches(ledger: Ledger, batch: Batch[int]) -> None:
    for index, number in enumerate(batch):
        try:
            value = ledger.act("batches", number)
        except BaseException as error:  # noqa: BLE001 - each message has its own end
            batch.fail(index, error)
        else:
            if isinstance(value, Retry):
                batch.retry(index, value.delay)


def consumers(ledger: Ledger, never: threading.Event) -> list:
    def on_thread(number: int):
        if ledger.fates[number] == "slow":
            never.wait(0.02)
        return ledger.act("threads", number)

    async def on_loop(number: int):
        if ledger.fates[number] == "slow":
            await asyncio.to_thread(never.wait, 0.02)
        return ledger.act("tasks", number)

    def spec(function: Callable[..., object], group: str, concurrency: int, **batch):
        retry = RetryPolicy(max_attempts=4, base=0.001, cap=0.01)
        return make_spec(
            function, queue="orders", group=group, retry=retry, concurrency=concurrency, **batch
        )

    return [
        spec(on_thread, "threads", 3),
        spec(on_loop, "tasks", 5),
        spec(functools.partial(in_batches, ledger), "batches", 1, batch=7, linger=0.001),
    ]


def balance(path: str | Path, seed: int) -> None:
    """Run consumers, drain them at random moments, go on; then every message has its one end."""
    draw = random.Random(seed)
    ledger, never = Ledger(seed), threading.Event()
    with open_engine(path) as desk:
        queue = desk.queue("orders")
        groups = [desk.group(queue, name, "beginning") for name in GROUPS]
        desk.put_many(queue, [b"%d" % n for n in range(COUNT)], 2)
        nap = threading.Event()
        for _ in range(400):
            runner = ConsumerRunner(desk, consumers(ledger, never))
            runner.start()
            nap.wait(draw.uniform(0.0, 0.4))
            runner.drain(draw.choice([0.0, 0.01, 5.0]))
            for _ in range(2000):  # a claim that the drain cut off is given back by the writer
                if not any(group.leases for group in groups):
                    break
                nap.wait(0.005)
            assert not any(group.leases for group in groups)
            if not any(group.waiting for group in groups):
                break
        assert not queue.stored
        rows = desk.store.dead(queue.id, 0, 10_000)
    for group in groups:
        dead = Counter(int(row.body) for row in rows if row.group == group.id)
        assert set(dead) == ledger.dead()
        assert set(dead.values()) <= {1}
        assert set(ledger.done[group.name]) == set(range(COUNT)) - ledger.dead()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(loop_module, "NOTICE_S", 0.05)
    monkeypatch.setattr(threads_module, "NOTICE_S", 0.05)


@pytest.mark.parametrize("seed", range(4))
def test_every_message_comes_to_its_one_end_in_every_group(tmp_path, seed):
    balance(tmp_path / "q.db" if seed % 2 else ":memory:", seed)


def test_the_ledger_would_notice_a_retry_that_is_taken_for_an_end(monkeypatch):
    monkeypatch.setattr(Judge, "returned", lambda *_: DONE)
    with pytest.raises(AssertionError):
        balance(":memory:", 0)
