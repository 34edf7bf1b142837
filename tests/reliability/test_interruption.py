"""An exception from outside, at every point of every operation: nothing is stored but stuck.

Knows: what must hold after any operation was interrupted anywhere, whoever enters next.
Does not know: how the exception gets there (interrupting.py), how the writer recovers.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import os
import shutil
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest.mock import Mock

import pytest

from embedq.broker.desk import Desk
from embedq.broker.endings import DONE
from embedq.broker.engine import Engine
from embedq.broker.host import open_engine
from embedq.clock import VirtualClock
from embedq.errors import EmbedqError, StaleLease, StoreBusy, StoreFailed
from embedq.limits import LIMITS
from embedq.message import draft
from embedq.storage.writer import Writer
from tests.reliability.interrupting import Strike, strikes

pytestmark = [
    pytest.mark.reliability,
    # An exception that strikes a generator at its end is printed by the interpreter, no more.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

TIGHT = dataclasses.replace(
    LIMITS, load_chunk=2, head_max=3, disk_watermark_bytes=0, ballast_bytes=0
)
LEASE_S = 10.0

#: Set for a run of a quarter of an hour instead of one of a minute.
EVERY_POINT = bool(os.environ.get("EMBEDQ_TEST_EVERY_POINT") or os.environ.get("EMBEDQ_TEST_LONG"))


class Ground:
    """One queue that is filled, used and emptied again and again."""

    engine: Desk

    def __init__(self, folder: Any) -> None:
        self.folder = folder
        self.clock = VirtualClock()
        self.number = 0
        self.path = folder / "q0.db"
        self.open()

    def open(self) -> None:
        self.engine = open_engine(
            self.path, durability="normal", clock=self.clock, limits=TIGHT, upkeep=False
        )
        self.queue = self.engine.queue("orders")
        self.group = self.engine.group(self.queue)

    def reopen_clean(self) -> None:
        self.engine.close()
        self.open()

    def abandon(self) -> None:
        self.engine.writer.close()
        self.engine.store.close(clean=False)

    def reopen_crashed(self) -> None:
        old, self.number = self.path, self.number + 1
        self.path = self.folder / f"q{self.number}.db"
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{old}{suffix}", f"{self.path}{suffix}")
        self.abandon()
        self.open()

    def fill(self) -> None:
        """Put messages of every kind, in every state."""
        engine, queue = self.engine, self.queue
        soon = engine.now_ms() + 1000
        engine.put_many(queue, [b"plain"] * 4)
        self.held = engine.claim(self.group, 2, LEASE_S)
        engine.fail(engine.claim(self.group, 1, LEASE_S)[0], None, 1.0)
        engine.put_drafts(
            queue,
            [
                draft(b"key", ordering_key="k"),
                draft(b"key again", ordering_key="k"),
                draft(b"urgent", priority=5),
                draft(b"later", available_at_ms=soon),
            ],
        )
        self.held += engine.claim(self.group, 2, LEASE_S)  # the urgent one is among them
        engine.put_many(queue, [b"more"] * 3)

    def fill_plainly(self) -> None:
        """Leave nothing but plain messages: one is leased, the next one is in memory."""
        engine = self.engine
        engine.ack(*self.held)
        engine.cancel(self.queue, *self.stored)
        with engine.writer.lock:
            engine.rebuild(self.group)  # memory would remember what is cancelled for a while
        engine.put_many(self.queue, [b"plain"] * 3)
        self.held = engine.claim(self.group, 1, LEASE_S)

    def exchange(self) -> None:
        self.engine.exchange(self.group, [(self.held[0], DONE)], lease_s=LEASE_S)

    def later(self) -> Engine:
        self.clock.advance(LEASE_S)
        return self.engine

    @property
    def stored(self) -> list[int]:
        return [message.seq for message in self.engine.peek(self.queue, 1000)]

    def ack_last(self) -> None:
        with suppress(StaleLease):  # what was interrupted may have acked it
            self.engine.ack(*[lease for lease in self.held if lease.is_held][-1:])

    def check_locks(self) -> None:
        for lock in (self.engine.writer.lock, self.group.loading):
            assert lock.acquire(timeout=60), "a lock is still held"
            lock.release()
        for mine in (self.engine.writer._mine, self.group.loader):
            assert not mine._is_owned(), "this thread has not left a lock"

    def check_counts(self, stored: int, settled: int, leased: int) -> None:
        if not self.engine.counts_exact:
            self.engine.upkeep.count()
        assert self.engine.counts_exact
        assert self.queue.stored == stored
        assert self.group.settled == settled
        assert self.group.waiting == stored - settled - leased

    def drain(self) -> None:
        """Everything that is stored comes, once, and with the attempt that the store knows."""
        engine, group = self.engine, self.group
        waiting = self.stored
        came = []
        for _ in range(len(waiting) + 5):
            leases = engine.claim(group, 4, LEASE_S)
            if not leases:
                break
            for lease in leases:
                came.append(lease.seq)
                assert engine.store.deliveries(lease.seq)[-1].attempt == lease.attempt
            engine.ack(*leases)
        assert sorted(came) == waiting, f"{sorted(came)} came instead of {waiting}"
        assert self.stored == []
        self.check_counts(0, 0, 0)

    def check(self) -> None:
        self.check_locks()
        late = self.engine.put(self.queue, b"late")
        assert late in self.stored
        self.clock.advance(LEASE_S + 5)
        self.engine.end_leases()
        self.check_counts(len(self.stored), 0, 0)
        self.drain()


#: What is interrupted: a function that prepares it and returns the call.
Operation = Callable[[Ground], Callable[[], object]]


def _exchange_plain(ground: Ground) -> Callable[[], object]:
    ground.fill_plainly()
    index = ground.group.index
    assert index.streams[0].head, "the next one is not in memory"
    assert not index.top, "the short way is not taken"
    assert not index.entries, "the short way is not taken"
    return ground.exchange


OPERATIONS: dict[str, Operation] = {
    "put": lambda g: lambda: g.engine.put(g.queue, b"one"),
    "put_many(3)": lambda g: lambda: g.engine.put_many(g.queue, [b"many"] * 3),
    "put_many(5)": lambda g: lambda: g.engine.put_many(g.queue, [b"many"] * 5),
    "put_drafts": lambda g: (
        lambda: g.engine.put_drafts(
            g.queue,
            [draft(b"a", ordering_key="k"), draft(b"b", priority=9, dedup_key=f"{g.number}")],
        )
    ),
    "claim(1)": lambda g: lambda: g.engine.claim(g.group, 1, LEASE_S),
    "claim(9)": lambda g: lambda: g.engine.claim(g.group, 9, LEASE_S),
    "ack(1)": lambda g: lambda: g.engine.ack(g.held[0]),
    "ack(4)": lambda g: lambda: g.engine.ack(*g.held),
    "exchange": lambda g: g.exchange,
    "exchange of plain ones": _exchange_plain,
    "fail": lambda g: lambda: g.engine.fail(g.held[0], None, 2.0),
    "reject": lambda g: lambda: g.engine.reject(g.held[0], "no"),
    "release": lambda g: lambda: g.engine.release(g.held),
    "extend": lambda g: lambda: g.engine.extend(g.held[0], 5),
    "cancel": lambda g: lambda: g.engine.cancel(g.queue, *g.stored),
    "end_leases": lambda g: g.later().end_leases,
    "round": lambda g: g.later().upkeep.round,
    "count": lambda g: g.engine.upkeep.count,
}

#: Who enters next, and therefore has to tidy up.
NEXT: tuple[Callable[[Ground], object], ...] = (
    lambda g: g.engine.put(g.queue, b"next"),
    lambda g: g.engine.claim(g.group, 3, LEASE_S),
    lambda g: g.engine.put_many(g.queue, [b"next"] * 5),
    lambda g: g.ack_last(),
    lambda g: g.engine.upkeep.round(),
    lambda g: g.engine.upkeep.count(),
    lambda g: g.reopen_clean(),
    lambda g: g.reopen_crashed(),
)


def interrupt_everywhere(
    ground: Ground,
    operation: Operation,
    *,
    crowded: bool = False,
    first: int = 1,
    step: int = 1,
    kind: type[BaseException] = KeyboardInterrupt,
) -> int:
    """Interrupt an operation at each point in turn; return how many there were."""
    followers = itertools.cycle(NEXT)
    for strike in strikes(first, step, kind):
        ground.fill()
        call = operation(ground)
        # As if others were committing: the operation is handed over to the writing thread.
        ground.engine.writer._crowded = crowded
        try:
            if not strike.during(call):
                ground.check()
                return strike.points
            ground.check_locks()
            next(followers)(ground)
            ground.check()
        except BaseException as error:
            error.add_note(f"interrupted at point {strike.number}: {strike.where}")
            raise
    raise AssertionError("never reached")


@pytest.fixture(autouse=True)
def silence():
    """Thousands of lost leases would be logged, and kept by pytest."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def ground(tmp_path):
    one = Ground(tmp_path)
    yield one
    one.engine.close()


