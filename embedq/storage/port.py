"""The store port: what a store does with operations and the questions it answers.

Knows: atomicity and order of commits, which moment an answer is about, who needs the lock.
Does not know: SQL, files, threads, leases in memory, when a message may move.

Every store runs tests/conformance. A caller holds the writer's lock around `commit`; reads may
come from any thread unless they say otherwise. `seq` is assigned by `commit`, in commit order,
and never used twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from embedq.errors import EmbedqError, StorageError
from embedq.storage.backup import BackupReport, Lock
from embedq.storage.ops import Op, PutPlain
from embedq.storage.rows import (
    Chunk,
    DeadRow,
    Death,
    DeliveryRow,
    DueChunk,
    GroupRow,
    QueueRow,
    Stored,
    Waiting,
)
from embedq.storage.staged import SinkRow, StageRow


class Load(NamedTuple):
    """Ask for the next waiting messages of one stream: one group, one priority, seq order.

    Delayed messages without ordering key are not part of it (see `load_due`). Looks at seqs in
    (after, upto] and stops after `limit` hits or when the store finds its read too long.
    """

    group: int
    priority: int
    after: int
    upto: int
    limit: int


class LoadDue(NamedTuple):
    """Ask for delayed messages (`retries` False) or retries (True) after a position.

    With `tails` for what is back at the tail, after a place instead of a time (storage/tail.py).
    """

    group: int
    retries: bool
    after: tuple[int, int]  # (due, seq)
    limit: int
    tails: bool = False


class Tally(NamedTuple):
    """Counts of one stretch of messages: {queue: stored}, {queue: highest seq}, {group: settled}.

    `upto` is the last seq looked at.
    """

    stored: dict[int, int]
    last: dict[int, int]
    settled: dict[int, int]
    upto: int
    dead: dict[int, int]  # by queue; empty for a mere stretch


@runtime_checkable
class Store(Protocol):
    """Keeps messages, deliveries and dead letters; knows nothing about who may have them next.

    Errors of `commit`: StoreFull, StoreBusy (nothing happened, try again), StoreFailed,
    StoreCorrupt (the store has stopped; open the file again).
    """

    key: bytes  # 16 bytes, the same for the life of the file: ids are made from it
    epoch: int  # rises with every opening
    clean: bool  # the stored counts were exact when we opened
    last_seq: int  # of the last committed put, or a bound from earlier epochs
    refused: int  # commits that failed so that nothing of them happened, for certain

    @property
    def deaths(self) -> Mapping[int, Death]:
        """How earlier hosts ended that did not end well, by epoch; the newest ones."""
        ...

    @property
    def stopped(self) -> EmbedqError | None:
        """Why the store serves no longer, if so."""
        ...

    def stop(self, reason: StorageError) -> None:
        """Serve no longer: every later call raises `reason`."""
        ...

    def record_crashes(self) -> None:
        """Keep what Python writes should it crash, for `deaths`; called when consumers start."""
        ...

    def catalogue(self) -> tuple[list[QueueRow], list[GroupRow]]:
        """Return all queues and groups, with the counts that were saved last."""
        ...

    def commit(self, batch: Sequence[Op]) -> None:
        """Do all operations in order, durably and at once; on an error none of them happened.

        `refused` counts it then. An exception that it does not count came from outside: what
        happened is not known until `settle_interrupted`.
        """
        ...

    def put(self, op: PutPlain) -> bool:
        """Do the same as `commit` with one plain put. True: `after_commit` has something to do."""
        ...

    def after_commit(self) -> None:
        """Do what has become due by commits (checkpoints). Needs the lock; answers come first."""
        ...

    def settle_interrupted(self) -> None:
        """Undo what an interrupted `commit` left open. Called by the next one to enter."""
        ...

    def load(self, request: Load) -> Chunk:
        """Return waiting messages, as of one moment at or after the call."""
        ...

    def load_due(self, request: LoadDue) -> DueChunk:
        """Return delayed messages or retries, as of one moment at or after the call."""
        ...

    def next_of_key(self, group: int, key: str, after: int) -> Waiting | None:
        """Return the first unsettled message of a key with seq > after. Needs the lock."""
        ...

    def latest(self, group: int, seq: int) -> DeliveryRow | None:
        """Return the latest delivery of an unsettled message to a group. Needs the lock.

        None: never delivered, settled for the group, or gone (`messages` tells which).
        """
        ...

    def open_deliveries(self, group: int, seqs: Iterable[int]) -> dict[int, int]:
        """Return {seq: counter} of deliveries of `seqs` open since this epoch. Needs the lock."""
        ...

    def messages(self, seqs: Sequence[int]) -> list[Stored]:
        """Return those of the messages that are there, in any order, unchecked."""
        ...

    def expired(self, now: int, limit: int) -> list[tuple[int, int]]:
        """Return (seq, queue) of messages whose time is over, oldest first.

        Without those that every group has settled: retained ones would be in the way for ever.
        """
        ...

    def unsettled(self, seq: int) -> list[int]:
        """Return the groups of the message's queue that have not settled it."""
        ...

    def put_before(self, queue: int, after: int, upto: int, time_ms: int) -> int | None:
        """Return a seq: all messages of the queue in (after, seq] were put before a time.

        It is as high as it can be, up to `upto`; None: there are no such messages.
        """
        ...

    def range(self, queue: int, after: int, limit: int) -> list[Stored]:
        """Return messages of a queue in seq order, whatever their state (peek, replay)."""
        ...

    def deliveries(self, seq: int) -> list[DeliveryRow]:
        """Return every recorded delivery of a message, by group and attempt."""
        ...

    def dead(self, queue: int, after: int, limit: int) -> list[DeadRow]:
        """Return dead letters of a queue in the order of dying, with id > after."""
        ...

    def dead_letter(self, seq: int, group: int) -> DeadRow | None:
        """Return one dead letter."""
        ...

    def sink(self, queue: int, name: str) -> SinkRow | None:
        """Return the newest batch that a sink has published into a queue. Needs the lock."""
        ...

    def staged(self, name: str | None = None) -> list[StageRow]:
        """Return what a sink has staged, None: what all have; by sink, token and number."""
        ...

    def begin_tally(self) -> Callable[[], Tally]:
        """Fix this moment; the function returned counts everything as it is now. Needs the lock.

        The function itself must not be called with the lock held: it may take seconds.
        """
        ...

    def look_around(self) -> None:
        """See whether the disk has room and the file is still there. Called once a second."""
        ...

    def rest(self, pages: int) -> None:
        """Tidy up while nobody waits: checkpoint, give up to `pages` back. Needs the lock."""
        ...

    def session_names(self, ids: Iterable[int]) -> dict[int, str]:
        """Return the names of sessions, for display."""
        ...

    def closed_sessions(self) -> set[int]:
        """Return the sessions with which nobody can come back: closed, or of earlier hosts."""
        ...

    def named_sessions(self) -> set[int]:
        """Return the sessions that deliveries name. Without the lock: it may take seconds."""
        ...

    def find_sessions(self, tokens: Iterable[bytes]) -> dict[bytes, int]:
        """Return the ids of the sessions that have these tokens."""
        ...

    def backup(
        self,
        lock: Lock,
        target: str | os.PathLike[str],
        *,
        settle: Callable[[], object],
        overwrite: bool = False,
        progress: Callable[[int, int], object] | None = None,
    ) -> BackupReport:
        """Copy everything committed into a new file, in steps that take `lock` one by one.

        `settle` is called with the lock before a step. See embedq.storage.backup.
        """
        ...

    def close(self, *, clean: bool) -> None:
        """Let go of the file. `clean`: everything has been answered."""
        ...
