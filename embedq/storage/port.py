"""The store port: the operations a store commits and the questions it answers.

Knows: what each operation must change, and that a batch happens wholly or not at all.
Does not know: SQL, files, threads, leases in memory, when a message may move.

Every store runs tests/conformance. A caller holds the writer's lock around `commit`; reads may
come from any thread. All times are integer milliseconds of wall clock; `seq` is assigned by
`commit` in commit order and never used twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from embedq.errors import StorageError
from embedq.lifecycle import Outcome, Reason
from embedq.policy import QueuePolicy

#: Header of a redriven message: the id it had before.
REDRIVEN_FROM = "redriven-from"

# --------------------------------------------------------------------------- records


class Stored(NamedTuple):
    """A message as stored. `crc` is CRC-32 of the encoded headers, then the body."""

    seq: int
    queue: int
    put_at: int
    kind: int
    crc: int
    priority: int
    due: int | None
    expires: int | None
    key: str | None
    max_attempts: int | None
    headers: bytes | None
    body: bytes


class Row(NamedTuple):
    """A message to put that uses more than body and kind. `dedup_until` goes with `dedup_key`."""

    kind: int
    crc: int
    priority: int
    due: int | None
    expires: int | None
    key: str | None
    max_attempts: int | None
    headers: bytes | None
    body: bytes
    dedup_key: str | None = None
    dedup_until: int = 0


class DeliveryRow(NamedTuple):
    """One delivery of one message to one group; open while `ended` is None."""

    seq: int
    group: int
    attempt: int
    epoch: int
    counter: int
    crashes: int
    session: int | None
    started: int
    ended: int | None
    outcome: int | None
    due: int | None
    closed: int | None
    error: bytes | None


class Touched(NamedTuple):
    """A waiting message that has been delivered before, with its latest delivery."""

    seq: int
    attempt: int
    crashes: int
    epoch: int
    counter: int
    open: bool  # True: the delivery was never closed (a crash, or it is leased right now)
    due: int | None  # retry not before


class Waiting(NamedTuple):
    """What the ready index must know of a waiting message that is not plain and fresh.

    `due` is its own time until the first delivery, afterwards that of the retry.
    """

    seq: int
    priority: int
    key: str | None
    due: int | None
    max_attempts: int | None
    touched: Touched | None


class Chunk(NamedTuple):
    """Part of a stream of waiting messages, in seq order.

    Every waiting message of the stream in (request.after, after] is either in `fresh` (its seq:
    never delivered, no ordering key) or in `others`.
    """

    fresh: list[int]
    others: list[Waiting]
    after: int


class DueChunk(NamedTuple):
    """Messages that become deliverable at a time, ordered by (due, seq), without ordering key."""

    rows: list[Waiting]  # `due` is the time that counts: the message's own or its retry's
    after: tuple[int, int]  # the last (due, seq) looked at: where the next request goes on
    complete: bool  # nothing comes after it


class DeadRow(NamedTuple):
    """A dead letter as stored."""

    id: int
    seq: int
    group: int
    queue: int
    died: int
    reason: str
    detail: str
    moved_by: str
    attempts: bytes | None
    put_at: int
    kind: int
    crc: int
    priority: int
    key: str | None
    max_attempts: int | None
    headers: bytes | None
    body: bytes


@dataclass(slots=True)
class GroupRow:
    """A consumer group. Messages up to `floor` are settled for it."""

    id: int
    queue: int
    name: str
    floor: int
    settled: int


@dataclass(slots=True)
class QueueRow:
    """A queue. `last` is an upper bound of its highest seq."""

    id: int
    name: str
    policy: QueuePolicy
    paused: bool
    stored: int
    dead: int
    last: int


# ------------------------------------------------------------------------ operations


class Op:
    """An operation. Fields under "out" are set by `commit` and mean something afterwards only."""

    __slots__ = ()


class PutPlain(Op):
    """Store messages that have nothing but body and kind, in this order.

    `items` is flat: crc, body, crc, body, … Out: `first`, the seq of the first one; the others
    follow without a gap.
    """

    __slots__ = ("count", "first", "items", "kind", "put_at", "queue")

    def __init__(
        self, queue: int, put_at: int, kind: int, items: list[int | bytes], count: int
    ) -> None:
        self.queue = queue
        self.put_at = put_at
        self.kind = kind
        self.items = items
        self.count = count
        self.first = 0


class PutRows(Op):
    """Store messages of any kind, in this order; one with a living dedup key is not stored again.

    Out: `seqs`, one for each row (of the earlier message for a duplicate), and `stored`, the
    positions of those that were stored.
    """

    __slots__ = ("put_at", "queue", "rows", "seqs", "stored")

    def __init__(self, queue: int, put_at: int, rows: Sequence[Row]) -> None:
        self.queue = queue
        self.put_at = put_at
        self.rows = rows
        self.seqs: list[int] = []
        self.stored: list[int] = []


class Again(NamedTuple):
    """A further delivery of a message that has been delivered before."""

    seq: int
    attempt: int
    crashes: int


class Start(Op):
    """Open deliveries: `fresh` ones with attempt 1, `again` with theirs.

    The first one (fresh first) gets counter `counter`, the next `counter` + 1 and so on. The
    caller starts only messages that are there and not settled. An earlier delivery of an `again`
    message that is still open is closed as crashed; its retry time is cleared. Starting the same
    attempt once more replaces its row.

    With `reads` a store may answer with the messages themselves, out: `messages`, those that are
    there; None: ask for them with `Store.messages`.
    """

    __slots__ = (
        "again",
        "counter",
        "fresh",
        "group",
        "messages",
        "reads",
        "session",
        "started",
    )

    def __init__(  # one argument for each column of the row
        self,
        group: int,
        started: int,
        session: int | None,
        counter: int,
        fresh: list[int],
        again: list[Again],
    ) -> None:
        self.group = group
        self.started = started
        self.session = session
        self.counter = counter
        self.fresh = fresh
        self.again = again
        self.reads = False
        self.messages: list[Stored] | None = None


class Ack(Op):
    """Settle messages whose delivery is open; those that are gone already do not matter.

    A message leaves when every group has settled it and its queue does not retain.
    Out: `removed`, how many left.
    """

    __slots__ = ("ended", "group", "removed", "seqs")

    def __init__(self, group: int, ended: int, seqs: list[int]) -> None:
        self.group = group
        self.ended = ended
        self.seqs = seqs
        self.removed = 0


@dataclass(slots=True)
class Fail(Op):
    """Close an open delivery without settling: the message may be tried again from `due` on.

    Changes nothing if this attempt is not open.
    """

    group: int
    seq: int
    attempt: int
    ended: int
    outcome: Outcome
    due: int
    error: bytes | None = None


@dataclass(slots=True)
class Release(Op):
    """Give open deliveries back as if they had never started: (seq, attempt) each.

    The retry time of an attempt before it has been cleared by its start: the message is ready.
    """

    group: int
    deliveries: list[tuple[int, int]]


@dataclass(slots=True)
class Bury(Op):
    """Move a message to the group's dead letters, with its newest attempts, and settle it.

    An open delivery counts as the last attempt, with `outcome` and `error`; messages without one
    can be buried too. If the message stays for others, the group's settlement is the delivery's
    row with outcome DEAD, or a row with attempt 0.
    Out: `dead_id`, None if the message is gone or settled; `removed`, 1 if it left `msg`.
    """

    group: int
    seq: int
    ended: int
    reason: Reason
    detail: str = ""
    moved_by: str = ""
    outcome: Outcome = Outcome.FAILED
    error: bytes | None = None
    dead_id: int | None = None
    removed: int = 0


@dataclass(slots=True)
class Cancel(Op):
    """Remove messages for every group, whatever their state.

    Out: `removed`, the seqs that were there.
    """

    queue: int
    seqs: list[int]
    removed: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Redrive(Op):
    """Put dead letters again as new messages (header `redriven-from`) and remove them.

    `origins` gives the id text of each letter, for the header. Out: `seqs` of the new messages
    in the order of `dead_ids`, None where there is no such letter.
    """

    queue: int
    dead_ids: list[int]
    origins: list[str]
    put_at: int
    seqs: list[int | None] = field(default_factory=list)


@dataclass(slots=True)
class PurgeDead(Op):
    """Remove dead letters. Out: `removed`, how many there were."""

    queue: int
    dead_ids: list[int]
    removed: int = 0


@dataclass(slots=True)
class DeclareQueue(Op):
    """Create a queue, or change the settings of an existing one. Out: `row`."""

    name: str
    policy: QueuePolicy
    row: QueueRow | None = None


@dataclass(slots=True)
class DeclareGroup(Op):
    """Create a group unless it exists. Messages up to `floor` are not for it. Out: `row`."""

    queue: int
    name: str
    floor: int
    row: GroupRow | None = None


@dataclass(slots=True)
class RemoveGroup(Op):
    """Forget a group and its deliveries. Its dead letters stay, and its id is not used again.

    `Collect` then removes what only it waited for.
    """

    group: int


@dataclass(slots=True)
class Pause(Op):
    """Remember that a queue is paused, or no longer."""

    queue: int
    paused: bool


@dataclass(slots=True)
class OpenSession(Op):
    """Register a worker or process. Out: `id`, what deliveries refer to."""

    name: str
    opened: int
    id: int = 0


@dataclass(slots=True)
class Collect(Op):
    """Remove messages in (after, upto] that every group has settled (queues without retention).

    Does nothing for a queue without groups. Out: `removed`.
    """

    queue: int
    after: int
    upto: int
    removed: int = 0


@dataclass(slots=True)
class Retire(Op):
    """Remove retained messages whose closing in `group` lies after `after`, before `cutoff`.

    `cutoff` is a time: the first closing that ended then or later stops it. Looks at `limit`
    deliveries in closing order, and at all that one commit closed or at none of them; a message
    that another group still waits for stays (its own closing there comes later). Out: `removed`
    messages, `reached`: the closing number looked at last (None: nothing more to do).
    """

    group: int
    cutoff: int
    after: int
    limit: int
    removed: int = 0
    reached: int | None = None


@dataclass(slots=True)
class Forget(Op):
    """Remove dedup keys that ended at `now` or before, at most `limit`. Out: `removed`."""

    now: int
    limit: int
    removed: int = 0


@dataclass(slots=True)
class Save(Op):
    """Store counts, floors and upper bounds, so that the next opening need not look for them.

    `queues`: (id, stored, dead, last). `groups`: (id, floor, settled). Floors only rise.
    `exact` marks the counts as trustworthy until the next operation. In a queue that does not
    retain, deliveries of the group up to its new floor are no longer needed and leave.
    """

    queues: list[tuple[int, int, int, int]]
    groups: list[tuple[int, int, int]]
    exact: bool


# ------------------------------------------------------------------------- questions


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
    """Ask for delayed messages (`retries` False) or retries (True) after a position."""

    group: int
    retries: bool
    after: tuple[int, int]  # (due, seq)
    limit: int


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

    @property
    def stopped(self) -> StorageError | None:
        """Why the store serves no longer, if so."""
        ...

    def catalogue(self) -> tuple[list[QueueRow], list[GroupRow]]:
        """Return all queues and groups, with the counts that were saved last."""
        ...

    def commit(self, batch: Sequence[Op]) -> None:
        """Do all operations in order, durably and at once; on an error none of them happened."""
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

    def open_deliveries(self, group: int) -> dict[int, int]:
        """Return {seq: counter} of deliveries open since this epoch. Needs the lock."""
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

    def tally(self, after: int, limit: int) -> Tally:
        """Count one stretch of messages; dead letters are counted by `tally_dead`."""
        ...

    def tally_dead(self) -> dict[int, int]:
        """Return {queue: dead letters}."""
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

    def close(self, *, clean: bool) -> None:
        """Let go of the file. `clean`: everything has been answered."""
        ...
