"""The slower measurements: long backlogs, five million messages, a paced load.

Knows: how to build a backlog once and copy it, how to watch memory from a fresh process.
Does not know: goals and verdicts (bench_plan.py), the short cells (bench_cells.py).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep
from typing import TypedDict, cast

from bench_figures import percentile
from bench_machine import flush, forget
from bench_sides import BODY, LOT, SMALL, Ours
from embedq.broker.host import open_engine
from embedq.storage.connection import Durability

PROBE = Path(__file__).resolve().parent / "bench_probe.py"
_PUTS_AT_ONCE = 20
_BYTES_PER_S = 5_000_000
_BEHIND = 10

# -------------------------------------------------------------------------- long backlogs


def build(path: Path, messages: int, limit_s: float = 3600.0) -> tuple[int, float]:
    """Make a database with so many waiting messages of 200 bytes in one group.

    Stops when the time is over. Returns how many there are and the seconds it took.
    """
    engine = open_engine(path, durability="normal")
    queue = engine.queue("orders")
    engine.group(queue)
    bodies = [SMALL] * LOT
    begun = perf_counter()
    put = 0
    while put < messages and perf_counter() - begun < limit_s:
        engine.put_many(queue, bodies[: messages - put])
        put += min(LOT, messages - put)
    taken = perf_counter() - begun
    engine.close()
    flush(path)
    return put, taken


def copy(template: Path, folder: Path) -> None:
    """Copy a backlog to where `Ours` looks for its database."""
    # With its lock file, which says that it was closed well: else it would be verified meanwhile.
    for part in template.parent.glob(f"{template.name}*"):
        shutil.copy(part, folder / part.name.replace(template.name, "queue.db"))
    flush(folder / "queue.db")


# ------------------------------------------------------------------- five million messages


class Probe(TypedDict):
    """What the fresh process found; seconds, megabytes, messages per second."""

    serving_s: float
    base_mb: float
    opened_mb: float
    claimed_mb: float
    peak_mb: float
    claims_per_s: float
    puts_per_s: float
    cached: bool


def probe(path: Path, claims: int, *, cached: bool, killed: bool) -> Probe:
    """Let a fresh process open a database, claim, put, and end: cleanly, or as if killed."""
    known = True if cached else not forget(path)
    command = [sys.executable, str(PROBE), str(path), str(claims), "kill" if killed else "close"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=600
    )
    found = cast("Probe", json.loads(done.stdout))
    found["cached"] = known
    return found


# ----------------------------------------------------------------------------- paced load


@dataclass(frozen=True, slots=True)
class Paced:
    """Put latencies of a paced load, in milliseconds, and how they met checkpoints."""

    p50: float
    p99: float
    most: float
    most_with_checkpoint: float
    most_without: float
    checkpoints: int
    rate: float


def paced(folder: Path, durability: Durability, seconds: float) -> Paced:
    """Put 20 messages at a time, 5 MB a second, while another thread claims and acks behind."""
    with closing(Ours(folder, durability)) as ours:
        engine, queue, group, store = ours.engine, ours.queue, ours.group, ours.store
        waiting = threading.Semaphore(0)
        over = False

        def consume() -> None:
            while True:
                waiting.acquire()
                if over:
                    return
                leases = engine.claim(group, _PUTS_AT_ONCE)
                engine.ack(*leases)

        consumer = threading.Thread(target=consume, name="consumer", daemon=True)
        consumer.start()
        bodies = [BODY] * _PUTS_AT_ONCE
        every_s = _PUTS_AT_ONCE * len(BODY) / _BYTES_PER_S
        alone: list[float] = []
        met: list[float] = []
        first = store.wal.checkpoints
        begun = due = perf_counter()
        while due < begun + seconds:
            checkpoints = store.wal.checkpoints
            start = perf_counter()
            engine.put_many(queue, bodies)
            end = perf_counter()
            (alone if store.wal.checkpoints == checkpoints else met).append((end - start) * 1000)
            if len(alone) + len(met) > _BEHIND:
                waiting.release()
            due += every_s
            sleep(max(0.0, due - perf_counter()))
        taken = perf_counter() - begun
        over = True
        waiting.release()
        consumer.join()
        checkpoints = store.wal.checkpoints - first
    every = alone + met
    return Paced(
        percentile(every, 0.5),
        percentile(every, 0.99),
        max(every),
        max(met, default=0.0),
        max(alone, default=0.0),
        checkpoints,
        _PUTS_AT_ONCE * len(BODY) * len(every) / taken,
    )
