"""What the benchmark of the broker measures: its cells, its rows with their goals, its sizes.

Knows: which cell is compared with which, and what has to be reached.
Does not know: how a cell works (bench_broker_cells.py), when it is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from bench_broker_cells import Drain, Latency, RawDrain, RawLatency, Tasks
from bench_broker_peers import PEERS, Peer, SimpleBroker, open_peer
from bench_broker_sides import Host, Leased
from bench_cells import Cell, Crowd, Single
from bench_figures import Row
from bench_run import Group, Opener, Pace
from bench_sides import MANY
from embedq.storage.connection import Durability


@dataclass(frozen=True, slots=True)
class Size(Pace):
    """How long and how large the cells are.

    `filled`: messages that are put in bulk before a cell of puts, so that its log has its size; a
    quarter of it will do one by one. `waiting`: what there is to take one by one. `backlog`: what
    there is to drain, for each message that a commit may have.
    """

    filled: int
    waiting: int
    backlog: int
    imports: int
    idle_s: float


FULL = Size(
    rounds=7,
    slot_s=0.5,
    slices=5,
    syncs=200,
    filled=4_000,
    waiting=2_000,
    backlog=6_000,
    imports=15,
    idle_s=20.0,
)
QUICK = Size(
    rounds=2,
    slot_s=0.06,
    slices=2,
    syncs=50,
    filled=1_000,
    waiting=1_000,
    backlog=2_000,
    imports=3,
    idle_s=1.0,
)

#: Of the time the bench may take, what the rounds may.
ROUNDS_SHARE = 0.88

# ------------------------------------------------------------------- drains and latencies


def handle(_: bytes) -> None:
    """Do nothing with a message, on a thread."""


async def ahandle(_: bytes) -> None:
    """Do nothing with a message, on the loop."""


TWO, ONE = "sqlite3, two commits", "sqlite3, one commit"


class Drained(NamedTuple):
    """A consumer that is measured while it drains; `goal` against plain sqlite3, if there is one.

    `lots`: how much of a backlog it needs.
    """

    title: str
    handler: Callable[[bytes], object]
    concurrency: int
    lots: int
    goal: float | None = None


#: Only the thread that is alone does little more than its writes; the others also wake threads
#: and make tasks, which the other side does not: a goal for the second only guards what there is.
DRAINS = (
    Drained("thread ×1", handle, 1, 1, 0.7),
    Drained("threads ×16", handle, 16, 2),
    Drained("async ×1", ahandle, 1, 1),
    Drained("async ×100", ahandle, 100, 4, 0.4),
)


def drains(size: Size, durability: Durability = "full") -> Iterator[Group]:
    """Go through the consumers, each beside plain sqlite3 with as many messages to a commit."""
    for drained in DRAINS:
        yield _drain(drained, size, durability)


def _drain(drained: Drained, size: Size, durability: Durability) -> Group:
    backlog = size.backlog * drained.lots
    now: list[Drain] = []

    def ours(folder: Path) -> Cell:
        host = Host(folder, durability)
        name, concurrency = f"drain, {drained.title}", drained.concurrency
        now[:] = [Drain(name, host, drained.handler, concurrency, backlog)]
        return now[0]

    def raw(folder: Path) -> Cell:
        side = Leased(folder, durability)
        return RawDrain(f"sqlite3, as {drained.title}", side, lambda: now[0].each, backlog)

    return {f"drain, {drained.title}": ours, f"sqlite3, as {drained.title}": raw}


def latencies(durability: Durability = "full") -> Group:
    """Return the cells of the time from a put to the start of its handler."""

    def ours(name: str, *, is_async: bool) -> Opener:
        return lambda folder: Latency(name, Host(folder, durability), is_async=is_async)

    def raw(name: str, operation: str) -> Opener:
        def opener(folder: Path) -> Cell:
            side = Leased(folder, durability)
            return RawLatency(name, side, getattr(side, operation))

        return opener

    return {
        "put to thread": ours("put to thread", is_async=False),
        "put to async": ours("put to async", is_async=True),
        TWO: raw(TWO, "put_then_lease"),
        ONE: raw(ONE, "put_and_lease"),
    }


def tasks(size: Size) -> Group:
    """Return the cells of coroutines that put."""

    def ours(folder: Path) -> Cell:
        return Tasks("aput ×256", filled(Host(folder), size.filled))

    def raw(folder: Path) -> Cell:
        return Single("sqlite3 put", filled(Leased(folder), size.filled), "put", 1)

    return {"aput ×256": ours, "sqlite3 put": raw}


# --------------------------------------------------------------------------------- peers

FOUR = 4
#: What we do ourselves beside the peers, one cell each.
PUT, PUT_FOUR, PUT_MANY = "put", "put ×4 threads", "put_many(100)"
GET, GET_MANY, CONSUMER = "get + ack", "get_many(100) + ack", "consumer ×1"
#: Two peers are at most once: a message is gone with one commit, before it is handled.
READ = "simplebroker read_one"


def _host(name: str, verb: str, each: int, messages: int) -> Opener:
    def opener(folder: Path) -> Cell:
        return Single(name, filled(Host(folder), messages), verb, each)

    return opener


def _peer(name: str, kind: type[Peer], verb: str, each: int, messages: int) -> Opener:
    def opener(folder: Path) -> Cell:
        return Single(name, open_peer(kind, folder, messages), verb, each)

    return opener


def _log(kind: type[Peer], size: Size) -> int:
    """Return how many messages it takes until a library's log has its size."""
    return size.filled if kind.bulk else size.filled // 4


