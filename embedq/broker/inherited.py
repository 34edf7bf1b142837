"""Deliveries that an earlier host left open with clients which may outlive it.

Knows: which sessions may come back, that what they hold is kept as leases until that is settled.
Does not know: processes, connections, marks; how long anybody waits (ipc).

A delivery is met when its message is loaded, or when its client shows it, whatever comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from embedq.broker.entry import Entry
from embedq.broker.leases import Lease, is_singular
from embedq.broker.state import GroupState
from embedq.storage.ops import Op, Reissue
from embedq.storage.rows import DeliveryRow, Waiting
from embedq.storage.writer import Task

if TYPE_CHECKING:
    from embedq.broker.desk import Desk
    from embedq.broker.engine import Engine


class Inherited(NamedTuple):
    """A delivery of an earlier epoch, held as a lease now. `counter`: what it was given out as."""

    session: int
    lease: Lease
    epoch: int
    counter: int


class Shown(NamedTuple):
    """What a client says that it holds, from an earlier host."""

    group: int
    seq: int
    counter: int


class Inheritance:
    """The sessions of earlier hosts that may come back, and what they hold.

    Everything but `listen` happens under the writer's lock.
    """

    def __init__(self, sessions: Mapping[int, bytes]) -> None:
        #: Their numbers in the store, and their tokens.
        self.sessions = dict(sessions)
        self._met: list[Inherited] = []
        self._heard: Callable[[Inherited], object] = self._met.append

    def listen(self, heard: Callable[[Inherited], object]) -> list[Inherited]:
        """Let `heard` be told of every delivery that is met; returns those that were so far.

        It is called under the broker's lock: it answers at once and calls nothing here. Needs the
        lock.
        """
        self._heard = heard
        met, self._met = self._met, []
        return met

    def adopt(self, engine: Engine, group: GroupState, waiting: Waiting, entry: Entry) -> bool:
        """Keep a delivery that an earlier host left open, if its client may live on.

        True: nothing more is to be done about the message now. Needs the lock.
        """
        row = engine.store.latest(group.id, waiting.seq)
        if row is None or row.ended is not None or row.epoch == engine.store.epoch:
            return True  # given out anew or settled since it was read; nobody waits for it here
        if row.session not in self.sessions:
            return False
        self.hold(engine, group, row, entry)
        return True

    def hold(
        self, engine: Engine, group: GroupState, row: DeliveryRow, entry: Entry, counter: int = 0
    ) -> Lease:
        """Make a lease of a delivery. Needs the lock."""
        counter = counter or _counter_of(engine, row)
        deadline = engine.monotonic() + group.queue.policy.lease_ms / 1000
        entry.attempt, entry.crashes = row.attempt, row.crashes
        lease = Lease(group, row.seq, row.attempt, counter, deadline)
        lease.entry = entry
        group.hold(lease)
        engine.deadlines.add(deadline, [lease])
        self._heard(Inherited(row.session or 0, lease, row.epoch, row.counter))
        return lease


class GiveAnew(Task):
    """Let a client keep what it shows and still holds: it counts under the present epoch."""

    __slots__ = ("_engine", "_epoch", "_found", "_inheritance", "_session", "_shown", "leases")

    alone = True  # `prepare` asks the store what is open

    def __init__(
        self,
        desk: Desk,
        inheritance: Inheritance,
        session: int,
        epoch: int,
        shown: Sequence[Shown],
    ) -> None:
        super().__init__(64 * len(shown))
        self._engine = desk
        self._inheritance = inheritance
        self._session = session
        self._epoch = epoch
        self._shown = shown
        #: The lease of each that still counts, by its position.
        self.leases: dict[int, Lease] = {}

    def prepare(self) -> Sequence[Op]:
        """See what is still open as the client says."""
        engine = self._engine
        groups = {group.id: group for group in engine.groups()}
        self._found: list[tuple[int, GroupState, DeliveryRow, int]] = []
        for position, each in enumerate(self._shown):
            group = groups.get(each.group)
            if group is None:
                continue
            row = engine.store.latest(each.group, each.seq)
            if row is not None and self._is_open(group, row, each):
                held = group.leases.get(each.seq)
                counter = _counter_of(engine, row) if held is None else held.counter
                self._found.append((position, group, row, counter))
        anew = [(row.seq, row.group, row.attempt, counter) for _, _, row, counter in self._found]
        return (Reissue(anew),) if anew else ()

    def _is_open(self, group: GroupState, row: DeliveryRow, shown: Shown) -> bool:
        if row.ended is not None or row.session != self._session:
            return False
        as_said = (row.epoch, row.counter) == (self._epoch, shown.counter)
        # A host in between gave it anew and died before its client heard that: who has heard of
        # no host of that epoch has got nothing else from it.
        renamed = self._epoch < row.epoch < self._engine.store.epoch
        # One that waits again was found by somebody who did not know of the client.
        return (as_said or renamed) and row.seq not in group.index.entries

    def apply(self) -> None:
        """Make the leases, as far as the messages have not been met yet."""
        for position, group, row, counter in self._found:
            lease = group.leases.get(row.seq)
            if lease is None:
                (message,) = self._engine.store.messages([row.seq]) or (None,)
                if message is None:
                    continue
                entry = Entry(message.priority, key=message.key)
                entry.max_attempts = message.max_attempts
                lease = self._inheritance.hold(self._engine, group, row, entry, counter)
            self.leases[position] = lease


def _counter_of(engine: Engine, row: DeliveryRow) -> int:
    """Return under which counter a delivery goes on: its own.

    What its client has noted under it counts then, also for a host after a host that has died
    before the client heard of it. That of a host of an earlier version may be in use here.
    """
    return row.counter if is_singular(row.counter) else engine.next_counter(1)


def inherit(desk: Desk, tokens: Iterable[bytes]) -> None:
    """Keep what the sessions with these tokens hold, from now on: before anything is claimed."""
    found = desk.store.find_sessions(tokens)
    desk.inheritance = Inheritance({id_: token for token, id_ in found.items()})
