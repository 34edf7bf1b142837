"""The benchmark of zbus: both dialects beside threads of the host, and beside their libraries.

Knows: the cells, the rows and their goals.
Does not know: bytes (bench_zbus_bytes.py), how a cell works (bench_listener_sides.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import bench_listener_memory as memory
import bench_listener_plan as plan
import bench_listener_sides as sides
import bench_listeners
import bench_machine as machine
from bench_figures import Row, Value, ratio_table, value_table
from bench_listener_wires import TEXT, ZBUS, ZBUS_HTTP, Wire
from bench_process_sides import Program
from bench_run import Benchmark, Group, Opener, Options, Run, Say, Seen, size_of

BUDGET_S, QUICK_BUDGET_S = 180.0, 60.0
ROUNDS_SHARE = 0.85
PRODUCERS, SUBSCRIBERS = 16, 4
#: How many times as fast as threads of the host; MiB of 1,000 connections that do nothing.
PUT_GOAL, IDLE_GOAL_MIB = 0.4, 32.0

THREADS = plan.THREAD_PUTS
PIPELINED = f"pub, WebSocket, {PRODUCERS} connections that pipeline"
WAITED = f"pub, HTTP, {PRODUCERS} connections kept alive"
HANDLER = "bare handler, httptools"
PUSHED = f"push, WebSocket, {SUBSCRIBERS} subscribers"
ECHO = "bare echo, websockets"

ROWS = (
    Row("put", f"{PIPELINED} / threads", PIPELINED, THREADS, PUT_GOAL),
    Row("put", f"{WAITED} / threads", WAITED, THREADS, PUT_GOAL),
    Row("put", f"{WAITED} / the library alone", WAITED, HANDLER),
    Row("push", f"{PUSHED}, window 100 / the library alone", PUSHED, ECHO),
)
KEYS = ("put", "push", "memory")


class Bare:
    """A server that is nothing but a library. See bench_zbus_bare.py."""

    def __init__(self, what: str) -> None:
        self._program = Program("bench_zbus_bare.py", what)
        self.close = self._program.close
        self.port: int = self._program.answer()

    def look(self) -> sides.Look:
        """Return its counters: what it answered was put, and taken."""
        there, answered, cpu = self._program.ask(0)
        return sides.Look(there, answered, answered, 0, cpu)

    def fill_up(self, messages: int) -> None:
        """Keep nothing."""

    def empty(self) -> float:
        """Keep nothing."""
        return 0.0


def asking(folder: Path, planted_s: float = 0.0) -> sides.Puts:
    """Return clients that put over HTTP and wait for each answer."""
    with ExitStack() as stack:
        host = sides.Ours(folder, ZBUS_HTTP, planted_s)
        stack.callback(host.close)
        port = host.listen()
        load = sides.Clients([sides.client_program("ask", ZBUS_HTTP, port, PRODUCERS)])
        stack.callback(load.close)
        return sides.Puts(WAITED, host, load, stack.pop_all())


def bare(name: str, what: str, verb: str, wire: Wire, connections: int) -> sides.Puts:
    """Return clients of a library that is alone."""
    with ExitStack() as stack:
        server = Bare(what)
        stack.callback(server.close)
        load = sides.Clients([sides.client_program(verb, wire, server.port, connections)])
        stack.callback(load.close)
        kind = sides.Puts if verb == "ask" else Echoes
        return kind(name, server, load, stack.pop_all())


class Echoes(sides.Puts):
    """What counts is what the server has said again: clients leave some of it unread."""

    def run_for(self, seconds: float) -> None:
        """Let them work."""
        before = self._server.look()
        _, took = self._load.run(seconds)
        after = self._server.look()
        self._add(before, after, after.taken - before.taken, took)


def groups(keys: Sequence[str], backlog: int) -> list[Group]:
    """Return the groups of cells that some rows need."""
    puts: dict[str, Opener] = {
        THREADS: lambda folder: sides.thread_puts(THREADS, folder, PRODUCERS),
        PIPELINED: lambda folder: sides.listener_puts(PIPELINED, folder, ZBUS, PRODUCERS),
        WAITED: asking,
        HANDLER: lambda _: bare(HANDLER, "http", "ask", ZBUS_HTTP, PRODUCERS),
    }
    pushes: dict[str, Opener] = {
        PUSHED: lambda folder: sides.listener_takes(PUSHED, folder, ZBUS, SUBSCRIBERS, backlog),
        ECHO: lambda _: bare(ECHO, "echo", "echo", ZBUS, SUBSCRIBERS),
    }
    return [group for key, group in (("put", puts), ("push", pushes)) if key in keys]


class ZbusRun(Run):
    """One run of the benchmark of zbus."""

    def __init__(
        self, size: plan.Size, keys: Sequence[str], folder: Path, budget_s: float
    ) -> None:
        super().__init__(size, keys, folder, budget_s=budget_s, share=ROUNDS_SHARE)
        self.size = size

    def groups(self) -> Sequence[Group]:
        """Return the groups of cells that the wanted rows need."""
        return groups(self.keys, self.size.backlog)

    def rows(self) -> list[Row]:
        """Return the rows that were wanted."""
        return [row for row in ROWS if row.key in self.keys]

    def do_rest(self, say: Say) -> None:
        """Measure the memory of connections."""
        if "memory" in self.keys:
            say("looking at the memory of connections")
            self.remember()

    def remember(self) -> None:
        """Measure the memory of WebSockets."""
        with self.fresh() as folder:
            found = memory.measure(folder, ZBUS, self.size)
        self.values.append(
            Value(
                "memory",
                found.title,
                found.text,
                f"≤ {IDLE_GOAL_MIB:g} MiB, the idle alone",
                found.idle <= IDLE_GOAL_MIB,
            )
        )

    def report(self) -> str:
        """Write everything as Markdown."""
        parts = [self.circumstances(f"bodies of {len(TEXT):,} bytes")]
        if self.results:
            parts.append(ratio_table(self.rows(), self.results, self.sync_ms))
        if self.values:
            parts.append(value_table(self.values))
        return "\n\n".join(parts) + "\n"


def measure(asked: Options, say: Say) -> ZbusRun:
    """Do what was asked for."""
    size = size_of(asked, plan.QUICK, plan.FULL)
    budget = QUICK_BUDGET_S if asked.quick else BUDGET_S
    with machine.scratch(asked.folder) as folder:
        run = ZbusRun(size, asked.keys, folder, budget)
        run.do_all(say)
    return run


def look_for(folder: Path, size: plan.Size, seconds: float, rounds: int) -> Seen:
    """Measure the CPU of a put over HTTP as it is, and with `seconds` planted in each."""
    found: list[list[float]] = [[], []]
    for _ in range(rounds):
        for cpu, planted_s in zip(found, (0.0, seconds), strict=True):
            run = ZbusRun(size, [], folder, QUICK_BUDGET_S)
            cpu.append(run.race({WAITED: partial(asking, planted_s=planted_s)})[WAITED].cpu_us)
    plain, slowed = (sorted(cpu)[len(cpu) // 2] for cpu in found)
    return bench_listeners.judge(WAITED, plain, slowed)


def self_test(folder: Path, rounds: int = 3) -> list[Seen]:
    """Tell whether a slowdown of puts over HTTP is seen."""
    return [look_for(folder, plan.QUICK, bench_listeners.PLANTED_S, rounds)]


BENCH = Benchmark(
    "zbus: both dialects beside threads of the host and beside their libraries",
    KEYS,
    measure,
    self_test,
)
