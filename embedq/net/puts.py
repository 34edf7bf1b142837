"""Puts of all connections: whatever one turn of the loop brings goes into one commit.

Knows: messages, queues, who waits for which receipt; that a full queue makes its puts wait.
Does not know: connections, sessions, how a commit is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from embedq.broker.port import DeskPort, QueuePort
from embedq.errors import EmbedqError
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
        self._waiting: dict[object, set[asyncio.Task[Any]]] = {}

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
        given_up = self._waiting.pop(owner, ())
        for task in given_up:
            task.cancel()
        return len(given_up)

    @property
    def tasks(self) -> Sequence[asyncio.Future[Any]]:
        """What is under way."""
        return list(self._tasks)

    def _send(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for queue, puts in gathered.items():
            policy, most = queue.policy, self._most
            if policy.max_length is not None:
                if policy.when_full != "drop_oldest":
                    # One by one: those for which there is no room wait, or are refused, alone.
                    for put in puts:
                        self._wait(put[2], self._start(queue, [put]))
                    continue
                most = min(most, policy.max_length)
            part: list[_Put] = []
            size = 0
            for put in puts:
                part.append(put)
                size += len(put[0].body)
                if len(part) >= most or size >= self._most_bytes:
                    self._start(queue, part)
                    part, size = [], 0
            if part:
                self._start(queue, part)

    def _wait(self, owner: object, task: asyncio.Task[Any]) -> None:
        waiting = self._waiting.setdefault(owner, set())
        waiting.add(task)

        def done(task: asyncio.Task[Any]) -> None:
            waiting.discard(task)
            if not waiting and self._waiting.get(owner) is waiting:
                del self._waiting[owner]

        task.add_done_callback(done)

    def _start(self, queue: QueuePort, puts: list[_Put]) -> asyncio.Task[Any]:
        task = self._loop.create_task(self._store(queue, puts))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _store(self, queue: QueuePort, puts: list[_Put]) -> None:
        try:
            receipts = await self._desk.aput_drafts(queue, [draft for draft, _, _ in puts])
        except Exception as error:  # noqa: BLE001 - told to everyone who waits
            told = as_error(error)
            for _, stored, _ in puts:
                stored(told)
            return
        for (_, stored, _), receipt in zip(puts, receipts, strict=True):
            stored(receipt)
