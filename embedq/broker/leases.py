"""Leases: who holds which message until when, and the tokens that fence them.

Knows: deadlines on the monotonic clock; that a lease counts only while the group's table has it.
Does not know: the store, which message comes next.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from embedq.broker.ready import Entry
from embedq.storage.rows import Stored

if TYPE_CHECKING:
    from embedq.broker.state import GroupState


class Lease:
    """The exclusive right of one consumer to one message, until `deadline`.

    `counter` is the fencing token within the epoch: a later delivery of the same message has a
    higher one. `attempt` counts deliveries started, the first is 1.
    """

    __slots__ = ("attempt", "counter", "deadline", "entry", "group", "message", "seq")

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
        # A claim that was interrupted before it read the message leaves leases without one.
        message = getattr(self, "message", None)
        own = None if message is None else message.max_attempts
        return self.group.queue.policy.max_attempts if own is None else own

    def entry_at(self, attempt: int) -> Entry:
        """Return what the ready index must know of the message when it comes back."""
        if self.entry is None:
            return Entry(0, attempt)
        old = self.entry
        return Entry(old.priority, attempt, old.crashes, old.key, old.max_attempts)

    @property
    def is_held(self) -> bool:
        """Whether the lease still counts. Only the broker's lock makes the answer last."""
        return self.group.leases.get(self.seq) is self

    def __repr__(self) -> str:
        """Show what identifies the delivery."""
        return f"<Lease of message {self.seq}, attempt {self.attempt}, token {self.counter}>"


class Deadlines:
    """When leases end. One entry serves all leases of a claim; extended ones come back later."""

    __slots__ = ("_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, list[Lease]]] = []
        self._count = 0

    def add(self, deadline: float, leases: list[Lease]) -> None:
        """Watch leases that end together."""
        self._count += 1
        heapq.heappush(self._heap, (deadline, self._count, leases))

    def next(self) -> float | None:
        """Return when to look again (monotonic seconds), None if nothing is leased."""
        return self._heap[0][0] if self._heap else None

    def over(self, now: float) -> list[Lease]:
        """Return the leases that have ended; they are no longer watched."""
        ended: list[Lease] = []
        while self._heap and self._heap[0][0] <= now:
            _, _, leases = heapq.heappop(self._heap)
            later: dict[float, list[Lease]] = {}
            for lease in leases:
                if not lease.is_held:
                    continue
                if lease.deadline <= now:
                    ended.append(lease)
                else:
                    later.setdefault(lease.deadline, []).append(lease)
            for deadline, extended in later.items():
                self.add(deadline, extended)
        return ended
