"""What the themes of the store suite are written with: a scenario plays on one new store.

Knows: the store port, and short ways to put, start, settle and ask; times are small numbers.
Does not know: any store. A store's test file gives it a `stores` fixture that makes and reopens.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol, TypeVar

import msgspec
import pytest

from embedq.lifecycle import Outcome, Reason
from embedq.message import AttemptRecord
from embedq.policy import QueuePolicy
from embedq.storage import tail
from embedq.storage.ops import (
    Ack,
    Again,
    Bury,
    DeclareGroup,
    DeclareQueue,
    Fail,
    Op,
    OpenSession,
    PutPlain,
    PutRows,
    Release,
    Start,
)
from embedq.storage.port import Load, LoadDue, Store, Tally
from embedq.storage.rows import DeadRow, Row, Stored, Waiting

O = TypeVar("O", bound=Op)  # noqa: E741  # an operation

PUT_AT = 1_000
STARTED = 2_000
ENDED = 3_000
RETRY_AT = 4_000
EVERYTHING = 1 << 47


class Stores(Protocol):
    """What a store's test file provides: the whole of what the suite needs to know about it."""

    def make_store(self) -> Store:
        """Return a new, empty store."""
        ...

    def reopen(self, store: Store, *, clean: bool) -> Store:
        """Close a store, or let it die when not `clean`, and return it opened again."""
        ...


def checksum(body: bytes, headers: bytes | None = None) -> int:
    return zlib.crc32(body, zlib.crc32(headers or b""))


def plain(queue: int, *bodies: bytes, kind: int = 0, now: int = PUT_AT) -> PutPlain:
    items: list[int | bytes] = []
    for body in bodies:
        items += (checksum(body), body)
    return PutPlain(queue, now, kind, items, len(bodies))


def row(body: bytes = b"body", **columns: object) -> Row:
    """Return a message to put; columns not named are as if nothing had been said."""
    headers = columns.get("headers")
    assert headers is None or isinstance(headers, bytes)
    said_nothing: dict[str, object] = {
        "kind": 0,
        "crc": checksum(body, headers),
        "priority": 0,
        "due": None,
        "expires": None,
        "key": None,
        "max_attempts": None,
        "headers": None,
    }
    return Row(**{**said_nothing, **columns}, body=body)  # type: ignore[arg-type]


def attempts_of(letter: DeadRow) -> list[AttemptRecord]:
    if letter.attempts is None:
        return []
    return msgspec.msgpack.decode(letter.attempts, type=list[AttemptRecord])


