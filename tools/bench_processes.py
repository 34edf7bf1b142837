"""The benchmark of processes: workers, producers, latency, other libraries' workers, in one run.

Knows: what is measured in rounds and what after them, how the tables are put together.
Does not know: how a cell works (bench_process_sides.py), the goals (bench_process_plan.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import bench_machine as machine
import bench_process_plan as plan
import bench_sidecar
from bench_figures import (
    Figure,
    Row,
    Value,
    latency_table,
    number,
    ratio_table,
    table,
    value_table,
)
from bench_process_peers import PEERS, REDIS_HINT, has_redis, versions
from bench_process_sides import application
from bench_run import Benchmark, Group, Options, Run, Say, Seen, size_of

BUDGET_S = 330.0
QUICK_BUDGET_S = 90.0
PLANTED_S = 300e-6
#: What part of a planted slowdown must show up in the CPU of a message.
_NOTICED = 0.5


class ProcessRun(Run):
    """One run of the benchmark of processes."""

    def __init__(
        self, size: plan.Size, keys: Sequence[str], folder: Path, budget_s: float
    ) -> None:
        super().__init__(size, keys, folder, budget_s=budget_s, share=plan.ROUNDS_SHARE)
        self.size = size
        self.has_redis = has_redis()
        #: The libraries that are measured beside us, and their releases.
        self.peers: dict[str, str] = {}

    def groups(self) -> Sequence[Group]:
        """Return the groups of cells that the wanted rows need."""
        groups = plan.wanted(self.keys, self.size, has_redis=self.has_redis)
        if bench_sidecar.KEY not in self.keys:
            return groups
        backlog = max(1_000, round(self.size.backlog * self.size.slot_s) // 1_000 * 1_000)
        return [*groups, bench_sidecar.group(backlog)]

    def rows(self) -> list[Row]:
        """Return the rows that were wanted."""
        sidecar = (*bench_sidecar.ROWS, *bench_sidecar.LATENCIES)
        return [row for row in (*plan.ROWS, *plan.LATENCIES, *sidecar) if row.key in self.keys]

    def do_rest(self, say: Say) -> None:
        """Measure idle workers."""
        if "idle" in self.keys:
            say(f"watching idle workers for {self.size.idle_s:g} s")
            self.idle()

    def idle(self) -> None:
        """Measure the CPU of an application with 8 workers on 5 queues that has nothing to do."""
        with self.fresh() as folder:
            program = application(folder, "idle")
            try:
                percent, workers = program.ask("idle", self.size.idle_s)
            finally:
                program.close()
        self.values.append(
            Value(
                "idle",
                f"CPU of a host with {workers} idle workers on 5 queues, {self.size.idle_s:g} s",
                f"{percent:.2f} %",
                f"< {plan.IDLE_MOST_PERCENT:g} %",
                percent < plan.IDLE_MOST_PERCENT,
            )
        )

    def report(self) -> str:
        """Write everything as Markdown."""
        found = [row for row in self.rows() if row.cell in self.results]
        rates = [row for row in found if row.by == "rate"]
        times = [row for row in found if row.by != "rate"]
        parts = [self.circumstances(f"{self.size.producers} producers")]
        if rates:
            parts.append(ratio_table(rates, self.results, self.sync_ms))
        if "workers" in self.keys and not self.has_redis:
            parts.append(f"{REDIS_HINT}: the rows of libraries that need it are empty.")
        if times:
            parts.append(latency_table(times, self.results, self.sync_ms))
        if self.values:
            parts.append(value_table(self.values))
        if self.peers:
            parts.append(self._peer_table())
        return "\n\n".join(parts) + "\n"

    def _peer_table(self) -> str:
        lines = [
            (
                peer.name,
                " ".join(f"{package} {self.peers[package]}" for package in peer.packages),
                peer.licence,
                peer.durable,
                " ".join(peer.command),
            )
            for peer in PEERS
        ]
        return table(("library", "release", "licence", "made durable by", "workers"), lines)


def measure(asked: Options, say: Say) -> ProcessRun:
    """Do what was asked for. Raises PeersMissing before anything is measured."""
    size = size_of(asked, plan.QUICK, plan.FULL)
    budget = QUICK_BUDGET_S if asked.quick else BUDGET_S
    peers = versions() if "workers" in asked.keys else {}
    with machine.scratch(asked.folder) as folder:
        run = ProcessRun(size, asked.keys, folder, budget)
        run.peers = peers
        if peers and not run.has_redis:
            say(REDIS_HINT)
        run.do_all(say)
    return run


# ------------------------------------------------------------------------- the self-test


def _cpu_us(folder: Path, size: plan.Size, planted_s: float) -> float:
    run = ProcessRun(size, [], folder, QUICK_BUDGET_S)
    figure: Figure = run.race({plan.WORKERS: plan.ours(size, planted_s)})[plan.WORKERS]
    return figure.cpu_us


def look_for(folder: Path, size: plan.Size, seconds: float, rounds: int) -> Seen:
    """Measure the CPU of a message as it is, and with `seconds` planted in the handler."""
    plain, slowed = [], []
    for _ in range(rounds):
        plain.append(_cpu_us(folder, size, 0.0))
        slowed.append(_cpu_us(folder, size, seconds))
    less, more = median(plain), median(slowed)
    seen = more - less >= _NOTICED * PLANTED_S * 1e6
    return Seen("a handler in a worker, CPU µs of a message", number(less), number(more), seen)


def self_test(folder: Path, rounds: int = 3) -> list[Seen]:
    """Tell whether a slowdown in the handlers of workers is seen."""
    return [look_for(folder, plan.QUICK, PLANTED_S, rounds)]


PROCESSES = Benchmark(
    "worker processes, producers in other processes",
    (*plan.KEYS, bench_sidecar.KEY),
    measure,
    self_test,
)