#: Every point of the operations that are promised; of longer or rarer ones some in each run.
STEPS = {
    "ack(4)": 3,
    "cancel": 5,
    "claim(9)": 7,
    "count": 5,
    "end_leases": 13,
    "exchange": 7,
    "exchange of plain ones": 2,
    "extend": 3,
    "fail": 3,
    "put_drafts": 3,
    "put_many(5)": 3,
    "reject": 3,
    "release": 3,
    "round": 17,
}


@pytest.mark.parametrize("crowded", [False, True], ids=["alone", "in a crowd"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_interrupt_anywhere_leaves_nothing_stuck(ground, name, crowded):
    step = 1 if EVERY_POINT else STEPS.get(name, 1)
    points = interrupt_everywhere(
        ground, OPERATIONS[name], crowded=crowded, first=1 + crowded % step, step=step
    )
    assert points > 10


@pytest.mark.parametrize("kind", [TimeoutError, StoreBusy, ValueError])
@pytest.mark.parametrize(
    "name", ["put", "put_many(5)", "put_drafts", "claim(1)", "ack(1)", "exchange"]
)
def test_whatever_a_signal_handler_raises_leaves_nothing_stuck(ground, name, kind):
    # SQLite, and embedq itself, raise the same types where nothing has happened.
    assert interrupt_everywhere(ground, OPERATIONS[name], step=STEPS.get(name, 1), kind=kind) > 10


@pytest.mark.parametrize("name", ["put", "put_many(5)", "claim(1)", "ack(4)"])
def test_the_harness_notices_a_writer_that_does_not_mark_what_is_in_flight(
    tmp_path, monkeypatch, name
):
    ignored = property(lambda writer: None, lambda writer, value: None)
    monkeypatch.setattr(Writer, "_inflight", ignored, raising=False)
    ground = Ground(tmp_path)
    with pytest.raises((AssertionError, EmbedqError)):
        interrupt_everywhere(ground, OPERATIONS[name])
    ground.abandon()


@pytest.mark.parametrize("name", ["put", "put_many(5)", "put_drafts", "claim(9)", "ack(4)"])
def test_an_interrupt_among_others_who_commit_leaves_nothing_stuck(ground, name):
    other = ground.engine.queue("others")
    ending = threading.Event()

    def commit_all_the_time() -> None:
        while not ending.is_set():
            ground.engine.put(other, b"noise")

    noise = threading.Thread(target=commit_all_the_time)
    noise.start()
    try:
        for number in range(1, 90, 6):
            ground.fill()
            Strike(number).during(OPERATIONS[name](ground))
            ground.check()
    finally:
        ending.set()
        noise.join()


@pytest.fixture
def ctrl_c():
    """Return an event that is set when Ctrl-C has been noticed; only the first counts."""
    noticed = threading.Event()

    def handle(number: int, frame: object) -> None:
        if not noticed.is_set():
            noticed.set()
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handle)
    yield noticed
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("name", ["put", "put_many(5)", "put_drafts", "claim(9)", "ack(4)"])
def test_a_caller_who_is_interrupted_while_waiting_leaves_nothing_stuck(
    ground, monkeypatch, ctrl_c, name
):
    """A real signal, while the caller waits for the writing thread: the commit still happens."""
    ground.fill()
    call = OPERATIONS[name](ground)
    store, here = ground.engine.store, threading.get_ident()
    commit = store.commit

    def commit_after_ctrl_c(batch: Any) -> None:
        # Again, as a signal just before the wait begins is noticed after the wait only.
        while threading.get_ident() != here and not ctrl_c.wait(0.05):
            signal.pthread_kill(here, signal.SIGINT)
        commit(batch)

    monkeypatch.setattr(store, "commit", commit_after_ctrl_c)
    always = property(lambda writer: True, lambda writer, value: None)
    monkeypatch.setattr(Writer, "_crowded", always, raising=False)
    with pytest.raises(KeyboardInterrupt):
        call()
    ground.check()


def test_everybody_is_told_when_the_writing_thread_ends(ground, monkeypatch):
    engine, queue = ground.engine, ground.queue
    engine.put(queue, b"before")
    monkeypatch.setattr(engine.store, "commit", Mock(side_effect=SystemExit("killed")))
    engine.writer._crowded = True
    with pytest.raises(StoreFailed, match="killed"):
        engine.put_many(queue, [b"x"] * 5)
    with pytest.raises(StoreFailed, match="killed"):
        engine.put(queue, b"after")
    ground.abandon()
    ground.open()
    assert ground.stored == [1]
    ground.check()
