"""Puts as tasks: a message that meets a waiting consumer is leased to it in the same commit.

Knows: when nothing comes before a message that is being put, and who then gets it.
Does not know: how claims find messages, how commits are grouped, why somebody waits.

Without a waiter a put offers its messages to the ready index of each group. With one, and with
nothing ready before them, they go to those who have waited longest: what a claim right after the
put would have done, for one commit less and without reading the body (docs/decisions/0013).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from embedq.broker import settling
from embedq.broker.entry import Entry
from embedq.broker.handover import LARGE
from embedq.broker.leases import Lease
from embedq.broker.state import GroupState, QueueState
from embedq.broker.waiting import Waiter, Waiters
from embedq.storage.ops import Op, PutPlain, PutRows, Start
from embedq.storage.rows import Row, Stored
from embedq.storage.writer import Task

if TYPE_CHECKING:
    from embedq.broker.engine import Engine


def is_next(engine: Engine, group: GroupState, now: int) -> bool:
    """Whether a plain message put now would be the next of a group, and somebody waits for it."""
    index = group.index
    return (
        bool(group.waiters)
        and not (group.alone or index.suspects)
        and group.filled_in != engine.writer.groups
        and index.hungry(1, now) is None
        and not index.has_ready
    )


def leave(engine: Engine, waiters: Waiters, waiter: Waiter) -> None:
    """A waiter gives up: whatever it was woken for, or handed, is for the next one."""
    with engine.writer.entry, engine.writer.lock:
        if not waiters.leave(waiter):
            waiter.reset()
            if waiter.woken:
                waiter.woken = False
                waiters.wake()
        held, waiter.got = waiter.handed(), ()
    if held:
        # Not waited for: who leaves may be a coroutine, or have been interrupted.
        engine.returns.send(settling.Releases(engine, held[0].group, held))


class Handing:
    """What one put hands over to the waiters of one group."""

    __slots__ = ("_counter", "_engine", "_shares", "group", "positions")

    def __init__(self, engine: Engine, group: GroupState) -> None:
        self._engine = engine
        self._shares: list[tuple[Waiter, Sequence[int]]] = []
        self._counter = 0
        self.group = group
        #: Of the messages in their put.
        self.positions: Sequence[int] = ()

    def share(self, put: PutPlain | PutRows, positions: Sequence[int], now: int) -> list[Start]:
        """Share messages out among those who wait, the longest first; return their deliveries."""
        waiters = self.group.waiters
        starts: list[Start] = []
        done = 0
        self._counter = counter = self._engine.next_counter(len(positions))
        while done < len(positions):
            waiter = waiters.first()
            if waiter is None or waiter.terms is None or waiter.terms.most < 1:
                break
            most, _, session = waiter.terms
            mine = positions[done : done + most]
            self._shares.append((waiter, mine))  # first: `undo` finds it here
            waiters.leave(waiter)
            if starts and starts[-1].session == session:
                starts[-1].fresh += mine
            else:
                start = Start(self.group.id, now, session, counter + done, list(mine), [])
                start.put = put
                starts.append(start)
            done += len(mine)
        self.positions = positions[:done]
        return starts

    def undo(self) -> None:
        """Nothing was stored: they wait on, in their order."""
        for waiter, _ in reversed(self._shares):
            self.group.waiters.put_back(waiter)
        self.group.queue.attended = True

    def hand_over(self, message_at: Callable[[int], Stored | None]) -> None:
        """Enter the leases and wake their holders."""
        group, counter = self.group, self._counter
        for waiter, positions in self._shares:
            assert waiter.terms is not None  # noqa: S101  # else it has no share
            deadline = self._engine.monotonic() + waiter.terms.lease_s
            leases = []
            for message in map(message_at, positions):
                if message is not None:
                    leases.append(_lease(group, message, counter, deadline))
                    counter += 1
            if not leases:  # it was a duplicate
                group.waiters.put_back(waiter)
                continue
            if max([len(lease.message.body) for lease in leases]) > LARGE:
                group.queue.large = True
            # In this order: whoever settles an interruption keeps what the table has, and that
            # must have reached its holder.
            waiter.got = leases
            for lease in leases:
                group.hold(lease)
            group.delivered += len(leases)
            self._engine.deadlines.add(deadline, leases)
            waiter.woken = False
            waiter.signal()


def _lease(group: GroupState, message: Stored, counter: int, deadline: float) -> Lease:
    lease = Lease(group, message.seq, 1, counter, deadline)
    lease.message = message
    if message.priority or message.key is not None:
        lease.entry = Entry(message.priority, key=message.key, max_attempts=message.max_attempts)
    return lease


class MeetingPut(Task):
    """A put that looks for waiters."""

    __slots__ = ("_engine", "_handings", "_queue")

    def __init__(self, engine: Engine, queue: QueueState, size: int) -> None:
        super().__init__(size)
        self._engine = engine
        self._queue = queue
        self._handings: list[Handing] = []

    def _meet(self, put: PutPlain | PutRows) -> Sequence[Op]:
        """Return the put, and the deliveries that begin with it."""
        self._handings = []
        queue = self._queue
        if not queue.attended or queue.paused:
            return (put,)
        engine = self._engine
        now = engine.now_ms()
        ops: list[Op] = [put]
        anybody = False
        for group in queue.groups:
            if not group.waiters:
                continue
            anybody = True
            if is_next(engine, group, now):
                positions = self._fitting(group, now)
                if positions:
                    handing = Handing(engine, group)
                    self._handings.append(handing)
                    ops += handing.share(put, positions, now)
        queue.attended = anybody
        return ops

    def _fitting(self, group: GroupState, now: int) -> Sequence[int]:
        """Return the positions of what may be delivered at once to an idle group, in order."""
        raise NotImplementedError

    def _message_at(self, position: int) -> Stored | None:
        """Return a message as it was stored; None for a duplicate."""
        raise NotImplementedError

    def _hand_over(self) -> dict[GroupState, Sequence[int]]:
        """Wake those who have got something; return which positions each group has handed."""
        for handing in self._handings:
            handing.hand_over(self._message_at)
        return {handing.group: handing.positions for handing in self._handings}

    def undo(self) -> None:
        """Nothing was stored."""
        for handing in self._handings:
            handing.undo()
        self._handings = []


class PlainPut(MeetingPut):
    """Store messages that have nothing but a body."""

    __slots__ = ("_op",)

    def __init__(self, engine: Engine, queue: QueueState, op: PutPlain, size: int) -> None:
        super().__init__(engine, queue, size + 64 * op.count)
        self._op = op

    def prepare(self) -> Sequence[Op]:
        """Return the put."""
        return self._meet(self._op)

    def _fitting(self, group: GroupState, now: int) -> Sequence[int]:  # noqa: ARG002
        return range(self._op.count)

    def _message_at(self, position: int) -> Stored:
        op = self._op
        crc, body = op.items[2 * position : 2 * position + 2]
        plain = (0, None, None, None, None, None)
        seq = op.first + position
        return Stored(seq, op.queue, op.put_at, op.kind, int(crc), *plain, bytes(body))

    def apply(self) -> None:
        """Hand over what somebody waits for, offer the rest to every group, and count."""
        op, queue = self._op, self._queue
        if not self._handings:
            queue.put_applied(op)
            return
        handed = self._hand_over()
        queue.stored += op.count
        queue.puts += op.count
        queue.last = op.first + op.count - 1
        for group in queue.groups:
            gone = len(handed.get(group, ()))
            rest = op.count - gone
            if rest:
                group.index.put_plain(op.first + gone, rest)
                if group.waiters:
                    group.waiters.wake(rest)


class PutMessages(MeetingPut):
    """Store messages of any kind."""

    __slots__ = ("op",)

    def __init__(self, engine: Engine, queue: QueueState, rows: Sequence[Row], now: int) -> None:
        super().__init__(engine, queue, sum(len(row.body) for row in rows))
        self.op = PutRows(queue.id, now, rows)

    def prepare(self) -> Sequence[Op]:
        """Return the put."""
        ops = self._meet(self.op)
        number = self._engine.writer.groups
        for group in self._queue.groups:
            # Another put of this commit cannot know what of this one comes before its own.
            group.filled_in = number
        return ops

    def _fitting(self, group: GroupState, now: int) -> Sequence[int]:
        rows, index = self.op.rows, group.index
        if len(rows) > 1 and any(row.dedup_key is not None for row in rows):
            return ()  # which of them will be stored, and thereby come before others?
        if not all(stream.live for stream in index.streams):
            return ()  # the store may have earlier ones, of a key or another priority
        heads: dict[str, int] = {}
        for position, row in enumerate(rows):
            if row.key is not None:
                heads.setdefault(row.key, position)
        fitting: list[int] = []
        for position in sorted(range(len(rows)), key=lambda position: -rows[position].priority):
            row = rows[position]
            if row.due is not None:
                continue  # it waits for its time
            if row.key is not None and (row.key in index.keys or heads[row.key] != position):
                continue  # it waits for an earlier one of its key
            if row.expires is not None and row.expires <= now:
                return ()  # a claim would come across it
            fitting.append(position)
        return fitting

    def _message_at(self, position: int) -> Stored | None:
        op = self.op
        if not op.stored:
            return None  # a duplicate, which comes alone
        message = Stored(op.seqs[position], op.queue, op.put_at, *op.rows[position][:9])
        return message._replace(body=bytes(message.body))

    def apply(self) -> None:
        """Hand over what somebody waits for, offer the rest to every group, and count."""
        op, queue = self.op, self._queue
        now = self._engine.now_ms()
        handed = {group: frozenset(positions) for group, positions in self._hand_over().items()}
        queue.stored += len(op.stored)
        queue.puts += len(op.stored)
        for position in op.stored:
            seq, row = op.seqs[position], op.rows[position]
            queue.last = seq
            for group in queue.groups:
                if position in handed.get(group, ()):
                    continue
                index = group.index
                index.put_row(seq, row.priority, row.due, row.key, row.max_attempts, now)
        for group in queue.groups:
            if group.waiters:
                group.waiters.wake(len(op.stored) - len(handed.get(group, ())))
                self._engine.upkeep.expect(group.index.next_due())
