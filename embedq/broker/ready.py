"""The ready index of one group: which message comes next, without asking the store.

Knows: an order (priority, then seq), due times, ordering keys, suspects, and its own bounds.
Does not know: SQL, leases' deadlines, locks. Everything here happens under the writer's lock.

Plain waiting messages are seqs in a deque for each priority: either the deque holds all that
wait ("live"), or it holds the first ones and the store has the rest, in chunks loaded as the
deque runs empty. So five million waiting messages cost as much memory as twenty thousand.
Messages that are more than a seq (delivered before, with a key, waiting for a time) have an
Entry. A message is in at most one place: a stream, `returned`, a timeline, the tail, a lease.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable

from embedq.broker.entry import Entry
from embedq.broker.timeline import Tail, Timeline
from embedq.limits import LIMITS
from embedq.storage.rows import Chunk, DueChunk, Waiting
from embedq.storage.tail import is_place, priority_of

LEVELS = LIMITS.priority_max + 1


class Stream:
    """The waiting messages of one priority: the first ones in `head`, in seq order.

    Everything up to `after` has passed through memory; `live`: nothing waits in the store.
    """

    __slots__ = ("after", "head", "live")

    def __init__(self, after: int) -> None:
        self.head: deque[int] = deque()
        self.after = after
        self.live = False


class ReadyIndex:
    """Who comes next in one group. `find_key` asks the store for the head of an ordering key."""

    def __init__(
        self,
        floor: int,
        *,
        head_max: int,
        find_key: Callable[[str, int], Waiting | None],
    ) -> None:
        self._head_max = head_max
        self._find_key = find_key
        self.generation = 0
        self.reset(floor)

    def reset(self, floor: int) -> None:
        """Forget everything; what waits will be loaded again from `floor` on."""
        self.generation += 1
        self.streams = [Stream(floor) for _ in range(LEVELS)]
        self.returned: list[list[int]] = [[] for _ in range(LEVELS)]
        self.entries: dict[int, Entry] = {}
        self.keys: dict[str, int] = {}  # ordering key -> the one message of it that may move
        self.suspects: list[int] = []  # delivered when their host died: one at a time
        self.suspect_out = False
        self.delayed = Timeline(self._head_max)
        self.retries = Timeline(self._head_max)
        self.held = Timeline(None)  # with a key: always in memory, or the key would be stuck
        self.tail = Tail(self._head_max)  # put behind all that waited then
        self.top = LEVELS - 1  # no priority above it has anything
        self._gone: set[int] | None = None  # settled while a chunk is being read

    # ------------------------------------------------------------------------- arrivals

    def put_plain(self, first: int, count: int) -> None:
        """Take in plain messages that were just stored."""
        stream = self.streams[0]
        if stream.live:
            head = stream.head
            if len(head) + count > self._head_max:
                stream.live = False
                stream.after = first - 1
            elif count == 1:
                head.append(first)
            else:
                head.extend(range(first, first + count))

    def put_row(
        self,
        seq: int,
        priority: int,
        due: int | None,
        key: str | None,
        max_attempts: int | None,
        now: int,
    ) -> None:
        """Take in one message of any kind that was just stored."""
        if key is None and due is not None:
            self._park(self.delayed, due, seq, Entry(priority, max_attempts=max_attempts))
            return
        stream = self.streams[priority]
        self.top = max(self.top, priority)
        if not stream.live or (key is not None and key in self.keys):
            return  # it is found in the store when its turn comes
        # Where memory has not looked an earlier message of the key may wait: loading finds out.
        unsure = key is not None and not all(other.live for other in self.streams)
        if unsure or len(stream.head) >= self._head_max:
            stream.live = False
            stream.after = seq - 1
            return
        if key is not None:
            self.keys[key] = seq
            entry = Entry(priority, key=key, max_attempts=max_attempts)
            if due is not None and due > now:
                self._park(self.held, due, seq, entry)
                return
            self.entries[seq] = entry
        stream.head.append(seq)

    def give_back(self, seq: int, entry: Entry) -> None:
        """Make a message ready again, at its old place."""
        self.entries[seq] = entry
        heapq.heappush(self.returned[entry.priority], seq)
        self.top = max(self.top, entry.priority)

    def retry_at(self, due: int, seq: int, entry: Entry) -> None:
        """Make a message wait for its next attempt."""
        timeline = self.retries if entry.key is None else self.held
        self._park(timeline, due, seq, entry)

    def to_tail(self, due: int, seq: int, entry: Entry) -> None:
        """Make a message ready again behind others; `due` is its place, see storage/tail.py."""
        self._park(self.tail, due, seq, entry)
        self.top = max(self.top, priority_of(due))

    def suspect(self, seq: int, entry: Entry) -> None:
        """Make a message wait that was being delivered when its host or worker died."""
        entry.suspect = True
        self.entries[seq] = entry
        heapq.heappush(self.suspects, seq)

    def _park(self, timeline: Timeline, due: int, seq: int, entry: Entry) -> None:
        if timeline.covers(due, seq):
            self.entries[seq] = entry
            for far in timeline.add(due, seq):
                del self.entries[far]
        else:
            timeline.pass_by(due, seq)

    # ------------------------------------------------------------------------- takings

    def take(self, most: int, now: int) -> tuple[list[int], list[tuple[int, Entry]], list[int]]:
        """Remove and return what comes next: fresh plain seqs, others with their entries, order.

        Fewer than `most` may come although more wait, unless `hungry` found nothing to load.
        The order is that of all seqs together; it may be left empty when all of them are fresh.
        """
        fresh: list[int] = []
        others: list[tuple[int, Entry]] = []
        order: list[int] = []
        self.promote(now)
        if self.top == 0 and not self.entries:
            head = self.streams[0].head
            return [head.popleft() for _ in range(min(most, len(head)))], others, order
        if self.suspects and not self.suspect_out:
            seq = heapq.heappop(self.suspects)
            others.append((seq, self.entries.pop(seq)))
            order.append(seq)
            self.suspect_out = True
        for level in range(self.top, -1, -1):
            self._merge(level, most - len(order), order, fresh, others)
            stream = self.streams[level]
            left = stream.head or self.returned[level] or not stream.live
            if left or self.tail.holds_up(level):
                break  # enough, or the store must be asked before a lower priority's turn
            if level == self.top and level:
                self.top -= 1
        return fresh, others, order

    def take_plain(self, now: int) -> int | None:
        """Take the next message as `take` would, if only plain ones are about; else None."""
        head = self.streams[0].head
        # Whatever came back, waits for a time in memory or is a suspect has an entry, too.
        if self.top or self.entries or not head:
            return None
        late = self.delayed.needs_load(now) or self.retries.needs_load(now)
        return None if late or not self.tail.complete else head.popleft()

    def _merge(
        self,
        level: int,
        wanted: int,
        order: list[int],
        fresh: list[int],
        others: list[tuple[int, Entry]],
    ) -> None:
        head = self.streams[level].head
        back = self.returned[level]
        tail = self.tail
        for _ in range(wanted):
            place = tail.place(level) if tail.heap else None
            came_back = back and (not head or back[0] < head[0])
            first = back[0] if came_back else head[0] if head else None
            if place is not None and (first is None or place < first):
                seq = tail.pop()
            elif first is None or tail.is_unread:
                return  # nothing, or the store knows what comes next
            else:
                seq = heapq.heappop(back) if came_back else head.popleft()
            order.append(seq)
            entry = self.entries.pop(seq, None)
            if entry is not None:
                others.append((seq, entry))
            elif level:
                # A fresh message of some priority: its lease must know it, should it come back.
                others.append((seq, Entry(level)))
            else:
                fresh.append(seq)

    def promote(self, now: int) -> int:
        """Make messages ready whose time has come; return how many."""
        promoted = 0
        for timeline in (self.delayed, self.retries, self.held):
            while timeline.heap:
                seq = timeline.pop_due(now)
                if seq is None:
                    break
                entry = self.entries[seq]
                heapq.heappush(self.returned[entry.priority], seq)
                self.top = max(self.top, entry.priority)
                promoted += 1
        return promoted

    def discard(self, seq: int) -> str | None:
        """Take out a message that is settled otherwise; return the ordering key it blocked.

        Looks through everything in memory: for rare moves only.
        """
        if self._gone is not None:
            self._gone.add(seq)
        entry = self.entries.pop(seq, None)
        for stream in self.streams:
            if stream.head and stream.head[0] == seq:
                stream.head.popleft()
            elif seq in stream.head:
                stream.head.remove(seq)
        for heap in (*self.returned, self.suspects):
            if seq in heap:
                heap.remove(seq)
                heapq.heapify(heap)
        for timeline in (self.delayed, self.retries, self.held, self.tail):
            timeline.discard(seq)
        return None if entry is None else entry.key

    # ------------------------------------------------------------------------- loading

    def hungry(self, most: int, now: int) -> int | Timeline | None:
        """Return what must be loaded before `take` can find the next `most` messages.

        A priority (its stream), a timeline, or None.
        """
        self.promote(now)  # or what is in memory would hide that more is due
        for timeline in (self.delayed, self.retries):
            # Bounded by what is ready: what waits for a later time must not hold up the others.
            if timeline.needs_load(now) and sum(map(len, self.returned)) < self._head_max:
                return timeline
        tail = self.tail
        if not tail.complete and len(tail.heap) < min(most, self._head_max):
            return tail
        found = 0  # the tail is left out: at worst more is loaded than needed
        for level in range(self.top, -1, -1):
            stream = self.streams[level]
            found += len(stream.head)
            back = self.returned[level]
            if stream.live:
                found += len(back)
            elif found < most:
                # What comes back from beyond `after` must wait for those before it.
                found += sum(seq <= stream.after for seq in back)
            if found >= most:
                return None
            if not stream.live:
                return level
        return None

    def begin_load(self) -> None:
        """A chunk is going to be read, without the lock: see to what happens meanwhile."""
        self._gone = set()

    def load(self, level: int, chunk: Chunk, last: int, admit: Callable[[Waiting], None]) -> None:
        """Take in a chunk of a stream. `last`: nothing of the queue has a higher seq.

        `admit` decides about each message that is not plain and fresh.
        """
        stream = self.streams[level]
        if chunk.fresh and level and self.top < level:
            self.top = level
        known, gone = self.entries, self._gone or ()
        if known or gone:
            # What memory has was given back after a rebuild.
            fresh = [seq for seq in chunk.fresh if seq not in known and seq not in gone]
            stream.head.extend(fresh)
        else:
            stream.head.extend(chunk.fresh)
        self._admit(chunk.others, admit)
        stream.after = chunk.after
        stream.live = chunk.after >= last

    def load_due(
        self, timeline: Timeline, chunk: DueChunk, admit: Callable[[Waiting], None]
    ) -> None:
        """Take in a chunk of a timeline."""
        timeline.loaded(chunk.after, complete=chunk.complete)
        self._admit([w for w in chunk.rows if timeline.covers(w.due or 0, w.seq)], admit)

    def _admit(self, found: list[Waiting], admit: Callable[[Waiting], None]) -> None:
        gone, self._gone = self._gone or (), None
        for waiting in found:
            # Of a key the store is asked again who is the first.
            if waiting.seq not in gone or waiting.key is not None:
                admit(waiting)

    def place(self, waiting: Waiting, entry: Entry, now: int) -> None:
        """Put a loaded message where it belongs."""
        if waiting.seq in self.entries:
            return
        if is_place(waiting.due) and waiting.due is not None and entry.key is None:
            self.to_tail(waiting.due, waiting.seq, entry)
        elif waiting.due is not None and waiting.due > now:
            if entry.key is not None:
                timeline = self.held
            else:
                timeline = self.delayed if waiting.touched is None else self.retries
            self._park(timeline, waiting.due, waiting.seq, entry)
        else:
            self.give_back(waiting.seq, entry)

    # ------------------------------------------------------------------- ordering keys

    def open_key(self, key: str, after: int = 0) -> Waiting | None:
        """Let the first message of a key move; None if there is none, or one moves already."""
        if key in self.keys:
            return None
        head = self._find_key(key, after)
        if head is not None:
            self.keys[key] = head.seq
        return head

    def close_key(self, key: str, seq: int) -> Waiting | None:
        """The message that moved is settled: let the next one of its key move."""
        if self.keys.get(key) != seq:
            return None
        del self.keys[key]
        return self.open_key(key, seq)

    # --------------------------------------------------------------------------- bounds

    def floor(self, last: int, leased: int | None) -> int | None:
        """Return a seq up to which nothing waits, None if memory cannot tell.

        `leased` is the lowest seq with a lease. Used to start the next opening's search later.
        """
        if not (self.delayed.complete and self.retries.complete and self.tail.complete):
            return None
        lowest = last + 1
        for stream in self.streams:
            if stream.head:
                lowest = min(lowest, stream.head[0])
            if not stream.live:
                lowest = min(lowest, stream.after + 1)
        if self.entries:
            lowest = min(lowest, *self.entries)
        if leased is not None:
            lowest = min(lowest, leased)
        return lowest - 1

    @property
    def has_ready(self) -> bool:
        """Whether something in memory could be taken now, apart from what a suspect holds up."""
        if self.suspects and not self.suspect_out:
            return True
        if self.tail.heap:
            return True
        return any(stream.head for stream in self.streams) or any(self.returned)

    def next_due(self) -> int | None:
        """Return when a waiting message may become ready (ms), None for never."""
        times = [
            due
            for due in (self.delayed.next_due(), self.retries.next_due(), self.held.next_due())
            if due is not None
        ]
        return min(times, default=None)
