"""Queues and groups as the host holds them in memory.

Knows: their settings, counts and members, and how counts follow from what was committed.
Does not know: SQL, who asks, when something is stored.

Everything here changes under the writer's lock only.
"""

from __future__ import annotations

from _thread import allocate_lock

from embedq.broker.leases import Lease
from embedq.broker.ready import ReadyIndex
from embedq.broker.waiting import Waiters
from embedq.policy import QueuePolicy
from embedq.storage import reentry
from embedq.storage.ops import PutPlain
from embedq.storage.port import Store
from embedq.storage.rows import GroupRow, QueueRow


class QueueState:
    """A queue. `stored` counts messages in the store, `dead` its dead letters.

    `last`: no message of the queue has a higher seq.
    """

    __slots__ = (
        "attended",
        "dead",
        "groups",
        "id",
        "large",
        "last",
        "name",
        "paused",
        "policy",
        "puts",
        "space",
        "stored",
        "taken",
        "untidy",
    )

    def __init__(self, row: QueueRow) -> None:
        self.id = row.id
        self.name = row.name
        self.policy: QueuePolicy = row.policy
        self.paused = row.paused
        self.stored = row.stored
        self.dead = row.dead
        self.last = row.last
        #: Bodies are read outside the lock: some are so large that others would notice.
        self.large = False
        self.groups: list[GroupState] = []
        self.puts = 0  # messages stored since the host opened
        self.space = Waiters()  # puts that wait for room, where max_length bounds the queue
        self.untidy = False  # there may be messages that every group has settled
        self.taken = 0  # places that puts of the commit under way have taken
        #: Somebody may wait for messages: a put has to look. Without the lock it is a hint.
        self.attended = False

    def __repr__(self) -> str:
        """Show the name and the counts."""
        return f"<Queue {self.name!r}: {self.stored} stored, {self.dead} dead>"

    def put_applied(self, op: PutPlain) -> None:
        """Count plain messages that were just stored and offer them to every group."""
        count, first = op.count, op.first
        self.stored += count
        self.last = first + count - 1
        self.puts += count
        for group in self.groups:
            group.index.put_plain(first, count)
            if group.waiters:
                group.waiters.wake(count)

    def removed(self, count: int) -> None:
        """Note that messages left that every group had settled."""
        self.stored -= count
        for group in self.groups:
            group.settled -= count
        if self.space:
            self.space.wake(count)


class GroupState:
    """A consumer group: its ready index, its leases, and `settled`, which it is done with."""

    __slots__ = (
        "acked",
        "alone",
        "delivered",
        "filled_in",
        "floor",
        "hold_ms",
        "id",
        "index",
        "leases",
        "loader",
        "loading",
        "most",
        "name",
        "queue",
        "retired",
        "settled",
        "waiters",
    )

    def __init__(self, row: GroupRow, queue: QueueState, store: Store, head_max: int) -> None:
        self.id = row.id
        self.name = row.name
        self.queue = queue
        self.floor = row.floor
        #: Of a position (feeds.py): how long messages are held for it (ms), 0: for ever. None: the
        #: group has consumers.
        self.hold_ms = row.hold_ms
        self.settled = row.settled
        self.retired = 0  # closing number up to which retained messages have been looked at
        self.leases: dict[int, Lease] = {}
        self.waiters = Waiters()
        #: Attempts of a message that does not say, where a consumer has its own bound.
        self.most: int | None = None
        self.alone = False  # a suspect is out beside which nothing else may run
        #: The latest commit with a put of which something waits, and not in the index yet.
        self.filled_in = 0
        self.delivered = 0  # since the host opened
        self.acked = 0
        #: Held by the one who loads, so that others wait for the chunk instead of reading it too.
        self.loading = allocate_lock()
        self.loader = reentry.mine()
        self.index = ReadyIndex(
            row.floor,
            head_max=head_max,
            find_key=lambda key, after: store.next_of_key(row.id, key, after),
        )

    @property
    def waiting(self) -> int:
        """Messages that the group has neither settled nor leased, delayed ones included."""
        return self.queue.stored - self.settled - len(self.leases)

    def __repr__(self) -> str:
        """Show the names and what waits."""
        return f"<Group {self.queue.name!r}/{self.name!r}: {self.waiting} waiting>"

    @property
    def max_attempts(self) -> int:
        """How many attempts there may be of a message that does not say; 0 is endless."""
        return self.queue.policy.max_attempts if self.most is None else self.most

    @property
    def is_sole(self) -> bool:
        """Whether an ack removes the message: no other group, nothing retained."""
        return len(self.queue.groups) == 1 and self.queue.policy.retain_ms is None

    def count_settled(self, count: int, removed: int) -> None:
        """Note that the group is done with messages, some of which thereby left the store."""
        self.settled += removed if self.is_sole else count
        if removed:
            self.queue.removed(removed)

    def hold(self, lease: Lease) -> None:
        """Enter a lease that counts, and what it blocks."""
        self.leases[lease.seq] = lease
        if lease.is_suspect:
            self.index.suspect_out = True
        key = lease.key
        if key is not None:
            self.index.keys[key] = lease.seq

    def end(self, lease: Lease) -> None:
        """Take a lease out of the table."""
        self.leases.pop(lease.seq, None)
        if lease.is_suspect:
            self.suspect_ended()
        elif self.index.suspects:
            self.waiters.wake()  # one may have waited for the last of the others to end

    def suspect_ended(self) -> None:
        """Let the next message run that may have ended its host."""
        self.index.suspect_out = False
        if self.alone:
            self.alone = False
            self.waiters.wake_all()
        elif self.waiters:
            self.waiters.wake()

    def room_beside_suspects(self, most: int) -> int:
        """Return how many of `most` messages may be taken now, given the suspects (P5).

        A suspect that one more crash would end runs alone in its group: so what is dead for its
        crashes has been alone at the last of them, and no killer takes a neighbour with it.
        """
        if self.alone:
            if self.leases:
                return 0
            self.alone = False
        if not self.suspect_may_run:
            return most
        if not self._has_last_chance(self.index.suspects[0]):
            return most
        if self.leases:
            return 0
        self.alone = True
        return 1

    @property
    def suspect_may_run(self) -> bool:
        """Whether it is the turn of a suspect."""
        index = self.index
        return bool(index.suspects) and not index.suspect_out

    def _has_last_chance(self, seq: int) -> bool:
        """Whether one more crash would be its end. One that is at its end is not run at all."""
        entry = self.index.entries[seq]
        most = self.max_attempts if entry.max_attempts is None else entry.max_attempts
        crashes_left = (self.queue.policy.max_crashes or entry.crashes + 2) - entry.crashes
        attempts_left = (most or entry.attempt + 2) - entry.attempt
        return min(crashes_left, attempts_left) == 1

    def rebuild(self, open_deliveries: dict[int, int]) -> None:
        """Start again from what the store has; leases it does not know are gone."""
        known = self.leases
        self.leases = {}
        self.alone = False
        self.index.reset(self.floor)
        for seq, lease in known.items():
            if open_deliveries.get(seq) == lease.counter:
                self.hold(lease)
        self.waiters.wake_all()
