"""The moves of messages between states, each one task for the writer.

Knows: what a move needs beforehand, what it commits, what memory looks like afterwards.
Does not know: how commits are grouped, SQL, who asked.

See docs/lifecycle.md for the table of states these moves implement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from embedq.broker.entry import Entry
from embedq.broker.leases import Lease
from embedq.broker.state import GroupState, QueueState
from embedq.broker.timeline import Timeline
from embedq.broker.waiting import Terms, Waiter
from embedq.lifecycle import Outcome, Reason
from embedq.storage.ops import Again, Bury, Cancel, Op, Start
from embedq.storage.rows import Stored
from embedq.storage.writer import Task

if TYPE_CHECKING:
    from embedq.broker.engine import Engine


class Claim(Task):
    """Lease the next messages of a group."""

    __slots__ = (
        "_buries",
        "_engine",
        "_group",
        "_is_bare",
        "_lease_s",
        "_most",
        "_order",
        "_others",
        "_session",
        "_start",
        "found",
        "hungry",
        "leases",
        "waiter",
        "waits",
    )

    _start: Start | None

    def __init__(
        self,
        engine: Engine,
        group: GroupState,
        most: int,
        lease_s: float,
        session: int | None,
        *,
        waiter: Waiter | None = None,
    ) -> None:
        super().__init__(most * 64)
        self._engine = engine
        self._group = group
        self._most = most
        self._lease_s = lease_s
        self._session = session
        self.leases: list[Lease] = []
        #: Whether there was anything to do;
        #: what to load: a priority, a timeline, None.
        self.found = False
        self.hungry: int | Timeline | None = None
        #: Who waits if there is nothing. None: nobody, or somebody who has given up meanwhile.
        self.waiter = waiter
        #: Whether nothing was ready and the waiter was enlisted.
        self.waits = False

    def prepare(self) -> Sequence[Op]:
        """Take messages out of the ready index."""
        group, engine = self._group, self._engine
        self._buries: list[tuple[Bury, Entry]] = []
        self._others: list[tuple[int, Entry]] = []
        self._order: list[int] = []
        self.leases = []  # of an earlier try, whose commit failed: they count for nobody
        self.found = False
        self._start = self.hungry = None
        self._is_bare = False  # nothing is left in memory: what is there later, came later
        if group.queue.paused:
            return ()
        now = engine.now_ms()
        most = self._most
        index = group.index
        if group.alone or index.suspects:
            most = group.room_beside_suspects(most)
            if not most:
                return ()
        plain = index.take_plain(now) if most == 1 else None
        if plain is not None:
            return self._started([plain], [], now)
        self.hungry = index.hungry(most, now)
        if self.hungry is not None:
            return ()
        fresh, others, self._order = index.take(most, now)
        if others:
            others = self._without_exhausted(others, now)
        self._is_bare = not index.has_ready
        return self._started(fresh, others, now)

    def _started(
        self, fresh: list[int], others: list[tuple[int, Entry]], now: int
    ) -> Sequence[Op]:
        self.found = bool(fresh or others or self._buries)
        if not fresh and not others:
            return [bury for bury, _ in self._buries]
        group, engine = self._group, self._engine
        self._others = others
        words = engine.words_of
        again = [
            Again(
                *(seq, entry.attempt + 1, entry.crashes),
                *(words(entry.died_in), entry.left_as),
            )
            for seq, entry in others
        ]
        counter = engine.next_counter(len(fresh) + len(again))
        start = Start(group.id, now, self._session, counter, fresh, again)
        start.reads = not group.queue.large
        self._start = start
        self._register(start)
        return (self._start, *[bury for bury, _ in self._buries])

    def _without_exhausted(
        self, others: list[tuple[int, Entry]], now: int
    ) -> list[tuple[int, Entry]]:
        """Bury those whose attempts were used up by crashes; return the rest (P5)."""
        group = self._group
        policy = group.queue.policy
        rest = []
        for seq, entry in others:
            most = group.max_attempts if entry.max_attempts is None else entry.max_attempts
            crashed = bool(policy.max_crashes) and entry.crashes >= policy.max_crashes
            if crashed or (most and entry.attempt >= most):
                at_last = entry.crashes and entry.left_as is Outcome.CRASHED
                reason = Reason.CRASHED if crashed or at_last else Reason.MAX_ATTEMPTS
                detail = f"{entry.attempt} attempts started, {entry.crashes} crashes"
                if entry.died_in:
                    detail += f"; the last: {self._engine.end_of(entry.died_in)}"
                bury = Bury(self._group.id, seq, now, reason, detail, "host", entry.left_as)
                bury.error = self._engine.words_of(entry.died_in)
                self._buries.append((bury, entry))
            else:
                rest.append((seq, entry))
        return rest

    def _register(self, start: Start) -> None:
        """Make the leases: from now on they count for the other tasks of the same commit."""
        group = self._group
        deadline = self._engine.monotonic() + self._lease_s
        counter = start.counter
        leases = [
            Lease(group, seq, 1, number, deadline)
            for number, seq in enumerate(start.fresh, counter)
        ]
        counter += len(leases)
        for number, (seq, entry) in enumerate(self._others, counter):
            lease = Lease(group, seq, entry.attempt + 1, number, deadline)
            lease.entry = entry
            leases.append(lease)
        if self._order:
            by_seq = {lease.seq: lease for lease in leases}
            leases = [by_seq[seq] for seq in self._order if seq in by_seq]
        self.leases = leases  # first: an interrupted caller gives back what it finds here
        table = group.leases
        for lease in leases:
            table[lease.seq] = lease

    def apply(self) -> None:
        """Watch the leases."""
        group = self._group
        for bury, entry in self._buries:
            if entry.suspect:
                group.suspect_ended()
            self._engine.buried(group, bury, entry.key)
        start = self._start
        if start is None:
            waiter = self.waiter  # one look: `abandon` may clear it meanwhile, and then it leaves
            if self._may_look_again():
                self.found = True
            elif waiter is not None and not self.found and self.hungry is None:
                self._wait(waiter)
            return
        group.delivered += len(self.leases)
        self._engine.deadlines.add(self.leases[0].deadline, self.leases)

    def _wait(self, waiter: Waiter) -> None:
        group = self._group
        if group not in group.queue.groups:
            # It was removed since its claimant looked: nobody would ever wake who waits here.
            self.found = True
            return
        waiter.terms = Terms(self._most, self._lease_s, self._session)
        self.waits = group.waiters.enlist(waiter)
        group.queue.attended = True
        if self.waits:
            self._engine.upkeep.expect(group.index.next_due())

    def _may_look_again(self) -> bool:
        """Whether this very commit has brought a message, or the end of a suspect before others.

        Whoever brought it could wake nobody: the claimant had looked, and did not wait yet.
        """
        group = self._group
        if self.found or group.queue.paused:
            return False
        if self._is_bare and self.waiter is not None and group.index.has_ready:
            return True
        return group.suspect_may_run and not group.leases

    @property
    def messages(self) -> list[Stored] | None:
        """The messages, if the commit read them."""
        return None if self._start is None else self._start.messages

    def undo(self) -> None:
        """Find what was taken again, from the store."""
        self._engine.rebuild(self._group)


class Cancels(Task):
    """Remove waiting messages of a queue for every group; leased ones stay, in `leased`.

    A message that is kept although every group has settled it is history, and stays, too.
    """

    __slots__ = ("_engine", "_op", "_queue", "_seqs", "_settled", "leased", "removed")

    alone = True  # `prepare` asks the store who has settled what

    def __init__(self, engine: Engine, queue: QueueState, seqs: Sequence[int]) -> None:
        super().__init__(16 * len(seqs))
        self._engine = engine
        self._queue = queue
        self._seqs = list(dict.fromkeys(seqs))  # named twice is removed, and told, once
        self.leased: list[int] = []
        self.removed: list[int] = []

    def prepare(self) -> Sequence[Op]:
        """Leave out what is being delivered; see which groups had settled the rest."""
        groups = self._queue.groups
        self.leased = [seq for seq in self._seqs if any(seq in g.leases for g in groups)]
        kept = set(self.leased)
        free = [seq for seq in self._seqs if seq not in kept]
        self._settled: dict[int, set[int]] = {}
        if groups and not groups[0].is_sole:
            every = {group.id for group in groups}
            for seq in free:
                self._settled[seq] = every - set(self._engine.store.unsettled(seq))
            if self._queue.policy.retain_ms is not None:
                free = [seq for seq in free if self._settled[seq] != every]
        self._op = Cancel(self._queue.id, free)
        return (self._op,) if free else ()

    def apply(self) -> None:
        """Count, and let the next message of each key move."""
        self.removed = list(self._op.removed)
        queue = self._queue
        queue.stored -= len(self.removed)
        queue.space.wake(len(self.removed))
        for group in queue.groups:
            for seq in self.removed:
                if group.id in self._settled.get(seq, ()):
                    group.settled -= 1
                entry = group.index.entries.get(seq)
                if entry is not None and entry.key is not None:
                    self._engine.key_settled(group, entry.key, seq)


class Change(Task):
    """Any other operations; `then` brings memory up to date."""

    __slots__ = ("_ops", "_then")

    alone = True  # settings decide what a settlement of the same commit would leave behind

    def __init__(self, ops: Sequence[Op], then: Callable[[], object] | None = None) -> None:
        super().__init__(64 * len(ops))
        self._ops = ops
        self._then = then

    def prepare(self) -> Sequence[Op]:
        """Return the operations."""
        return self._ops

    def apply(self) -> None:
        """Call `then`."""
        if self._then is not None:
            self._then()
