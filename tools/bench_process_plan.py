"""What the benchmark of processes measures: its cells, its rows with their goals, its sizes.

Knows: which cell is compared with which, and what has to be reached.
Does not know: how a cell works (bench_process_sides.py, bench_process_peers.py), when it is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_cells import Cell
from bench_figures import Row
from bench_process_peers import PEERS, PeerDrain, ProcessPeer
from bench_process_sides import Probe, Producers, WorkerDrain, WorkerLatency
from bench_run import Group, Opener, Pace


@dataclass(frozen=True, slots=True)
class Size(Pace):
    """How long and how large the cells are.

    `backlog`: messages for the workers, for each second that they are measured; likewise `share`
    says how much of their usual backlog other libraries get.
    """

    backlog: int
    share: float
    producers: int
    idle_s: float


FULL = Size(
    rounds=5,
    slot_s=1.0,
    slices=2,
    syncs=200,
    backlog=45_000,
    share=1.0,
    producers=16,
    idle_s=20.0,
)
QUICK = Size(
    rounds=1,
    slot_s=0.2,
    slices=2,
    syncs=50,
    backlog=10_000,
    share=0.5,
    producers=2,
    idle_s=1.0,
)

#: Of the time the bench may take, what the rounds may.
ROUNDS_SHARE = 0.85

WINDOW = 64
WORKERS = "2 workers"
ONE_BY_ONE = "1 producer, one at a time"
TOGETHER = f"producers, {WINDOW} each"
TO_WORKER = "put to worker"
PROBE = "request, answer, commit"

#: How many times as fast as every other library's workers, as one producer alone.
WORKERS_GOAL, PRODUCERS_GOAL = 12.0, 20.0
#: The probe's time over ours: ours may take twice as long.
LATENCY_GOAL = 0.5
IDLE_MOST_PERCENT = 0.5


def _peer_cell(peer: ProcessPeer) -> str:
    return f"{peer.name}, 2 workers"


def ours(size: Size, planted_s: float = 0.0) -> Opener:
    """Return what opens the cell of our own workers. `planted_s`: a slowdown, for a test."""
    # Two more slots: one for the warm-up, one for a machine that is faster than expected.
    backlog = max(1_000, round(size.backlog * size.slot_s) // 1_000 * 1_000)
    return lambda folder: WorkerDrain(WORKERS, folder, backlog, planted_s)


def workers(size: Size, *, has_redis: bool) -> Group:
    """Return the cells of worker processes that drain."""

    def opener(peer: ProcessPeer) -> Opener:
        def open_it(folder: Path) -> Cell:
            return PeerDrain(_peer_cell(peer), peer, folder, size.slot_s * size.share)

        return open_it

    cells: dict[str, Opener] = {WORKERS: ours(size)}
    for peer in PEERS:
        if has_redis or not peer.needs_redis:
            cells[_peer_cell(peer)] = opener(peer)
    return cells


def producers(size: Size) -> Group:
    """Return the cells of processes that put."""
    return {
        ONE_BY_ONE: lambda folder: Producers(ONE_BY_ONE, folder, 1, 1),
        TOGETHER: lambda folder: Producers(TOGETHER, folder, size.producers, WINDOW),
    }


def latencies() -> Group:
    """Return the cells of the time from a put to a handler in a worker."""
    return {
        TO_WORKER: lambda folder: WorkerLatency(TO_WORKER, folder),
        PROBE: lambda folder: Probe(PROBE, folder),
    }


ROWS = (
    *(
        Row("workers", f"2 workers / {peer.name}", WORKERS, _peer_cell(peer), WORKERS_GOAL)
        for peer in PEERS
    ),
    Row(
        *("producers", f"16 producers, {WINDOW} each / 1 producer, one at a time", TOGETHER),
        *(ONE_BY_ONE, PRODUCERS_GOAL, (0.1, 1.0)),
    ),
)
#: Rows that compare times.
LATENCIES = (Row("latency", "put to a worker, FULL", TO_WORKER, PROBE, LATENCY_GOAL, by="p50_ms"),)

#: What --only accepts; the last one is measured after the rounds.
KEYS = (*dict.fromkeys(row.key for row in (*ROWS, *LATENCIES)), "idle")


def wanted(keys: Iterable[str], size: Size, *, has_redis: bool) -> Sequence[Group]:
    """Return the groups of cells that some rows need."""
    makers: dict[str, Callable[[], Group]] = {
        "workers": lambda: workers(size, has_redis=has_redis),
        "producers": lambda: producers(size),
        "latency": latencies,
    }
    return [make() for key, make in makers.items() if key in keys]
