"""Other queues in one file of SQLite, with their own calls and with durable settings.

Knows: how each library is opened so that every commit is synced, its verbs, how that is proved.
Does not know: clocks, what they are compared with (bench_broker_plan.py).

The libraries are in the dependency group `bench`; nothing else of embedq needs them.
"""

from __future__ import annotations

import sqlite3
import threading
from abc import ABC, abstractmethod
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from bench_sides import BODY, MANY

#: Some of them store text only.
TEXT = BODY.hex()[: len(BODY)]
COMMAND = "python3 tools/dev.py bench broker"
_BUSY_S = 60
_FULL = 2


class PeersMissing(Exception):
    """Libraries of the dependency group `bench` are not installed."""


class NotDurable(Exception):
    """A library does not sync its commits although it was told to."""


class Peer(ABC):
    """A queue of another library: one database, one connection or one for each thread."""

    #: The name of its distribution, its licence, and how it was made to sync every commit.
    package: ClassVar[str]
    licence: ClassVar[str]
    made_durable: ClassVar[str]
    #: What its bulk call is; None: 100 single puts.
    bulk: ClassVar[str | None] = None
    #: What takes a message; whether with an acknowledgement, or it is gone when handed over.
    taking: ClassVar[str]
    has_ack: ClassVar[bool] = True
    connection: sqlite3.Connection | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._local = threading.local()
        self._outside: sqlite3.Connection | None = None

    def check(self) -> None:
        """Raise NotDurable unless SQLite says that every commit is synced (FULL or more)."""
        mode = self.synchronous()
        if mode < _FULL:
            raise NotDurable(f"{self.package}: PRAGMA synchronous is {mode}, not FULL")

    @property
    @abstractmethod
    def path(self) -> Path:
        """Where its database is."""

    @abstractmethod
    def synchronous(self) -> int:
        """Return PRAGMA synchronous of the connection that writes."""

    @abstractmethod
    def put(self) -> object:
        """Put one message of 1 KB."""

    def put_many(self) -> object:
        """Put 100."""
        for _ in range(MANY):
            self.put()
        return True

    @abstractmethod
    def take(self) -> object:
        """Take one message and be done with it; None if there is none."""

    @abstractmethod
    def fill(self, messages: int) -> None:
        """Put messages somehow, fast: not measured."""

    def checkpoint(self) -> object:
        """Empty the log, from outside: the library need not know how."""
        if self._outside is None:
            self._outside = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None)
        return self._outside.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def close(self) -> None:
        """Close what `checkpoint` has opened."""
        if self._outside is not None:
            self._outside.close()


class Huey(Peer):
    """SqliteHuey: a task is gone when it is handed over, there is no acknowledgement."""

    package, licence = "huey", "MIT"
    made_durable = "fsync=True"
    taking = "dequeue: at most once, one commit"
    has_ack = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        huey = import_module("huey")
        self._huey: Any = huey.SqliteHuey(
            "orders", filename=str(self.path), fsync=True, timeout=_BUSY_S, results=False
        )

        def handle(_: bytes) -> None:
            """Do nothing."""

        self._task = self._huey.task(name="handle")(handle)

    @property
    def path(self) -> Path:
        """Where its database is."""
        return self.folder / "huey.db"

    def synchronous(self) -> int:
        """Return PRAGMA synchronous of this thread's connection."""
        return int(self._huey.storage.sql("pragma synchronous", results=True)[0][0])

    def put(self) -> object:
        """Enqueue a call of a task."""
        self._task(BODY)
        return True

    def take(self) -> object:
        """Dequeue a task, without running it."""
        return self._huey.dequeue()

    def fill(self, messages: int) -> None:
        """Enqueue with the syncs switched off meanwhile."""
        sql = self._huey.storage.sql
        sql("pragma synchronous=off")
        for _ in range(messages):
            self.put()
        sql("pragma synchronous=full")

    def close(self) -> None:
        """Close this thread's connection; those of other threads go with their threads."""
        super().close()
        self._huey.storage.close()


