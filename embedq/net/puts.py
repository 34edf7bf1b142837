"""Puts of all connections: whatever one turn of the loop brings goes into one commit.

Knows: messages, queues, who waits for which receipt; that a full queue makes its puts wait, and
that the host of another process may have given a queue a bound meanwhile.
Does not know: connections, sessions, how a commit is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Protocol

from embedq.broker.port import DeskPort, QueuePort
from embedq.errors import EmbedqError, QueueFull
from embedq.message import Draft, Receipt
from embedq.net.failing import as_error

#: What came of a put.
Stored = Callable[[Receipt | EmbedqError], object]


class Putter(Protocol):
    """Who puts. `is_closed`: it is gone, and waits for no room any more."""

    is_closed: bool


_Put = tuple[Draft, Stored, Putter]


class Puts:
    """The puts of one loop. Belongs to its thread."""

    def __init__(self, desk: DeskPort, loop: asyncio.AbstractEventLoop) -> None:
        self._desk = desk
        self._loop = loop
        self._most = desk.limits.batch_messages
        self._most_bytes = desk.limits.group_max_bytes
        self._gathered: dict[QueuePort, list[_Put]] = {}
        self._tasks: set[asyncio.Future[Any]] = set()
        self._lines: dict[Putter, dict[QueuePort, _Line]] = {}
        self._asking: set[QueuePort] = set()

    def add(self, queue: QueuePort, draft: Draft, stored: Stored, owner: Putter) -> None:
        """Store a message; `stored` gets its receipt once it is durable, or why it is not.

        `owner`: for whom. What comes for one that is closed is stored if there is room.
        """
        if not self._gathered:
            self._loop.call_soon(self._send)
        puts = self._gathered.get(queue)
        if puts is None:
            self._gathered[queue] = [(draft, stored, owner)]
        else:
            puts.append((draft, stored, owner))

    def expect(self) -> asyncio.Future[None]:
        """Return what to complete once a put that is on its way is added, or refused.

        While its queue is looked for, it is under way already, whoever has gone meanwhile.
        """
        coming: asyncio.Future[None] = self._loop.create_future()
        self._tasks.add(coming)
        coming.add_done_callback(self._tasks.discard)
        return coming

    def give_up(self, owner: Putter) -> None:
        """Wait no longer for room for what somebody put who is gone: it would pile up.

        What is being committed is not given up: `stored` will be told what becomes of it.
        """
        for queue, line in list(self._lines.get(owner, {}).items()):
            if line.waits:
                line.task.cancel()
                self._end(queue, line)
                why = f"queue {queue.name!r} had no room before its client was gone"
                self._tell(line.puts, QueueFull(why))

    @property
    def tasks(self) -> Sequence[asyncio.Future[Any]]:
        """What is under way."""
        return list(self._tasks)

    def _send(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for queue, puts in gathered.items():
            policy, most = queue.policy, self._most
            rest: Sequence[_Put] = puts
            if policy.max_length is not None:
                if policy.when_full == "block":
                    for put in puts:
                        self._line_up(queue, put)
                    continue
                # One by one: those for which there is no room are refused alone.
                most = min(most, policy.max_length) if policy.when_full == "drop_oldest" else 1
            if self._lines:
                rest = self._not_lined_up(queue, puts)
            while rest:
                part = _part(rest, most, self._most_bytes)
                self._start(self._store(queue, part))
                rest = rest[len(part) :]

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _store(self, queue: QueuePort, puts: Sequence[_Put]) -> None:
        """Store what need not wait. If it must, as its queue has a bound now, it is lined up."""
        alone = len(puts) == 1 and queue.policy.max_length is not None
        result = await self._answer(queue, puts, 0)
        if isinstance(result, QueueFull):
            if alone:
                self._tell(puts, result)
            else:
                for put in puts:
                    self._line_up(queue, put)
            await self._ask(queue)
        else:
            self._tell(puts, result)

    async def _ask(self, queue: QueuePort) -> None:
        """Let the policy of a queue be the one of now, where another process is its host."""
        if self._desk.listeners or queue in self._asking:
            return
        self._asking.add(queue)
        try:
            # If that fails, so do the puts, which then tell it.
            with suppress(EmbedqError):
                await self._loop.run_in_executor(None, self._desk.existing_queue, queue.name)
        finally:
            self._asking.discard(queue)

    async def _answer(
        self, queue: QueuePort, puts: Sequence[_Put], timeout: float | None
    ) -> Sequence[Receipt] | EmbedqError:
        try:
            drafts = [draft for draft, _, _ in puts]
            return await self._desk.aput_drafts(queue, drafts, timeout)
        except Exception as error:  # noqa: BLE001 - told to everyone who waits
            return as_error(error)

    # ------------------------------------------------------------------ queues that may be full

    def _not_lined_up(self, queue: QueuePort, puts: Sequence[_Put]) -> Sequence[_Put]:
        """Line up what is of those who wait there, whatever the policy is now; return the rest."""
        rest: list[_Put] = []
        for put in puts:
            if queue in self._lines.get(put[2], ()):
                self._line_up(queue, put)
            else:
                rest.append(put)
        return rest

    def _line_up(self, queue: QueuePort, put: _Put) -> None:
        """Put something behind all that its owner has put there, which may wait for room."""
        lines = self._lines.setdefault(put[2], {})
        line = lines.get(queue)
        if line is not None:
            line.puts.append(put)
            return
        line = lines[queue] = _Line(put)
        line.task = self._start(self._move_up(queue, line))

    async def _move_up(self, queue: QueuePort, line: _Line) -> None:
        """Store a line in its order: as much at once as has room, or one, which waits for it.

        It waits only after it was refused: who waits may be given up, and who is stored must not.
        """
        puts, step = line.puts, self._most
        while puts:
            most = min(step, queue.policy.max_length or step)
            part = _part(puts, most, self._most_bytes)
            result = await self._answer(queue, part, None if line.waits else 0)
            is_full = isinstance(result, QueueFull)
            if is_full and not line.waits and (len(part) > 1 or _blocks(queue)):
                step, line.waits = 1, not line.owner.is_closed
                if line.waits or len(part) > 1:
                    continue
                part = list(puts)  # nobody is there to wait for room
            step = 1 if is_full else min(2 * step, self._most)
            line.waits = False
            del puts[: len(part)]
            self._tell(part, result)
        self._end(queue, line)

    def _end(self, queue: QueuePort, line: _Line) -> None:
        """Nothing is in a line any more."""
        lines = self._lines[line.owner]
        del lines[queue]
        if not lines:
            del self._lines[line.owner]

    def _tell(self, puts: Sequence[_Put], result: Sequence[Receipt] | EmbedqError) -> None:
        """Tell what came of puts. What that raises is one client's: the others are told."""
        results: Sequence[Receipt | EmbedqError]
        results = [result] * len(puts) if isinstance(result, EmbedqError) else result
        for (_, stored, _), each in zip(puts, results, strict=True):
            try:
                stored(each)
            except Exception as error:  # noqa: BLE001  # told as that of any other call
                told = {"message": "a call of the listeners failed", "exception": error}
                self._loop.call_exception_handler(told)


class _Line:
    """What one client has put into one queue, while that may be full; the first one is next.

    `waits`: the first one was refused, and waits for room.
    """

    __slots__ = ("owner", "puts", "task", "waits")

    task: asyncio.Task[None]

    def __init__(self, put: _Put) -> None:
        self.puts = [put]
        self.owner = put[2]
        self.waits = False


def _blocks(queue: QueuePort) -> bool:
    return queue.policy.when_full == "block"


def _part(puts: Sequence[_Put], most: int, most_bytes: int) -> Sequence[_Put]:
    """Return what of it goes into one commit; never nothing."""
    size = 0
    for at, put in enumerate(puts[:most], 1):
        size += len(put[0].body)
        if size >= most_bytes:
            return puts[:at]
    return puts[:most]
