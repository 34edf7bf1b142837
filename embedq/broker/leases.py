"""Leases: who holds which message until when, and the tokens that fence them.

Knows: deadlines on the monotonic clock; that a lease counts only while the group's table has it.
Does not know: the store, which message comes next.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from embedq.broker.entry import Entry
from embedq.storage.rows import Stored

if TYPE_CHECKING:
    from embedq.broker.state import GroupState

#: Seqs watched before the first look for settled ones: a quarter of a megabyte.
_SWEEP: Final = 8_000

#: Seconds until a lease that has ended is named again, if nobody could end it.
_AGAIN_S: Final = 1.0

#: Bits of a counter that count within an epoch; the epoch is above them.
_COUNT_BITS: Final = 36


def counter_before(epoch: int) -> int:
    """Return the counter before the first one of an epoch: none is given out in two of them."""
    return epoch << _COUNT_BITS


def is_singular(counter: int) -> bool:
    """Whether no other delivery of the file ever had this counter, but for its own later names.

    Hosts of earlier versions counted from 1 in each epoch.
    """
    return counter > 1 << _COUNT_BITS


class Lease:
    """The exclusive right of one consumer to one message, until `deadline`.

    `counter` is the fencing token: a later delivery of the same message has a higher one, and
    the next host goes on with the same one for a client that shows it. `attempt` counts
    deliveries started, the first is 1.
    """

    __slots__ = ("attempt", "counter", "deadline", "entry", "group", "keeper", "message", "seq")

    #: The message, from the moment the claim returns.
    message: Stored

    def __init__(
        self, group: GroupState, seq: int, attempt: int, counter: int, deadline: float
    ) -> None:
        self.group = group
        self.seq = seq
        self.attempt = attempt
        self.counter = counter
        self.deadline = deadline
        #: What the ready index knew of a message that was not plain and fresh.
        self.entry: Entry | None = None
        #: While it says yes, the lease is renewed when its time is over.
        self.keeper: Callable[[], bool] | None = None

    @property
    def key(self) -> str | None:
        """The ordering key that is blocked while the lease is held."""
        return None if self.entry is None else self.entry.key

    @property
    def is_suspect(self) -> bool:
        """Whether the message was being delivered when its worker or host died."""
        return self.entry is not None and self.entry.suspect

    @property
    def max_attempts(self) -> int:
        """How many attempts there may be; 0 is endless."""
        own = self._own_attempts
        return self.group.max_attempts if own is None else own

    @property
    def _own_attempts(self) -> int | None:
        """What the message itself says about its attempts."""
        # A claim that was interrupted before it read the message leaves leases without one.
        message = getattr(self, "message", None)
        if message is not None:
            own: int | None = message.max_attempts
            return own
        return None if self.entry is None else self.entry.max_attempts

    def entry_at(self, attempt: int) -> Entry:
        """Return what the ready index must know of the message when it comes back."""
        old = self.entry or Entry()
        return Entry(old.priority, attempt, old.crashes, old.key, self._own_attempts)

    @property
    def is_held(self) -> bool:
        """Whether the lease still counts. Only the broker's lock makes the answer last."""
        return self.group.leases.get(self.seq) is self

    def __repr__(self) -> str:
        """Show what identifies the delivery."""
        return f"<Lease of message {self.seq}, attempt {self.attempt}, token {self.counter}>"


class Deadlines:
    """When leases end. One entry serves all leases of a claim; an extension adds its own.

    Entries name messages and do not hold leases: a settled lease must not keep its body in memory
    until its time would have been over.
    """

    __slots__ = ("_count", "_heap", "_sweep_at", "watched")

    def __init__(self) -> None:
        #: (deadline, number of the entry, group, newest token among its leases, their seqs)
        self._heap: list[tuple[float, int, GroupState, int, list[int]]] = []
        self._count = 0
        self._sweep_at = _SWEEP
        #: Seqs in all entries, settled ones among them.
        self.watched = 0

    def add(self, deadline: float, leases: list[Lease]) -> None:
        """Watch leases of one group, at least one, that end together."""
        newest = max([lease.counter for lease in leases])
        seqs = [lease.seq for lease in leases]
        self._count += 1
        heapq.heappush(self._heap, (deadline, self._count, leases[0].group, newest, seqs))
        self.watched += len(seqs)
        if self.watched > self._sweep_at:
            self._sweep()

    def _sweep(self) -> None:
        """Drop what has been settled. Twice as many may gather next time: a constant cost each."""
        swept = []
        for deadline, number, group, newest, seqs in self._heap:
            held = [lease.seq for lease in _held(group, newest, seqs)]
            if held:
                swept.append((deadline, number, group, newest, held))
        heapq.heapify(swept)
        self._heap = swept
        self.watched = sum(len(entry[4]) for entry in swept)
        self._sweep_at = max(_SWEEP, 2 * self.watched)

    def watch_only(self, leases: Iterable[Lease]) -> None:
        """Forget what was watched: an exception from outside may have struck `add` or `over`."""
        self._heap.clear()
        self.watched = 0
        for lease in leases:
            self.add(lease.deadline, [lease])

    def next(self) -> float | None:
        """Return when to look again (monotonic seconds), None if nothing is leased."""
        return self._heap[0][0] if self._heap else None

    def over(self, now: float) -> list[Lease]:
        """Return the leases that have ended, each once; in a second they come again if still held.

        An extended lease is left to the entry of its extension, one that is kept is extended.
        """
        ended: dict[Lease, None] = {}
        kept: list[Lease] = []
        while self._heap and self._heap[0][0] <= now:
            _, _, group, newest, seqs = heapq.heappop(self._heap)
            self.watched -= len(seqs)
            for lease in _held(group, newest, seqs):
                if lease.deadline > now:
                    continue
                alive = lease.keeper  # one look: `unkeep` needs no lock
                if alive is not None and alive():
                    lease.deadline = now + group.queue.policy.lease_ms / 1000
                    kept.append(lease)
                else:
                    ended[lease] = None
        for lease in kept:
            self.add(lease.deadline, [lease])
        # What ends them may fail, or be interrupted.
        for lease in ended:
            self.add(now + _AGAIN_S, [lease])
        return list(ended)


def _held(group: GroupState, newest: int, seqs: list[int]) -> list[Lease]:
    """Return the leases that still count. A token after `newest` is that of a later delivery."""
    found = map(group.leases.get, seqs)
    return [lease for lease in found if lease is not None and lease.counter <= newest]
