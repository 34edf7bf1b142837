"""Feeds: readers outside that say how far they are, as Spark does, and what is held for them.

Knows: positions (groups without consumers), how long messages are held, what a reader may ask.
Does not know: SQL, who reads and why, offsets of Spark.

A reader's group is a position: its floor. Messages above it stay, whatever other groups do, until
the reader commits a later one, the group is removed, or they have been held for too long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec

from embedq.broker.changes import NewGroup
from embedq.broker.state import GroupState, QueueState
from embedq.errors import InvalidOption, MessagesGone
from embedq.names import check_group_name
from embedq.storage import feed
from embedq.storage.held import Advance, Hold, Lapse
from embedq.storage.ops import Op
from embedq.storage.writer import Task

if TYPE_CHECKING:
    from embedq.broker.desk import Desk
    from embedq.broker.engine import Engine
    from embedq.broker.registry import Registry

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

#: Seqs that a position passes in one commit: others are served between two.
STRETCH: Final = 5_000
#: Stretches of one round of the upkeep.
BATCHES: Final = 20
#: Bytes of a column in one answer: the host holds a few of these at a time.
PART_BYTES: Final = 4 << 20
#: Rows of one answer, whatever is asked for.
PART_ROWS: Final = 65_536


def in_turn(method: F) -> F:
    """Mark a call of which a host does one at a time, whoever asks.

    All connections of a process share SQLite's account of memory: two that build long values at
    once wait for it at each row, and take more CPU and no less time than one after the other.
    """
    method.__dict__["in_turn"] = True
    return method


class NewPosition(NewGroup):
    """Create a group that is a position, or change how long messages are held for it."""

    __slots__ = ("_hold_ms",)

    def __init__(
        self, registry: Registry, queue: QueueState, name: str, start: str, hold_ms: int
    ) -> None:
        super().__init__(registry, queue, name, start)
        self._hold_ms = hold_ms

    def prepare(self) -> Sequence[Op]:
        """Look again: consumers may have got the name meanwhile, and they keep it."""
        ops = super().prepare()
        known = found(self._queue, self._op.name)
        if known is not None and known.hold_ms is None:
            return ()
        return (*ops, Hold(self._op, self._hold_ms))

    def apply(self) -> None:
        """Add the group, or tell the one that is there."""
        super().apply()
        known = found(self._queue, self._op.name)
        if known is not None and self._op.row is not None:
            known.hold_ms = self._op.row.hold_ms


class Move(Task):
    """Move a position over a stretch of its queue."""

    __slots__ = ("_group", "op")

    alone = True  # what others settle in the same commit would be counted twice

    def __init__(self, group: GroupState, floor: int) -> None:
        super().__init__(64)
        self._group = group
        self.op = Advance(group.id, floor)

    def prepare(self) -> Sequence[Op]:
        """Return the operation, unless the group is gone or further already."""
        self.op.passed = self.op.removed = 0
        group = self._group
        if group not in group.queue.groups or group.floor >= self.op.floor:
            return ()
        return (self.op,)

    def apply(self) -> None:
        """Count, and let go what others have settled long ago."""
        group, queue = self._group, self._group.queue
        group.floor = max(group.floor, self.op.floor)
        group.settled += self.op.passed
        if self.op.removed:
            queue.removed(self.op.removed)
        for other in queue.groups:
            other.retired = 0  # what was passed over for this one's sake may go now


class LapseStretch(Task):
    """Remove retained messages of a stretch that only positions had to read."""

    __slots__ = ("_op", "_queue")

    def __init__(self, queue: QueueState, after: int, upto: int, cutoff: int) -> None:
        super().__init__(64)
        self._queue = queue
        self._op = Lapse(queue.id, after, upto, cutoff)

    def prepare(self) -> Sequence[Op]:
        """Return the operation."""
        return (self._op,)

    def apply(self) -> None:
        """Count."""
        if self._op.removed:
            self._queue.removed(self._op.removed)


class FeedOffice:
    """What a host answers to readers. Part of the office (office.py); plain values, as there."""

    _desk: Desk

    def feed_survey(self, of: feed.Feed) -> feed.Survey:
        """Return what a reader must know before it chooses what to read; see storage/feed.py."""
        return _read(self._desk, lambda db: feed.survey(db, of))

    @in_turn
    def feed_part(self, wanted: feed.Wanted, groups: list[int]) -> feed.Part:
        """Return the next part of a feed. Raises MessagesGone.

        `groups`: positions, by number, of which nothing after `wanted.after` may be missing.
        """
        bounded = msgspec.structs.replace(wanted, rows=min(max(wanted.rows, 1), PART_ROWS))

        def part(db: Any) -> feed.Part:  # noqa: ANN401  # a connection
            feed.check_held(db, groups, wanted.after)
            return feed.read(db, bounded, PART_BYTES)

        return _read(self._desk, part)

    def feed_first_since(self, of: feed.Feed, owners: list[int], since_ms: int) -> int | None:
        """Return the position of the first row put, closed or died at a time or later."""
        return _read(self._desk, lambda db: feed.first_since(db, of, tuple(owners), since_ms))

    def feed_nth_after(
        self, of: feed.Feed, owners: list[int], after: int, rows: int
    ) -> int | None:
        """Return the position of the row that is `rows` further; None: there are not so many."""
        return _read(self._desk, lambda db: feed.nth_after(db, of, tuple(owners), after, rows))

    def feed_register(
        self, queue: str, group: str, start: str = "beginning", max_hold_s: float | None = None
    ) -> int:
        """Return the number of a group that is a position, creating it if need be.

        `start`: where a new one begins, "beginning" or "end". `max_hold_s`: how long a message is
        held for it at most, in seconds since its put; None: for ever. The last call wins.
        Raises QueueNotFound, InvalidName, InvalidOption where the group has consumers.
        """
        desk = self._desk
        state = desk.existing_queue(queue)
        check_group_name(group)
        _check_start(start)
        hold_ms = 0 if max_hold_s is None else max(1, round(max_hold_s * 1000))
        known = found(state, group)
        if known is None or known.hold_ms not in {None, hold_ms}:
            desk.writer.run(NewPosition(desk, state, group, start, hold_ms))
            known = desk.existing_group(state, group)
        if known.hold_ms is None:
            raise InvalidOption(
                f"group {group!r} of queue {queue!r} has consumers: no position of a reader",
                hint="set the option `group` to another name",
                argument="group",
            )
        return known.id

    def feed_commit(self, queue: str, group: str, seq: int) -> None:
        """Move a position: everything up to `seq` has been read. An earlier one changes nothing.

        In parts; others are served between two. Raises QueueNotFound, GroupNotFound, MessagesGone
        for a seq that this database has never given out, InvalidOption for a group of consumers.
        """
        desk = self._desk
        state = desk.existing_group(desk.existing_queue(queue), group)
        if state.hold_ms is None:
            raise InvalidOption(
                f"group {group!r} of queue {queue!r} has consumers, who settle by themselves",
                argument="group",
            )
        last = desk.store.last_seq
        if seq > last:
            raise MessagesGone(
                f"group {group!r} of queue {queue!r} is to be moved to {seq}, and this database "
                f"ends at {last}: it is older than what was read",
            )
        move(desk, state, seq)


def found(queue: QueueState, name: str) -> GroupState | None:
    """Return a group of a queue, None if there is none of that name."""
    return next((group for group in queue.groups if group.name == name), None)


def move(engine: Engine, group: GroupState, seq: int) -> int:
    """Move a position up to `seq`, in parts; return how many messages it has passed."""
    passed = 0
    while group.floor < seq and group in group.queue.groups:
        task = Move(group, min(seq, _stretch_from(engine, group.queue, group.floor)))
        engine.writer.run(task)
        passed += task.op.passed
    return passed


def _stretch_from(engine: Engine, queue: QueueState, after: int) -> int:
    """Return where the next stretch ends; a long gap between seqs costs nothing."""
    following = engine.store.range(queue.id, after, 1)
    return (following[0].seq if following else engine.store.last_seq) + STRETCH - 1


def let_go(engine: Engine) -> None:
    """Move positions on that have held messages for too long. A chore of the upkeep."""
    for group in list(engine.groups()):
        if not group.hold_ms:
            continue
        store, cutoff = engine.store, engine.now_ms() - group.hold_ms
        upto = store.put_before(group.queue.id, group.floor, store.last_seq, cutoff)
        if upto is not None and (count := move(engine, group, upto)):
            queue, name = group.queue.name, group.name
            engine.events.emit("let_go", queue=queue, group=name, count=count, upto=upto)


def lapse(engine: Engine) -> None:
    """Remove what only positions have read and whose retention is over. A chore of the upkeep."""
    for queue in list(engine.queues.values()):
        position = next((group for group in queue.groups if group.hold_ms is not None), None)
        if queue.policy.retain_ms is None or position is None:
            continue
        cutoff = engine.now_ms() - queue.policy.retain_ms
        # Nothing is closed in a position: it remembers a seq there, and a move begins anew.
        read = min(group.floor for group in queue.groups)
        upto = engine.store.put_before(queue.id, position.retired, read, cutoff) or 0
        for _ in range(BATCHES):
            after = position.retired
            if after >= upto:
                break
            until = min(upto, _stretch_from(engine, queue, after))
            engine.writer.run(LapseStretch(queue, after, until, cutoff))
            position.retired = until


def _read(desk: Desk, question: Callable[[Any], T]) -> T:
    read = getattr(desk.store, "read", None)
    if read is None:
        raise InvalidOption(
            "a database in memory has no feeds", hint="open the Broker on a path", argument="path"
        )
    return cast("T", read(question))


def _check_start(start: str) -> None:
    if start not in {"beginning", "end"}:
        raise InvalidOption(
            f"start={start!r} is no place where a position can begin",
            hint='it is "beginning" or "end"',
            argument="start",
        )
