"""A ready index and a store that it does not know: whatever happens, it hands out what it must.

Knows: which messages wait, which of them may be delivered now and in which order, from a plain
list; how chunks are read while others go on.
Does not know: SQL, the engine, how the index finds what it hands out.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from embedq.broker.entry import Entry
from embedq.broker.ready import ReadyIndex
from embedq.broker.timeline import Timeline
from embedq.storage import tail
from embedq.storage.rows import Chunk, DueChunk, Touched, Waiting

HEAD_MAX = 2
CHUNK = 2
MOST = 4
FAR = 1_000

#: What is put together: (priority, delay, ordering key) of each message.
ROWS = st.lists(
    st.tuples(
        st.sampled_from([0, 2]),
        st.sampled_from([None, None, 1, 4, 8]),
        st.sampled_from([None, None, "a", "a", *"bcdefgh"]),
    ),
    min_size=1,
    max_size=5,
)


@dataclass
class Message:
    """A message that the group has not settled."""

    seq: int
    priority: int
    due: int | None
    key: str | None
    attempt: int = 0
    retry: int | None = None
    leased: Entry | None = None
    place: int | None = None

    @property
    def at(self) -> int:
        """What it sorts by within its priority."""
        return self.seq if self.place is None else self.place

    @property
    def tail_due(self) -> int:
        return tail.due_of(self.priority, self.place or 0)

    @property
    def time(self) -> int | None:
        """When it becomes deliverable."""
        return self.due if self.attempt == 0 else self.retry

    def waiting(self) -> Waiting:
        touched = None
        if self.attempt:
            touched = Touched(self.seq, self.attempt, 0, 1, 1, False, self.retry)
        time = self.time if self.place is None else self.tail_due
        return Waiting(self.seq, self.priority, self.key, time, None, touched)


class ReadyMachine(RuleBasedStateMachine):
    """The rules. `index` may be replaced by one with a planted fault."""

    index_type: type[ReadyIndex] = ReadyIndex

    def __init__(self) -> None:
        super().__init__()
        self.messages: dict[int, Message] = {}
        self.now = 10
        self.last = 0
        self.reading: tuple[int | Timeline, Chunk | DueChunk] | None = None
        self.index = self.index_type(0, head_max=HEAD_MAX, find_key=self.first_of_key)

    # ------------------------------------------------------------------- the store

    def first_of_key(self, key: str, after: int) -> Waiting | None:
        found = [m for m in self.messages.values() if m.key == key and m.seq > after]
        return min(found, key=lambda m: m.seq).waiting() if found else None

    def chunk(self, level: int, after: int) -> Chunk:
        found = [
            m
            for m in self.messages.values()
            if m.priority == level and m.seq > after and m.place is None
            if m.key is not None or m.time is None
        ][:CHUNK]
        fresh = [m.seq for m in found if m.key is None and m.attempt == 0 and m.leased is None]
        others = [m.waiting() for m in found if m.seq not in fresh]
        return Chunk(fresh, others, found[-1].seq if len(found) == CHUNK else self.last)

    def tail_chunk(self, after: tuple[int, int]) -> DueChunk:
        found = sorted(
            (m.tail_due, m.seq)
            for m in self.messages.values()
            if m.place is not None and m.leased is None and (m.tail_due, m.seq) > after
        )
        part = found[:CHUNK]
        rows = [self.messages[seq].waiting() for _, seq in part]
        return DueChunk(rows, part[-1] if part else after, len(found) <= CHUNK)

    def due_chunk(self, *, retries: bool, after: tuple[int, int]) -> DueChunk:
        found = sorted(
            (m.time, m.seq)
            for m in self.messages.values()
            if m.key is None and m.leased is None and m.time is not None and m.place is None
            if (m.attempt > 0) == retries and (m.time, m.seq) > after
        )
        part = found[:CHUNK]
        rows = [self.messages[seq].waiting() for _, seq in part]
        return DueChunk(rows, part[-1] if part else after, len(found) <= CHUNK)

    # ----------------------------------------------------------------- arrivals

    @rule(count=st.integers(1, 5))
    def put_plain(self, count: int) -> None:
        first = self.last + 1
        for seq in range(first, first + count):
            self.messages[seq] = Message(seq, 0, None, None)
        self.last += count
        self.index.put_plain(first, count)

    @rule(rows=ROWS)
    def put_rows(self, rows: list[tuple[int, int | None, str | None]]) -> None:
        for priority, delay, key in rows:
            self.last += 1
            due = None if delay is None else self.now + delay
            self.messages[self.last] = Message(self.last, priority, due, key)
            self.index.put_row(self.last, priority, due, key, None, self.now)

    # ------------------------------------------------------------------ loading

    @precondition(lambda self: self.reading is None)
    @rule(most=st.integers(1, MOST))
    def read(self, most: int) -> None:
        """Read what is wanted; it is taken in later."""
        wanted = self.index.hungry(most, self.now)
        if wanted is None:
            return
        self.index.begin_load()
        chunk: Chunk | DueChunk
        if wanted is self.index.tail:
            chunk = self.tail_chunk(self.index.tail.request())
        elif isinstance(wanted, Timeline):
            retries = wanted is self.index.retries
            chunk = self.due_chunk(retries=retries, after=wanted.request())
        else:
            chunk = self.chunk(wanted, self.index.streams[wanted].after)
        self.reading = (wanted, chunk)

    @precondition(lambda self: self.reading is None)
    @rule(rows=ROWS, picks=st.lists(st.integers(0, 99), max_size=3))
    def read_while_others_go_on(
        self, rows: list[tuple[int, int | None, str | None]], picks: list[int]
    ) -> None:
        self.read(MOST)
        self.put_rows(rows)
        for pick in picks:
            self.settle_by_id(pick)
        if self.reading is not None:
            self.take_in()

    @precondition(lambda self: self.reading is not None)
    @rule()
    def take_in(self) -> None:
        assert self.reading is not None
        (wanted, chunk), self.reading = self.reading, None
        if isinstance(chunk, Chunk):
            assert isinstance(wanted, int)
            self.index.load(wanted, chunk, self.last, self.admit)
        else:
            assert isinstance(wanted, Timeline)
            self.index.load_due(wanted, chunk, self.admit)

    def admit(self, waiting: Waiting) -> None:
        if waiting.key is not None:
            head = self.index.open_key(waiting.key)
            if head is None:
                return
            waiting = head
        message = self.messages.get(waiting.seq)
        if message is None or message.leased is not None or waiting.seq in self.index.entries:
            return
        touched = waiting.touched
        entry = Entry(waiting.priority, touched.attempt if touched else 0, 0, waiting.key)
        self.index.place(waiting, entry, self.now)

    def load_all(self, most: int) -> None:
        for _ in range(FAR):
            if self.reading is not None:
                self.take_in()
            elif self.index.hungry(most, self.now) is None:
                return
            else:
                self.read(most)
        raise AssertionError("loading makes no progress")

    # ------------------------------------------------------------------ takings

    def ready(self) -> list[int]:
        """Return what may be delivered now, in order."""
        blocked: set[str] = set()
        found = []
        for message in self.messages.values():  # in seq order
            first_of_key = message.key is None or message.key not in blocked
            if message.key is not None:
                blocked.add(message.key)
            late = message.place is None and (message.time or 0) > self.now
            if first_of_key and message.leased is None and not late:
                found.append((-message.priority, message.at, message.seq))
        return [seq for _, _, seq in sorted(found)]

    @rule(most=st.integers(1, MOST))
    def claim(self, most: int) -> None:
        """Load what is wanted, then take: the order must be the right one."""
        if self.index.hungry(most, self.now) is not None and self.reading is not None:
            self.take_in()
        self.load_all(most)
        expected = self.ready()
        full = sum(map(len, self.index.returned)) >= HEAD_MAX
        fresh, others, order = self.index.take(most, self.now)
        taken = order or fresh
        assert sorted(taken) == sorted([*fresh, *(seq for seq, _ in others)])
        if full:  # more of what is due is loaded when some of it is gone
            assert set(taken) <= set(expected)
        else:
            # What the tail has in the store only is loaded by the next claim.
            assert taken == expected[: len(taken)]
            assert len(taken) == min(most, len(expected)) or self.index.tail.is_unread
        entries = dict(others)
        for seq in taken:
            self.messages[seq].leased = entries.get(seq) or Entry()
            self.messages[seq].place = None

    @rule()
    def claim_one_plain(self) -> None:
        """The short way gives the message that is next, or changes nothing."""
        seq = self.index.take_plain(self.now)
        if seq is not None:
            assert seq == self.ready()[0]
            self.messages[seq].leased = Entry()

    def leased(self, pick: int) -> Message | None:
        out = [m for m in self.messages.values() if m.leased is not None]
        return out[pick % len(out)] if out else None

    # -------------------------------------------------------------------- endings

    def settled(self, message: Message) -> None:
        del self.messages[message.seq]
        if message.key is None:
            return
        head = self.index.close_key(message.key, message.seq)
        if head is not None:
            del self.index.keys[message.key]
            self.admit(head)

    @rule(pick=st.integers(0, 99))
    def ack(self, pick: int) -> None:
        message = self.leased(pick)
        if message is not None:
            self.settled(message)

    @rule(pick=st.integers(0, 99))
    def release(self, pick: int) -> None:
        message = self.leased(pick)
        if message is not None and message.leased is not None:
            entry, message.leased = message.leased, None
            self.index.give_back(message.seq, entry)

    @rule(delay=st.integers(0, 9), most=st.integers(1, 9))
    def fail(self, delay: int, most: int) -> None:
        out = [m for m in self.messages.values() if m.leased is not None]
        for message in out[:most]:
            entry, message.leased = message.leased or Entry(), None
            message.attempt += 1
            entry.attempt += 1
            message.retry = self.now + delay
            self.index.retry_at(message.retry, message.seq, entry)

    @rule(picks=st.lists(st.integers(0, 99), min_size=1, max_size=5), counts=st.booleans())
    def to_tail(self, picks: list[int], *, counts: bool) -> None:
        for pick in picks:
            message = self.leased(pick)
            if message is None or message.leased is None or message.key is not None:
                continue
            entry, message.leased = message.leased, None
            if counts:
                message.attempt += 1
                entry.attempt += 1
            self.last += 1
            message.place, message.retry = self.last, None
            self.index.to_tail(message.tail_due, message.seq, entry)

    @rule(pick=st.integers(0, 99))
    def settle_by_id(self, pick: int) -> None:
        """End a message that waits, wherever it is."""
        waiting = [m for m in self.messages.values() if m.leased is None]
        if waiting:
            message = waiting[pick % len(waiting)]
            assert self.index.discard(message.seq) in {message.key, None}
            self.settled(message)

    @rule(seconds=st.integers(1, 4))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @rule(picks=st.lists(st.integers(0, 99), max_size=2))
    def rebuild(self, picks: list[int]) -> None:
        """A commit was interrupted: memory starts again, the leases stay. Some are released."""
        self.reading = None
        self.index.reset(0)
        for message in self.messages.values():
            if message.leased is not None and message.key is not None:
                self.index.keys[message.key] = message.seq
        for pick in picks:
            self.release(pick)

    # ----------------------------------------------------------------- what must hold

    @invariant()
    def memory_is_bounded_and_the_floor_is_below_what_waits(self) -> None:
        leased = [m.seq for m in self.messages.values() if m.leased is not None]
        floor = self.index.floor(self.last, min(leased, default=None))
        assert floor is None or all(floor < seq for seq in self.messages)
        for stream in self.index.streams:
            assert len(stream.head) <= MOST - 1 + CHUNK  # what a claim wanted was not there
        for timeline in (self.index.delayed, self.index.retries, self.index.tail):
            assert len(timeline.heap) <= 2 * HEAD_MAX

    def teardown(self) -> None:
        """Whatever is left comes, each message once, when there is time enough."""
        self.now += FAR
        for _ in range(FAR):
            self.claim(MOST)
            out = [m for m in self.messages.values() if m.leased is not None]
            if not out:
                break
            for message in out:
                self.settled(message)
        assert not self.messages, "messages wait that never come"