def puts(size: Size) -> Group:
    """Return the cells of single puts by one thread."""
    cells = {PUT: _host(PUT, "put", 1, size.filled)}
    for kind in PEERS:
        name = f"{kind.package} put"
        cells[name] = _peer(name, kind, "put", 1, _log(kind, size))
    return cells


def puts_by_four(size: Size) -> Group:
    """Return the cells of single puts by four threads."""

    def ours(folder: Path) -> Cell:
        return Crowd(PUT_FOUR, filled(Host(folder), size.filled), FOUR)

    def theirs(name: str, kind: type[Peer]) -> Opener:
        return lambda folder: Crowd(name, open_peer(kind, folder, _log(kind, size)), FOUR)

    cells: dict[str, Opener] = {PUT_FOUR: ours}
    for kind in PEERS:
        name = f"{kind.package} put ×4"
        cells[name] = theirs(name, kind)
    return cells


def bulks(size: Size) -> Group:
    """Return the cells of puts of 100."""
    cells = {PUT_MANY: _host(PUT_MANY, "put_many", MANY, size.filled)}
    for kind in PEERS:
        name = f"{kind.package} 100 puts"
        cells[name] = _peer(name, kind, "put_many", MANY, _log(kind, size))
    return cells


def takes(size: Size) -> Group:
    """Return the cells that take messages and are done with them."""

    def consumer(folder: Path) -> Cell:
        return Drain(CONSUMER, Host(folder), handle, 1, size.backlog)

    cells: dict[str, Opener] = {
        GET: _host(GET, "get_and_ack", 1, size.waiting),
        CONSUMER: consumer,
        GET_MANY: _host(GET_MANY, "get_and_ack_many", MANY, 4 * size.backlog),
        READ: _peer(READ, SimpleBroker, "read", 1, size.waiting),
    }
    for kind in PEERS:
        name = f"{kind.package} take"
        cells[name] = _peer(name, kind, "take", 1, size.waiting)
    return cells


S = TypeVar("S", Host, Leased)


def filled(side: S, messages: int) -> S:
    """Put messages, so that the log has its size, or so that there is something to take."""
    side.fill(messages)
    return side


# ---------------------------------------------------------------------------------- rows

#: What a row needs where both sides wait for one sync after the other, and where they do not.
LEVEL, AHEAD = 0.95, 1.0


def _rows() -> Iterator[Row]:
    for one in DRAINS:
        title, raw = f"drain, {one.title}", f"sqlite3, as {one.title}"
        yield Row("drain", f"{title}, FULL", title, raw, one.goal)
    yield Row("tasks", "256 tasks aput, FULL", "aput ×256", "sqlite3 put", 8.0, syncs=(0.1, 1.0))
    for peer in PEERS:
        yield Row("put", f"put ×1 / {peer.package}", PUT, f"{peer.package} put", LEVEL)
    for peer in PEERS:
        name = f"{peer.package} put ×4"
        yield Row("put4", f"put, 4 threads / {peer.package}", PUT_FOUR, name, AHEAD)
    for peer in PEERS:
        name = f"{peer.package} 100 puts"
        yield Row("bulk", f"put_many(100) / {peer.package}", PUT_MANY, name, AHEAD)
    for peer in PEERS:
        name = f"{peer.package} take"
        if peer.has_ack:
            yield Row("take", f"get + ack / {peer.package}", GET, name, LEVEL)
    for name in ("huey take", READ):
        yield Row("take", f"consumer / {name}, at most once", CONSUMER, name, LEVEL)
        yield Row("take", f"get + ack, two commits / {name}, one", GET, name)
    for peer in PEERS:
        name = f"{peer.package} take"
        yield Row("take", f"get_many(100) + ack / {peer.package}", GET_MANY, name, AHEAD)


ROWS = tuple(_rows())

#: Rows that compare times.
LATENCIES = (
    Row("latency", "put to thread, FULL", "put to thread", TWO, 0.8, by="p50_ms"),
    Row("latency", "put to thread, FULL", "put to thread", ONE, by="p50_ms"),
    Row("latency", "put to async, FULL", "put to async", TWO, 0.6, by="p50_ms"),
    Row("latency", "put to async, FULL", "put to async", ONE, by="p50_ms"),
)

#: What --only accepts; the last two are measured after the rounds.
KEYS = (*dict.fromkeys(row.key for row in (*ROWS, *LATENCIES)), "import", "idle")
#: Those of them that need the other libraries.
PEER_KEYS = frozenset({"put", "put4", "bulk", "take"})


def wanted(keys: Iterable[str], size: Size) -> Sequence[Group]:
    """Return the groups of cells that some rows need."""
    makers: dict[str, Callable[[], Iterable[Group]]] = {
        "drain": lambda: drains(size),
        "latency": lambda: [latencies()],
        "tasks": lambda: [tasks(size)],
        "put": lambda: [puts(size)],
        "put4": lambda: [puts_by_four(size)],
        "bulk": lambda: [bulks(size)],
        "take": lambda: [takes(size)],
    }
    return [group for key, make in makers.items() if key in keys for group in make()]
