"""Puts that are done once, however often they are repeated: what they were answered is kept.

Knows: that the messages and the numbers of their puts are one commit, what a repetition is told.
Does not know: connections, frames, whose sessions these are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from zlib import crc32

from embedq.broker import bounds
from embedq.broker.direct import PlainPut, PutMessages
from embedq.broker.intake import check_batch
from embedq.broker.state import QueueState
from embedq.storage import answered
from embedq.storage.answered import Answer
from embedq.storage.ops import Op, PutPlain, PutRows, Remember
from embedq.storage.rows import Row
from embedq.storage.writer import Task

if TYPE_CHECKING:
    from embedq.broker.awaiting import LoopWaiter
    from embedq.broker.desk import Desk


class Numbers:
    """The answered puts of one session whose answers may not have arrived.

    Changed under the writer's lock only, but for `see`.
    """

    __slots__ = ("known", "seen", "session", "taken_plain", "taken_rows")

    def __init__(self, session: int, known: dict[int, Answer] | None = None) -> None:
        self.session = session
        self.known: dict[int, Answer] = known or {}
        self.seen = 0
        # Those of the commit under way: each task of it must keep the others' answers, too.
        self.taken_plain: dict[int, tuple[int, PutPlain, int, int]] = {}
        self.taken_rows: dict[int, tuple[int, PutRows]] = {}

    def remembering(self) -> Remember:
        """Return the operation that keeps everything which may be asked for again."""
        seen = self.seen
        return Remember(
            self.session,
            {n: answer for n, answer in self.known.items() if n > seen},
            list(self.taken_plain.values()),
            list(self.taken_rows.values()),
        )

    def forget(self, n: int) -> None:
        """Put `n` of the commit under way is over, one way or the other."""
        self.taken_plain.pop(n, None)
        self.taken_rows.pop(n, None)

    def see(self, n: int) -> None:
        """All answers up to number `n` have arrived: nobody will ask for them again."""
        if n <= self.seen:
            return
        self.seen = n
        for number in [known for known in self.known if known <= n]:
            self.known.pop(number, None)


class _Part:
    """Plain messages of one kind for one queue."""

    __slots__ = ("count", "items", "kind", "op", "put", "puts", "queue")

    op: PutPlain

    def __init__(self, queue: QueueState, kind: int) -> None:
        self.queue = queue
        self.kind = kind
        self.items: list[int | bytes] = []
        self.count = 0
        self.put: PlainPut | None = None  # the task of this part, once prepared
        #: (numbers, n, position of the first message, how many)
        self.puts: list[tuple[Numbers, int, int, int]] = []


class NumberedPuts(Task):
    """Plain puts of many sessions."""

    __slots__ = ("_added", "_desk", "_numbers", "_parts", "count")

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self._desk = desk
        self._parts: dict[tuple[QueueState, int], _Part] = {}
        self._added: list[tuple[_Part, int, int]] = []
        self._numbers: dict[Numbers, None] = {}
        self.count = 0

    def add(
        self, numbers: Numbers, n: int, queue: QueueState, kind: int, bodies: Sequence[bytes]
    ) -> None:
        """Take in one put, before the task is sent. Raises LimitExceeded."""
        check_batch(queue, list(map(len, bodies)), self._desk.limits)
        part = self._parts.get((queue, kind))
        if part is None:
            part = self._parts[queue, kind] = _Part(queue, kind)
        part.puts.append((numbers, n, part.count, len(bodies)))
        self._added.append((part, part.count, len(bodies)))
        self._numbers[numbers] = None
        for body in bodies:
            part.items.append(crc32(body))
            part.items.append(body)
            self.size += len(body) + 64
        part.count += len(bodies)
        self.count += len(bodies)

    def prepare(self) -> Sequence[Op]:
        """Return one put for each queue and kind."""
        now = self._desk.now_ms()
        ops: list[Op] = []
        for part in self._parts.values():
            if part.count:
                part.op = PutPlain(part.queue.id, now, part.kind, part.items, part.count)
                part.put = PlainPut(self._desk, part.queue, part.op, 0)
                ops += part.put.prepare()
                for numbers, n, at, count in part.puts:
                    numbers.taken_plain[n] = (n, part.op, at, count)
        return [*ops, *[numbers.remembering() for numbers in self._numbers]]

    def apply(self) -> None:
        """Count the messages, and keep the answers."""
        for part in self._parts.values():
            if part.put is not None:
                part.put.apply()
            for numbers, n, at, count in part.puts:
                numbers.forget(n)
                if n > numbers.seen:
                    numbers.known[n] = (part.op.first + at, count) if count else (0, 0)

    def undo(self) -> None:
        """Nothing was stored."""
        for part in reversed(self._parts.values()):
            if part.put is not None:
                part.put.undo()
            for numbers, n, _, _ in part.puts:
                numbers.forget(n)

    def firsts(self) -> list[int]:
        """Return the seq of the first message of each put, in the order of `add`."""
        return [part.op.first + at if count else 0 for part, at, count in self._added]


class NumberedRows(Task):
    """Another put, of any kind of messages, and its number."""

    __slots__ = ("_n", "_numbers", "put")

    def __init__(self, put: PutMessages, numbers: Numbers, n: int) -> None:
        super().__init__(put.size)
        self.put = put
        self._numbers = numbers
        self._n = n

    def prepare(self) -> Sequence[Op]:
        """Return the put, and the note of its answer."""
        ops = self.put.prepare()
        if not ops:
            return ops
        self._numbers.taken_rows[self._n] = (self._n, self.put.op)
        return [*ops, self._numbers.remembering()]

    def apply(self) -> None:
        """Keep the answer, if anything was stored."""
        self._numbers.forget(self._n)
        self.put.apply()
        if not getattr(self.put, "full", False) and self._n > self._numbers.seen:
            self._numbers.known[self._n] = self.answer()

    def undo(self) -> None:
        """Nothing was stored."""
        self._numbers.forget(self._n)
        self.put.undo()

    def answer(self) -> tuple[list[int], list[int]]:
        """Return the seqs, and the positions of those whose dedup key was known."""
        return answered.of_rows(self.put.op)


class AloneNumberedRows(NumberedRows):
    """One that wants a commit of its own."""

    __slots__ = ()

    alone = True


def plain_row(kind: int, body: bytes) -> Row:
    """Return a message that has nothing but a body as one that could have more."""
    return Row(kind, crc32(body), 0, None, None, None, None, None, body)


def _task(
    desk: Desk, queue: QueueState, rows: Sequence[Row], waiter: LoopWaiter | None
) -> PutMessages:
    now = desk.now_ms()
    if queue.policy.max_length is None:
        return PutMessages(desk, queue, rows, now)
    drops = queue.policy.when_full == "drop_oldest"
    kind = bounds.DroppingPut if drops else bounds.BoundedPut
    return kind(desk, queue, rows, now, waiter)


async def aput_rows(
    desk: Desk,
    queue: QueueState,
    rows: Sequence[Row],
    *,
    numbers: Numbers,
    n: int,
    timeout: float | None,
    waiter: LoopWaiter | None = None,
) -> tuple[list[int], list[int]]:
    """Store messages under a session's number; wait up to `timeout` s (None: ever) for room.

    Returns the seqs and the positions of known dedup keys. With a cancelled waiter it waits no
    longer: nothing is stored later. Raises QueueFull, LimitExceeded, and what the store raises;
    then nothing was stored.
    """
    from embedq.broker import awaiting  # noqa: PLC0415  # asyncio only where it is used

    check_batch(queue, [len(row.body) for row in rows], desk.limits)
    bounds.check_fits(queue, len(rows))
    if queue.policy.max_length is not None:
        await bounds.acount(desk)
    may_wait = queue.policy.when_full == "block" and (timeout is None or timeout > 0)
    until = None if timeout is None else desk.monotonic() + timeout
    waiting = waiter if may_wait else None
    while True:
        put = _task(desk, queue, rows, waiting)
        kind = AloneNumberedRows if put.alone else NumberedRows
        task = kind(put, numbers, n)
        try:
            await awaiting.commit(desk.writer, task)
        except BaseException:
            if isinstance(put, bounds.BoundedPut):
                bounds.give_up(desk, queue, put)
            raise
        if not isinstance(put, bounds.BoundedPut) or not put.full:
            return task.answer()
        if waiting is None:
            raise bounds.full(queue)
        if put.waits and not await awaiting.wait_in(desk, queue.space, waiting, until):
            waiting = None
        elif waiting.cancelled:
            awaiting.pass_on(desk, queue.space, waiting)
            raise bounds.full(queue)
