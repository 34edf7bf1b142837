"""A host that is stopped (SIGSTOP) with deliveries in every kind of hand, and goes on later.

Knows: who holds deliveries, whose leases are renewed, what is done with them after the stop.
Does not know: when it is stopped, and what must come of it: the parent says "go" and judges.

    python -m tests.reliability.stopped_host DATABASE [unkept]

Prints "ready" once everything is in somebody's hands, and in the end one line of JSON. `unkept` is
a planted fault: no lease is renewed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from embedq import Broker, Delivery, Queue, StaleLease
from embedq.broker.desk import Desk

LEASE_S = 0.3
#: Messages that are pulled and held without a renewal.
PULLED = 20
#: Queues whose messages have a handler at the stop.
HANDLERS = ("thread", "batch", "loop")
_PATIENCE_S = 20.0


class Stopped:
    """What happens before and after the stop."""

    def __init__(self, path: str) -> None:
        self.broker = Broker(path)
        self.started: Counter[str] = Counter()
        self.go = threading.Event()
        self.result: dict[str, Any] = {}
        self._lock = threading.Lock()

    def queue(self, name: str) -> Queue[str]:
        """Declare a queue with a short lease."""
        return self.broker.queue(name, str, lease=LEASE_S)

    def consume(self) -> None:
        """Register handlers that wait for the word."""

        @self.queue("thread").consumer
        def on_thread(_: str, delivery: Delivery[str]) -> None:
            self._hold("thread", delivery)

        @self.queue("batch").consumer(batch=2)
        def in_batch(_: list[str]) -> None:
            self._count("batch")
            self.go.wait(_PATIENCE_S)

        @self.queue("loop").consumer
        async def on_loop(_: str) -> None:
            self._count("loop")
            await asyncio.to_thread(self.go.wait, _PATIENCE_S)

    def _hold(self, name: str, delivery: Delivery[str]) -> None:
        self._count(name)
        self.go.wait(_PATIENCE_S)
        self.result["handler was told"] = delivery.cancelled.reason

    def _count(self, name: str) -> None:
        with self._lock:
            self.started[name] += 1

    def run(self) -> None:
        """Take everything into hands, wait for the word, and see what still counts."""
        self.consume()
        pulled = self.queue("pulled")
        pulled.put_many([str(number) for number in range(PULLED)])
        block = self.queue("block")
        block.put("b")
        for name in HANDLERS:
            self.queue(name).put(name)
        with self.broker:
            held = pulled.get_many(PULLED)
            try:
                with block.get(timeout=60):
                    self._until(lambda: len(self.started) == len(HANDLERS))
                    self._say("ready")
                    sys.stdin.readline()
                    self.result["extended"] = self._extends(held[0])
                    self._pull_again(pulled, held)
                self.result["block"] = "acked"
            except StaleLease:
                self.result["block"] = "stale"
            finally:
                self.go.set()
            self._until(lambda: not any(map(self._left, (*HANDLERS, "pulled"))))
        self.result["started"] = dict(self.started)
        self._say(json.dumps(self.result))

    @staticmethod
    def _say(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    @staticmethod
    def _extends(delivery: Delivery[str]) -> bool:
        """Whether a lease that is over can still be extended, once everybody knows it is."""
        end = time.monotonic() + _PATIENCE_S
        while delivery.lease.is_held and time.monotonic() < end:
            threading.Event().wait(0.005)
        try:
            delivery.extend("10s")
        except StaleLease:
            return False
        return True

    def _pull_again(self, pulled: Queue[str], held: list[Delivery[str]]) -> None:
        attempts: dict[int, int] = {}  # with which each message came back
        open_: dict[int, Delivery[str]] = {}

        def pull() -> None:
            for delivery in pulled.get_many(PULLED, timeout=_PATIENCE_S):
                attempts.setdefault(delivery.seq, delivery.attempt)
                open_[delivery.seq] = delivery

        while len(attempts) < PULLED:
            pull()
        stale = 0
        for delivery, how in zip(
            held, ("ack", "nack", "reject", "release") * PULLED, strict=False
        ):
            try:
                getattr(delivery, how)()
            except StaleLease:
                stale += 1
        self.result["stale"] = stale
        self.result["attempts"] = list(attempts.values())
        self.result["same"] = sorted(attempts) == sorted(d.seq for d in held)
        while open_:
            for delivery in list(open_.values()):
                with suppress(StaleLease):  # on a slow machine it is over again, and comes again
                    delivery.ack()
                    del open_[delivery.seq]
            if open_:
                pull()
        self.result["more"] = len(pulled.get_many(PULLED)) + len(pulled.dead.list())

    def _left(self, name: str) -> int:
        group = self.queue(name).stats().group("default")
        return 0 if group is None else group.waiting + group.leased

    @staticmethod
    def _until(condition: Callable[[], object]) -> None:
        end = time.monotonic() + _PATIENCE_S
        while not condition():
            if time.monotonic() > end:
                raise AssertionError("it never happened")
            threading.Event().wait(0.005)


if __name__ == "__main__":
    logging.getLogger("embedq").setLevel(logging.CRITICAL)
    if "unkept" in sys.argv:
        Desk.keep = lambda *_: None  # type: ignore[method-assign]
    Stopped(sys.argv[1]).run()
