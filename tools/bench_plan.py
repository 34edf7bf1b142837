"""What the benchmark of the store measures: its cells, its rows with their goals, its sizes.

Knows: which cell stands for what, what each is compared with, what counts as enough.
Does not know: how a cell works inside, rounds, printing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from bench_cells import Size, claim, put, put_together, raw
from bench_figures import Figure, Row
from bench_loads import at_backlog

Cell = Callable[[Path, Size], Figure]

#: Of the time the bench may take: when rounds end, and how long five million may be built.
ROUNDS_SHARE = 0.6
BUILD_SHARE = 0.2

FULL = Size(
    rounds=7,
    slot_s=0.8,
    busy_slot_s=0.8,
    filled=20_000,
    near=1_000,
    far=1_000_000,
    huge=5_000_000,
    huge_claims=200_000,
    paced_s=4.0,
    syncs=200,
)
QUICK = Size(
    rounds=2,
    slot_s=0.05,
    busy_slot_s=0.1,
    filled=2_000,
    near=1_000,
    far=20_000,
    huge=50_000,
    huge_claims=10_000,
    paced_s=0.5,
    syncs=50,
)

#: Cells, each beside the one it is compared with: neighbours in time have the same disk.
CELLS: dict[str, Cell] = {
    "sqlite3 put FULL": partial(raw, verb="put", durability="full"),
    "put FULL": partial(put, durability="full"),
    "put ×16 threads FULL": partial(put_together, durability="full"),
    "sqlite3 put NORMAL": partial(raw, verb="put", durability="normal"),
    "put NORMAL": partial(put, durability="normal"),
    "sqlite3 put ×100 FULL": partial(raw, verb="put_many", durability="full"),
    "put ×100 FULL": partial(put, durability="full", many=True),
    "sqlite3 put ×100 NORMAL": partial(raw, verb="put_many", durability="normal"),
    "put ×100 NORMAL": partial(put, durability="normal", many=True),
    "sqlite3 insert + delete FULL": partial(raw, verb="turn_over", durability="full"),
    "claim + ack FULL": partial(claim, durability="full"),
    "claim + ack, retained FULL": partial(claim, durability="full", retain=True),
    "sqlite3 insert + delete NORMAL": partial(raw, verb="turn_over", durability="normal"),
    "claim + ack NORMAL": partial(claim, durability="normal"),
    "claim + ack, retained NORMAL": partial(claim, durability="normal", retain=True),
    "sqlite3 put in 3 statements NORMAL": partial(raw, verb="put_in_three", durability="normal"),
    "sqlite3 put FULL, busy": partial(raw, verb="put", durability="full", busy=True),
    "put FULL, busy": partial(put, durability="full", busy=True),
    "sqlite3 put NORMAL, busy": partial(raw, verb="put", durability="normal", busy=True),
    "sqlite3 put in 3 statements NORMAL, busy": partial(
        raw, verb="put_in_three", durability="normal", busy=True
    ),
    "put NORMAL, busy": partial(put, durability="normal", busy=True),
    "sqlite3 put ×100 NORMAL, busy": partial(raw, verb="put_many", durability="normal", busy=True),
    "put ×100 NORMAL, busy": partial(put, durability="normal", many=True, busy=True),
    "sqlite3 insert + delete NORMAL, busy": partial(
        raw, verb="turn_over", durability="normal", busy=True
    ),
    "claim + ack NORMAL, busy": partial(claim, durability="normal", busy=True),
}

#: Cells on a backlog: one run measures both.
NEAR = ("put, short backlog", "claim + ack, short backlog")
FAR = ("put, long backlog", "claim + ack, long backlog")

ROWS = (
    Row("put-full", "put ×1 FULL", "put FULL", "sqlite3 put FULL", 0.9),
    Row("put-normal", "put ×1 NORMAL", "put NORMAL", "sqlite3 put NORMAL", 0.7),
    Row(
        *("threads-full", "put ×1, 16 threads, FULL", "put ×16 threads FULL"),
        "sqlite3 put FULL",
        3.0,
        syncs=(0.1, 1.0),
    ),
    Row("many-full", "put_many(100) FULL", "put ×100 FULL", "sqlite3 put ×100 FULL", 0.95),
    Row("many-normal", "put_many(100) NORMAL", "put ×100 NORMAL", "sqlite3 put ×100 NORMAL", 0.95),
    Row(
        *("claim-full", "claim(100) + ack FULL", "claim + ack FULL"),
        "sqlite3 insert + delete FULL",
        0.7,
    ),
    Row(
        *("claim-normal", "claim(100) + ack NORMAL", "claim + ack NORMAL"),
        "sqlite3 insert + delete NORMAL",
        0.7,
    ),
    Row(
        *("retain-full", "the same with retain, FULL", "claim + ack, retained FULL"),
        "claim + ack FULL",
        0.5,
    ),
    Row(
        *("retain-normal", "the same with retain, NORMAL", "claim + ack, retained NORMAL"),
        "claim + ack NORMAL",
        0.5,
    ),
    Row("backlog", "put ×1, long backlog against short", FAR[0], NEAR[0], 0.85),
    Row("backlog", "claim(100) + ack, the same", FAR[1], NEAR[1], 0.85),
)

#: Beside a thread that computes: title, cell alone, cell beside it.
BUSY = tuple(
    (title, cell, f"{cell}, busy")
    for title, cell in (
        ("sqlite3, one row, three statements", "sqlite3 put in 3 statements NORMAL"),
        ("sqlite3, one row, autocommit", "sqlite3 put NORMAL"),
        ("put ×1 NORMAL", "put NORMAL"),
        ("sqlite3, one row, autocommit, FULL", "sqlite3 put FULL"),
        ("put ×1 FULL", "put FULL"),
        ("sqlite3, executemany of 100", "sqlite3 put ×100 NORMAL"),
        ("put_many(100) NORMAL", "put ×100 NORMAL"),
        ("sqlite3, insert + delete of 100", "sqlite3 insert + delete NORMAL"),
        ("claim(100) + ack NORMAL", "claim + ack NORMAL"),
    )
)

#: What --only accepts; the last three are measured after the rounds, or beside a thread.
KEYS = (*dict.fromkeys(row.key for row in ROWS), "busy", "huge", "paced")


def wanted_cells(keys: Iterable[str]) -> list[str]:
    """Return the cells that some rows need, in the order they are to be run."""
    names: set[str] = set()
    for row in ROWS:
        if row.key in keys:
            names |= {row.cell, row.against}
    if "busy" in keys:
        for _, alone, busy in BUSY:
            names |= {alone, busy}
    return [name for name in CELLS if name in names]


def backlog_figures(
    folder: Path, size: Size, template: Path, names: tuple[str, str]
) -> dict[str, Figure]:
    """Measure a copy of a backlog; return its two figures by name."""
    return dict(zip(names, at_backlog(folder, size, template), strict=True))
