"""The memory of a host with many connections, most of which do nothing.

Knows: what is open and what goes on when memory is looked at.
Does not know: protocols (bench_listener_wires.py), where a host's memory can be read.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep
from typing import Final

from bench_broker_cells import wait_until
from bench_figures import Value, number
from bench_listener_plan import MEMORY_GOAL_MIB, Size
from bench_listener_sides import Ours, client_program
from bench_listener_wires import Wire
from bench_process_sides import Program

_MIB: Final = 1 << 20
_LOOK_S: Final = 0.1
#: Clients, and for how long they work, before memory is looked at for the first time: little,
#: because memory that was used once would take connections in without growing.
_WARM, _WARM_S = 2, 0.1


def _resident(host: Ours) -> float:
    """Return the resident memory of a host in MiB."""
    taken: int = host.program.ask("memory")
    return taken / _MIB


@dataclass(frozen=True, slots=True)
class Taken(Value):
    """What was measured, and in MiB what the idle connections took."""

    idle: float = 0.0


def measure(folder: Path, wire: Wire, size: Size) -> Taken:
    """Measure connections that do nothing, then beside them some that put and consume."""
    with ExitStack() as stack:
        host = Ours(folder, wire)
        stack.callback(host.close)
        port = host.listen()
        for verb in ("put", "take"):
            with_few = client_program(verb, wire._replace(burst=1), port, _WARM)
            stack.callback(with_few.close)
            with_few.ask(_WARM_S)
        host.look()
        wait_until(lambda: host.program.ask("connected") == 0, "nobody is connected")
        base = _resident(host)
        holder = Program("bench_listener_holder.py", wire.name, str(port)).met()
        stack.callback(holder.close)
        holder.ask("hold", size.idle)
        wait_until(lambda: host.program.ask("connected") == size.idle, "all are connected")
        idle = _resident(host) - base
        active = _peak(host, holder, wire, port, size) - base
    title = f"memory of {size.idle:,} idle and {size.active} active connections, {wire.name}"
    text = f"{number(active)} MiB over {number(base)} MiB; the idle alone {number(idle)} MiB"
    goal, reached = f"≤ {MEMORY_GOAL_MIB:g} MiB", active <= MEMORY_GOAL_MIB
    return Taken("memory", title, text, goal, reached, idle)


def _peak(host: Ours, holder: Program, wire: Wire, port: int, size: Size) -> float:
    """Return the most memory while half of the active put and the others consume."""
    takers = client_program("take", wire, port, size.active // 2)
    try:
        takers.tell(size.active_s)
        holder.tell("write", size.active // 2, size.active_s)
        found, end = [_resident(host)], perf_counter() + size.active_s
        while perf_counter() < end:
            sleep(_LOOK_S)
            found.append(_resident(host))
        takers.answer()
        holder.answer()
    finally:
        takers.close()
    return max(found)
