"""What the benchmark of listeners measures: its cells, its rows with their goals, its sizes.

Knows: which cell is compared with which, and what has to be reached.
Does not know: how a cell works (bench_listener_sides.py), protocols (bench_listener_wires.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import bench_listener_sides as sides
from bench_cells import Cell
from bench_figures import Row
from bench_listener_wires import WIRES, Wire
from bench_run import Group, Opener, Pace


@dataclass(frozen=True, slots=True)
class Size(Pace):
    """How long and how large the cells are.

    `backlog`: messages that there are to take; `peer_backlog`: for a server that cannot take
    them in bulk. `idle`, `active`: connections whose memory is measured, `active_s`: how long.
    """

    backlog: int
    peer_backlog: int
    idle: int
    active: int
    active_s: float


FULL = Size(
    rounds=5,
    slot_s=1.0,
    slices=2,
    syncs=200,
    backlog=20_000,
    peer_backlog=16_000,
    idle=1_000,
    active=100,
    active_s=3.0,
)
QUICK = Size(
    rounds=1,
    slot_s=0.2,
    slices=1,
    syncs=50,
    backlog=4_000,
    peer_backlog=1_000,
    idle=100,
    active=10,
    active_s=0.5,
)

#: Of the time the bench may take, what the rounds may.
ROUNDS_SHARE = 0.85
PRODUCERS, CONSUMERS = 16, 4
#: How many times as fast as threads of the host; MiB over the base.
PUT_GOAL, MEMORY_GOAL_MIB = 0.5, 24.0

THREAD_PUTS = f"put, {PRODUCERS} threads"
THREAD_TAKES = f"get + ack, {CONSUMERS} threads"
PIPELINED, WAITED = "beanstalkd, pipelining", "beanstalkd, greenstalk"
PEER_TAKES = "beanstalkd, reserve + delete"
#: As the only client that there is does it.
ALONE = "mmqp"
PUTS_ALONE = f"puts, {ALONE}, one a connection"


def puts_of(wire: Wire) -> str:
    """Return the name of the cell of puts of a protocol."""
    return f"puts, {wire.name}"


def takes_of(wire: Wire) -> str:
    """Return the name of the cell of consumers of a protocol."""
    return f"takes, {wire.name}"


def bare_of(wire: Wire) -> str:
    """Return the name of the cell of what a protocol allows."""
    return f"bare, {wire.name}"


def puts(*, has_peer: bool) -> Group:
    """Return the cells of durable puts."""

    def ours(wire: Wire, name: str) -> Opener:
        def open_it(folder: Path) -> Cell:
            return sides.listener_puts(name, folder, wire, PRODUCERS)

        return open_it

    def theirs(name: str, *, pipelining: bool) -> Opener:
        return lambda folder: sides.peer_puts(name, folder, PRODUCERS, pipelining=pipelining)

    cells: dict[str, Opener] = {
        THREAD_PUTS: lambda folder: sides.thread_puts(THREAD_PUTS, folder, PRODUCERS)
    }
    cells |= {puts_of(wire): ours(wire, puts_of(wire)) for wire in WIRES.values()}
    cells[PUTS_ALONE] = ours(WIRES[ALONE]._replace(burst=1), PUTS_ALONE)
    if has_peer:
        cells[PIPELINED] = theirs(PIPELINED, pipelining=True)
        cells[WAITED] = theirs(WAITED, pipelining=False)
    return cells


def takes(size: Size, *, has_peer: bool) -> Group:
    """Return the cells that consume and settle."""
    backlog = size.backlog

    def ours(wire: Wire) -> Opener:
        name = takes_of(wire)
        return lambda folder: sides.listener_takes(name, folder, wire, CONSUMERS, backlog)

    def bare(wire: Wire) -> Opener:
        name = bare_of(wire)
        return lambda folder: sides.bare_takes(name, folder, wire, CONSUMERS, backlog)

    cells: dict[str, Opener] = {
        THREAD_TAKES: lambda folder: sides.thread_takes(THREAD_TAKES, folder, CONSUMERS, backlog)
    }
    for wire in WIRES.values():
        cells |= {takes_of(wire): ours(wire), bare_of(wire): bare(wire)}
    if has_peer:
        cells[PEER_TAKES] = lambda folder: sides.peer_takes(
            PEER_TAKES, folder, CONSUMERS, size.peer_backlog
        )
    return cells


def _rows() -> Iterator[Row]:
    for wire in WIRES.values():
        title = f"put, {PRODUCERS} connections, {wire.name}"
        yield Row("put", f"{title} / threads", puts_of(wire), THREAD_PUTS, PUT_GOAL)
        yield Row("put", f"{title} / beanstalkd pipelining", puts_of(wire), PIPELINED)
        yield Row("put", f"{title} / beanstalkd, greenstalk", puts_of(wire), WAITED)
    yield Row("put", f"put, {ALONE}, one a connection / threads", PUTS_ALONE, THREAD_PUTS)
    for wire in WIRES.values():
        title = f"consume + settle, {CONSUMERS} connections, {wire.name}"
        yield Row("take", f"{title} / threads", takes_of(wire), THREAD_TAKES)
        yield Row("take", f"{title} / what the wire allows", takes_of(wire), bare_of(wire))
        yield Row("take", f"{title} / beanstalkd, greenstalk", takes_of(wire), PEER_TAKES)


ROWS = tuple(_rows())
#: What --only accepts; the last one is measured after the rounds.
KEYS = (*dict.fromkeys(row.key for row in ROWS), "memory")


def wanted(keys: Iterable[str], size: Size, *, has_peer: bool) -> Sequence[Group]:
    """Return the groups of cells that some rows need."""
    makers: dict[str, Callable[[], Group]] = {
        "put": lambda: puts(has_peer=has_peer),
        "take": lambda: takes(size, has_peer=has_peer),
    }
    return [make() for key, make in makers.items() if key in keys]
