"""The timed loops of the broker's benchmark: consumers that drain, latencies, coroutines that put.

Knows: how to time what happens on other threads, and what stands beside it in plain sqlite3.
Does not know: what is compared (bench_broker_plan.py), other libraries.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter, process_time, sleep

from bench_broker_sides import Host, Leased
from bench_cells import Operation, Stopwatch, counting
from bench_figures import Figure
from bench_sides import BODY

_WARM_S = 0.03
#: How often it is looked whether a backlog is drained, and whether the last handlers have ended.
_LOOK_S = 0.005
_TICK_S = 0.0002
_PATIENCE_S = 60.0
#: What an idle broker rests between two puts.
_REST_S = 0.001
_TASKS = 256


class Stuck(RuntimeError):
    """Something that must happen soon does not."""


def wait_until(done: Callable[[], bool], what: str) -> None:
    """Wait until something is done. Raises Stuck after a minute."""
    end = perf_counter() + _PATIENCE_S
    while not done():
        if perf_counter() > end:
            raise Stuck(f"{what}: not after {_PATIENCE_S:g} s")
        sleep(_TICK_S)


# ------------------------------------------------------------------------------- drains


@dataclass(slots=True)
class Tally:
    """What a drain has moved, while a clock ran."""

    watch: Stopwatch = field(default_factory=Stopwatch)
    messages: int = 0
    commits: int = 0

    @property
    def each(self) -> int:
        """How many messages one commit had."""
        return max(1, round(self.messages / max(1, self.commits)))


class Drain:
    """A consumer with a handler that does nothing drains a backlog of so many messages."""

    def __init__(
        self,
        name: str,
        host: Host,
        handler: Callable[..., object],
        concurrency: int,
        backlog: int,
    ) -> None:
        self._name = name
        self._host = host
        self._backlog = self._left = backlog
        self._warm = Tally()
        self._tally = Tally()
        host.fill(backlog)
        host.start(handler, concurrency)
        self.close = host.close

    def begin(self) -> None:
        """Let the consumer run for a moment, and empty the log."""
        self._run(_WARM_S, self._warm)
        self._host.checkpoint()

    def run_for(self, seconds: float) -> None:
        """Let it run for a time, from the first claim to the last commit."""
        # A busy machine hears late that it is enough: by then nothing may be left.
        if not self._left:
            self._tally.watch.pay(self._host.checkpoint)
            self._host.fill(self._backlog)
            self._host.checkpoint()
            self._left = self._backlog
        self._run(seconds, self._tally)

    def _run(self, seconds: float, tally: Tally) -> None:
        host = self._host
        acked, commits = host.acked, host.commits
        cpu, begun = process_time(), perf_counter()
        end = begun + seconds
        host.let_go()
        while (now := perf_counter()) < end and host.acked - acked < self._left:
            sleep(min(_LOOK_S, end - now))
        # On a machine that has other things to do, not even one may be done by then.
        wait_until(lambda: host.acked > acked, "a message is handled")
        host.hold()
        wait_until(lambda: host.idle, "the last handlers have ended")
        tally.watch.add(perf_counter() - begun, process_time() - cpu)
        moved = host.acked - acked
        self._left -= moved
        tally.messages += moved
        tally.commits += host.commits - commits

    @property
    def each(self) -> int:
        """How many messages one commit has had so far."""
        return (self._tally if self._tally.messages else self._warm).each

    def end(self) -> dict[str, Figure]:
        """Pay for the checkpoint that is due."""
        tally = self._tally
        tally.watch.pay(self._host.checkpoint)
        commits = tally.commits / tally.messages if tally.messages else None
        return {self._name: tally.watch.figure_of(tally.messages, commits)}


class RawDrain:
    """The same writes in plain sqlite3: as many messages to a commit as `each` says."""

    def __init__(self, name: str, side: Leased, each: Callable[[], int], backlog: int) -> None:
        self._name = name
        self._side = side
        self._each = each
        self._tally = Tally()
        side.fill(backlog)
        self.close = side.close

    def begin(self) -> None:
        """Warm the statement cache and empty the log."""
        for _ in range(3):
            self._side.take(1)
        self._side.checkpoint()

    def run_for(self, seconds: float) -> None:
        """Settle and take for a time."""
        tally, most = self._tally, self._each()

        def step() -> int | None:
            moved = self._side.take(most)
            tally.messages += moved or 0
            return moved

        tally.watch.run(step, seconds)

    def end(self) -> dict[str, Figure]:
        """Pay for the checkpoint that is due."""
        watch, messages = self._tally.watch, self._tally.messages
        watch.pay(self._side.checkpoint)
        return {self._name: watch.figure_of(messages, len(watch.taken) / max(1, messages))}


# ---------------------------------------------------------------------------- latencies


class Latency:
    """The time from a put into an idle broker to the first line of the handler."""

    def __init__(self, name: str, host: Host, *, is_async: bool) -> None:
        self._name = name
        self._host = host
        self._watch = Stopwatch()
        self._cpu = 0.0
        self._started = 0.0
        self._arrived = threading.Semaphore(0)
        host.start(self._ahandle if is_async else self._handle, 1)
        host.let_go()
        self.close = host.close

    def _handle(self, _: bytes) -> None:
        self._started = perf_counter()
        self._arrived.release()

    async def _ahandle(self, body: bytes) -> None:
        self._handle(body)

    def begin(self) -> None:
        """Put a few, and empty the log."""
        self._run(5, Stopwatch())
        self._host.checkpoint()

    def run_for(self, seconds: float) -> None:
        """Put one message after the other, each when the one before is settled."""
        end = perf_counter() + seconds
        cpu = process_time()
        while perf_counter() < end:
            self._run(1, self._watch)
        self._cpu += process_time() - cpu

    def _run(self, times: int, watch: Stopwatch) -> None:
        host, put = self._host, self._host.put
        for _ in range(times):
            sleep(_REST_S)
            wait_until(lambda: host.awaited, "the consumer waits")
            begun = perf_counter()
            put()
            if not self._arrived.acquire(timeout=_PATIENCE_S):
                raise Stuck("the handler has not started")
            watch.taken.append(self._started - begun)

    def end(self) -> dict[str, Figure]:
        """Return the latencies; the rate is what they would allow."""
        return {self._name: latencies(self._watch, self._cpu)}


class RawLatency:
    """The writes that stand between a put and a handler, in plain sqlite3."""

    def __init__(self, name: str, side: Leased, operation: Operation) -> None:
        self._name = name
        self._side = side
        self._operation = operation
        self._watch = Stopwatch()
        self._cpu = 0.0
        self.close = side.close

    def begin(self) -> None:
        """Fill the log once, as the broker has, and empty it."""
        self._side.fill(1000)
        self._side.settle()
        self._side.checkpoint()

    def run_for(self, seconds: float) -> None:
        """Write, then take it back, which is not timed."""
        end = perf_counter() + seconds
        cpu = process_time()
        while perf_counter() < end:
            sleep(_REST_S)
            begun = perf_counter()
            self._operation()
            self._watch.taken.append(perf_counter() - begun)
            self._side.settle()
        self._cpu += process_time() - cpu

    def end(self) -> dict[str, Figure]:
        """Return the latencies."""
        return {self._name: latencies(self._watch, self._cpu)}


def latencies(watch: Stopwatch, cpu: float) -> Figure:
    """Return the figure of single latencies; `cpu`: seconds for all of it, settling included."""
    watch.add(sum(watch.taken), cpu)
    return watch.figure(1)


# --------------------------------------------------------------------------- coroutines


class Tasks:
    """256 tasks of an event loop, each puts one message after the other."""

    def __init__(self, name: str, host: Host) -> None:
        self._name = name
        self._host = host
        self._watch = Stopwatch()
        self._loop = asyncio.new_event_loop()

    def begin(self) -> None:
        """Let them put for a moment, and empty the log."""
        self._run(_WARM_S, Stopwatch())
        self._host.checkpoint()

    def run_for(self, seconds: float) -> None:
        """Let them put for a time."""
        self._run(seconds, self._watch)

    def _run(self, seconds: float, watch: Stopwatch) -> None:
        cpu, begun = process_time(), perf_counter()
        self._loop.run_until_complete(self._put_all(begun + seconds, watch))
        watch.add(perf_counter() - begun, process_time() - cpu)

    async def _put_all(self, end: float, watch: Stopwatch) -> None:
        aput, taken = self._host.queue.aput, watch.taken

        async def repeat() -> None:
            now = perf_counter()
            while now < end:
                await aput(BODY)
                then = perf_counter()
                taken.append(then - now)
                now = then

        await asyncio.gather(*(repeat() for _ in range(_TASKS)))

    def end(self) -> dict[str, Figure]:
        """Pay for the checkpoint that is due, then count commits."""
        self._watch.pay(self._host.checkpoint)
        counted = Stopwatch()
        with counting(self._host.connection) as commits:
            self._run(_WARM_S, counted)
        return {self._name: self._watch.figure(1, commits.count / len(counted.taken))}

    def close(self) -> None:
        """Close the loop and the broker."""
        self._loop.close()
        self._host.close()
