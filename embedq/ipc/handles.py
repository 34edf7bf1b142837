"""Queues, groups and leases as a client holds them: names and numbers of what the host has.

Knows: what handlers and pulling programs look at, which leases still count.
Does not know: sockets, when anything changes at the host.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, cast

from embedq.broker.entry import Entry
from embedq.broker.leases import Lease
from embedq.broker.office import GroupInfo, QueueInfo
from embedq.ipc.frames import Held, WireLease
from embedq.ipc.marks import Progress, word_of

if TYPE_CHECKING:
    from embedq.broker.state import GroupState


class RemoteQueue:
    """A queue of the host, as it was when this process last asked."""

    __slots__ = ("groups", "id", "name", "paused", "policy")

    def __init__(self, info: QueueInfo) -> None:
        self.name = info.name
        self.groups: list[RemoteGroup] = []
        self.update(info)

    def update(self, info: QueueInfo) -> None:
        """Take over what the host says now; groups that are known stay the same objects."""
        self.id = info.id
        self.policy = info.policy
        self.paused = info.paused
        known = {group.id: group for group in self.groups}
        self.groups = [known.get(each.id) or RemoteGroup(each, self) for each in info.groups]

    def add_group(self, info: GroupInfo) -> RemoteGroup:
        """Return a group of the queue, which may be new here."""
        for known in self.groups:
            if known.id == info.id:
                return known
        group = RemoteGroup(info, self)
        self.groups.append(group)
        return group

    def __repr__(self) -> str:
        """Show the name."""
        return f"<RemoteQueue {self.name!r}>"


class RemoteGroup:
    """A consumer group of the host. `leases`: what this process holds of it."""

    __slots__ = ("id", "leases", "most", "name", "queue")

    def __init__(self, info: GroupInfo, queue: RemoteQueue) -> None:
        self.id = info.id
        self.name = info.name
        self.queue = queue
        self.leases: dict[int, Lease] = {}
        #: Attempts of a message that does not say, where a consumer has its own bound.
        self.most: int | None = None

    @property
    def max_attempts(self) -> int:
        """How many attempts there may be of a message that does not say; 0 is endless."""
        return self.queue.policy.max_attempts if self.most is None else self.most

    def __repr__(self) -> str:
        """Show the names."""
        return f"<RemoteGroup {self.queue.name!r}/{self.name!r}>"


class RemoteLease(Lease):
    """A lease that the host keeps. `mark`: where its progress is noted (marks.py).

    `outside`: it is for a client of a listener.
    """

    __slots__ = ("mark", "outside", "progress")

    def __init__(self, group: RemoteGroup, told: WireLease, now: float) -> None:
        message = told.message
        # Whoever handles a message looks only at what both kinds of groups have.
        of = cast("GroupState", group)
        deadline = now + told.lease_ms / 1000
        super().__init__(of, message.seq, told.attempt, told.counter, deadline)
        self.message = message
        self.mark = told.mark
        self.progress: Progress | None = None
        self.outside = False
        if told.suspect or message.key is not None:
            entry = Entry(message.priority, told.attempt, 0, message.key, told.max_attempts)
            entry.suspect = told.suspect
            self.entry = entry


class Holdings:
    """All leases of this process. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._by_counter: dict[int, RemoteLease] = {}
        self._shown: list[RemoteLease] = []
        self._kept: dict[Lease, Callable[[], bool]] = {}

    def add(
        self, group: RemoteGroup, told: Iterable[WireLease], now: float, *, outside: bool = False
    ) -> list[RemoteLease]:
        """Take in what the host has handed over. `outside`: for clients of listeners."""
        leases = [RemoteLease(group, each, now) for each in told]
        with self._lock:
            for lease in leases:
                lease.outside = outside
                self._by_counter[lease.counter] = lease
                group.leases[lease.seq] = lease
        return leases

    def drop(self, leases: Iterable[Lease]) -> None:
        """Forget leases that have ended."""
        with self._lock:
            for lease in leases:
                self._forget(lease)

    def lost(self, counters: Iterable[int]) -> None:
        """Forget leases that the host says have ended."""
        with self._lock:
            for counter in counters:
                lease = self._by_counter.get(counter)
                if lease is not None:
                    self._forget(lease)

    def _forget(self, lease: Lease) -> None:
        self._by_counter.pop(lease.counter, None)
        self._kept.pop(lease, None)
        table = lease.group.leases
        if table.get(lease.seq) is lease:
            del table[lease.seq]

    def __len__(self) -> int:
        """How many there are."""
        return len(self._by_counter)

    @property
    def in_work(self) -> bool:
        """Whether any is not at its end: whoever has it may go without a word."""
        with self._lock:
            return any(lease.progress not in _ENDED for lease in self._by_counter.values())

    def held(self) -> list[Held]:
        """Return what is held, to show it to the next host."""
        with self._lock:
            self._shown = list(self._by_counter.values())
            return [
                Held(
                    *(lease.group.id, lease.seq, lease.counter, lease.progress is not None),
                    mark=lease.mark,
                    keep=lease in self._kept,
                    outside=lease.outside,
                )
                for lease in self._shown
            ]

    def reissued(self, tokens: Iterable[tuple[int, int]]) -> None:
        """Take over the new tokens of what `held` has shown: (position, counter).

        What was shown and not reissued has ended.
        """
        fresh = dict(tokens)
        with self._lock:
            shown, self._shown = self._shown, []
            left = {}
            for position, lease in enumerate(shown):
                if self._by_counter.get(lease.counter) is not lease:
                    continue  # it ended meanwhile
                counter = fresh.get(position)
                if counter is None:
                    self._forget(lease)
                else:
                    lease.counter = counter
                    left[counter] = lease
            self._by_counter = left

    def marked(self) -> list[tuple[int, int]]:
        """Return (mark, word) of those that handlers have, or have had."""
        with self._lock:
            return [
                (lease.mark, word_of(lease.counter, lease.progress))
                for lease in self._by_counter.values()
                if lease.progress is not None
            ]

    # ------------------------------------------------------------------------- keeping

    def kept_by_host(self, leases: Iterable[Lease]) -> None:
        """Note that the host renews these already."""
        with self._lock:
            for lease in leases:
                self._kept[lease] = _always

    def keep(self, lease: Lease, alive: Callable[[], bool]) -> bool:
        """Note who needs a lease renewed; False: it no longer counts, or was noted before."""
        with self._lock:
            if self._by_counter.get(lease.counter) is not lease:
                return False
            known = lease in self._kept
            self._kept[lease] = alive
            return not known

    def unkeep(self, lease: Lease) -> bool:
        """Note that it need not be renewed; False: it was not."""
        with self._lock:
            return self._kept.pop(lease, None) is not None

    def abandoned(self) -> list[Lease]:
        """Return those whose holder is gone without settling them, each once."""
        with self._lock:
            gone = [lease for lease, alive in self._kept.items() if not alive()]
            for lease in gone:
                del self._kept[lease]
        return gone


_ENDED: Final = (Progress.FAILED, Progress.DONE)


def _always() -> bool:
    return True
