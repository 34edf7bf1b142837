"""The sides of the broker's benchmark: a broker as applications use it, and the same in sqlite3.

Knows: the public interface, the tables of the reference, how consuming is let go and stopped.
Does not know: clocks, rounds, goals, other libraries (bench_broker_peers.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import cast

from bench_sides import BODY, LOT, MANY, Raw
from embedq import Broker, Empty
from embedq.broker.desk import Desk
from embedq.broker.endings import DONE
from embedq.broker.state import QueueState
from embedq.storage.connection import Durability
from embedq.storage.sqlite import SqliteStore

#: What is put: the bytes it keeps are the bytes it gets.
_BODIES = [BODY] * MANY


class Host:
    """A broker with one queue and one group. Consumers run once `start` is called."""

    def __init__(
        self, folder: Path, durability: Durability = "full", name: str = "orders"
    ) -> None:
        self.broker = Broker(folder / "queue.db", durability=durability)
        self.queue = self.broker.queue(name)
        # This process is the host: what it gets is what it holds.
        desk, state = self.broker.state_of(name)
        self.desk, self._state = cast("Desk", desk), cast("QueueState", state)
        self.group = self.desk.group(self._state)
        self.store = cast("SqliteStore", self.desk.store)

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection that writes."""
        return self.store.connection

    def fill(self, messages: int) -> None:
        """Put messages, 1,000 in each transaction."""
        bodies = [BODY] * LOT
        for _ in range(messages // LOT):
            self.desk.put_many(self._state, bodies)

    def put(self) -> object:
        """Put one message."""
        return self.queue.put(BODY)

    def put_many(self) -> object:
        """Put 100 messages in one call."""
        return self.queue.put_many(_BODIES)

    def get_and_ack(self) -> object:
        """Take one message and acknowledge it: two commits. None if there is none."""
        try:
            delivery = self.queue.get(0)
        except Empty:
            return None
        delivery.ack()
        return delivery

    def get_and_ack_many(self) -> object:
        """Take 100 messages and acknowledge them: two commits. None if there are none."""
        deliveries = self.queue.get_many(MANY)
        if not deliveries:
            return None
        self.desk.settle([(delivery.lease, DONE) for delivery in deliveries])
        return deliveries

    # ------------------------------------------------------------------------- consuming

    def start(self, handler: Callable[..., object], concurrency: int) -> None:
        """Start a consumer with this handler, held back until `let_go`."""
        self.queue.consumer(concurrency=concurrency)(handler)
        self.hold()
        self.broker.start()

    def let_go(self) -> None:
        """Let consumers claim. Without the commit that `resume` makes: it would be timed."""
        with self.desk.writer.lock:
            self._state.paused = False
            self.group.waiters.wake_all()

    def hold(self) -> None:
        """Let nothing more be claimed."""
        with self.desk.writer.lock:
            self._state.paused = True

    @property
    def acked(self) -> int:
        """How many messages are done."""
        return self.group.acked

    @property
    def idle(self) -> bool:
        """Whether every delivery is settled and committed."""
        with self.desk.writer.lock:
            return self.group.delivered == self.group.acked

    @property
    def awaited(self) -> bool:
        """Whether that is so and a consumer waits for a message."""
        return self.idle and bool(self.group.waiters)

    @property
    def commits(self) -> int:
        """How many commits there have been, puts on the short way not counted."""
        return self.desk.writer.groups

    def checkpoint(self) -> object:
        """Empty the log."""
        with self.desk.writer.lock:
            return self.store.checkpoint()

    def close(self) -> None:
        """Stop the consumers, close the file."""
        self.broker.stop(0)


_LEASES = "CREATE TABLE lease(id INTEGER PRIMARY KEY, grp, attempt, epoch, counter, session, at)"
_LEASE = "INSERT INTO lease VALUES (?,1,1,1,?,1,0)"
_NEXT = "SELECT id, body FROM m WHERE id>=? ORDER BY id LIMIT ?"


class Leased(Raw):
    """A table of messages and one of leases in plain sqlite3, used as the broker uses its own."""

    def __init__(self, folder: Path, durability: Durability = "full") -> None:
        super().__init__(folder, durability)
        self.execute(_LEASES)
        self._held: list[tuple[int]] = []
        self._first = 1

    def take(self, most: int) -> int | None:
        """Settle what was taken last and take the next messages, in one commit; how many."""
        self.execute("BEGIN IMMEDIATE")
        if self._held:
            self.connection.executemany("DELETE FROM m WHERE id=?", self._held)
            self.connection.executemany("DELETE FROM lease WHERE id=?", self._held)
        rows = self.execute(_NEXT, (self._first, most)).fetchall()
        self.connection.executemany(_LEASE, [(row[0], row[0]) for row in rows])
        self.execute("COMMIT")
        self._held = [(row[0],) for row in rows]
        # In a table that is empty, ids begin again.
        self._first = rows[-1][0] + 1 if rows else 1
        return len(rows) or None

    def put_then_lease(self) -> object:
        """Insert a message and its lease row, each in a commit of its own."""
        self.put()
        return self.execute(_LEASE, (1, 1))

    def put_and_lease(self) -> object:
        """Insert a message and its lease row in one commit."""
        self.execute("BEGIN IMMEDIATE")
        self.put()
        self.execute(_LEASE, (1, 1))
        return self.execute("COMMIT")

    def settle(self) -> object:
        """Delete both again."""
        self.execute("BEGIN IMMEDIATE")
        self.execute("DELETE FROM m")
        self.execute("DELETE FROM lease")
        return self.execute("COMMIT")
