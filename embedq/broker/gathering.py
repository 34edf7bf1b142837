"""Puts of many coroutines in one operation: whatever one turn of the loop brings together.

Knows: plain messages, the loop's turns, who waits for which seq.
Does not know: messages with options (bounds.py), how operations are committed.

A coroutine that puts costs a future and an entry in a list here; everything else is paid once for
all that put in the same turn. (One task for each took five times as long.)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary
from zlib import crc32

from embedq.broker import bounds
from embedq.broker.awaiting import bridge
from embedq.broker.direct import PlainPut
from embedq.broker.intake import too_large
from embedq.broker.state import QueueState
from embedq.errors import EmbedqError
from embedq.message import Draft
from embedq.storage.ops import PutPlain

if TYPE_CHECKING:
    from embedq.broker.desk import Desk

_Put = tuple[bytes, "asyncio.Future[int]"]


class Gathering:
    """The plain puts of coroutines, whatever loop they run on."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, Gatherer] = WeakKeyDictionary()

    async def put(self, queue: QueueState, body: bytes, kind: int) -> int:
        """Store a plain message; return its seq once it is durable. Raises what `put` raises."""
        desk = self._desk
        if len(body) > desk.limits.body_bytes:
            raise too_large(queue, len(body), desk.limits)
        if queue.policy.max_length is not None:
            return (await bounds.aput(desk, queue, [Draft(body, kind)]))[0].seq
        gatherer = self._loops.get(asyncio.get_running_loop())
        if gatherer is None:
            gatherer = Gatherer(desk)
            self._loops[asyncio.get_running_loop()] = gatherer
        return await gatherer.add(queue, body, kind)


class Gatherer:
    """The plain puts of one loop's coroutines. Belongs to the loop's thread, does not keep it."""

    __slots__ = ("_bridge", "_desk", "_most", "_most_bytes", "_waiting")

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        _, self._bridge = bridge()
        self._most = desk.limits.batch_messages
        self._most_bytes = desk.limits.group_max_bytes
        self._waiting: dict[tuple[QueueState, int], list[_Put]] = {}

    def add(self, queue: QueueState, body: bytes, kind: int) -> asyncio.Future[int]:
        """Take a message in; its seq comes once it is durable."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()
        waiting = self._waiting
        if not waiting:
            loop.call_soon(self._send)
        puts = waiting.get((queue, kind))
        if puts is None:
            waiting[queue, kind] = [(body, future)]
        else:
            puts.append((body, future))
        return future

    def _send(self) -> None:
        """Hand over what this turn has brought."""
        waiting, self._waiting = self._waiting, {}
        for (queue, kind), puts in waiting.items():
            part: list[_Put] = []
            size = 0
            for put in puts:
                part.append(put)
                size += len(put[0])
                if len(part) >= self._most or size >= self._most_bytes:
                    self._send_part(queue, kind, part, size)
                    part, size = [], 0
            if part:
                self._send_part(queue, kind, part, size)

    def _send_part(self, queue: QueueState, kind: int, puts: list[_Put], size: int) -> None:
        items: list[int | bytes] = []
        for body, _ in puts:
            items.append(crc32(body))
            items.append(body)
        op = PutPlain(queue.id, self._desk.now_ms(), kind, items, len(puts))
        task = PlainPut(self._desk, queue, op, size)
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        committed.add_done_callback(lambda _: _answer(puts, op, task.error))
        try:
            self._desk.writer.send(task, lambda: self._bridge.answer(committed))
        except EmbedqError as refusal:
            _answer(puts, op, refusal)


def _answer(puts: list[_Put], op: PutPlain, error: BaseException | None) -> None:
    for seq, (_, future) in enumerate(puts, op.first):
        if future.done():
            continue  # its coroutine was cancelled; the message is stored all the same
        if error is None:
            future.set_result(seq)
        else:
            future.set_exception(error)
