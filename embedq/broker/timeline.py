"""Messages that become deliverable at a time: the nearest in memory, the rest in the store.

Knows: an order by (due, seq) and how far memory reaches along it.
Does not know: why a message waits, the store, the clock.
"""

from __future__ import annotations

import heapq

from embedq.storage import tail

Position = tuple[int, int]

#: Before every (due, seq) there is.
START: Position = (-1, -1)


class Timeline:
    """A heap. Everything up to `after` is or was in it; `complete`: everything at all.

    `most` bounds it: it never holds more than twice as many. None: everything stays in memory.
    """

    __slots__ = ("_most", "_passed", "after", "complete", "heap")

    def __init__(self, most: int | None, after: Position = START) -> None:
        self.heap: list[Position] = []
        self.after = after
        self.complete = most is None
        self._most = most
        self._passed: Position | None = None

    def covers(self, due: int, seq: int) -> bool:
        """Whether a message that waits until `due` belongs into memory now."""
        return self.complete or (due, seq) <= self.after

    def pass_by(self, due: int, seq: int) -> None:
        """Note a message that went into the store only: a chunk being read may lack it."""
        if self._passed is None or (due, seq) < self._passed:
            self._passed = (due, seq)

    def add(self, due: int, seq: int) -> list[int]:
        """Take a message in; return those that had to make room (they stay in the store)."""
        heapq.heappush(self.heap, (due, seq))
        if self._most is None or len(self.heap) <= 2 * self._most:
            return []
        self.heap.sort()
        far = self.heap[self._most :]
        del self.heap[self._most :]
        self.after = self.heap[-1]
        self.complete = False
        return [seq for _, seq in far]

    def request(self) -> Position:
        """Begin to read the store; return from where on."""
        self._passed = None
        return self.after

    def loaded(self, after: Position, *, complete: bool) -> None:
        """Note how far the store has been read since `request`, as far as that still holds."""
        if self._passed is not None:
            due, seq = self._passed
            after = min(after, (due, seq - 1))
            complete = False
        self.after = max(self.after, after)
        self.complete = complete

    def pop_due(self, now: int) -> int | None:
        """Return a message whose time has come, None if there is none in memory."""
        if self.heap and self.heap[0][0] <= now:
            return heapq.heappop(self.heap)[1]
        return None

    def discard(self, seq: int) -> None:
        """Take out a message that is settled otherwise."""
        kept = [position for position in self.heap if position[1] != seq]
        if len(kept) != len(self.heap):
            heapq.heapify(kept)
            self.heap = kept

    def needs_load(self, now: int) -> bool:
        """Whether messages whose time has come may still be in the store only."""
        return not self.complete and self.after[0] <= now and not self.heap

    def next_due(self) -> int | None:
        """Return when something may become due (ms), None for never."""
        if self.heap:
            return self.heap[0][0]
        return None if self.complete else max(self.after[0], 0)


class Tail(Timeline):
    """What was put behind all that waited: a timeline of places instead of times.

    Its positions sort by priority, then place (storage/tail.py). A place compares with seqs: what
    has a lower seq was put before it, what has a higher one after it.
    """

    __slots__ = ()

    def __init__(self, most: int) -> None:
        super().__init__(most, tail.START)

    @property
    def is_unread(self) -> bool:
        """Whether only the store can tell what comes first."""
        return not self.complete and not self.heap

    def place(self, level: int) -> int | None:
        """Return the place of the first message, if it is of this priority. There is one."""
        due = self.heap[0][0]
        return tail.place_of(due) if tail.priority_of(due) == level else None

    def holds_up(self, level: int) -> bool:
        """Whether something of this priority comes before anything of a lower one."""
        return self.place(level) is not None if self.heap else not self.complete

    def pop(self) -> int:
        """Take the first message."""
        return heapq.heappop(self.heap)[1]