class Litequeue(Peer):
    """LiteQueue: pop locks a row, done marks it; prune is left to the application."""

    package, licence = "litequeue", "MIT"
    made_durable = "PRAGMA synchronous=FULL on its connection"
    bulk = "put in its transaction()"
    taking = "pop + done: two commits"

    @property
    def path(self) -> Path:
        """Where its database is."""
        return self.folder / "lite.db"

    @property
    def _queue(self) -> Any:  # noqa: ANN401  # of a library without types
        queue = getattr(self._local, "queue", None)
        if queue is None:
            queue = import_module("litequeue").LiteQueue(str(self.path), timeout=_BUSY_S)
            queue.conn.execute("PRAGMA synchronous=FULL")
            self._local.queue = queue
        return queue

    def synchronous(self) -> int:
        """Return PRAGMA synchronous of this thread's connection."""
        return int(self._queue.conn.execute("PRAGMA synchronous").fetchone()[0])

    def put(self) -> object:
        """Put one message."""
        return self._queue.put(TEXT)

    def put_many(self) -> object:
        """Put 100 in one transaction."""
        queue = self._queue
        with queue.transaction(mode="IMMEDIATE"):
            for _ in range(MANY):
                queue.put(TEXT)
        return True

    def take(self) -> object:
        """Pop one and say that it is done."""
        message = self._queue.pop()
        return None if message is None else self._queue.done(message.message_id) or True

    def fill(self, messages: int) -> None:
        """Put 100 in each transaction."""
        for _ in range(messages // MANY):
            self.put_many()

    def close(self) -> None:
        """Close this thread's connection."""
        super().close()
        self._queue.close()


class PersistQueue(Peer):
    """SQLiteAckQueue: get marks a row, ack marks it again; it stays until it is cleared."""

    package, licence = "persist-queue", "BSD"
    made_durable = "PRAGMA synchronous=FULL on its connections"
    taking = "get + ack: two commits"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._library: Any = import_module("persistqueue")
        self._queue: Any = self._library.SQLiteAckQueue(
            str(folder / "persist"), multithreading=True, timeout=_BUSY_S
        )
        self._set("full")

    def _set(self, synchronous: str) -> None:
        for connection in (self._queue._putter, self._queue._getter):  # noqa: SLF001  # no other way
            connection.execute(f"PRAGMA synchronous={synchronous}")

    @property
    def path(self) -> Path:
        """Where its database is."""
        return self.folder / "persist" / "data.db"

    def synchronous(self) -> int:
        """Return PRAGMA synchronous of the connection that puts and takes."""
        return int(self._queue._putter.execute("PRAGMA synchronous").fetchone()[0])  # noqa: SLF001

    def put(self) -> object:
        """Put one message."""
        return self._queue.put(BODY)

    def take(self) -> object:
        """Get one and acknowledge it."""
        try:
            item = self._queue.get(block=False, raw=True)
        except self._library.exceptions.Empty:
            return None
        return self._queue.ack(id=item["pqid"])

    def fill(self, messages: int) -> None:
        """Put with the syncs switched off meanwhile."""
        self._set("off")
        for _ in range(messages):
            self.put()
        self._set("full")

    def close(self) -> None:
        """Close its connections."""
        super().close()
        self._queue.close()


class LocalQueue(Peer):
    """SimpleQueue of localqueue, whose core is Rust: leases with receipts, as ours."""

    package, licence = "localqueue", "Apache-2.0"
    made_durable = "DurabilityMode.DURABLE"
    bulk = "put_many"
    taking = "get + ack: two commits"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._library: Any = import_module("localqueue")
        self._queue: Any = self._library.SimpleQueue(
            str(folder),
            durability=self._library.DurabilityMode.DURABLE,
            serializer=SimpleNamespace(dumps=bytes, loads=bytes),
        )

    @property
    def path(self) -> Path:
        """Where its database is."""
        return self.folder / "localqueue.db"

    def synchronous(self) -> int:
        """Return what its diagnostics say."""
        return int(self._queue.diagnostics().synchronous)

    def put(self) -> object:
        """Put one message."""
        return self._queue.put(BODY)

    def put_many(self) -> object:
        """Put 100 in one call."""
        return self._queue.put_many([BODY] * MANY)

    def take(self) -> object:
        """Get one and acknowledge it."""
        try:
            job = self._queue.get_nowait()
        except self._library.Empty:
            return None
        self._queue.ack(job)
        return job

    def fill(self, messages: int) -> None:
        """Put 100 in each call."""
        for _ in range(messages // MANY):
            self.put_many()

    def close(self) -> None:
        """Close it."""
        super().close()
        self._queue.close()


class SimpleBroker(Peer):
    """Queue of simplebroker, persistent: its safe way is to move a message, then delete it."""

    package, licence = "simplebroker", "MIT"
    made_durable = "its default, SYNC_MODE FULL"
    taking = "move_one + delete: two commits"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        library: Any = import_module("simplebroker")
        self._queue = library.Queue("orders", db_path=str(self.path), persistent=True)
        self._held = library.Queue("held", db_path=str(self.path), persistent=True)

    @property
    def path(self) -> Path:
        """Where its database is."""
        return self.folder / "simple.db"

    def synchronous(self) -> int:
        """Return PRAGMA synchronous of this thread's connection."""
        return int(self._pragma("PRAGMA synchronous")[0][0])

    def _pragma(self, statement: str) -> list[tuple[Any, ...]]:
        with self._queue.get_connection() as connection:
            return list(connection._runner.run(statement, fetch=True))  # noqa: SLF001  # no other way

    def put(self) -> object:
        """Write one message."""
        return self._queue.write(TEXT)

    def take(self) -> object:
        """Move one message to another queue and delete it there."""
        found = self._queue.move_one("held", with_timestamps=True)
        if found is None:
            return None
        self._held.delete(message_id=found[1])
        return found

    def read(self) -> object:
        """Read one message: at most once, one commit. None if there is none."""
        return self._queue.read_one()

    def fill(self, messages: int) -> None:
        """Write with the syncs switched off meanwhile."""
        self._pragma("PRAGMA synchronous=OFF")
        for _ in range(messages):
            self.put()
        self._pragma("PRAGMA synchronous=FULL")

    def close(self) -> None:
        """Close both queues."""
        super().close()
        self._queue.close()
        self._held.close()


PEERS: tuple[type[Peer], ...] = (Huey, Litequeue, PersistQueue, LocalQueue, SimpleBroker)


def open_peer(kind: type[Peer], folder: Path, messages: int) -> Peer:
    """Open a queue with so many messages. Raises NotDurable if its commits are not synced."""
    peer = kind(folder)
    try:
        peer.fill(messages)
        peer.check()
    except BaseException:
        peer.close()
        raise
    return peer


def versions() -> dict[str, str]:
    """Return which release of each library is installed. Raises PeersMissing."""
    found: dict[str, str] = {}
    missing = []
    for peer in PEERS:
        try:
            found[peer.package] = version(peer.package)
        except PackageNotFoundError:
            missing.append(peer.package)
    if missing:
        raise PeersMissing(f"not installed: {', '.join(missing)}; this installs them: {COMMAND}")
    return found
