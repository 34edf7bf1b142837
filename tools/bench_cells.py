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
from functools import partial
from time import perf_counter, process_time, thread_time
from typing import Protocol

from bench_figures import Figure, percentile
from bench_sides import LOT, MANY, Database, Ours

THREADS = 16
_COUNTED = 5

#: One operation; what it returns is None when there is nothing left to do.
Operation = Callable[[], object]


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
        return self.figure_of(each * len(self.taken), commits)

    def figure_of(self, messages: int, commits: float | None = None) -> Figure:
        """Return what was measured while so many messages moved."""
        if not messages:
            raise RuntimeError("nothing was done while the clock ran: make the slot longer")
        taken = self.taken
        return Figure(
            rate=messages / self.seconds,
            cpu_us=self.cpu / messages * 1e6,
            commits=commits,
            p50_ms=percentile(taken, 0.5) * 1000 if taken else None,
            p99_ms=percentile(taken, 0.99) * 1000 if taken else None,
            max_ms=max(taken) * 1000 if taken else None,
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

    def __init__(
        self, name: str, side: Database, verb: str, each: int, *, busy: bool = False
    ) -> None:
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
        connection = None if self._busy else self._side.connection
        commits = None if connection is None else self._commits(connection)
        return {self._name: self._watch.figure(self._each, commits)}

    def _commits(self, connection: sqlite3.Connection) -> float:
        if not self._left:
            self._side.fill(LOT)
        with counting(connection) as commits:
            for _ in range(_COUNTED):
                self._operation()
        return commits.count / (_COUNTED * self._each)


class Crowd:
    """Puts of one message by several threads at once."""

    def __init__(self, name: str, side: Putting, threads: int = THREADS) -> None:
        self._name = name
        self._side = side
        self._watch = Stopwatch()
        self._team = Team(side.put, threads)

    def begin(self) -> None:
        """Let the threads meet once, and empty the log."""
        self._team.run(0.02, Stopwatch())
        self._side.checkpoint()

    def run_for(self, seconds: float) -> None:
        """Let them put for a time."""
        self._team.run(seconds, self._watch)

    def end(self) -> dict[str, Figure]:
        """Pay for the checkpoint that is due, then count commits."""
        self._watch.pay(self._side.checkpoint)
        commits = None
        if self._side.connection is not None:
            counted = Stopwatch()
            with counting(self._side.connection) as found:
                self._team.run(0.05, counted)
            commits = found.count / len(counted.taken)
        return {self._name: self._watch.figure(1, commits)}

    def close(self) -> None:
        """End the threads, close the database."""
        self._team.close()
        self._side.close()


class Putting(Database, Protocol):
    """A side that can put one message."""

    def put(self) -> object:
        """Put one message."""
        ...


class Team:
    """Threads that repeat an operation for a time, together; they live until `close`.

    Some sides have a connection for each thread: opening it is not measured.
    """

    def __init__(self, operation: Operation, threads: int) -> None:
        self._operation = operation
        self._seconds = 0.0
        self._watches: list[Stopwatch] = []
        self._error: BaseException | None = None
        self._over = False
        self._line = threading.Barrier(threads + 1)
        self._threads = [
            threading.Thread(target=self._work, name="team", daemon=True) for _ in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        try:
            while True:
                self._line.wait()
                if self._over:
                    return
                mine = Stopwatch()
                mine.run(self._operation, self._seconds)
                self._watches.append(mine)
                self._line.wait()
        except threading.BrokenBarrierError:
            return  # another one has failed, and says so
        except BaseException as error:  # noqa: BLE001  # raised in run()
            self._error = error
            self._line.abort()

    def run(self, seconds: float, watch: Stopwatch) -> None:
        """Let them work for a time. Raises what the operation raised."""
        self._seconds = seconds
        self._watches.clear()
        cpu = process_time()
        try:
            self._line.wait()
            begun = perf_counter()
            self._line.wait()
        except threading.BrokenBarrierError:
            raise self._error or RuntimeError("a thread has ended") from None
        watch.add(perf_counter() - begun, process_time() - cpu)
        for mine in self._watches:
            watch.taken.extend(mine.taken)

    def close(self) -> None:
        """End the threads."""
        self._over = True
        if not self._line.broken:
            self._line.wait()
        for thread in self._threads:
            thread.join()


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
