"""The benchmark of the store: everything it measures against raw sqlite3, in one run.

Knows: what is measured in rounds and what after them, how the tables are put together.
Does not know: how a cell works (bench_cells.py, bench_loads.py), the goals (bench_plan.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import thread_time

import bench_loads
import bench_machine as machine
import bench_plan as plan
from bench_cells import computing
from bench_figures import (
    Figure,
    Row,
    Value,
    busy_table,
    number,
    ratio_table,
    value_table,
)
from bench_run import Benchmark, Group, Opener, Options, Run, Say, Seen, size_of
from embedq.broker.engine import Engine

BUDGET_S = 600.0
QUICK_BUDGET_S = 60.0
PLANTED_S = 200e-6
NOTICED = 0.8
_SPARE_BYTES_PER_MESSAGE = 700
_MB_MOST = 100
_SERVING_MOST_S = 0.5
_CHECKPOINT_MOST_MS = 10


class StoreRun(Run):
    """One run of the benchmark of the store."""

    def __init__(
        self, size: plan.Size, keys: Sequence[str], folder: Path, budget_s: float
    ) -> None:
        super().__init__(size, keys, folder, budget_s=budget_s, share=plan.ROUNDS_SHARE)
        self.size = size

    def groups(self) -> list[Group]:
        """Return the groups of cells that the wanted rows need; builds the long backlogs."""
        size = self.size
        groups = plan.wanted(self.keys)
        if "backlog" in self.keys:
            templates = {}
            for messages in (size.near, size.far):
                templates[messages] = self.folder / f"template-{messages}.db"
                bench_loads.build(templates[messages], messages)
            groups.append(plan.backlogs(templates, size))
        return [self.sized(group) for group in groups]

    def sized(self, group: dict[str, plan.SizedOpener]) -> Group:
        """Let the cells of a group be opened in the size of this run."""

        def sized(opener: plan.SizedOpener) -> Opener:
            return lambda folder: opener(folder, self.size)

        return {name: sized(opener) for name, opener in group.items()}

    def race(self, group: Group) -> dict[str, Figure]:
        """Run the cells of a group in turns, alone or beside a thread that computes."""
        busy = plan.is_busy(group)
        seconds = self.size.busy_slot_s if busy else self.size.slot_s
        return self.take_turns(group, seconds, computing(wanted=busy))

    # --------------------------------------------------------------- after the rounds

    def do_rest(self, say: Say) -> None:
        """Measure a paced load, and a long backlog."""
        if "paced" in self.keys:
            self.do_paced()
        if "huge" in self.keys:
            say("building the long backlog")
            self.do_huge()

    def do_huge(self) -> None:
        """Measure opening, memory and rates with five million messages waiting."""
        size = self.size
        free = shutil.disk_usage(self.folder).free
        if free < size.huge * _SPARE_BYTES_PER_MESSAGE:
            self.values.append(Value("huge", "five million messages", "no room on the disk"))
            return
        with self.fresh() as folder:
            path = folder / "queue.db"
            built, build_s = bench_loads.build(path, size.huge, self.budget_s * plan.BUILD_SHARE)
            title = f"{built:,} messages of 200 bytes"
            text = f"{build_s:.0f} s, {path.stat().st_size / 1e6:,.0f} MB"
            self.values.append(Value("huge", f"{title}: building", text))
            cold = bench_loads.probe(path, size.huge_claims, cached=False, killed=True)
            after = bench_loads.probe(path, size.huge_claims, cached=True, killed=False)
            warm = bench_loads.probe(path, size.huge_claims, cached=True, killed=False)
        for found, how in (
            (cold, "cold page cache" if not cold["cached"] else "warm page cache"),
            (after, "after a kill"),
            (warm, "warm page cache, clean"),
        ):
            self.values += _huge_values(found, how, size.huge_claims)

    def do_paced(self) -> None:
        """Measure put latencies under a paced load."""
        for durability in ("full", "normal"):
            with self.fresh() as folder:
                found = bench_loads.paced(folder, durability, self.size.paced_s)
            mode = durability.upper()
            self.values += [
                Value(
                    "paced",
                    f"5 MB/s in puts of 20, {mode}: latency p50 / p99 / max",
                    f"{number(found.p50)} / {number(found.p99)} / {number(found.most)} ms "
                    f"at {found.rate / 1e6:.1f} MB/s",
                ),
                Value(
                    "paced",
                    f"… longest put that met one of {found.checkpoints} checkpoints, {mode}",
                    f"{number(found.most_with_checkpoint)} ms "
                    f"(others: {number(found.most_without)} ms)",
                    f"≤ {_CHECKPOINT_MOST_MS} ms, quiet machine",
                    found.most_with_checkpoint <= _CHECKPOINT_MOST_MS,
                ),
            ]

    # ------------------------------------------------------------------------- output

    def report(self) -> str:
        """Write everything as Markdown."""
        rows = [row for row in self.rows() if row.cell in self.results]
        near, far = self.size.near, self.size.far
        parts = [self.circumstances(f"backlogs: {near:,} and {far:,}")]
        if rows:
            parts.append(ratio_table(rows, self.results, self.sync_ms))
        if self.values:
            parts.append(value_table(self.values))
        if "busy" in self.keys and self.rounds:
            parts.append("Beside one thread that computes in pure Python:")
            parts.append(busy_table(plan.BUSY, self.results))
        return "\n\n".join(parts) + "\n"

    def rows(self) -> list[Row]:
        """Return the rows that were wanted."""
        return [row for row in plan.ROWS if row.key in self.keys]


def _huge_values(found: bench_loads.Probe, how: str, claims: int) -> list[Value]:
    grown = found["peak_mb"] - found["base_mb"]
    return [
        Value(
            "huge",
            f"… first claim after opening, {how}",
            f"{found['serving_s'] * 1000:.0f} ms",
            f"≤ {_SERVING_MOST_S * 1000:.0f} ms",
            found["serving_s"] <= _SERVING_MOST_S,
        ),
        Value(
            "huge",
            f"… memory growth: open, {claims:,} claims, puts; {how}",
            f"{grown:.0f} MB, to {found['peak_mb']:.0f} MB "
            f"(claims {found['claims_per_s']:,.0f}/s, puts {found['puts_per_s']:,.0f}/s)",
            f"≤ {_MB_MOST} MB",
            grown <= _MB_MOST,
        ),
    ]


# ------------------------------------------------------------------------- the self-test


@contextmanager
def planted(seconds: float) -> Iterator[None]:
    """Make every put of one message compute in vain first."""
    real = Engine.put

    def slow(self: Engine, *arguments: object, **named: object) -> int:
        until = thread_time() + seconds
        while thread_time() < until:
            pass
        return real(self, *arguments, **named)  # type: ignore[arg-type]

    Engine.put = slow  # type: ignore[method-assign]
    try:
        yield
    finally:
        Engine.put = real  # type: ignore[method-assign]


def slowed(folder: Path, size: plan.Size, rounds: int = 5) -> tuple[float, float]:
    """Return the ratio of put NORMAL to sqlite3, as it is and with 200 µs planted in each put."""
    plain: list[float] = []
    less: list[float] = []
    group = plan.wanted(["put-normal"])[0]
    for _ in range(rounds):
        for seconds, found in ((0.0, plain), (PLANTED_S, less)):
            run = StoreRun(size, [], folder, QUICK_BUDGET_S)
            with planted(seconds):
                rates = run.race(run.sized(group))
            found.append(rates["put NORMAL"].rate / rates["sqlite3 put NORMAL"].rate)
    return median(plain), median(less)


def self_test(folder: Path) -> list[Seen]:
    """Tell whether a slowdown of put is seen."""
    plain, less = slowed(folder, plan.QUICK)
    title = "put NORMAL: ratio to sqlite3, with 200 µs planted"
    return [Seen(title, f"{plain:.2f}", f"{less:.2f}", less < plain * NOTICED)]


def measure(asked: Options, say: Say) -> StoreRun:
    """Do what was asked for."""
    size = size_of(asked, plan.QUICK, plan.FULL)
    budget = QUICK_BUDGET_S if asked.quick else BUDGET_S
    with machine.scratch(asked.folder) as folder:
        run = StoreRun(size, asked.keys, folder, budget)
        run.do_all(say)
    return run


STORE = Benchmark("the store against raw sqlite3", plan.KEYS, measure, self_test)
