"""The store in a SQLite file: opening, group commits, failure, closing.

Knows: how to own the file, when a commit may fail and what is then true, seq numbers.
Does not know: what operations change (apply.py), who may have a message next (broker).

Promises P1, P3, P4 and P7 rest on `SqliteStore.commit`: one transaction, answered after it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from embedq.clock import Clock, SystemClock
from embedq.errors import (
    EmbedqError,
    ForkedBroker,
    StorageError,
    StoreBusy,
    StoreClosed,
    StoreFailed,
    StoreFull,
)
from embedq.ids import new_store_key
from embedq.limits import LIMITS, Limits
from embedq.storage import lastwords, schema, statements as sql
from embedq.storage.apply import Applier, Catalogue
from embedq.storage.connection import ERRORS, Durability, meaning, open_writer
from embedq.storage.fork import immortalise, on_fork
from embedq.storage.maintenance import Maintenance
from embedq.storage.ops import Ack, Op, PutPlain, Save
from embedq.storage.ownership import OwnerLock, Previous
from embedq.storage.placement import Placement, log_files, prepare
from embedq.storage.readers import Readers
from embedq.storage.rows import Death
from embedq.storage.space import DiskSpace, make_room
from embedq.storage.staged import STORING
from embedq.storage.wal import WriteAheadLog, pages_each

#: Seqs are reserved on disk in blocks, so that a single put writes one row and nothing else.
SEQ_BLOCK = 10_000

#: How many ends of hosts are remembered, for deliveries they left that nobody has met since.
DEATHS_KEPT = 100

_DEATH = "death:"

#: Sizes of a put that is one statement, and therefore its own transaction.
_INSERT_PLAIN = {size: sql.insert_plain(size) for size in sql.LADDER}

#: What a statement can raise, values that cannot be stored included.
_RAISED = (*ERRORS, MemoryError, OverflowError, TypeError, ValueError)

_PAGE_SHIFT = 12
_CLOSING_SHIFT = 40


def open_store(
    path: str | os.PathLike[str],
    *,
    durability: Durability = "full",
    clock: Clock | None = None,
    limits: Limits = LIMITS,
    page_size: int = 4096,
) -> SqliteStore:
    """Become the owner of a database file, creating or migrating it, and open it.

    Raises:
        StoreInUse: another process, or this one, is the host of the file.
        InsecurePermissions, NetworkFilesystem, NotAnEmbedqFile, SchemaTooNew, StoreFull: the
            file was not changed.
    """
    clock = clock or SystemClock()
    placement = prepare(path)
    owner = OwnerLock(placement, clock)
    previous = owner.acquire()
    try:
        make_room(placement)
        connection = open_writer(
            str(placement.path),
            durability=durability,
            page_size=page_size,
            busy_timeout_s=limits.busy_timeout_s,
            # First of all: somebody else's database would be turned into one with a log.
            inspect=lambda found: schema.version_of(found, str(placement.path)),
        )
    except BaseException:
        owner.release(clean=previous.clean)
        raise
    try:
        version = schema.version_of(connection, str(placement.path))
        schema.migrate(connection, version)
        store = SqliteStore(connection, placement, owner, previous, clock, limits)
        # Without it NORMAL could lose the new epoch, or even the tables, with the power.
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        return store
    except BaseException as error:
        connection.close()
        owner.release(clean=previous.clean)
        if isinstance(error, ERRORS):
            raise meaning(error, str(placement.path)) from error
        raise


class SqliteStore(Maintenance):
    """Implements the store port on one database file. See `embedq.storage.port.Store`."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        placement: Placement,
        owner: OwnerLock,
        previous: Previous,
        clock: Clock,
        limits: Limits,
    ) -> None:
        self.connection = connection
        self.path = str(placement.path)
        self.previous = previous
        self.placement = placement
        self.space = DiskSpace(placement, limits.disk_watermark_bytes, limits.ballast_bytes)
        self._clock = clock
        self._owner = owner
        self._execute = connection.execute
        self._readers = Readers(self.path)
        self._wal = WriteAheadLog(connection, pages_each(connection, limits), clock)
        self._wal_limit = limits.wal_limit_bytes
        self._page_bytes: int = connection.execute("PRAGMA page_size").fetchone()[0]
        self._stopped: EmbedqError | None = None
        self.refused = 0
        self._commits = 0
        self._open()
        self._log_files = log_files(placement)  # there now that something was written
        on_fork(self)

    def _open(self) -> None:
        """Begin a new epoch. Reserves seqs, so that a crash can never hand one out again."""
        get, put = self._meta, self._set_meta
        self._execute(sql.BEGIN)
        key = get("store_key")
        self.clean = key is None or bool(get("clean"))
        if key is None:
            key = new_store_key()
            put("store_key", key)
        self.key: bytes = key
        last: int = get("epoch") or 0
        self.epoch: int = last + 1
        self._remember(last)
        self.last_seq: int = get("seq_reserved") or 0
        put("epoch", self.epoch)
        put("clean", 0)
        put("seq_reserved", self.last_seq + SEQ_BLOCK)
        self._execute(sql.COMMIT)
        self._reserved = self._ceiling = self.last_seq + SEQ_BLOCK
        self._exact = False
        self._owner.mark(epoch=self.epoch, words="")
        self._words = lastwords.LastWords(self.placement, self.epoch)
        lastwords.forget(self.placement)
        self._applier = Applier(
            self.connection, Catalogue(*self.catalogue()), self.epoch, self._take_seqs
        )

    def _remember(self, last: int) -> None:
        """Note how the last host ended, if not well; forget the ends of very early ones."""
        if last and not self.previous.clean:
            death = lastwords.learn(self.placement, self.previous, last)
            self._set_meta(f"{_DEATH}{last}", msgspec.msgpack.encode(death))
        self.deaths: dict[int, Death] = {}
        for key, value in self._execute(sql.META_DEATHS).fetchall():
            # What is damaged, a key or a value, only leaves an end unexplained.
            with suppress(ValueError, TypeError, msgspec.MsgspecError):
                epoch = int(key.removeprefix(_DEATH))
                self.deaths[epoch] = msgspec.msgpack.decode(value, type=Death)
        for epoch in sorted(self.deaths)[:-DEATHS_KEPT]:
            self._execute(sql.META_DELETE, (f"{_DEATH}{epoch}",))
            del self.deaths[epoch]

    def record_crashes(self) -> None:
        """See the port."""
        self._owner.mark(words=self._words.listen())

    def announce(self, endpoint: str) -> None:
        """Note in the lock file where other processes are served; "": nowhere."""
        self._owner.mark(socket=endpoint)

    def _meta(self, key: str) -> Any:  # noqa: ANN401  # what was stored
        row = self._execute(sql.META_GET, (key,)).fetchone()
        return None if row is None else row[0]

    def _set_meta(self, key: str, value: object) -> None:
        self._execute(sql.META_SET, (key, value))

    # ------------------------------------------------------------------------ commit

    def put(self, op: PutPlain) -> bool:
        """See the port. One statement in autocommit, which is its own transaction.

        Three statements would give the GIL up three times and take a tenth more CPU
        (docs/performance.md).
        """
        first = self.last_seq + 1
        last = self.last_seq + op.count
        statement = _INSERT_PLAIN.get(op.count)
        if last > self._ceiling or statement is None or self.space.low:
            self.commit((op,))
            return True
        self.last_seq = last  # before it is stored: a seq is never used twice, come what may
        try:
            self._execute(statement, (first, op.queue, op.put_at, op.kind, *op.items))
        except Exception as error:  # noqa: BLE001  # sorted out and raised again
            self._fail(error, (op,))
        op.first = first
        wal = self._wal
        wal.commits += 1
        wal.written += 1 + (len(op.items[1]) * op.count >> _PAGE_SHIFT)  # type: ignore[arg-type]
        return wal.written >= wal.next

    def commit(self, batch: Sequence[Op]) -> None:
        """Do all operations in one transaction, or none. See the port."""
        if self._stopped is not None:
            self.refused += 1
            raise self._stopped
        if self.space.low:
            self._refuse_puts(batch)
        try:
            self._commit_group(batch)
        except Exception as error:  # noqa: BLE001  # sorted out and raised again
            self._fail(error, batch)

    def _commit_group(self, batch: Sequence[Op]) -> None:
        execute = self._execute
        execute(sql.BEGIN)
        self._commits += 1
        applier = self._applier
        applier.closing = (self.epoch << _CLOSING_SHIFT) | self._commits
        if self._exact:
            self._set_meta("clean", 0)
        singles: list[object] = []
        acks: dict[tuple[int, int], list[Ack]] = {}
        pages = 2
        exact = False
        for op in batch:
            if isinstance(op, PutPlain):
                pages += self._put_plain(op, singles)
            elif isinstance(op, Ack):
                acks.setdefault((op.group, op.ended), []).append(op)
                pages += 1 + (len(op.seqs) >> 2)
            else:
                applier.apply(op)
                pages += getattr(op, "pages", 2)
                exact |= isinstance(op, Save) and op.exact
        if singles:
            for start, size in sql.rungs(len(singles) // 6):
                execute(sql.insert_singles(size), singles[6 * start : 6 * (start + size)])
        for same in acks.values():
            applier.ack(same)
        if exact:
            self._set_meta("clean", 1)
            self._set_meta("seq_reserved", self.last_seq)
        execute(sql.COMMIT)
        if exact:
            self._reserved = self.last_seq
        self._exact = exact
        self._ceiling = 0 if exact else self._reserved
        self._wal.commits += 1
        self._wal.written += pages

    def _put_plain(self, op: PutPlain, singles: list[object]) -> int:
        """Store the messages of one put, or set a single one aside for a shared statement."""
        op.first = first = self._take_seqs(op.count)
        items = op.items
        if op.count == 1:
            singles += (first, op.queue, op.put_at, op.kind, *items)
            return 1 + (len(items[1]) >> _PAGE_SHIFT)  # type: ignore[arg-type]
        for start, size in sql.rungs(op.count):
            part = items[2 * start : 2 * (start + size)]
            self._execute(
                sql.insert_plain(size), (first + start, op.queue, op.put_at, op.kind, *part)
            )
        return 1 + (len(items[1]) * op.count >> _PAGE_SHIFT)  # type: ignore[arg-type]

    def _take_seqs(self, count: int) -> int:
        """Return the first of `count` new seqs; called inside a transaction."""
        first = self.last_seq + 1
        self.last_seq += count
        if self.last_seq > self._reserved:
            reserved = self.last_seq + SEQ_BLOCK
            self._set_meta("seq_reserved", reserved)
            self._reserved = reserved
        return first

    def _refuse_puts(self, batch: Sequence[Op]) -> None:
        if any(isinstance(op, STORING) for op in batch):
            try:
                self.space.check()
            except StoreFull:
                self.refused += 1
                raise

    # ----------------------------------------------------------------------- failure

    def _fail(self, error: Exception, batch: Sequence[Op]) -> None:
        """Roll back, stop the store where it must not go on, and raise what the error means.

        An error that neither left a transaction open nor is SQLite's came from outside, as from a
        signal handler: the commit may have happened, and whoever enters next asks the file.
        """
        certain = self.connection.in_transaction or isinstance(error, ERRORS)
        try:
            self._roll_back()
        except Exception as second:  # noqa: BLE001  # whatever it was
            # Nobody knows now what the file holds, and what of it is in memory.
            lost = StoreFailed(f"{self.path}: a failed commit could not be undone: {second}")
            self.stop(lost)
            raise self._stopped or lost from error
        self.refused += certain
        if isinstance(error, EmbedqError) or not isinstance(error, _RAISED):
            raise error
        if isinstance(error, MemoryError):
            raise StoreBusy(f"{self.path}: SQLite got no memory") from error
        if not isinstance(error, ERRORS):
            # A value that SQLite cannot store: checks at the door should have caught it.
            raise StorageError(f"{self.path}: the operation cannot be stored: {error}") from error
        what = meaning(error, self.path)
        if what.code in {"store_failed", "store_corrupt"}:
            self.stop(what)
        if isinstance(what, StoreFull):
            if any(isinstance(op, STORING) for op in batch):
                self.space.refresh()
            elif self.space.drop_ballast():
                # An ack must pass on a full disk: this is what the ballast is for. The log gets
                # it first, as a log that begins anew needs no more room for the acks to come.
                self.refused -= certain  # not yet
                self.checkpoint()
                self.commit(batch)
                return
        raise what from error

    def _roll_back(self) -> None:
        # SQLite has rolled back by itself after most errors; a second ROLLBACK would fail and
        # hide the first error (reliability: in_transaction tells).
        if self.connection.in_transaction:
            self._execute(sql.ROLLBACK)
        self._reload()

    def _reload(self) -> None:
        """Believe what the file says: an operation that was rolled back may have changed these."""
        self._reserved = self._meta("seq_reserved") or 0
        self._exact = bool(self._meta("clean"))
        self._ceiling = 0 if self._exact else self._reserved
        self._applier.catalogue = Catalogue(*self.catalogue())

    @property
    def stopped(self) -> EmbedqError | None:
        """Why the store has stopped, if it has."""
        return self._stopped

    def settle_interrupted(self) -> None:
        """See the port. What was not committed is undone; what was committed counts."""
        if self._stopped is not None:
            raise self._stopped
        try:
            self._roll_back()
            highest = self._execute("SELECT max(seq) FROM msg").fetchone()[0] or 0
        except ERRORS as error:
            what = meaning(error, self.path)
            self.stop(what)
            raise what from error
        self.last_seq = max(self.last_seq, highest)

    def forked_in_child(self) -> None:
        """Never touch the parent's connections: closing one could remove a WAL in use."""
        self._stopped = ForkedBroker(
            f"the store of {self.path} belongs to the parent process; the fork cannot use it"
        )
        immortalise(self.connection)
        self._readers.forked_in_child()

    def close(self, *, clean: bool) -> None:
        """See the port. The lock is given back last."""
        if self._stopped is None:
            self.stop(StoreClosed(f"the store of {self.path} is closed"))
        elif isinstance(self._stopped, StoreClosed | ForkedBroker):
            return
        else:
            clean = False
        self._readers.close()
        self.connection.close()
        if not clean:
            code = "" if self._stopped is None else self._stopped.code
            with suppress(StorageError):  # a disk that failed may take no more notes
                self._owner.mark(words=f"{lastwords.STOPPED}{code}")
        self._words.end(remove=True)
        self._owner.release(clean=clean)
