"""Puts of all connections: whatever one turn of the loop brings goes into one commit.

Knows: messages, queues, who waits for which receipt; that a full queue makes its puts wait.
Does not know: connections, sessions, how a commit is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from embedq.broker.port import DeskPort, QueuePort
from embedq.errors import EmbedqError, QueueFull
from embedq.message import Draft, Receipt
from embedq.net.failing import as_error

#: What came of a put.
Stored = Callable[[Receipt | EmbedqError], object]
_Put = tuple[Draft, Stored, object]


class Puts:
    """The puts of one loop. Belongs to its thread."""

    def __init__(self, desk: DeskPort, loop: asyncio.AbstractEventLoop) -> None:
        self._desk = desk
        self._loop = loop
        self._most = desk.limits.batch_messages
        self._most_bytes = desk.limits.group_max_bytes
        self._gathered: dict[QueuePort, list[_Put]] = {}
        self._tasks: set[asyncio.Future[Any]] = set()
        self._lines: dict[object, dict[QueuePort, _Line]] = {}

    def add(self, queue: QueuePort, draft: Draft, stored: Stored, owner: object) -> None:
        """Store a message; `stored` gets its receipt once it is durable, or why it is not.

        `owner`: for whom, see `give_up`.
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

    def give_up(self, owner: object) -> int:
        """Wait no longer for room for what somebody put who is gone: it would pile up.

        Returns for how many messages.
        """
        lines = self._lines.pop(owner, {}).values()
        for line in lines:
            line.task.cancel()
        return sum(len(line.puts) for line in lines)

    @property
    def tasks(self) -> Sequence[asyncio.Future[Any]]:
        """What is under way."""
        return list(self._tasks)

    def _send(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for queue, puts in gathered.items():
            policy, most = queue.policy, self._most
            if policy.max_length is not None:
                if policy.when_full == "block":
                    for put in puts:
                        self._line_up(queue, put)
                    continue
                # One by one: those for which there is no room are refused alone.
                most = min(most, policy.max_length) if policy.when_full == "drop_oldest" else 1
            rest: Sequence[_Put] = puts
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
        _tell(puts, await self._answer(queue, puts, None))

    async def _answer(
        self, queue: QueuePort, puts: Sequence[_Put], timeout: float | None
    ) -> Sequence[Receipt] | EmbedqError:
        try:
            drafts = [draft for draft, _, _ in puts]
            return await self._desk.aput_drafts(queue, drafts, timeout)
        except Exception as error:  # noqa: BLE001 - told to everyone who waits
            return as_error(error)

    # ------------------------------------------------------------------ queues that may be full

    def _line_up(self, queue: QueuePort, put: _Put) -> None:
        """Put something behind all that its owner has put there, which may wait for room."""
        lines = self._lines.setdefault(put[2], {})
        line = lines.get(queue)
        if line is not None:
            line.puts.append(put)
            return
        line = lines[queue] = _Line([put])
        line.task = self._start(self._move_up(queue, line))

    async def _move_up(self, queue: QueuePort, line: _Line) -> None:
        """Store a line in its order: as much at once as has room, or one, which waits for it."""
        puts, step = line.puts, self._most
        owner = puts[0][2]
        while puts:
            most = min(step, queue.policy.max_length or step)
            part = _part(puts, most, self._most_bytes)
            result = await self._answer(queue, part, None if len(part) == 1 else 0)
            if isinstance(result, QueueFull) and len(part) > 1:
                step = 1
                continue
            step = min(2 * step, self._most)
            del puts[: len(part)]
            _tell(part, result)
        lines = self._lines.get(owner)
        if lines is not None and lines.get(queue) is line:
            del lines[queue]
            if not lines:
                del self._lines[owner]


class _Line:
    """What one client has put into one queue, while that may be full; the first one is next."""

    __slots__ = ("puts", "task")

    task: asyncio.Task[None]

    def __init__(self, puts: list[_Put]) -> None:
        self.puts = puts


def _part(puts: Sequence[_Put], most: int, most_bytes: int) -> Sequence[_Put]:
    """Return what of it goes into one commit; never nothing."""
    size = 0
    for at, put in enumerate(puts[:most], 1):
        size += len(put[0].body)
        if size >= most_bytes:
            return puts[:at]
    return puts[:most]


def _tell(puts: Sequence[_Put], result: Sequence[Receipt] | EmbedqError) -> None:
    if isinstance(result, EmbedqError):
        for _, stored, _ in puts:
            stored(result)
        return
    for (_, stored, _), receipt in zip(puts, result, strict=True):
        stored(receipt)
