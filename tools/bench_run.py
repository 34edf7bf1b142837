"""One run of a benchmark: rounds of cells that take turns, and what was found so far.

Knows: the order of rounds, the time they may take, what is said about the machine.
Does not know: what a cell does, goals (the plans), the command line (bench.py).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple, TypeVar

import bench_machine as machine
from bench_cells import Cell, race
from bench_figures import Figure, Row, Value, number, ratios, reached

#: Opens a cell's database in an empty folder.
Opener = Callable[[Path], Cell]
#: Cells that are run in turns, by name: what is compared has the same disk.
Group = Mapping[str, Opener]
#: Shows progress, apart from the tables.
Say = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Pace:
    """How many rounds there are, how long a cell runs in each, and in how many slices."""

    rounds: int
    slot_s: float
    slices: int
    syncs: int


SizeT = TypeVar("SizeT", bound=Pace)


def size_of(asked: Options, quick: SizeT, full: SizeT) -> SizeT:
    """Return the size of a run: one of two, with other rounds if that was asked for."""
    size = quick if asked.quick else full
    return replace(size, rounds=asked.rounds) if asked.rounds else size


class Seen(NamedTuple):
    """Whether a slowdown that was planted is seen in the figures, and both of them as text."""

    title: str
    plain: str
    slowed: str
    seen: bool


class Run(ABC):
    """What was asked for and what was found. `share`: of the time, for the rounds."""

    def __init__(
        self, pace: Pace, keys: Sequence[str], folder: Path, *, budget_s: float, share: float
    ) -> None:
        self.pace = pace
        self.keys = keys
        self.folder = folder
        self.begun = perf_counter()
        self.budget_s = budget_s
        self.share = share
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

    @abstractmethod
    def groups(self) -> Sequence[Group]:
        """Return the groups of cells that the wanted rows need."""

    def do_all(self, say: Say) -> None:
        """Do the rounds and what has none, and look at the machine before and after it."""
        self.look_at_machine(self.pace.syncs)
        self.do_rounds(say)
        self.do_rest(say)
        self.look_at_machine(self.pace.syncs)

    def do_rest(self, say: Say) -> None:  # noqa: B027  # not everyone has any
        """Measure what was wanted and has no rounds."""

    def do_rounds(self, say: Say) -> None:
        """Run every wanted cell once in each round, every other round backwards."""
        groups = self.groups()
        if not groups:
            return
        for turn in range(self.pace.rounds):
            begun = self.spent_s
            self.look_at_machine(self.pace.syncs // 4)
            for group in groups if turn % 2 == 0 else groups[::-1]:
                for name, figure in self.race(group).items():
                    self.results.setdefault(name, [None] * turn).append(figure)
            self.rounds = turn + 1
            say(f"round {self.rounds} of {self.pace.rounds}: {self.spent_s - begun:.0f} s")
            each = self.spent_s - begun
            if self.spent_s + each > self.budget_s * self.share:
                say("no time for more rounds")
                break

    def race(self, group: Group) -> dict[str, Figure]:
        """Run the cells of a group in turns, each on a fresh database."""
        return self.take_turns(group, self.pace.slot_s)

    def take_turns(
        self,
        group: Group,
        seconds: float,
        beside: AbstractContextManager[object] | None = None,
        *,
        slices: int | None = None,
    ) -> dict[str, Figure]:
        """Do the same for so many seconds each, with something going on `beside` them."""
        with ExitStack() as stack:
            cells = []
            for opener in group.values():
                cell = opener(stack.enter_context(self.fresh()))
                stack.callback(cell.close)
                cells.append(cell)
            with beside or nullcontext():
                return race(cells, seconds, slices or self.pace.slices)

    # ------------------------------------------------------------------------- output

    @abstractmethod
    def report(self) -> str:
        """Write everything as Markdown."""

    @abstractmethod
    def rows(self) -> Iterable[Row]:
        """Return the rows that were wanted."""

    def circumstances(self, sizes: str) -> str:
        """Say on which machine, and in what state, it was measured."""
        known, syncs = machine.facts(), [number(one) for one in self.syncs]
        return (
            f"{known['python']}, SQLite {known['sqlite']}, {known['system']}, "
            f"{known['cores']} cores. Load (1 and 5 minutes) {self.loads[0]} before, "
            f"{self.loads[-1]} after. fdatasync of 4 KB, p50: {syncs[0]} ms before, "
            f"{syncs[-1]} ms after, in between {', '.join(syncs[1:-1]) or '–'} ms. "
            f"{self.rounds} rounds of cells of {self.pace.slot_s:g} s; {sizes}; "
            f"{self.spent_s:.0f} s in all."
        )

    def as_json(self) -> str:
        """Write everything that was measured, for other programs."""
        rows = [
            asdict(row)
            | {
                "ratios": ratios(self.results, row.cell, row.against, row.by),
                "reached": reached(row, self.results, self.sync_ms),
            }
            for row in self.rows()
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


class Options(NamedTuple):
    """What every benchmark can be asked for."""

    keys: Sequence[str]
    folder: Path
    quick: bool = False
    rounds: int | None = None


class Benchmark(NamedTuple):
    """One word of the command line: what --only takes, how to measure, how to test itself."""

    does: str
    keys: tuple[str, ...]
    measure: Callable[[Options, Say], Run]
    self_test: Callable[[Path], Sequence[Seen]]
