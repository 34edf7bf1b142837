"""What the benchmark of the store measures: its cells, its rows with their goals, its sizes.

Knows: which cell stands for what, what each is compared with, what counts as enough.
Does not know: how a cell works inside, rounds, printing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench_cells import Backlog, Cell, Crowd, Single
from bench_figures import Row
from bench_loads import copy
from bench_run import Pace
from bench_sides import MANY, SMALL, Ours, Raw
from embedq.storage.connection import Durability


@dataclass(frozen=True, slots=True)
class Size(Pace):
    """How long and how large the cells are."""

    busy_slot_s: float
    filled: int
    near: int
    far: int
    huge: int
    huge_claims: int
    paced_s: float


#: Opens a cell's database in an empty folder.
SizedOpener = Callable[[Path, Size], Cell]

#: What ends the names of cells that run beside a thread that computes.
BESIDE = ", busy"

#: Of the time the bench may take: when rounds end, and how long five million may be built.
ROUNDS_SHARE = 0.55
BUILD_SHARE = 0.2

FULL = Size(
    rounds=7,
    slot_s=0.8,
    busy_slot_s=0.8,
    slices=8,
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
    slices=2,
    filled=2_000,
    near=1_000,
    far=20_000,
    huge=50_000,
    huge_claims=10_000,
    paced_s=0.5,
    syncs=50,
)


def _raw(name: str, verb: str, durability: Durability, *, busy: bool = False) -> SizedOpener:
    def opener(folder: Path, size: Size) -> Cell:
        side = Raw(folder, durability)
        side.fill(size.filled)
        each = 1 if verb in {"put", "put_in_three"} else MANY
        return Single(name, side, verb, each, busy=busy)

    return opener


def _ours(
    name: str, verb: str, durability: Durability, *, retain: bool = False, busy: bool = False
) -> SizedOpener:
    def opener(folder: Path, size: Size) -> Cell:
        side = Ours(folder, durability, retain=retain)
        side.fill(size.filled)
        return Single(name, side, verb, 1 if verb == "put" else MANY, busy=busy)

    return opener


def _crowd(name: str, durability: Durability) -> SizedOpener:
    def opener(folder: Path, size: Size) -> Cell:
        side = Ours(folder, durability)
        side.fill(size.filled)
        return Crowd(name, side)

    return opener


def _groups() -> Iterator[dict[str, SizedOpener]]:
    """Go through the cells that are compared with each other, alone and beside a thread."""
    for busy in (False, True):
        end = BESIDE if busy else ""
        for mode in ("FULL", "NORMAL"):
            durability: Durability = "full" if mode == "FULL" else "normal"
            raw = partial(_raw, durability=durability, busy=busy)
            ours = partial(_ours, durability=durability, busy=busy)
            verbs: list[list[tuple[Callable[..., SizedOpener], str, str]]] = [
                [(raw, "sqlite3 put", "put"), (ours, "put", "put")],
                [(raw, "sqlite3 put ×100", "put_many"), (ours, "put ×100", "put_many")],
                [
                    (raw, "sqlite3 insert + delete", "turn_over"),
                    (ours, "claim + ack", "turn_over"),
                ],
            ]
            if mode == "NORMAL":
                verbs[0].append((raw, "sqlite3 put in 3 statements", "put_in_three"))
            if not busy:
                retained = partial(ours, retain=True)
                verbs[2].append((retained, "claim + ack, retained", "turn_over"))
            for group in verbs:
                found = {}
                for make, title, verb in group:
                    name = f"{title} {mode}{end}"
                    found[name] = make(name, verb)
                if mode == "FULL" and not busy and "put FULL" in found:
                    name = "put ×16 threads FULL"
                    found[name] = _crowd(name, durability)
                yield found


#: Groups of cells that are run in turns, by name: what is compared has the same disk.
GROUPS: tuple[dict[str, SizedOpener], ...] = tuple(_groups())

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
    (title, cell, cell + BESIDE)
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


def wanted(keys: Iterable[str]) -> list[dict[str, SizedOpener]]:
    """Return the groups of cells that some rows need."""
    names: set[str] = set()
    for row in ROWS:
        if row.key in keys:
            names |= {row.cell, row.against}
    if "busy" in keys:
        for _, alone, busy in BUSY:
            names |= {alone, busy}
    chosen = [
        {name: opener for name, opener in group.items() if name in names} for group in GROUPS
    ]
    return [group for group in chosen if group]


def is_busy(group: Iterable[str]) -> bool:
    """Whether a group's cells run beside a thread that computes."""
    return any(name.endswith(BESIDE) for name in group)


def backlogs(templates: Mapping[int, Path], size: Size) -> dict[str, SizedOpener]:
    """Return the group of the two backlogs, given the databases to copy."""

    def opener(folder: Path, _: Size, *, messages: int, names: tuple[str, str]) -> Cell:
        copy(templates[messages], folder)
        return Backlog(names, Ours(folder, "normal"), SMALL)

    return {
        "short backlog": partial(opener, messages=size.near, names=NEAR),
        "long backlog": partial(opener, messages=size.far, names=FAR),
    }
