"""Measure the store against raw sqlite3: `python tools/bench.py store`.

Knows: rounds and their order, time limits, how results are printed and saved.
Does not know: how a cell works (bench_cells.py, bench_loads.py), the goals (bench_plan.py).

How to read the tables, and the last full run, are in docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from time import perf_counter, thread_time

ROOT = Path(__file__).resolve().parent.parent
# Runs from a checkout that is not installed, too.
sys.path.insert(0, str(ROOT))

import bench_loads  # noqa: E402
import bench_machine as machine  # noqa: E402
import bench_plan as plan  # noqa: E402
from bench_cells import Size, computing, race  # noqa: E402
from bench_figures import (  # noqa: E402
    Figure,
    Value,
    busy_table,
    number,
    ratio_table,
    ratios,
    reached,
    value_table,
)
from embedq.broker.engine import Engine  # noqa: E402

BUDGET_S = 600.0
QUICK_BUDGET_S = 60.0
PLANTED_S = 200e-6
NOTICED = 0.8
MARKS = ("<!-- bench: begin -->", "<!-- bench: end -->")
_SPARE_BYTES_PER_MESSAGE = 700
_MB_MOST = 100
_SERVING_MOST_S = 0.5
_CHECKPOINT_MOST_MS = 10


class Run:
    """One run of the benchmark: what was asked for, what was found so far."""

    def __init__(self, size: Size, keys: list[str], folder: Path, budget_s: float) -> None:
        self.size = size
        self.keys = keys
        self.folder = folder
        self.begun = perf_counter()
        self.budget_s = budget_s
        self.results: dict[str, list[Figure | None]] = {}
        self.values: list[Value] = []
        self.syncs: list[float] = []
        self.loads: list[str] = []
        self.rounds = 0

    @property
    def spent_s(self) -> float:
        """How long the run has lasted."""
        return perf_counter() - self.begun

    @property
    def sync_ms(self) -> float:
        """The time of one sync: the median of all that was measured during the run."""
        return median(self.syncs)

    def look_at_machine(self, times: int) -> None:
        """Measure the disk and the load."""
        self.syncs.append(machine.sync_ms(self.folder, times))
        self.loads.append(machine.load())

    @contextmanager
    def fresh(self) -> Iterator[Path]:
        """Give an empty folder for one database."""
        with machine.scratch(self.folder) as folder:
            yield folder

    # ------------------------------------------------------------------------- the rounds

    def do_rounds(self, say: Callable[[str], object]) -> None:
        """Run every wanted cell once in each round, every other round backwards."""
        groups = self._groups()
        if not groups:
            return
        for turn in range(self.size.rounds):
            begun = self.spent_s
            self.look_at_machine(self.size.syncs // 4)
            for group in groups if turn % 2 == 0 else groups[::-1]:
                for name, figure in self.race(group).items():
                    self.results.setdefault(name, [None] * turn).append(figure)
            self.rounds = turn + 1
            say(f"round {self.rounds} of {self.size.rounds}: {self.spent_s - begun:.0f} s")
            each = self.spent_s - begun
            if self.spent_s + each > self.budget_s * plan.ROUNDS_SHARE:
                say("no time for more rounds")
                break

    def _groups(self) -> list[dict[str, plan.Opener]]:
        size = self.size
        groups = plan.wanted(self.keys)
        if "backlog" in self.keys:
            templates = {}
            for messages in (size.near, size.far):
                templates[messages] = self.folder / f"template-{messages}.db"
                bench_loads.build(templates[messages], messages)
            groups.append(plan.backlogs(templates, size))
        return groups

    def race(self, group: dict[str, plan.Opener]) -> dict[str, Figure]:
        """Run the cells of a group in turns, each on a fresh database."""
        size, busy = self.size, plan.is_busy(group)
        with ExitStack() as stack:
            cells = []
            for opener in group.values():
                cell = opener(stack.enter_context(self.fresh()), size)
                stack.callback(cell.close)
                cells.append(cell)
            with computing(wanted=busy):
                return race(cells, size.busy_slot_s if busy else size.slot_s, size.slices)

    # --------------------------------------------------------------- after the rounds

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
        rows = [row for row in plan.ROWS if row.key in self.keys and row.cell in self.results]
        parts = [self._circumstances()]
        if rows:
            parts.append(ratio_table(rows, self.results, self.sync_ms))
        if self.values:
            parts.append(value_table(self.values))
        if "busy" in self.keys and self.rounds:
            parts.append("Beside one thread that computes in pure Python:")
            parts.append(busy_table(plan.BUSY, self.results))
        return "\n\n".join(parts) + "\n"

    def _circumstances(self) -> str:
        known, size, syncs = machine.facts(), self.size, [number(one) for one in self.syncs]
        return (
            f"{known['python']}, SQLite {known['sqlite']}, {known['system']}, "
            f"{known['cores']} cores. Load (1 and 5 minutes) {self.loads[0]} before, "
            f"{self.loads[-1]} after. fdatasync of 4 KB, p50: {syncs[0]} ms before, "
            f"{syncs[-1]} ms after, in between {', '.join(syncs[1:-1]) or '–'} ms. "
            f"{self.rounds} rounds of cells of {size.slot_s:g} s; backlogs: {size.near:,} and "
            f"{size.far:,}; {self.spent_s:.0f} s in all."
        )

    def as_json(self) -> str:
        """Write everything that was measured, for other programs."""
        rows = [
            asdict(row)
            | {
                "ratios": ratios(self.results, row.cell, row.against),
                "reached": reached(row, self.results, self.sync_ms),
            }
            for row in plan.ROWS
            if row.key in self.keys
        ]
        cells = {
            name: [None if figure is None else asdict(figure) for figure in figures]
            for name, figures in self.results.items()
        }
        whole = {
            "machine": machine.facts(),
            "load": self.loads,
            "sync_ms": self.syncs,
            "rounds": self.rounds,
            "rows": rows,
            "values": [asdict(value) for value in self.values],
            "cells": cells,
        }
        return json.dumps(whole, indent=1) + "\n"


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


def self_test(folder: Path, size: Size, rounds: int = 5) -> tuple[float, float]:
    """Return the ratio of put NORMAL to sqlite3, as it is and with 200 µs planted in each put."""
    plain: list[float] = []
    slowed: list[float] = []
    group = plan.wanted(["put-normal"])[0]
    for _ in range(rounds):
        for seconds, found in ((0.0, plain), (PLANTED_S, slowed)):
            run = Run(size, [], folder, QUICK_BUDGET_S)
            with planted(seconds):
                rates = run.race(group)
            found.append(rates["put NORMAL"].rate / rates["sqlite3 put NORMAL"].rate)
    return median(plain), median(slowed)


# ------------------------------------------------------------------------------- the command


def arguments(argv: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=["store"])
    parser.add_argument("--rounds", type=int, help="rounds (default 7)")
    parser.add_argument("--quick", action="store_true", help="see that it works, in a minute")
    parser.add_argument("--only", action="append", choices=plan.KEYS, help="one row; repeatable")
    parser.add_argument("--json", type=Path, metavar="FILE", help="save every figure")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="write the tables into a page")
    parser.add_argument("--dir", type=Path, default=ROOT, help="on which disk (default: here)")
    parser.add_argument("--self-test", action="store_true", help="see that a slowdown is seen")
    return parser.parse_args(argv)


def insert(page: str, tables: str) -> str:
    """Put tables between the marks of a page. Raises ValueError if it has none."""
    before, begin, rest = page.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not begin or not end:
        raise ValueError(f"the page lacks {MARKS[0]} or {MARKS[1]}")
    return f"{before}{begin}\n\n{tables}\n{end}{after}"


def say(text: str) -> None:
    """Show progress, apart from the tables."""
    print(text, file=sys.stderr, flush=True)


def measure(asked: argparse.Namespace) -> Run:
    """Do what was asked for."""
    size = plan.QUICK if asked.quick else plan.FULL
    if asked.rounds:
        size = replace(size, rounds=asked.rounds)
    keys = asked.only or list(plan.KEYS)
    budget = QUICK_BUDGET_S if asked.quick else BUDGET_S
    with machine.scratch(asked.dir) as folder:
        run = Run(size, keys, folder, budget)
        run.look_at_machine(size.syncs)
        run.do_rounds(say)
        if "paced" in keys:
            run.do_paced()
        if "huge" in keys:
            say("building the long backlog")
            run.do_huge()
        run.look_at_machine(size.syncs)
    return run


def main(argv: list[str]) -> int:
    """Measure and print; the exit code says only whether it could be measured."""
    asked = arguments(argv)
    # So that the databases go away when the run is ended from outside.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if asked.self_test:
        plain, slowed = self_test(asked.dir, plan.QUICK)
        seen = slowed < plain * NOTICED
        print(f"put NORMAL: ratio {plain:.2f}; with 200 µs planted {slowed:.2f}: ", end="")
        print("seen" if seen else "NOT SEEN")
        return 0 if seen else 1
    run = measure(asked)
    print(run.report(), end="")
    if asked.json:
        asked.json.write_text(run.as_json(), encoding="utf-8")
    if asked.into:
        page = asked.into.read_text(encoding="utf-8")
        asked.into.write_text(insert(page, run.report()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
