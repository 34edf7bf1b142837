"""A store in memory: the oracle that the tests compare every other store with.

Knows: that a batch happens wholly or not at all, what a crash and a clean end leave behind.
Does not know: files, durability; the rules themselves are in memory_ops and memory_state.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Self

from embedq.clock import Clock, SystemClock
from embedq.errors import EmbedqError, GroupNotFound, InvalidOption, StorageError, StoreClosed
from embedq.ids import KEY_BYTES, new_store_key
from embedq.storage import (  # operations of theirs, for the most part
    memory_held,  # noqa: F401
    memory_sessions,
    memory_staged,  # noqa: F401
    memory_tail,  # noqa: F401
    tail,
)
from embedq.storage.backup import BackupReport, Lock
from embedq.storage.memory_ops import apply
from embedq.storage.memory_state import State
from embedq.storage.ops import Op, PutPlain, Save
from embedq.storage.port import Load, LoadDue, Tally
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


class MemoryStore:
    """Everything in dicts, gone with the process. For tests, and to understand the store port.

    Each commit works on a copy of the tables and swaps it in at the end: readers in other
    threads see one moment, and an error leaves nothing behind. That costs time in proportion to
    all that is stored.
    """

    def __init__(self, clock: Clock | None = None, *, key: bytes | None = None) -> None:
        """Start empty, in epoch 1. `key` (16 bytes) makes message ids predictable.

        The store itself never asks for the time; `clock` is kept for those who share it.
        InvalidOption for a key of another length.
        """
        key = new_store_key() if key is None else key
        if len(key) != KEY_BYTES:
            raise InvalidOption(f"key has {len(key)} bytes instead of {KEY_BYTES}", argument="key")
        self.clock: Clock = SystemClock() if clock is None else clock
        self._failure: BaseException | None = None
        self.refused = 0
        self.deaths: dict[int, Death] = {}  # nothing outlives the process
        self._begin(State(key, epoch=1, exact=True))

    def _begin(self, state: State) -> None:
        self.key = state.key
        self.epoch = state.epoch
        self.clean = state.exact
        self.last_seq = state.last_seq
        state.exact = False  # of this epoch: nobody has saved yet
        self._state = state
        self._stopped: StorageError | None = None

    # ------------------------------------------------------------------------ life cycle

    def close(self, *, clean: bool) -> None:
        """End this epoch; everything but `reopen` raises StoreClosed from now on.

        `clean` saves exact counts first, if the caller has not.
        """
        if self._stopped is not None:
            return
        if clean and not self._state.exact:
            self.commit([self._exact_counts()])
        self._stopped = StoreClosed("this store in memory was closed", hint="call reopen() on it")

    def _exact_counts(self) -> Save:
        queues, groups = self.catalogue()
        counts = self.begin_tally()()
        return Save(
            [
                (row.id, counts.stored.get(row.id, 0), counts.dead.get(row.id, 0), self.last_seq)
                for row in queues
            ],
            [(g.id, g.floor, counts.settled.get(g.id, 0)) for g in groups],
            exact=True,
        )

    def reopen(self) -> Self:
        """Return a store with the same content in the next epoch; this one is closed.

        Without a close before, it is what follows a crash: the counts are not trusted (`clean`)
        unless they were saved by the last commit.
        """
        self.close(clean=False)
        state = self._state.copy()
        state.epoch += 1
        state.commits = 0
        store = type(self)(self.clock, key=self.key)
        store._begin(state)  # noqa: SLF001  # one of us
        return store

    def record_crashes(self) -> None:
        """Do nothing: there is no next opening after a crash."""

    @property
    def stopped(self) -> EmbedqError | None:
        """Why it serves no longer: it was closed or stopped."""
        return self._stopped

    def stop(self, reason: StorageError) -> None:
        """Serve no longer."""
        self._stopped = reason

    # --------------------------------------------------------------------------- writing

    def fail_next(self, error: BaseException) -> None:
        """Let the next `commit` raise `error` and change nothing: for tests of what follows."""
        self._failure = error

    def commit(self, batch: Sequence[Op]) -> None:
        """Do all operations in order, or none of them; raises what `fail_next` was given."""
        try:
            draft = self._open_state().copy()
            self._fail_as_told()
            draft.commits += 1
            for op in batch:
                apply(op, draft)
                draft.exact = isinstance(op, Save) and op.exact
        except Exception:
            self.refused += 1
            raise
        self._state = draft
        self.last_seq = draft.last_seq

    def _fail_as_told(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def put(self, op: PutPlain) -> bool:
        """Commit one put."""
        self.commit((op,))
        return False

    def after_commit(self) -> None:
        """Do nothing: there is no log to move."""

    def look_around(self) -> None:
        """Do nothing: there is neither a disk nor a file."""

    def rest(self, pages: int) -> None:
        """Do nothing: memory is tidy, whatever number of `pages` is asked for."""

    def settle_interrupted(self) -> None:
        """Do nothing: an interrupted commit never swapped its copy in."""

    def backup(
        self,
        lock: Lock,
        target: str | os.PathLike[str],
        *,
        settle: Callable[[], object],
        overwrite: bool = False,
        progress: Callable[[int, int], object] | None = None,
    ) -> BackupReport:
        """Refuse: there is no file."""
        del lock, settle, overwrite, progress
        raise InvalidOption(
            f"a store in memory cannot be backed up to {os.fspath(target)!r}",
            hint="open a Broker on a path",
        )

    def _open_state(self) -> State:
        if self._stopped is not None:
            raise self._stopped
        return self._state

    def _check_group(self, group: int) -> None:
        if group not in self._open_state().groups:
            raise GroupNotFound(f"the store in memory has no consumer group number {group}")

    # ------------------------------------------------------------------- waiting messages

    def load(self, request: Load) -> Chunk:
        """Return waiting messages of one group and priority, in seq order."""
        state = self._open_state()
        group, priority, after, upto, limit = request
        self._check_group(group)
        fresh: list[int] = []
        others: list[Waiting] = []
        for message in state.waiting_messages(group, after):
            if message.seq > upto or len(fresh) + len(others) == limit:
                break
            if message.priority == priority and state.in_stream(group, message):
                after = message.seq
                if message.key is None and state.latest(group, message.seq) is None:
                    fresh.append(message.seq)
                else:
                    others.append(state.describe(group, message))
        full = len(fresh) + len(others) == limit
        return Chunk(fresh, others, after if full else max(after, upto))

    def load_due(self, request: LoadDue) -> DueChunk:
        """Return delayed messages or retries, in the order of their times."""
        state = self._open_state()
        group, retries, after, limit, tails = request
        self._check_group(group)
        time_of = state.retry_time if retries else state.delayed_time
        timed = [
            (due, message.seq, message)
            for message in state.waiting_messages(group)
            if (due := time_of(group, message)) is not None and (due, message.seq) > after
            if tail.is_place(due) == tails
        ]
        timed.sort(key=lambda entry: entry[:2])
        rows = [state.describe(group, m)._replace(due=due) for due, _, m in timed[:limit]]
        last = timed[:limit][-1][:2] if rows else after
        return DueChunk(rows, last, len(timed) <= limit)

    def next_of_key(self, group: int, key: str, after: int) -> Waiting | None:
        """Return the first unsettled message of an ordering key with seq > after."""
        state = self._open_state()
        self._check_group(group)
        for message in state.waiting_messages(group, after):
            if message.key == key:
                return state.describe(group, message)
        return None

    # --------------------------------------------------------------------- one message

    def latest(self, group: int, seq: int) -> DeliveryRow | None:
        """Return the latest delivery of a message, None once it is settled or gone."""
        state = self._open_state()
        self._check_group(group)
        return state.latest(group, seq) if group in state.unsettled(seq) else None

    def unsettled(self, seq: int) -> list[int]:
        """Return the groups a message still waits for."""
        return self._open_state().unsettled(seq)

    def deliveries(self, seq: int) -> list[DeliveryRow]:
        """Return every recorded delivery of a message, by group and attempt."""
        return list(self._open_state().deliveries.get(seq, ()))

    def messages(self, seqs: Sequence[int]) -> list[Stored]:
        """Return those of the messages that are there."""
        messages = self._open_state().messages
        return [messages[seq] for seq in dict.fromkeys(seqs) if seq in messages]

    # -------------------------------------------------------------------- many messages

    def open_deliveries(self, group: int, seqs: Iterable[int]) -> dict[int, int]:
        """Return {seq: counter} of deliveries of `seqs` opened in this epoch and not closed."""
        state = self._open_state()
        return {
            row.seq: row.counter
            for seq in seqs
            for row in state.deliveries.get(seq, ())
            if row.group == group and row.epoch == state.epoch and row.ended is None
        }

    def expired(self, now: int, limit: int) -> list[tuple[int, int]]:
        """Return (seq, queue) of messages whose time is over and that somebody may wait for."""
        state = self._open_state()
        over = [
            (message.expires, message.seq, message.queue)
            for message in state.messages.values()
            if message.expires is not None and message.expires <= now
            if state.is_awaited(message.seq) or not state.groups_of(message.queue)
        ]
        return [(seq, queue) for _, seq, queue in sorted(over)[:limit]]

    def put_before(self, queue: int, after: int, upto: int, time_ms: int) -> int | None:
        """Return the seq up to which everything after `after` was put before a time."""
        messages = self._open_state().messages.values()
        some = [m for m in messages if m.queue == queue and after < m.seq <= upto]
        last = next((m.seq - 1 for m in some if m.put_at >= time_ms), upto)
        return last if some and some[0].seq <= last else None

    def range(self, queue: int, after: int, limit: int) -> list[Stored]:
        """Return messages of a queue in seq order, whatever their state."""
        messages = self._open_state().messages.values()
        return [m for m in messages if m.queue == queue and m.seq > after][:limit]

    def dead(self, queue: int, after: int, limit: int) -> list[DeadRow]:
        """Return dead letters of a queue in the order of dying, with id > after."""
        letters = self._open_state().dead.values()
        return [row for row in letters if row.queue == queue and row.id > after][:limit]

    def dead_letter(self, seq: int, group: int) -> DeadRow | None:
        """Return one dead letter."""
        letters = self._open_state().dead.values()
        return next((row for row in letters if (row.seq, row.group) == (seq, group)), None)

    def sink(self, queue: int, name: str) -> SinkRow | None:
        """Return the newest batch that a sink has published into a queue."""
        return self._open_state().sinks.get((queue, name))

    def staged(self, name: str | None = None) -> list[StageRow]:
        """Return what a sink has staged, None: what all have."""
        stages = self._open_state().stages
        return [stages[key][0] for key in sorted(stages) if name is None or key[0] == name]

    # -------------------------------------------------------------- catalogue and counts

    def catalogue(self) -> tuple[list[QueueRow], list[GroupRow]]:
        """Return all queues and groups, with the counts that were saved last."""
        state = self._open_state()
        queues = [replace(row) for row in state.queues.values()]
        return queues, [replace(row) for row in state.groups.values()]

    def begin_tally(self) -> Callable[[], Tally]:
        """Fix this moment; the function returned counts everything as it is now."""
        state = self._open_state()
        return lambda: _tally(state)

    def find_sessions(self, tokens: Iterable[bytes]) -> dict[bytes, int]:
        """Return the ids of the sessions that have these tokens."""
        known = {row.token: id_ for id_, row in self._open_state().sessions.items()}
        return {token: known[token] for token in tokens if token in known}

    def closed_sessions(self) -> set[int]:
        """Return the sessions with which nobody can come back."""
        return memory_sessions.closed(self._open_state())

    def named_sessions(self) -> set[int]:
        """Return the sessions that deliveries name."""
        found = self._open_state().deliveries.values()
        return {row.session for rows in found for row in rows if row.session is not None}

    def session_names(self, ids: Iterable[int]) -> dict[int, str]:
        """Return the names of sessions."""
        sessions = self._open_state().sessions
        return {id_: sessions[id_].name for id_ in ids if id_ in sessions}


def _tally(state: State) -> Tally:
    counts = Tally({}, {}, {}, 0, _tally_dead(state))
    for message in state.messages.values():
        counts = counts._replace(upto=message.seq)
        counts.stored[message.queue] = counts.stored.get(message.queue, 0) + 1
        counts.last[message.queue] = message.seq
        for group in state.groups_of(message.queue):
            if state.is_settled(group, message.seq):
                counts.settled[group.id] = counts.settled.get(group.id, 0) + 1
    return counts


def _tally_dead(state: State) -> dict[int, int]:
    counts: dict[int, int] = {}
    for letter in state.dead.values():
        counts[letter.queue] = counts.get(letter.queue, 0) + 1
    return counts
