"""The two sides of the benchmark: a table in plain sqlite3, and an engine, with the same verbs.

Knows: how the reference uses sqlite3, how an application would open the engine.
Does not know: clocks, rounds, goals (bench_cells.py and bench_plan.py).
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Protocol, cast

from embedq.broker.host import open_engine
from embedq.policy import QueuePolicy
from embedq.storage.connection import Durability
from embedq.storage.sqlite import SqliteStore

BODY = bytes(range(256)) * 4
SMALL = BODY[:200]
MANY = 100
LOT = 1_000
_DAY_MS = 24 * 3600 * 1000


class Database(Protocol):
    """What every side is."""

    @property
    def connection(self) -> sqlite3.Connection | None:
        """The connection that writes, to count its commits; None where it cannot be had."""
        ...

    def fill(self, messages: int) -> None:
        """Put messages, 1,000 in each transaction."""
        ...

    def checkpoint(self) -> object:
        """Empty the log."""
        ...

    def close(self) -> None:
        """Close the database."""
        ...


_TABLE = "CREATE TABLE m(id INTEGER PRIMARY KEY, q, prio, due, attempts, body)"
_INSERT = "INSERT INTO m(q,prio,due,attempts,body) VALUES (1,0,NULL,0,?)"
_DELETE = "DELETE FROM m WHERE id=?"


class Raw:
    """A table in plain sqlite3: WAL and otherwise its defaults, as compiled.

    The verbs of all sides return None when there is nothing left to do.
    """

    def __init__(self, folder: Path, durability: Durability) -> None:
        self.connection = sqlite3.connect(folder / "raw.db", isolation_level=None)
        self.execute = self.connection.execute
        self.execute("PRAGMA journal_mode=WAL")
        self.execute(f"PRAGMA synchronous={durability}")
        self.execute(_TABLE)
        self._rows = [(BODY,)] * MANY
        self._next = 1

    def fill(self, messages: int) -> None:
        """Insert rows, 1,000 in each transaction."""
        for _ in range(messages // LOT):
            self.execute("BEGIN IMMEDIATE")
            self.connection.executemany(_INSERT, [(BODY,)] * LOT)
            self.execute("COMMIT")

    def put(self) -> object:
        """Insert one row: a statement in autocommit is a transaction."""
        return self.execute(_INSERT, (BODY,))

    def put_in_three(self) -> object:
        """Insert one row with BEGIN and COMMIT of their own, as most programs do."""
        self.execute("BEGIN IMMEDIATE")
        self.execute(_INSERT, (BODY,))
        return self.execute("COMMIT")

    def put_many(self) -> object:
        """Insert 100 rows in one transaction."""
        self.execute("BEGIN IMMEDIATE")
        self.connection.executemany(_INSERT, self._rows)
        return self.execute("COMMIT")

    def turn_over(self) -> object:
        """Insert 100 rows and delete the 100 oldest: two transactions."""
        self.put_many()
        first = self._next
        self._next = first + MANY
        self.execute("BEGIN IMMEDIATE")
        self.connection.executemany(_DELETE, [(row,) for row in range(first, first + MANY)])
        return self.execute("COMMIT")

    def checkpoint(self) -> object:
        """Empty the log."""
        return self.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


class Ours:
    """An engine as an application would open it, with a queue and a group."""

    def __init__(self, folder: Path, durability: Durability, *, retain: bool = False) -> None:
        self.engine = open_engine(folder / "queue.db", durability=durability)
        policy = QueuePolicy(retain_ms=_DAY_MS) if retain else None
        self.queue = self.engine.queue("orders", policy)
        self.group = self.engine.group(self.queue)
        self.store = cast("SqliteStore", self.engine.store)
        self._bodies = [BODY] * MANY

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection that writes."""
        return self.store.connection

    def fill(self, messages: int) -> None:
        """Put messages, 1,000 in each transaction."""
        bodies = [BODY] * LOT
        for _ in range(messages // LOT):
            self.engine.put_many(self.queue, bodies)

    def put(self) -> object:
        """Put one message."""
        return self.engine.put(self.queue, BODY)

    def put_many(self) -> object:
        """Put 100 messages in one call."""
        return self.engine.put_many(self.queue, self._bodies)

    def turn_over(self) -> object:
        """Claim 100 messages and acknowledge them; None if there are none."""
        leases = self.engine.claim(self.group, MANY)
        if not leases:
            return None
        self.engine.ack(*leases)
        return leases

    def checkpoint(self) -> object:
        """Empty the log."""
        with self.engine.writer.lock:
            return self.store.checkpoint()

    def close(self) -> None:
        """Close the engine."""
        self.engine.close()
