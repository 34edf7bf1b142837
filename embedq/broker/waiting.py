"""Waiting for messages without asking again and again: who waits, and in what order they go on.

Knows: one queue of waiters for each group, first come, first served; how each is woken.
Does not know: why something became ready, how a waiter then claims, asyncio.

A claim that finds nothing enlists its waiter under the broker's lock, in the same step: a message
that comes later finds it there, so no wake is lost and nobody polls. A put may hand its message
over with the wake (direct.py).
"""

from __future__ import annotations

from _thread import allocate_lock
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from embedq.broker.leases import Lease


class Terms(NamedTuple):
    """What a waiter would claim: how many messages, leased for how long, for which session."""

    most: int
    lease_s: float
    session: int | None


class Waiter:
    """Somebody who waits: one for each thread, used again and again.

    Everything but `wait` happens under the broker's lock.
    """

    __slots__ = ("_gate", "cancelled", "got", "terms", "woken")

    #: Nobody can come back to it: what it were given would only come back with its lease.
    is_gone: bool = False

    def __init__(self) -> None:
        self._gate = allocate_lock()
        self._gate.acquire()
        #: It will not wait any more: claims return at once.
        self.cancelled = False
        #: It was woken and has not got anything yet: if it must wait again, it is the first.
        self.woken = False
        #: None: it can only be woken.
        self.terms: Terms | None = None
        #: What a put has handed over to it.
        self.got: Sequence[Lease] = ()

    def signal(self) -> None:
        """Let `wait` return."""
        # Asked, not remembered: a note of ours could be interrupted half-way, and no signal come.
        if self._gate.locked():
            self._gate.release()

    def reset(self) -> None:
        """Take back a signal for which nobody waits any more."""
        self._gate.acquire(blocking=False)

    def handed(self) -> list[Lease]:
        """Return what a put has handed over, as far as it still counts. Needs no lock."""
        # A put that was interrupted half-way may have left leases that nobody has entered.
        return [lease for lease in self.got if lease.is_held]

    def wait(self, timeout: float | None = None) -> bool:
        """Wait to be woken or cancelled, without the lock. False: `timeout` seconds are over."""
        # -1 is for ever; the operating system cannot count farther than a few centuries.
        seconds = -1 if timeout is None else min(max(timeout, 0.0), 1e6)
        return self._gate.acquire(timeout=seconds)


class Waiters:
    """The waiters of one group. False when nobody waits, which is all the hot path asks."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[Waiter] = deque()

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._queue)

    def __len__(self) -> int:
        """How many wait."""
        return len(self._queue)

    def enlist(self, waiter: Waiter) -> bool:
        """Let a waiter wait its turn; False if it was cancelled."""
        if waiter.cancelled:
            return False
        waiter.got = ()
        if waiter.woken:  # another one was quicker: its turn is still the next
            self._queue.appendleft(waiter)
        else:
            self._queue.append(waiter)
        return True

    def leave(self, waiter: Waiter) -> bool:
        """Take a waiter out; False if it is not there: it has been woken."""
        try:
            self._queue.remove(waiter)
        except ValueError:
            return False
        return True

    def first(self) -> Waiter | None:
        """Return the one who has waited longest."""
        self._forget_gone()
        return self._queue[0] if self._queue else None

    def _forget_gone(self) -> None:
        queue = self._queue
        while queue and queue[0].is_gone:
            queue.popleft()

    def put_back(self, waiter: Waiter) -> None:
        """Let a waiter that was taken out wait on, as the first."""
        if waiter not in self._queue:
            self._queue.appendleft(waiter)

    def wake(self, count: int = 1) -> None:
        """Wake those who have waited longest: `count` messages may have become ready."""
        queue = self._queue
        for _ in range(min(count, len(queue))):
            self._forget_gone()
            if not queue:
                return
            waiter = queue[0]
            waiter.woken = True
            waiter.signal()
            queue.popleft()  # last: interrupted here it is woken twice, and not never

    def wake_all(self) -> None:
        """Wake everybody."""
        self.wake(len(self._queue))
