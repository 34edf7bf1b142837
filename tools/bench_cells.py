"""The timed loops of the benchmark: cells that take turns, slice by slice, on the same disk.

Knows: how to time calls, CPU and commits; that cells of one group are run in turns.
Does not know: what a verb does (bench_sides.py), what is compared (bench_plan.py).

Every database is filled first, so that its log has reached the size it keeps. The clock starts on
an empty log and stops on an empty log: whoever puts checkpoints off pays for them all the same.
"""

from __future__ import annotations

import sqlite3
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter, process_time, thread_time
from typing import Protocol

from bench_figures import Figure, percentile
from bench_sides import LOT, MANY, Ours, Side

THREADS = 16
_COUNTED = 5

#: One operation; what it returns is None when there is nothing left to do.
Operation = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Size:
    """How long and how large the cells are."""

    rounds: int
    slot_s: float
    busy_slot_s: float
    slices: int
    filled: int
    near: int
    far: int
    huge: int
    huge_claims: int
    paced_s: float
    syncs: int


class Stopwatch:
    """Adds up calls, time and CPU over the slices of a cell."""

    def __init__(self, cpu_clock: Callable[[], float] = process_time) -> None:
        self.taken = array("d")
        self.seconds = 0.0
        self.cpu = 0.0
        self._cpu_clock = cpu_clock

    def run(self, operation: Operation, seconds: float) -> bool:
        """Repeat an operation for a time, and time each call; False: nothing is left to do."""
        taken = self.taken
        left = True
        cpu = self._cpu_clock()
        begun = now = perf_counter()
        end = begun + seconds
        while now < end:
            if operation() is None:
                left = False
                break
            then = perf_counter()
            taken.append(then - now)
            now = then
        self.add(perf_counter() - begun, self._cpu_clock() - cpu)
        return left

    def repeat(self, operation: Operation, times: int) -> None:
        """Do an operation so many times."""
        cpu, begun = self._cpu_clock(), perf_counter()
        now = begun
        for _ in range(times):
            operation()
            then = perf_counter()
            self.taken.append(then - now)
            now = then
        self.add(now - begun, self._cpu_clock() - cpu)

    def pay(self, finish: Operation) -> None:
        """Do what was put off: it counts among the time, but is no call."""
        cpu, begun = self._cpu_clock(), perf_counter()
        finish()
        self.add(perf_counter() - begun, self._cpu_clock() - cpu)

    def add(self, seconds: float, cpu: float) -> None:
        """Add time and CPU."""
        self.seconds += seconds
        self.cpu += cpu

    def figure(self, each: int, commits: float | None = None) -> Figure:
        """Return what was measured; every call moved `each` messages."""
        messages = each * len(self.taken)
        if not messages:
            raise RuntimeError("nothing was done while the clock ran: make the slot longer")
        return Figure(
            rate=messages / self.seconds,
            cpu_us=self.cpu / messages * 1e6,
            commits=commits,
            p50_ms=percentile(self.taken, 0.5) * 1000,
            p99_ms=percentile(self.taken, 0.99) * 1000,
            max_ms=max(self.taken) * 1000,
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


@contextmanager
def counting(connection: sqlite3.Connection) -> Iterator[Commits]:
    """Count what is committed meanwhile. Slows statements down: not while the clock runs."""
    commits = Commits()
    connection.set_trace_callback(commits)
    try:
        yield commits
    finally:
        connection.set_trace_callback(None)


@contextmanager
def computing(*, wanted: bool = True) -> Iterator[None]:
    """Let a thread of this process compute in pure Python meanwhile."""
    over = not wanted

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


# ------------------------------------------------------------------------------- cells


class Cell(Protocol):
    """Something that is measured in turns with others."""

    def begin(self) -> None:
        """Get ready: the clock is about to start."""
        ...

    def run_for(self, seconds: float) -> None:
        """Work for a slice of time."""
        ...

    def end(self) -> dict[str, Figure]:
        """Pay what was put off; return what was measured, by name."""
        ...

    def close(self) -> None:
        """Close the database."""
        ...


class Single:
    """One verb of one side, over and over, by one thread."""

    def __init__(self, name: str, side: Side, verb: str, each: int, *, busy: bool) -> None:
        self._name = name
        self._side = side
        self._operation: Operation = getattr(side, verb)
        self._each = each
        self._busy = busy
        self._watch = Stopwatch(thread_time if busy else process_time)
        self._left = True
        self.close = side.close

    def begin(self) -> None:
        """Warm the statement cache and empty the log."""
        for _ in range(1 if self._busy else _COUNTED):
            self._operation()
        self._side.checkpoint()

    def run_for(self, seconds: float) -> None:
        """Repeat the verb, unless there is nothing left for it."""
        if self._left:
            self._left = self._watch.run(self._operation, seconds)

    def end(self) -> dict[str, Figure]:
        """Pay for the checkpoint that is due, then count commits."""
        self._watch.pay(self._side.checkpoint)
        commits = None if self._busy else self._commits()
        return {self._name: self._watch.figure(self._each, commits)}

    def _commits(self) -> float:
        if not self._left:
            self._side.fill(LOT)
        with counting(self._side.connection) as commits:
            for _ in range(_COUNTED):
                self._operation()
        return commits.count / (_COUNTED * self._each)


class Crowd:
    """Puts of one message by 16 threads at once."""

    def __init__(self, name: str, side: Side) -> None:
        self._name = name
        self._side = side
        self._watch = Stopwatch()
        self.close = side.close

    def begin(self) -> None:
        """Let the threads meet once, and empty the log."""
        together(self._side.put, 0.02, Stopwatch())
        self._side.checkpoint()

    def run_for(self, seconds: float) -> None:
        """Let them put for a time."""
        together(self._side.put, seconds, self._watch)

    def end(self) -> dict[str, Figure]:
        """Pay for the checkpoint that is due, then count commits."""
        self._watch.pay(self._side.checkpoint)
        counted = Stopwatch()
        with counting(self._side.connection) as commits:
            together(self._side.put, 0.05, counted)
        return {self._name: self._watch.figure(1, commits.count / len(counted.taken))}


def together(operation: Operation, seconds: float, watch: Stopwatch) -> None:
    """Let 16 threads repeat an operation for a time."""
    start = threading.Barrier(THREADS + 1)
    watches = [Stopwatch() for _ in range(THREADS)]

    def loop(mine: Stopwatch) -> None:
        start.wait()
        mine.run(operation, seconds)

    threads = [threading.Thread(target=loop, args=(mine,)) for mine in watches]
    for thread in threads:
        thread.start()
    cpu = process_time()
    start.wait()
    begun = perf_counter()
    for thread in threads:
        thread.join()
    watch.add(perf_counter() - begun, process_time() - cpu)
    for mine in watches:
        watch.taken.extend(mine.taken)


class Backlog:
    """Puts, and claims with acks, on a backlog whose length stays as it is."""

    def __init__(self, names: tuple[str, str], side: Ours, body: bytes) -> None:
        self._names = names
        self._side = side
        self._body = body
        self._puts = Stopwatch()
        self._claims = Stopwatch()
        self.close = side.close

    def begin(self) -> None:
        """Let the first claims load the ready index."""
        for _ in range(_COUNTED):
            self._side.turn_over()
            self._side.engine.put_many(self._side.queue, [self._body] * MANY)
        self._side.checkpoint()

    def run_for(self, seconds: float) -> None:
        """Put 100 messages one by one, then claim and ack 100; again and again."""
        end = perf_counter() + seconds
        put = partial(self._side.engine.put, self._side.queue, self._body)
        while perf_counter() < end:
            self._puts.repeat(put, MANY)
            self._claims.repeat(self._side.turn_over, 1)

    def end(self) -> dict[str, Figure]:
        """Return both figures."""
        puts, claims = self._names
        return {puts: self._puts.figure(1), claims: self._claims.figure(MANY)}


def race(cells: Sequence[Cell], seconds: float, slices: int) -> dict[str, Figure]:
    """Run cells in turns for `seconds` each, in slices, forth and back; return what they found."""
    for cell in cells:
        cell.begin()
    for turn in range(slices):
        for cell in cells if turn % 2 == 0 else cells[::-1]:
            cell.run_for(seconds / slices)
    found: dict[str, Figure] = {}
    for cell in cells:
        found |= cell.end()
    return found
