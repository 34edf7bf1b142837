"""The benchmark of the broker: consumers, latencies, coroutines, other libraries, in one run.

Knows: what is measured in rounds and what after them, how the tables are put together.
Does not know: how a cell works (bench_broker_cells.py), the goals (bench_broker_plan.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import thread_time
from typing import Any, NamedTuple

import bench_broker_plan as plan
import bench_machine as machine
from bench_broker_alone import idling, importing
from bench_broker_peers import PEERS, versions
from bench_broker_sides import Host
from bench_cells import Single
from bench_figures import Figure, Row, latency_table, number, ratio_table, table, value_table
from bench_run import Benchmark, Group, Options, Run, Say, Seen, size_of
from embedq.broker.engine import Engine
from embedq.broker.moves import Claim
from embedq.workers.runner import Runner

BUDGET_S = 470.0
QUICK_BUDGET_S = 60.0
PLANTED_S = 300e-6
#: What part of a planted slowdown must show up in the CPU of a message.
_NOTICED = 0.5
#: Into how many times as many slices latencies are cut.
_FINER = 5


class BrokerRun(Run):
    """One run of the benchmark of the broker."""

    def __init__(
        self, size: plan.Size, keys: Sequence[str], folder: Path, budget_s: float
    ) -> None:
        super().__init__(size, keys, folder, budget_s=budget_s, share=plan.ROUNDS_SHARE)
        self.size = size
        #: The libraries that are measured beside us, and their releases.
        self.peers: dict[str, str] = {}

    def groups(self) -> Sequence[Group]:
        """Return the groups of cells that the wanted rows need."""
        return plan.wanted(self.keys, self.size)

    def do_rest(self, say: Say) -> None:
        """Measure imports, and a broker that has nothing to do."""
        if "import" in self.keys:
            self.values += importing(self.size.imports)
        if "idle" in self.keys:
            say(f"watching an idle broker for {self.size.idle_s:g} s")
            self.values.append(idling(self.folder, self.size.idle_s))

    def race(self, group: Group) -> dict[str, Figure]:
        """Run the cells of a group in turns; where times are compared, in many short ones.

        A disk is fast in one tenth of a second and slow in the next: with long turns the median
        of one side would be that of a fast one, and the other's that of a slow one.
        """
        finer = _FINER if any(row.cell in group for row in plan.LATENCIES) else 1
        return self.take_turns(group, self.pace.slot_s, slices=finer * self.pace.slices)

    def rows(self) -> list[Row]:
        """Return the rows that were wanted."""
        return [row for row in (*plan.ROWS, *plan.LATENCIES) if row.key in self.keys]

    def report(self) -> str:
        """Write everything as Markdown."""
        found = [row for row in self.rows() if row.cell in self.results]
        times = [row for row in found if row.by != "rate"]
        rates = [row for row in found if row.by == "rate"]
        parts = [self.circumstances(f"{self.size.waiting:,} messages to take one by one")]
        if rates:
            parts.append(ratio_table(rates, self.results, self.sync_ms))
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
                f"{peer.package} {self.peers[peer.package]}",
                peer.licence,
                peer.made_durable,
                peer.bulk or "100 single puts",
                peer.taking,
            )
            for peer in PEERS
        ]
        return table(("library", "licence", "made durable by", "bulk", "take"), lines)


def measure(asked: Options, say: Say) -> BrokerRun:
    """Do what was asked for. Raises PeersMissing before anything is measured."""
    size = size_of(asked, plan.QUICK, plan.FULL)
    budget = QUICK_BUDGET_S if asked.quick else BUDGET_S
    peers = versions() if plan.PEER_KEYS & set(asked.keys) else {}
    with machine.scratch(asked.folder) as folder:
        run = BrokerRun(size, asked.keys, folder, budget)
        run.peers = peers
        run.do_all(say)
    return run


# ------------------------------------------------------------------------- the self-test


class Plant(NamedTuple):
    """A function that is made to compute in vain first, and a cell that must show it."""

    title: str
    owner: Any
    name: str
    cell: str


PLANTS = (
    Plant("put", Engine, "put", plan.PUT),
    Plant("claim", Claim, "prepare", "drain, thread ×1"),
    Plant("handler, thread", Runner, "run", "drain, thread ×1"),
    Plant("handler, async", Runner, "awaitable", "drain, async ×100"),
)


@contextmanager
def planted(plant: Plant, seconds: float) -> Iterator[None]:
    """Make every call of a function compute in vain first."""
    real: Callable[..., object] = getattr(plant.owner, plant.name)

    def slow(*arguments: object, **named: object) -> object:
        until = thread_time() + seconds
        while thread_time() < until:
            pass
        return real(*arguments, **named)

    setattr(plant.owner, plant.name, slow)
    try:
        yield
    finally:
        setattr(plant.owner, plant.name, real)


def _cells(size: plan.Size) -> dict[str, Group]:
    """Return the cells of the self-test; without syncs, which would hide a slowdown."""
    groups = list(plan.drains(size, "normal"))
    found: dict[str, Group] = {name: {name: group[name]} for group in groups for name in group}

    def put(folder: Path) -> Single:
        return Single(plan.PUT, Host(folder, "normal"), "put", 1)

    return found | {plan.PUT: {plan.PUT: put}}


def look_for(plant: Plant, folder: Path, size: plan.Size, seconds: float, rounds: int) -> Seen:
    """Measure the CPU of a message as it is and with `seconds` planted, in turns."""
    plain: list[float] = []
    slowed: list[float] = []
    group = _cells(size)[plant.cell]
    for _ in range(rounds):
        for planting, found in ((0.0, plain), (seconds, slowed)):
            run = BrokerRun(size, [], folder, QUICK_BUDGET_S)
            with planted(plant, planting):
                found.append(run.race(group)[plant.cell].cpu_us)
    less, more = median(plain), median(slowed)
    seen = more - less >= _NOTICED * PLANTED_S * 1e6
    title = f"{plan_title(plant)}, CPU µs of a message"
    return Seen(title, number(less), number(more), seen)


def plan_title(plant: Plant) -> str:
    """Say what is slowed down, and in which cell it must be seen."""
    return f"{plant.title} ({plant.cell})"


def self_test(folder: Path, rounds: int = 3) -> list[Seen]:
    """Tell for each planted slowdown whether it is seen."""
    return [look_for(plant, folder, plan.QUICK, PLANTED_S, rounds) for plant in PLANTS]


BROKER = Benchmark("the broker and its consumers", plan.KEYS, measure, self_test)
