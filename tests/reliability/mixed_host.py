"""A host with everything at once, for the harness that kills it: consumers, pulls, puts, calls.

Knows: which queues and consumers there are, how a host is started, how it empties its queues.
Does not know: what handlers and producers do in detail, when it dies, what must be true.

Runs in a child of the worker program. The seed decides what is put and how handlers end; what
threads make of it is different each time. Faults that the judge must see are planted here, by
the name in the job, never in the product.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path

from embedq import Broker, Queue, RetryPolicy
from embedq.app.options import QueueOptions
from embedq.broker import settling
from embedq.broker.desk import Desk
from embedq.storage.ops import Ack, Op
from tests.reliability.checker import Rules
from tests.reliability.invariants_events import Answer, Call, Closed, Event, Opened, Put
from tests.reliability.journal import Buried, Journal, read_journal
from tests.reliability.mixed_handlers import CALM, LIVELY, Handlers
from tests.reliability.mixed_work import TOO_LONG_S, Operator, Producer, Puller, World
from tests.reliability.worker import Job

#: The lease of messages that are pulled, and what a test adds to be sure that it is over.
LEASE_S = 0.25
MAX_ATTEMPTS = 4
QUEUES = ("plain", "keyed", "batch", "order", "few", "full", "kept", "pulled")
RULES = Rules(
    max_attempts=dict.fromkeys(QUEUES, MAX_ATTEMPTS),
    ordered=frozenset({"order"}),
    drops=frozenset({"few"}),
)
#: How long a host may take to empty its queues.
PATIENCE_S = 40.0
#: With a fault it may never come to that.
PLANTED_S = 4.0


def journal_of(path: str | Path) -> Path:
    """Return where the journal of a database is."""
    return Path(f"{path}.journal")


def declare(broker: Broker, lease_s: float = 30.0) -> dict[str, Queue[bytes]]:
    """Declare the queues."""
    retry = RetryPolicy(max_attempts=MAX_ATTEMPTS, base=0.004, cap=0.02)
    options: dict[str, QueueOptions] = {
        "few": {"max_length": 12, "when_full": "drop_oldest"},
        "full": {"max_length": 8, "when_full": "reject"},
        "kept": {"retain": "1h"},
        "pulled": {"lease": LEASE_S},
    }
    found = {}
    for name in QUEUES:
        mine: QueueOptions = {"lease": lease_s, **options.get(name, {})}
        found[name] = broker.queue(name, bytes, retry=retry, **mine)
    return found


def consume(queues: dict[str, Queue[bytes]], handlers: Handlers) -> None:
    """Register the consumers."""
    thread, coroutine = handlers.thread, handlers.coroutine
    queues["plain"].consumer(group="work", concurrency=2)(thread)
    queues["plain"].consumer(group="audit", concurrency=3)(coroutine)
    queues["keyed"].consumer(concurrency=3)(thread)
    queues["batch"].consumer(batch=10, linger="3ms")(handlers.batch)
    queues["order"].consumer(concurrency=1)(thread)
    queues["few"].consumer(concurrency=1)(thread)
    queues["full"].consumer(concurrency=1)(coroutine)
    queues["kept"].consumer(group="left")(thread)
    queues["kept"].consumer(group="right", concurrency=2)(coroutine)


class MixedHost:
    """One host, from opening to its death, or until everything is done."""

    def __init__(self, job: Job, note: Callable[[Event], object]) -> None:
        self._job = job
        self._note = note
        self._drains = job.kind == "mixed drain"
        self._once = threading.Lock()
        path = journal_of(job.path)
        self._unanswered = unanswered(path) if path.exists() else []
        self.journal = Journal(path)
        ways = CALM if self._drains else LIVELY
        self.handlers = Handlers(self.journal, f"{job.seed}/handlers", ways)
        self.broker = Broker(job.path, durability=job.durability)
        self.queues = declare(self.broker, 0.1 if job.planted == "short leases" else 30.0)
        consume(self.queues, self.handlers)
        self.broker.on("dead", self._dead)
        self.world = World(
            *(self.broker, self.queues, self.journal, self.handlers),
            *(count(job.first), count(job.first), self._confirmed, job.planted),
        )

    @property
    def _desk(self) -> Desk:
        desk = self.broker.desk
        assert isinstance(desk, Desk)  # this process is the host
        return desk

    def _dead(self, notice: object) -> None:
        fields = notice.fields  # type: ignore[attr-defined]
        self.journal.note(
            Buried(fields["queue"], fields["group"], fields["seq"], fields["reason"])
        )

    def _confirmed(self) -> None:
        if self._once.acquire(blocking=False):  # for ever: once is enough
            self._note(Answer(0))

    def run(self) -> None:
        """Serve until somebody kills the process, or until everything is done."""
        plant(self._job, self.handlers)
        epoch = self._open()
        self.journal.note(Opened(epoch))
        self._note(Opened(epoch))
        self.broker.start()
        self._repeat()
        if self._drains:
            self._drain()
            return
        seed = self._job.seed
        steps = [Producer(self.world, f"{seed}/producer {n}").step for n in range(2)]
        steps += [Puller(self.world, f"{seed}/puller {n}").step for n in range(2)]
        steps.append(Operator(self.world, f"{seed}/operator").step)
        for step in steps:
            threading.Thread(target=forever, args=(step,), daemon=True).start()
        asyncio.run(self._coroutines())

    async def _coroutines(self) -> None:
        producer = Producer(self.world, f"{self._job.seed}/coroutines")
        killer = select.poll()
        killer.register(0, 0)  # only whether the other end is gone
        while not killer.poll(0):
            await producer.astep()
        os._exit(1)  # nobody is left to kill this process

    def _open(self) -> int:
        """Open the file, and make the groups that everything put from now on is for."""
        desk = self._desk
        for name, groups in (("plain", ("work", "audit")), ("kept", ("left", "right"))):
            for group in groups:
                self.queues[name].group(group, start="beginning")
        for name in QUEUES:
            if name not in {"plain", "kept"}:
                self.queues[name].group(start="beginning")
        return desk.store.epoch

    def _repeat(self) -> None:
        """Put again what the last host did not confirm, where that is safe (P10)."""
        producer = Producer(self.world, f"{self._job.seed}/again")
        for queue, put in self._unanswered:
            producer.put(self.queues[queue], [put])

    def _drain(self) -> None:
        for queue in self.queues.values():
            queue.resume()
        puller = Puller(self.world, f"{self._job.seed}/puller", (0.0,))
        if self._job.planted == "blind":  # somebody must be late, and somebody else not
            slow = Puller(self.world, f"{self._job.seed}/slow", (2 * TOO_LONG_S,))
            threading.Thread(target=forever, args=(slow.step,), daemon=True).start()
        desk = self._desk
        desk.upkeep.count()  # else it would be known only in a second what waits
        until = desk.monotonic() + (PLANTED_S if self._job.planted else PATIENCE_S)
        while desk.monotonic() < until:
            groups = list(desk.groups())
            if not any(group.waiting or group.leases for group in groups):
                break
            puller.step()  # waits a little if there is nothing
            self.handlers.nap(0.002)
        if self._job.planted == "blind":
            self.handlers.nap(4 * TOO_LONG_S)
        self.broker.stop()
        self.journal.note(Closed())
        self._note(Closed())


def forever(step: Callable[[], object]) -> None:
    """Make steps until the process ends. What goes wrong ends it, too."""
    try:
        while True:
            step()
    except BaseException:
        # The harness itself is at fault, and must not be taken for a host that goes on.
        logging.getLogger("worker").exception("the mixed host failed")
        os._exit(1)


def unanswered(path: Path) -> list[tuple[str, Put]]:
    """Return the puts that can be repeated safely and were not answered, with their queues."""
    open_: dict[int, tuple[str, Put]] = {}
    for line in read_journal(path):
        match line.record:
            case Call(id, "put", queue, puts=(put,)) if (put.dedup or "").startswith("u"):
                open_[id] = (queue, put)
            case Answer(id):
                open_.pop(id, None)
            case _:
                pass
    return list({put.tag: (queue, put) for queue, put in open_.values()}.values())


# ------------------------------------------------------------------------------- faults


def plant(job: Job, handlers: Handlers) -> None:
    """Make a mistake that the judge must see. Most of them producers make: see mixed_work."""
    match job.planted:
        case "early ack":
            handlers.early = True
        case "blind":
            handlers.blind = True
        case "deaf":
            settling.Acks.ops = forget_acks  # type: ignore[assignment, method-assign]
        case "uncounted":
            uncount(job.path)
        case "short leases":
            Desk.keep = lambda *_: None  # type: ignore[method-assign]
            handlers.naps_s = (0.0, 0.0, 0.4)
        case _:
            pass


def forget_acks(task: settling.Acks) -> Sequence[Op]:
    """Store nothing of an ack."""
    task._op = Ack(task._group.id, 0, [])
    return ()


def uncount(path: str) -> None:
    """Take from the file what was being delivered when the last host died."""
    with closing(sqlite3.connect(path)) as connection, connection:
        known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'delivery'")
        if known.fetchone():
            connection.execute("DELETE FROM delivery WHERE ended IS NULL")
