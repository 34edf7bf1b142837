"""The timed loops of the benchmark: one operation, over and over, on a fresh database.

Knows: raw sqlite3 as the reference uses it, the engine's verbs, how commits are counted.
Does not know: goals, rounds, what is compared with what (bench_plan.py).

Every database is filled first, so that its log has reached the size it keeps. The clock starts on
an empty log and stops on an empty log: whoever puts checkpoints off pays for them all the same.
"""

from __future__ import annotations

import sqlite3
import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, process_time, thread_time
from typing import Protocol, Self, cast

from bench_figures import Figure, percentile
from embedq.broker.host import open_engine
from embedq.policy import QueuePolicy
from embedq.storage.connection import Durability
from embedq.storage.sqlite import SqliteStore

BODY = bytes(range(256)) * 4
SMALL = BODY[:200]
MANY = 100
THREADS = 16
_LOT = 1_000
_COUNTED = 5
_DAY_MS = 24 * 3600 * 1000

#: One operation; what it returns is None when there is nothing left to do.
Operation = Callable[[], object]


class Side(Protocol):
    """One of the two that are compared."""

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection that writes."""
        ...

    def checkpoint(self) -> object:
        """Empty the log."""
        ...


@dataclass(frozen=True, slots=True)
class Size:
    """How long and how large the cells are."""

    rounds: int
    slot_s: float
    busy_slot_s: float
    filled: int
    near: int
    far: int
    huge: int
    huge_claims: int
    paced_s: float
    syncs: int


# ------------------------------------------------------------------------------ timing


def timed(
    operation: Operation,
    each: int,
    slot_s: float,
    finish: Operation,
    cpu_clock: Callable[[], float] = process_time,
) -> Figure:
    """Repeat an operation that moves `each` messages until the slot is over, and time each call.

    It ends early when the operation has nothing left to do. `finish` counts among the time of all.
    """
    taken = array("d")
    cpu = cpu_clock()
    begun = now = perf_counter()
    end = begun + slot_s
    while now < end:
        if operation() is None:
            break
        then = perf_counter()
        taken.append(then - now)
        now = then
    finish()
    seconds = perf_counter() - begun
    return figure(taken, each * len(taken), seconds, cpu_clock() - cpu)


def figure(taken: array[float], messages: int, seconds: float, cpu: float) -> Figure:
    """Make a figure of the times of single calls and the sums."""
    if not messages:
        raise RuntimeError("nothing was done while the clock ran: make the slot longer")
    return Figure(
        rate=messages / seconds,
        cpu_us=cpu / messages * 1e6,
        p50_ms=percentile(taken, 0.5) * 1000,
        p99_ms=percentile(taken, 0.99) * 1000,
        max_ms=max(taken) * 1000,
    )


class Commits:
    """Counts the transactions in a stream of statements, as SQLite traces them."""

    def __init__(self) -> None:
        self.count = 0
        self._open = False

    def __call__(self, statement: str) -> None:
        """Take in one statement; one outside BEGIN and COMMIT is a transaction of its own."""
        word = statement[:12].lstrip().partition(" ")[0].upper()
        if word == "BEGIN":
            self._open = True
        elif word in {"COMMIT", "END"}:
            self._open = False
            self.count += 1
        elif word == "ROLLBACK":
            self._open = False
        elif not self._open and word in {"INSERT", "UPDATE", "DELETE", "REPLACE"}:
            self.count += 1


def commits_of(
    connection: sqlite3.Connection, operation: Operation, each: int, times: int = _COUNTED
) -> float | None:
    """Count the commits per message of a few operations more, after the clock was stopped."""
    commits = Commits()
    connection.set_trace_callback(commits)
    try:
        done = sum(each for _ in range(times) if operation() is not None)
    finally:
        connection.set_trace_callback(None)
    return commits.count / done if done else None


@contextmanager
def computing() -> Iterator[None]:
    """Let a thread of this process compute in pure Python meanwhile."""
    over = False

    def compute() -> None:
        turns = 0
        while not over:
            turns += 1

    thread = threading.Thread(target=compute, name="computing", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over = True
        thread.join()


def measure(side: Side, operation: Operation, each: int, size: Size, *, busy: bool) -> Figure:
    """Time an operation, alone or beside a thread that computes, and count its commits."""
    side.checkpoint()
    if busy:
        with computing():
            return timed(operation, each, size.busy_slot_s, side.checkpoint, thread_time)
    found = timed(operation, each, size.slot_s, side.checkpoint)
    return with_commits(found, commits_of(side.connection, operation, each))


def with_commits(found: Figure, commits: float | None) -> Figure:
    """Add the commits per message to a figure."""
    return Figure(found.rate, found.cpu_us, commits, found.p50_ms, found.p99_ms, found.max_ms)


# --------------------------------------------------------------------------- raw sqlite3

_TABLE = "CREATE TABLE m(id INTEGER PRIMARY KEY, q, prio, due, attempts, body)"
_INSERT = "INSERT INTO m(q,prio,due,attempts,body) VALUES (1,0,NULL,0,?)"
_DELETE = "DELETE FROM m WHERE id=?"
_ROWS = [(BODY,)] * MANY


class Raw:
    """A table in plain sqlite3: WAL and otherwise its defaults, as compiled."""

    def __init__(self, folder: Path, durability: Durability, filled: int) -> None:
        self.connection = sqlite3.connect(folder / "raw.db", isolation_level=None)
        self.execute = self.connection.execute
        self.execute("PRAGMA journal_mode=WAL")
        self.execute(f"PRAGMA synchronous={durability}")
        self.execute(_TABLE)
        self._next = 1
        for _ in range(filled // _LOT):
            self.execute("BEGIN IMMEDIATE")
            self.connection.executemany(_INSERT, [(BODY,)] * _LOT)
            self.execute("COMMIT")

    def checkpoint(self) -> object:
        """Empty the log."""
        return self.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def put(self) -> object:
        """Insert one row: a statement in autocommit is a transaction."""
        return self.execute(_INSERT, (BODY,))

    def put_in_three(self) -> object:
        """Insert one row with BEGIN and COMMIT of their own, as most programs do."""
        self.execute("BEGIN IMMEDIATE")
        self.execute(_INSERT, (BODY,))
        return self.execute("COMMIT")

    def put_many(self) -> object:
        """Insert 100 rows in one transaction."""
        self.execute("BEGIN IMMEDIATE")
        self.connection.executemany(_INSERT, _ROWS)
        return self.execute("COMMIT")

    def turn_over(self) -> object:
        """Insert 100 rows and delete the 100 oldest: two transactions."""
        self.put_many()
        first = self._next
        self._next = first + MANY
        self.execute("BEGIN IMMEDIATE")
        self.connection.executemany(_DELETE, [(row,) for row in range(first, first + MANY)])
        return self.execute("COMMIT")


def raw(
    folder: Path, size: Size, verb: str, durability: Durability, *, busy: bool = False
) -> Figure:
    """Time a verb of `Raw`."""
    reference = Raw(folder, durability, size.filled)
    try:
        operation: Operation = getattr(reference, verb)
        each = 1 if verb in {"put", "put_in_three"} else MANY
        return measure(reference, operation, each, size, busy=busy)
    finally:
        reference.connection.close()


# ------------------------------------------------------------------------------ the engine


class Ours:
    """An engine as an application would open it, with a queue and a group."""

    def __init__(self, path: Path, durability: Durability, *, retain: bool = False) -> None:
        self.engine = open_engine(path, durability=durability)
        policy = QueuePolicy(retain_ms=_DAY_MS) if retain else None
        self.queue = self.engine.queue("orders", policy)
        self.group = self.engine.group(self.queue)
        self.store = cast("SqliteStore", self.engine.store)

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the engine."""
        self.engine.close()

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection that writes."""
        return self.store.connection

    def checkpoint(self) -> object:
        """Empty the log."""
        with self.engine.writer.lock:
            return self.store.checkpoint()

    def fill(self, messages: int) -> None:
        """Put messages, 1,000 at a time."""
        bodies = [BODY] * _LOT
        for _ in range(messages // _LOT):
            self.engine.put_many(self.queue, bodies)

    def take(self) -> object:
        """Claim 100 messages and acknowledge them; None if there are none."""
        leases = self.engine.claim(self.group, MANY)
        if not leases:
            return None
        self.engine.ack(*leases)
        return leases


def put(
    folder: Path, size: Size, durability: Durability, *, many: bool = False, busy: bool = False
) -> Figure:
    """Time puts of one message, or of 100."""
    with Ours(folder / "queue.db", durability) as ours:
        ours.fill(size.filled)
        operation: Operation = partial(ours.engine.put, ours.queue, BODY)
        if many:
            operation = partial(ours.engine.put_many, ours.queue, [BODY] * MANY)
        return measure(ours, operation, MANY if many else 1, size, busy=busy)


def claim(
    folder: Path, size: Size, durability: Durability, *, retain: bool = False, busy: bool = False
) -> Figure:
    """Time claims of 100 messages, each followed by their acks, on a queue filled before."""
    with Ours(folder / "queue.db", durability, retain=retain) as ours:
        ours.fill(size.filled)
        for _ in range(_COUNTED):
            ours.take()
        found = measure(ours, ours.take, MANY, size, busy=busy)
        if found.commits is None and not busy:  # the queue was emptied while the clock ran
            ours.fill(_LOT)
            found = with_commits(found, commits_of(ours.connection, ours.take, MANY))
        return found


def put_together(folder: Path, size: Size, durability: Durability) -> Figure:
    """Time puts of one message by 16 threads at once."""
    with Ours(folder / "queue.db", durability) as ours:
        ours.fill(size.filled)
        operation = partial(ours.engine.put, ours.queue, BODY)
        together(operation, size.slot_s / 8, ours.checkpoint)
        found, _ = together(operation, size.slot_s, ours.checkpoint)
        commits = Commits()
        ours.connection.set_trace_callback(commits)
        _, counted = together(operation, size.slot_s / 8, ours.checkpoint)
        ours.connection.set_trace_callback(None)
        return with_commits(found, commits.count / counted)


def together(operation: Operation, slot_s: float, finish: Operation) -> tuple[Figure, int]:
    """Let 16 threads repeat an operation for a time; return also how often they did."""
    start = threading.Barrier(THREADS + 1)
    taken: list[array[float]] = []

    def loop() -> None:
        mine = array("d")
        start.wait()
        now = perf_counter()
        end = now + slot_s
        while now < end:
            operation()
            then = perf_counter()
            mine.append(then - now)
            now = then
        taken.append(mine)

    threads = [threading.Thread(target=loop) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    start.wait()
    cpu = process_time()
    begun = perf_counter()
    for thread in threads:
        thread.join()
    finish()
    seconds = perf_counter() - begun
    every = array("d", [one for mine in taken for one in mine])
    return figure(every, len(every), seconds, process_time() - cpu), len(every)
