"""Handlers of the mixed host: each notes its deliveries, and ends them in every way there is.

Knows: the ways a delivery may end, how each is noted before it happens.
Does not know: which queues there are, who puts, when the host dies.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable

from embedq import Batch, Delivery, Reject, Retry, StaleLease
from embedq.storage.rows import REDRIVEN_FROM
from tests.reliability.invariants_events import digest, tag_of
from tests.reliability.journal import Ending, Journal, Settled, Stale, Start

#: How deliveries end, and how often: until the host is killed, and when it only empties queues.
LIVELY = {
    "done": 10,
    "ack": 10,
    "raise": 3,
    "retry": 2,
    "return retry": 1,
    "reject": 1,
    "return reject": 1,
    "nack": 1,
    "own reject": 1,
    "release": 1,
}
CALM = {"done": 10, "ack": 8, "raise": 1, "reject": 1}

_NAPS_S = (0.0, 0.0, 0.001, 0.003, 0.02)
_never = threading.Event()


class Handlers:
    """The handlers of one host. `early`: a planted mistake, acks are noted before they are made.

    `blind`: another one, a stale token is taken for a good one.
    """

    def __init__(self, journal: Journal, seed: str, ways: dict[str, int]) -> None:
        self.journal = journal
        self.early = self.blind = False
        self.naps_s: tuple[float, ...] = _NAPS_S
        self._random = random.Random(seed)
        self._ways = ways

    # ---------------------------------------------------------------------------- notes

    def start(self, delivery: Delivery, slot: str = "", run: int = 0, until: int = 0) -> None:
        """Note that a delivery has started."""
        origin = delivery.headers.get(REDRIVEN_FROM)
        self.journal.note(
            Start(
                delivery.queue,
                delivery.group,
                delivery.seq,
                delivery.attempt,
                delivery.lease.counter,
                tag_of(delivery.raw),
                digest(delivery.raw),
                slot,
                run,
                until,
                0 if origin is None else int(origin[:12], 16),
            )
        )

    def ending(self, delivery: Delivery, how: str) -> None:
        """Note how a delivery is going to end."""
        self.journal.note(Ending(delivery.lease.counter, how))

    def settle(self, delivery: Delivery, how: str, act: Callable[[], object]) -> None:
        """Settle a delivery by a call, and note whether that was confirmed."""
        counter = delivery.lease.counter
        self.ending(delivery, how)
        if self.early:
            self.journal.note(Settled(counter))
            self.nap(0.01)
        try:
            act()
        except StaleLease:
            self.journal.note(Settled(counter) if self.blind else Stale(counter))
        else:
            if not self.early:
                self.journal.note(Settled(counter))

    @staticmethod
    def nap(seconds: float) -> None:
        """Do nothing for a while."""
        if seconds:
            _never.wait(seconds)

    def way(self) -> str:
        """Choose how a delivery ends."""
        return self._random.choices(list(self._ways), list(self._ways.values()))[0]

    def choose(self, options: tuple[float, ...]) -> float:
        """Choose a number."""
        return self._random.choice(options)

    # ------------------------------------------------------------------------- handlers

    def thread(self, _: bytes, delivery: Delivery) -> object:
        """Handle a message on a thread."""
        slot = str(threading.get_ident())
        self.start(delivery, slot, delivery.lease.counter)
        self.nap(self.choose(self.naps_s))
        return self.end(delivery, self.way())

    def end(self, delivery: Delivery, way: str) -> object:
        """End a delivery in one of the ways."""
        match way:
            case "done":
                self.ending(delivery, "done")
            case "ack":
                self.settle(delivery, "done", delivery.ack)
            case "nack":
                self.settle(delivery, "failed", lambda: delivery.nack(delay=0.004))
            case "own reject":
                self.settle(delivery, "rejected", lambda: delivery.reject("no use"))
            case "release":
                self.settle(delivery, "released", delivery.release)
            case _:
                return self._decide(delivery, way)
        return None

    def _decide(self, delivery: Delivery, way: str) -> object:
        self.ending(delivery, "rejected" if "reject" in way else "failed")
        if way == "raise":
            raise ValueError("the harness wants this to fail")
        if way == "retry":
            raise Retry(0.003)
        if way == "reject":
            raise Reject("no use")
        return Retry(0.002) if way == "return retry" else Reject("of no use")

    async def coroutine(self, _: bytes, delivery: Delivery) -> object:
        """Handle a message on the loop."""
        self.start(delivery)
        await asyncio.sleep(self.choose(self.naps_s))
        way = self.way()
        if way != "ack":
            # What settles by a call blocks: on the loop these ways end by what they return.
            calls = {"nack": "retry", "own reject": "reject", "release": "raise"}
            return self.end(delivery, calls.get(way, way))
        self.ending(delivery, "done")
        try:
            await delivery.aack()
        except StaleLease:
            self.journal.note(Stale(delivery.lease.counter))
        else:
            self.journal.note(Settled(delivery.lease.counter))
        return None

    def batch(self, messages: Batch[bytes]) -> None:
        """Handle many messages at once: each gets an outcome, some by how the handler ends."""
        slot = str(threading.get_ident())
        run = messages.deliveries[0].lease.counter
        for delivery in messages.deliveries:
            self.start(delivery, slot, run)
        self.nap(self.choose(self.naps_s))
        fails = self.way() == "raise"
        for index, delivery in enumerate(messages.deliveries):
            way = self.way()
            if "reject" in way:
                self.ending(delivery, "rejected")
                messages.reject(index, "no use")
            elif "retry" in way:
                self.ending(delivery, "failed")
                messages.retry(index, 0.002)
            elif way == "nack":
                self.ending(delivery, "failed")
                messages.fail(index, ValueError("this one"))
            elif way == "ack":
                self.ending(delivery, "done")
                messages.ack(index)
            else:
                self.ending(delivery, "failed" if fails else "done")
        if fails:
            raise ValueError("the harness wants the batch to fail")
