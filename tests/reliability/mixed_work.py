"""What the mixed host does beside handling: puts of every kind, pulls, and an operator's calls.

Knows: every verb of a queue, what is noted before and after each.
Does not know: handlers, when the host dies, what must be true.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec

from embedq import Broker, Delivery, Queue, StaleLease
from embedq.errors import EmbedqError
from tests.reliability.invariants_events import Answer, Call, Put, Refusal, body
from tests.reliability.journal import Journal, Settled, Stale
from tests.reliability.mixed_handlers import Handlers

#: Messages in a queue above which nobody puts more into it.
_MANY = 40
#: Longer than the lease of what is pulled.
TOO_LONG_S = 0.3
_SIZES = (0, 40, 200, 200, 5000)


@dataclass
class World:
    """What all workers of a host share."""

    broker: Broker
    queues: dict[str, Queue[Any]]
    journal: Journal
    handlers: Handlers
    ids: Iterator[int]  # of calls
    tags: Iterator[int]
    confirmed: Callable[[], object]
    planted: str = ""
    pulled: list[tuple[int, str]] = field(default_factory=list)  # seq and id

    def call(self, call: Call, act: Callable[[], Answer]) -> None:
        """Make a call; note it before, and what came of it after."""
        self.journal.note(call)
        try:
            answer = act()
        except EmbedqError as error:
            self.journal.note(Refusal(call.id, error.code))
        else:
            self.journal.note(answer)


class Producer:
    """Puts messages."""

    def __init__(self, world: World, seed: str) -> None:
        self._world = world
        self._random = random.Random(seed)

    def step(self) -> None:
        """Put one message, or several."""
        rng = self._random
        name = rng.choice(("plain", "plain", "keyed", "batch", "order", "few", "full", "kept"))
        name = "pulled" if rng.random() < 0.15 else name
        queue = self._world.queues[name]
        if queue.stats().stored > _MANY:
            self._world.handlers.nap(0.003)
            return
        many = rng.choice((2, 5, 20)) if name == "batch" or rng.random() < 0.1 else 1
        many = min(many, 4) if name in {"few", "full"} else many
        first = self.put_of(name)
        rest = [] if name == "plain" else range(1, many)
        self.put(queue, [first, *[self._like(first) for _ in rest]])

    def _like(self, put: Put) -> Put:
        """Make another one with the same options: those of put_many are for all its messages."""
        size = self._random.choice(_SIZES)
        return msgspec.structs.replace(put, tag=next(self._world.tags), size=size)

    def put_of(self, name: str) -> Put:
        """Make up a message for a queue."""
        rng = self._random
        size = rng.choice(_SIZES)
        tag = next(self._world.tags)
        key = dedup = most = None
        priority = delay = ttl = 0
        if name == "keyed":
            key = f"k{rng.randrange(4)}"
        elif name == "order":
            priority = rng.choice((0, 0, 2, 9))
        elif name == "plain":
            priority = rng.choice((0, 0, 0, 1, 9))
            delay = rng.choice((0, 0, 0, 5, 60))
            ttl = rng.choice((0, 0, 0, 0, 100, 3_600_000))
            most = rng.choice((None, None, None, 1, 3, 0))
            dedup = rng.choice((None, None, None, f"u{tag}", f"u{tag}", f"s{rng.randrange(20)}"))
        return Put(tag, size, dedup, key, most, priority, delay, ttl)

    def put(self, queue: Queue[Any], puts: Sequence[Put]) -> None:
        """Put messages together that have the same options."""
        world = self._world
        planted = world.planted
        call = Call(next(world.ids), "put", queue.name, puts=tuple(puts))
        parts = [[put] for put in puts] if planted == "halves" else [puts]

        def act() -> Answer:
            receipts = []
            for part in parts:
                receipts += queue.put_many(*self._given(queue, part), **_options(part[0], planted))
                world.handlers.nap(0.005 if planted == "halves" else 0)
            if planted == "twice":
                queue.put_many(*self._given(queue, puts), **_options(puts[0], planted))
            seqs = tuple(receipt.seq for receipt in receipts)
            copies = tuple(at for at, receipt in enumerate(receipts) if receipt.duplicate)
            return Answer(call.id, seqs, copies)

        if planted == "early put":
            world.journal.note(call)
            world.journal.note(Answer(call.id))
            world.confirmed()
            world.handlers.nap(0.01)
            act()
            return
        world.call(call, act)
        world.confirmed()

    def _given(self, queue: Queue[Any], puts: Sequence[Put]) -> tuple[list[bytes]]:
        bodies = [body(put.tag, put.size) for put in puts]
        if self._world.planted == "changed" and queue.name == "kept":
            bodies = [data + b"!" for data in bodies]
        return (bodies,)

    async def astep(self) -> None:
        """Put plain messages from many coroutines at once."""
        queue = self._world.queues["batch"]
        if queue.stats().stored > _MANY:
            await asyncio.sleep(0.003)
            return
        puts = [Put(next(self._world.tags), self._random.choice(_SIZES)) for _ in range(6)]
        await asyncio.gather(*[self._aput(queue, put) for put in puts])

    async def _aput(self, queue: Queue[Any], put: Put) -> None:
        world = self._world
        call = Call(next(world.ids), "put", queue.name, puts=(put,))
        world.journal.note(call)
        receipt = await queue.aput(body(put.tag, put.size))
        world.journal.note(Answer(call.id, (receipt.seq,)))


def _options(put: Put, planted: str = "") -> dict[str, Any]:
    options: dict[str, Any] = {}
    if put.dedup is not None:
        options["dedup_key"] = put.dedup
    if put.key is not None and planted != "keyless":
        options["ordering_key"] = put.key
    if put.max_attempts is not None:
        options["max_attempts"] = put.max_attempts or None
    if put.priority:
        options["priority"] = put.priority
    if put.delay_ms:
        options["delay"] = put.delay_ms / 1000
    if put.ttl_ms:
        options["ttl"] = put.ttl_ms / 1000
    return options


class Puller:
    """Takes messages without a handler; some of them it keeps for longer than it may."""

    def __init__(
        self, world: World, seed: str, naps_s: Sequence[float] = (0.0, 0.0, 0.002, TOO_LONG_S)
    ) -> None:
        self._world = world
        self._random = random.Random(seed)
        self._queue = world.queues["pulled"]
        self._naps_s = naps_s

    def step(self) -> None:
        """Take some messages and settle them."""
        rng = self._random
        world = self._world
        found = self._queue.get_many(rng.choice((1, 1, 3)), timeout=0.02)
        for delivery in found:
            # At once: when its lease is over another one may come before this is noted.
            world.handlers.start(delivery, until=int(delivery.lease_deadline * 1000))
            world.pulled.append((delivery.seq, delivery.id))
        for delivery in found:
            if rng.random() < 0.5:
                self._in_a_block(delivery)
            else:
                self._by_hand(delivery)
        del world.pulled[:-20]

    def _in_a_block(self, delivery: Delivery) -> None:
        rng, handlers = self._random, self._world.handlers
        counter, way = delivery.lease.counter, handlers.way()
        fails = way in {"raise", "retry", "nack"}
        try:
            with delivery:
                handlers.nap(rng.choice(self._naps_s))
                handlers.ending(delivery, "failed" if fails else "done")
                if fails:
                    raise ValueError("the harness wants this to fail")  # noqa: TRY301
        except StaleLease:
            self._world.journal.note(Stale(counter))
        except ValueError:
            return
        else:
            self._world.journal.note(Settled(counter))

    def _by_hand(self, delivery: Delivery) -> None:
        rng, handlers = self._random, self._world.handlers
        handlers.nap(rng.choice(self._naps_s))
        way = handlers.way()
        ways = {"done": "ack", "raise": "nack", "reject": "own reject"}
        way = ways.get(way, way)
        if "re" in way and way not in {"release", "own reject"}:
            way = "nack"
        handlers.end(delivery, way)


class Operator:
    """Looks, removes, redrives, pauses."""

    def __init__(self, world: World, seed: str) -> None:
        self._world = world
        self._random = random.Random(seed)

    def step(self) -> None:
        """Make some call."""
        rng, world = self._random, self._world
        queue = world.queues[rng.choice(list(world.queues))]
        kind = rng.choice(("cancel", "redrive", "redrive", "pause", "by_id", "purge", "look"))
        world.handlers.nap(0.004)
        match kind:
            case "cancel":
                self._cancel(queue)
            case "redrive":
                self._redrive(queue)
            case "pause":
                self._pause(queue)
            case "by_id":
                self._by_id()
            case "purge" if rng.random() < 0.3:
                self._purge(world.queues[rng.choice(("few", "pulled"))])
            case _:
                queue.stats()
                queue.dead.list(limit=3)

    def _cancel(self, queue: Queue[Any]) -> None:
        waiting = queue.peek(3)
        if not waiting:
            return
        seqs = {message.id: message.seq for message in waiting}
        call = Call(next(self._world.ids), "cancel", queue.name, seqs=tuple(seqs.values()))
        self._world.call(
            call, lambda: Answer(call.id, tuple(seqs[each] for each in queue.cancel(*seqs)))
        )

    def _redrive(self, queue: Queue[Any]) -> None:
        call = Call(next(self._world.ids), "redrive", queue.name)
        most = self._random.choice((1, 3, 50))

        def act() -> Answer:
            receipts = queue.dead.redrive(limit=most)
            return Answer(call.id, tuple(receipt.seq for receipt in receipts))

        self._world.call(call, act)

    def _pause(self, queue: Queue[Any]) -> None:
        queue.pause()
        self._world.handlers.nap(self._random.choice((0.0, 0.005, 0.03)))
        queue.resume()

    def _by_id(self) -> None:
        world = self._world
        if not world.pulled:
            return
        seq, id_ = self._random.choice(world.pulled)
        how = self._random.choice(("ack", "nack", "release", "reject"))
        group = world.queues["pulled"].group()
        call = Call(next(world.ids), "by_id", "pulled", "default", seqs=(seq,))

        def act() -> Answer:
            group.settle_by_id(id_, how)
            return Answer(call.id)

        world.call(call, act)

    def _purge(self, queue: Queue[Any]) -> None:
        call = Call(next(self._world.ids), "purge", queue.name)

        def act() -> Answer:
            queue.purge()
            return Answer(call.id)

        self._world.call(call, act)


def from_there(first: int) -> Iterator[int]:
    """Count from a number on; safe between threads."""
    return count(first)
