"""The benchmark of listeners: clients of other protocols beside threads of the host, in one run.

Knows: what is measured in rounds and what after them, how the tables are put together.
Does not know: how a cell works (bench_listener_sides.py), the goals (bench_listener_plan.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import bench_listener_memory as memory
import bench_listener_peer as peer
import bench_listener_plan as plan
import bench_listener_sides as sides
import bench_machine as machine
from bench_figures import Row, number, ratio_table, value_table
from bench_listener_wires import TEXT, WIRES
from bench_run import Benchmark, Group, Opener, Options, Run, Say, Seen, size_of

BUDGET_S = 330.0
QUICK_BUDGET_S = 90.0
PLANTED_S = 300e-6
#: What part of a planted slowdown must show up in the CPU of a message.
_NOTICED = 0.5
#: The protocol whose puts and takes the self-test slows down.
_SUBJECT = "phpmq"


class ListenerRun(Run):
    """One run of the benchmark of listeners."""

    def __init__(
        self, size: plan.Size, keys: Sequence[str], folder: Path, budget_s: float
    ) -> None:
        super().__init__(size, keys, folder, budget_s=budget_s, share=plan.ROUNDS_SHARE)
        self.size = size
        self.has_peer = peer.has_server()
        #: Which releases of beanstalkd and its client are measured.
        self.peer = ""

    def groups(self) -> Sequence[Group]:
        """Return the groups of cells that the wanted rows need."""
        return plan.wanted(self.keys, self.size, has_peer=self.has_peer)

    def rows(self) -> list[Row]:
        """Return the rows that were wanted."""
        return [row for row in plan.ROWS if row.key in self.keys]

    def do_rest(self, say: Say) -> None:
        """Measure the memory of connections."""
        if "memory" in self.keys:
            say("looking at the memory of connections")
            self.remember()

    def remember(self) -> None:
        """Measure the memory of connections, protocol by protocol."""
        for wire in WIRES.values():
            with self.fresh() as folder:
                self.values.append(memory.measure(folder, wire, self.size))

    def report(self) -> str:
        """Write everything as Markdown."""
        found = [row for row in self.rows() if row.cell in self.results]
        parts = [self.circumstances(f"bodies of {len(TEXT):,} bytes")]
        if found:
            parts.append(ratio_table(found, self.results, self.sync_ms))
            parts.append(f"{self.peer}." if self.has_peer else f"{peer.HINT}: its rows are empty.")
        if self.values:
            parts.append(value_table(self.values))
        return "\n\n".join(parts) + "\n"


def measure(asked: Options, say: Say) -> ListenerRun:
    """Do what was asked for. Raises PeersMissing before anything is measured."""
    size = size_of(asked, plan.QUICK, plan.FULL)
    budget = QUICK_BUDGET_S if asked.quick else BUDGET_S
    with machine.scratch(asked.folder) as folder:
        run = ListenerRun(size, asked.keys, folder, budget)
        if run.has_peer and run.groups():
            run.peer = peer.versions()
        elif run.groups():
            say(peer.HINT)
        run.do_all(say)
    return run


# ------------------------------------------------------------------------- the self-test


def subjects(size: plan.Size, planted_s: float) -> dict[str, Opener]:
    """Return the cells that a planted slowdown must show up in."""
    wire = WIRES[_SUBJECT]
    puts, takes = plan.puts_of(wire), plan.takes_of(wire)
    return {
        puts: lambda folder: sides.listener_puts(puts, folder, wire, 2, planted_s),
        takes: lambda folder: sides.listener_takes(
            takes, folder, wire, 2, size.backlog, planted_s
        ),
    }


def look_for(name: str, folder: Path, size: plan.Size, seconds: float, rounds: int) -> Seen:
    """Measure the CPU of a message as it is, and with `seconds` planted in each of them."""
    plain: list[float] = []
    slowed: list[float] = []
    for _ in range(rounds):
        for planted_s, found in ((0.0, plain), (seconds, slowed)):
            run = ListenerRun(size, [], folder, QUICK_BUDGET_S)
            found.append(run.race({name: subjects(size, planted_s)[name]})[name].cpu_us)
    return judge(name, median(plain), median(slowed))


def judge(name: str, less: float, more: float) -> Seen:
    """Say whether what is planted shows up between two figures of a cell."""
    seen = more - less >= _NOTICED * PLANTED_S * 1e6
    return Seen(f"{name}, CPU µs of a message", number(less), number(more), seen)


def self_test(folder: Path, rounds: int = 3) -> list[Seen]:
    """Tell whether a slowdown of puts and of settlements through a listener is seen."""
    size = plan.QUICK
    return [look_for(name, folder, size, PLANTED_S, rounds) for name in subjects(size, 0.0)]


LISTENERS = Benchmark(
    "listeners: clients of other protocols, beanstalkd, memory of connections",
    plan.KEYS,
    measure,
    self_test,
)
