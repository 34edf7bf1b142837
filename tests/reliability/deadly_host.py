"""A host whose messages kill it: run again and again on one file, until it ends by itself.

Knows: how a handler, or a program that pulls, can end its process, and what it does before.
Does not know: how often it is started, what must be left.

    python -m tests.reliability.deadly_host DATABASE LOG KIND HOW [uncounted]

A body says what its handler does: "n…" is done after a moment, "k…" kills, "ack", "nack" and
"once" kill after an ack, after a nack, and at the first attempt only. `uncounted` is a planted
fault: what was at work when the last host died is forgotten.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence

from embedq import Batch, Broker, Delivery, Queue, RetryPolicy
from embedq.broker.desk import Desk

#: How a process can end without a word, and the exit code that its parent sees.
HOWS: dict[str, tuple[Callable[[], object], int]] = {
    "SIGKILL": (lambda: os.kill(os.getpid(), signal.SIGKILL), -9),
    "SIGSEGV": (getattr(faulthandler, "_sigsegv"), -11),  # noqa: B009 - it is not in the stubs
    "abort": (os.abort, -6),
    "exit": (lambda: os._exit(7), 7),
}
MOST = 5
MAX_CRASHES = 3


class Deadly:
    """One start of the program."""

    def __init__(self, path: str, log: str, kind: str, how: str) -> None:
        self.broker = Broker(path)
        retry = RetryPolicy(max_attempts=MOST, base=0, cap=0)
        self.queue: Queue[str] = self.broker.queue(
            "orders", str, retry=retry, max_crashes=MAX_CRASHES
        )
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._kind = kind
        self._kill = HOWS[how][0]
        self._nap = threading.Event()

    def note(self, what: str, body: str, group: str = "default") -> None:
        """Write a line that outlives this process."""
        os.write(self._log, f"{what} {group} {body}\n".encode())

    def consume(self) -> None:
        """Register the consumer of the kind that was asked for."""
        kinds: dict[str, Callable[[], object]] = {
            "thread": lambda: self.queue.consumer(concurrency=4)(self.thread),
            "async": lambda: self.queue.consumer(concurrency=4)(self.coroutine),
            "batch": lambda: self.queue.consumer(batch=4)(self.batch),
            "groups": self._two_groups,
            "pull": lambda: None,
        }
        kinds[self._kind]()

    def _two_groups(self) -> None:
        self.queue.group("deadly", start="beginning")
        self.queue.group("tame", start="beginning")
        self.queue.consumer(group="deadly")(self.thread)
        self.queue.consumer(group="tame")(self.tame)

    def thread(self, body: str, delivery: Delivery[str]) -> None:
        """Handle a message on a thread."""
        self.note("start", body, delivery.group)
        self._nap.wait(0.02)  # neighbours start meanwhile
        self.act(body, delivery)
        self.note("done", body, delivery.group)

    def act(self, body: str, delivery: Delivery[str]) -> None:
        """Kill, if that is what the body says."""
        if body == "ack":
            delivery.ack()
        elif body == "nack":
            delivery.nack()
        elif not body.startswith("k") and (body != "once" or delivery.attempt > 1):
            return
        self._kill()

    async def coroutine(self, body: str, delivery: Delivery[str]) -> None:
        """Handle a message on the loop."""
        self.note("start", body)
        await asyncio.sleep(0.02)
        self.act(body, delivery)
        self.note("done", body)

    def batch(self, bodies: Batch[str]) -> None:
        """Handle several."""
        for body in bodies:
            self.note("start", body)
        for body, delivery in zip(bodies, bodies.deliveries, strict=True):
            self.act(body, delivery)
        for body in bodies:
            self.note("done", body)

    def tame(self, body: str, delivery: Delivery[str]) -> None:
        """Kill nobody."""
        self.note("start", body, delivery.group)
        self.note("done", body, delivery.group)

    def pull(self) -> None:
        """Take a message without a handler."""
        for delivery in self.queue.get_many(1, timeout=0.01):
            with delivery:
                self.note("start", delivery.body)
                self.act(delivery.body, delivery)
                self.note("done", delivery.body)

    def run(self) -> None:
        """Work until nothing is left."""
        self.consume()
        with self.broker:
            desk = self.broker.desk
            assert isinstance(desk, Desk)  # this process is the host
            desk.upkeep.count()
            while any(group.waiting or group.leases for group in desk.groups()):
                if self._kind == "pull":
                    self.pull()
                self._nap.wait(0.005)


def main(arguments: Sequence[str]) -> None:
    """Run once."""
    path, log, kind, how, *more = arguments
    logging.getLogger("embedq").setLevel(logging.CRITICAL)
    if "uncounted" in more:
        from tests.reliability.mixed_host import uncount

        uncount(path)
    Deadly(path, log, kind, how).run()


if __name__ == "__main__":
    main(sys.argv[1:])
