"""The timed loops of the benchmark: one operation, over and over, on a fresh database.

Knows: raw sqlite3 as the reference uses it, the engine's verbs, how commits are counted.
Does not know: goals, rounds, what is compared with what (bench_plan.py).

Every cell brings its database into the same state before the clock starts: both logs have been
through a checkpoint, both statement caches are warm.
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
from typing import cast

from bench_figures import Figure, percentile
from embedq.broker.engine import Engine
from embedq.broker.host import open_engine
from embedq.broker.state import GroupState, QueueState
from embedq.policy import QueuePolicy
from embedq.storage.connection import Durability
from embedq.storage.sqlite import SqliteStore

BODY = bytes(range(256)) * 4
SMALL = BODY[:200]
MANY = 100
THREADS = 16
_WARM = 4_000
_COUNTED = 5
_DAY_MS = 24 * 3600 * 1000

#: One operation; what it returns is false when there is nothing left to do.
Operation = Callable[[], object]


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
    operation: Operation, each: int, slot_s: float, cpu_clock: Callable[[], float] = process_time
) -> Figure:
    """Repeat an operation that moves `each` messages until the slot is over, and time each call.

    It ends early when the operation has nothing left to do.
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
    cpu = cpu_clock() - cpu
    return figure(taken, each * len(taken), now - begun, cpu)


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


def measure(
    operation: Operation, each: int, slot_s: float, *, busy: bool, connection: sqlite3.Connection
) -> Figure:
    """Time an operation, alone or beside a thread that computes, and count its commits."""
    if busy:
        with computing():
            return timed(operation, each, slot_s, thread_time)
    found = timed(operation, each, slot_s)
    return with_commits(found, commits_of(connection, operation, each))


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
        for _ in range(max(filled, _WARM) // MANY):
            self.put_many()

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
    filled = size.filled if verb == "turn_over" else 0
    reference = Raw(folder, durability, filled)
    try:
        operation: Operation = getattr(reference, verb)
        each = 1 if verb in {"put", "put_in_three"} else MANY
        slot_s = size.busy_slot_s if busy else size.slot_s
        connection = reference.connection
        return measure(operation, each, slot_s, busy=busy, connection=connection)
    finally:
        reference.connection.close()


# ------------------------------------------------------------------------------ the engine


@contextmanager
def opened(
    path: Path, durability: Durability, *, retain: bool = False
) -> Iterator[tuple[Engine, QueueState, GroupState]]:
    """Open an engine as an application would, with a queue and a group."""
    engine = open_engine(path, durability=durability)
    try:
        policy = QueuePolicy(retain_ms=_DAY_MS) if retain else None
        queue = engine.queue("orders", policy)
        yield engine, queue, engine.group(queue)
    finally:
        engine.close()


def connection_of(engine: Engine) -> sqlite3.Connection:
    """Return the connection that writes."""
    return cast("SqliteStore", engine.store).connection


def fill(engine: Engine, queue: QueueState, messages: int) -> None:
    """Put messages, 100 at a time."""
    bodies = [BODY] * MANY
    for _ in range(messages // MANY):
        engine.put_many(queue, bodies)


def take(engine: Engine, group: GroupState) -> object:
    """Claim 100 messages and acknowledge them; None if there are none."""
    leases = engine.claim(group, MANY)
    if not leases:
        return None
    engine.ack(*leases)
    return leases


def put(
    folder: Path, size: Size, durability: Durability, *, many: bool = False, busy: bool = False
) -> Figure:
    """Time puts of one message, or of 100."""
    slot_s = size.busy_slot_s if busy else size.slot_s
    with opened(folder / "queue.db", durability) as (engine, queue, _):
        fill(engine, queue, _WARM)
        operation: Operation = partial(engine.put, queue, BODY)
        if many:
            operation = partial(engine.put_many, queue, [BODY] * MANY)
        each = MANY if many else 1
        return measure(operation, each, slot_s, busy=busy, connection=connection_of(engine))


def claim(
    folder: Path, size: Size, durability: Durability, *, retain: bool = False, busy: bool = False
) -> Figure:
    """Time claims of 100 messages, each followed by their acks, on a queue filled before."""
    slot_s = size.busy_slot_s if busy else size.slot_s
    with opened(folder / "queue.db", durability, retain=retain) as (engine, queue, group):
        fill(engine, queue, size.filled)
        operation = partial(take, engine, group)
        for _ in range(_COUNTED):
            operation()
        connection = connection_of(engine)
        found = measure(operation, MANY, slot_s, busy=busy, connection=connection)
        if found.commits is None and not busy:  # the queue was emptied while the clock ran
            fill(engine, queue, _COUNTED * MANY)
            found = with_commits(found, commits_of(connection, operation, MANY))
        return found


def put_together(folder: Path, size: Size, durability: Durability) -> Figure:
    """Time puts of one message by 16 threads at once."""
    with opened(folder / "queue.db", durability) as (engine, queue, _):
        fill(engine, queue, _WARM)
        operation = partial(engine.put, queue, BODY)
        together(operation, size.slot_s / 8)
        found, _ = together(operation, size.slot_s)
        commits = Commits()
        connection = connection_of(engine)
        connection.set_trace_callback(commits)
        _, counted = together(operation, size.slot_s / 8)
        connection.set_trace_callback(None)
        return with_commits(found, commits.count / counted)


def together(operation: Operation, slot_s: float) -> tuple[Figure, int]:
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
    seconds = perf_counter() - begun
    every = array("d", [one for mine in taken for one in mine])
    return figure(every, len(every), seconds, process_time() - cpu), len(every)
