"""An exception from outside, at every point of every operation: nothing is stored but stuck.

Knows: what must hold after any operation was interrupted anywhere, whoever enters next.
Does not know: how the exception gets there (interrupting.py), how the writer recovers.
"""

from __future__ import annotations

import dataclasses
import itertools
import shutil
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from embedq.broker.engine import Engine
from embedq.broker.host import open_engine
from embedq.clock import VirtualClock
from embedq.errors import StaleLease
from embedq.limits import LIMITS
from embedq.message import draft
from embedq.storage.writer import Writer
from tests.reliability.interrupting import strikes

pytestmark = [
    pytest.mark.reliability,
    # An exception that strikes a generator at its end is printed by the interpreter, no more.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

TIGHT = dataclasses.replace(
    LIMITS, load_chunk=2, head_max=3, disk_watermark_bytes=0, ballast_bytes=0
)
LEASE_S = 10.0


class Ground:
    """One queue that is filled, used and emptied again and again."""

    engine: Engine

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

    def reopen_crashed(self) -> None:
        old, self.number = self.path, self.number + 1
        self.path = self.folder / f"q{self.number}.db"
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{old}{suffix}", f"{self.path}{suffix}")
        self.engine.writer.close()
        self.engine.store.close(clean=False)
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

    @property
    def stored(self) -> list[int]:
        return [message.seq for message in self.engine.peek(self.queue, 1000)]

    def ack_last(self) -> None:
        with suppress(StaleLease):  # what was interrupted may have acked it
            self.engine.ack(*[lease for lease in self.held if lease.is_held][-1:])

    def check_locks(self) -> None:
        for lock in (self.engine.writer.lock, self.group.loading):
            assert lock.acquire(timeout=10), "a lock is still held"
            lock.release()

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

OPERATIONS: dict[str, Operation] = {
    "put": lambda g: lambda: g.engine.put(g.queue, b"one"),
    "put_many(3)": lambda g: lambda: g.engine.put_many(g.queue, [b"many"] * 3),
    "put_many(5)": lambda g: lambda: g.engine.put_many(g.queue, [b"many"] * 5),
    "put_drafts": lambda g: lambda: g.engine.put_drafts(
        g.queue, [draft(b"a", ordering_key="k"), draft(b"b", priority=9, dedup_key=f"{g.number}")]
    ),
    "claim(1)": lambda g: lambda: g.engine.claim(g.group, 1, LEASE_S),
    "claim(9)": lambda g: lambda: g.engine.claim(g.group, 9, LEASE_S),
    "ack(1)": lambda g: lambda: g.engine.ack(g.held[0]),
    "ack(4)": lambda g: lambda: g.engine.ack(*g.held),
    "fail": lambda g: lambda: g.engine.fail(g.held[0], None, 2.0),
    "reject": lambda g: lambda: g.engine.reject(g.held[0], "no"),
    "release": lambda g: lambda: g.engine.release(g.held),
    "extend": lambda g: lambda: g.engine.extend(g.held[0], 5),
    "cancel": lambda g: lambda: g.engine.cancel(g.queue, *g.stored),
    "end_leases": lambda g: (g.clock.advance(LEASE_S), g.engine.end_leases)[1],
    "round": lambda g: (g.clock.advance(LEASE_S), g.engine.upkeep.round)[1],
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
    ground: Ground, operation: Operation, *, crowded: bool = False, step: int = 1
) -> int:
    """Interrupt an operation at each point in turn; return how many there were."""
    followers = itertools.cycle(NEXT)
    for strike in strikes(step=step):
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


@pytest.fixture
def ground(tmp_path):
    one = Ground(tmp_path)
    yield one
    one.engine.close()


@pytest.mark.parametrize("crowded", [False, True], ids=["alone", "in a crowd"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_interrupt_anywhere_leaves_nothing_stuck(ground, name, crowded):
    points = interrupt_everywhere(ground, OPERATIONS[name], crowded=crowded)
    print(name, points)