class Scenario:
    """One store and what happens to it."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._counter = 0
        self.store = stores.make_store()

    def reopen(self, *, clean: bool = False) -> None:
        """End the process that has the store, cleanly or by a crash, and start the next one."""
        self.store = self._stores.reopen(self.store, clean=clean)

    # ---------------------------------------------------------------------- doing

    def do(self, op: O) -> O:
        self.commit(op)
        return op

    def commit(self, *batch: Op) -> None:
        self.store.commit(batch)
        self.store.after_commit()

    def queue(self, name: str = "orders", *, retain_ms: int | None = None) -> int:
        declared = self.do(DeclareQueue(name, QueuePolicy(retain_ms=retain_ms))).row
        assert declared is not None
        return declared.id

    def group(self, queue: int, name: str = "default", *, floor: int = 0) -> int:
        declared = self.do(DeclareGroup(queue, name, floor)).row
        assert declared is not None
        return declared.id

    def queue_and_group(self, *, retain_ms: int | None = None) -> tuple[int, int]:
        queue = self.queue(retain_ms=retain_ms)
        return queue, self.group(queue)

    def queue_and_groups(self, *, retain_ms: int | None = None) -> tuple[int, int, int]:
        queue, group = self.queue_and_group(retain_ms=retain_ms)
        return queue, group, self.group(queue, "audit")

    def session(self, name: str) -> int:
        return self.do(OpenSession(name, STARTED)).id

    def put(self, queue: int, count: int = 1) -> list[int]:
        first = self.do(plain(queue, *[b"body"] * count)).first
        return list(range(first, first + count))

    def put_alone(self, op: PutPlain) -> PutPlain:
        """Put without a batch, as a caller does who finds nobody waiting."""
        if self.store.put(op):
            self.store.after_commit()
        return op

    def put_row(self, queue: int, body: bytes = b"body", **columns: object) -> int:
        return self.put_rows(queue, row(body, **columns))[0]

    def put_rows(self, queue: int, *rows: Row, now: int = PUT_AT) -> list[int]:
        return self.do(PutRows(queue, now, rows)).seqs

    def start(
        self, group: int, *seqs: int, session: int | None = None, now: int = STARTED
    ) -> list[int]:
        """Start first deliveries; return their counters."""
        first = self._take_counters(len(seqs))
        self.commit(Start(group, now, session, first, list(seqs), []))
        return list(range(first, first + len(seqs)))

    def again(
        self,
        group: int,
        seq: int,
        attempt: int,
        *,
        crashes: int = 0,
        now: int = STARTED,
        words: bytes | None = None,
        outcome: Outcome = Outcome.CRASHED,
    ) -> int:
        """Start a further delivery; return its counter."""
        counter = self._take_counters(1)
        again = Again(seq, attempt, crashes, words, outcome)
        self.commit(Start(group, now, None, counter, [], [again]))
        return counter

    def _take_counters(self, count: int) -> int:
        first = self._counter + 1
        self._counter += count
        return first

    def ack(self, group: int, *seqs: int, now: int = ENDED) -> int:
        return self.do(Ack(group, now, list(seqs))).removed

    def start_and_ack(self, group: int, *seqs: int, now: int = ENDED) -> int:
        self.start(group, *seqs)
        return self.ack(group, *seqs, now=now)

    def fail(self, group: int, seq: int, attempt: int = 1, *, due: int = RETRY_AT) -> None:
        self.commit(Fail(group, seq, attempt, ENDED, Outcome.FAILED, due))

    def to_tail(
        self, group: int, seq: int, attempt: int = 1, *, counts: bool = True, priority: int = 0
    ) -> int | None:
        outcome = Outcome.FAILED if counts else None
        return self.do(tail.ToTail(group, seq, attempt, priority, ENDED, outcome)).due

    def release(self, group: int, seq: int, attempt: int) -> None:
        self.commit(Release(group, [(seq, attempt)]))

    def bury(self, group: int, seq: int, *, now: int = ENDED) -> Bury:
        return self.do(Bury(group, seq, now, Reason.REJECTED))

    # --------------------------------------------------------------------- asking

    def message(self, seq: int) -> Stored | None:
        found = self.store.messages([seq])
        assert len(found) <= 1
        return found[0] if found else None

    def seqs(self, queue: int) -> list[int]:
        return [message.seq for message in self.store.range(queue, 0, EVERYTHING)]

    def letters(self, queue: int) -> list[DeadRow]:
        return self.store.dead(queue, 0, EVERYTHING)

    def open_deliveries(self, group: int) -> dict[int, int]:
        """Return the counters of all open deliveries."""
        queues, _ = self.store.catalogue()
        seqs = [seq for queue in queues for seq in self.seqs(queue.id)]
        return self.store.open_deliveries(group, seqs)

    def tally(self) -> Tally:
        """Count everything, as of now; what is nothing is left out."""
        found = self.store.begin_tally()()
        settled = {group: count for group, count in found.settled.items() if count}
        return found._replace(settled=settled)

    def waiting(
        self, group: int, priority: int = 0, *, limit: int = 1_000
    ) -> tuple[list[int], list[Waiting]]:
        """Read a stream to its end, chunk by chunk; return its fresh seqs and the others."""
        fresh: list[int] = []
        others: list[Waiting] = []
        after, upto = 0, self.store.last_seq
        while after < upto:
            chunk = self.store.load(Load(group, priority, after, upto, limit))
            hits = [*chunk.fresh, *(other.seq for other in chunk.others)]
            assert len(hits) <= limit
            assert all(after < seq <= chunk.after for seq in hits)
            assert chunk.after > after, "a load that makes no progress never ends"
            fresh += chunk.fresh
            others += chunk.others
            after = chunk.after
        assert fresh == sorted(set(fresh))
        assert others == sorted(others)
        return fresh, others

    def fresh(self, group: int, priority: int = 0) -> list[int]:
        """Return the seqs of a stream that must hold nothing but plain, fresh messages."""
        fresh, others = self.waiting(group, priority)
        assert others == []
        return fresh

    def timed(
        self, group: int, *, retries: bool, limit: int = 1_000, tails: bool = False
    ) -> list[Waiting]:
        """Read delayed messages, retries or what is at the tail to the end, chunk by chunk."""
        rows: list[Waiting] = []
        after, complete = (tail.START if tails else (0, 0)), False
        while not complete:
            chunk = self.store.load_due(LoadDue(group, retries, after, limit, tails))
            assert len(chunk.rows) <= limit
            assert all(after < (found.due or 0, found.seq) <= chunk.after for found in chunk.rows)
            assert chunk.complete or chunk.after > after, "no progress"
            rows += chunk.rows
            after, complete = chunk.after, chunk.complete
        assert rows == sorted(rows, key=lambda found: (found.due, found.seq))
        return rows

    def delayed(self, group: int) -> list[int]:
        return [found.seq for found in self.timed(group, retries=False)]

    def at_tail(self, group: int, *, limit: int = 1_000) -> list[int]:
        found = self.timed(group, retries=True, tails=True, limit=limit)
        return [waiting.seq for waiting in found]

    def retries(self, group: int) -> list[int]:
        return [found.seq for found in self.timed(group, retries=True)]


class Theme:
    """A part of the suite. Its tests play on `scene`, which holds a new store of any kind."""

    @pytest.fixture
    def scene(self, stores: Stores) -> Iterator[Scenario]:
        scenario = Scenario(stores)
        yield scenario
        scenario.store.close(clean=False)
