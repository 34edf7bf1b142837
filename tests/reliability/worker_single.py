"""One call to an engine while a system call fails below it, and what the engine does then.

Knows: what each call needs beforehand, what a caller may do after each error.
Does not know: which system call fails, what must be true of the file.

The fault strikes once, at a call number that the padding places. Padding up to it tells how many
calls there were before. Whether it struck inside the call under test is found out afterwards, by
padding on: a fault that is still to come strikes there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from embedq.broker.engine import Engine
from embedq.broker.leases import Lease
from embedq.broker.state import GroupState, QueueState
from embedq.errors import EmbedqError
from tests.reliability.invariants_events import Answer, Call, Closed, Event, Put
from tests.reliability.worker import Job, Padding, calls_of, engine_of, pad
from tests.reliability.worker_calls import Calls

#: Where a single job writes what it saw.
SEEN = "seen.json"
BACKUP = "backup.db"

#: Messages that wait for the call in each queue.
WAITING = 6


class Seen(msgspec.Struct, kw_only=True):
    """What the child saw. Codes are those of errors, "" is success."""

    before: int = 0  # system calls that counted before the call under test
    result: str = ""  # of the call under test
    struck: bool = False  # inside it
    later: str = ""  # of a put afterwards
    round: str = ""  # what the upkeep's round then complained of
    at_last: str = ""  # of a put after that


def prepare(calls: Calls) -> None:
    """Fill a new file: what waits for the calls under test."""
    engine = calls.engine
    for name, groups in (("sole", ("default",)), ("pair", ("left", "right"))):
        queue = engine.queue(name)
        for group in groups:
            engine.group(queue, group)
        calls.put_many(queue, WAITING, 300)


class _Single:
    """A call under test with what it needs."""

    def __init__(self, job: Job, engine: Engine, calls: Calls) -> None:
        self.job = job
        self.engine = engine
        self.calls = calls
        self.queue: QueueState = engine.queue("sole")
        self.group: GroupState = engine.group(self.queue)
        self.pair: QueueState = engine.queue("pair")
        self.left: GroupState = engine.group(self.pair, "left")
        self.leases: list[Lease] = []
        self.result = ""
        engine.upkeep.round()  # makes the ballast
        name = job.kind
        if name in {"ack", "fail", "reject", "release"}:
            self.leases = calls.claim(self.group, 3)
        elif name.startswith("pair_"):
            self.leases = calls.claim(self.left, 3)
        elif name == "claim":
            # Only what is in memory is claimed by one commit.
            calls.release(calls.claim(self.group, 1))
        elif name == "checkpoint":
            for _ in range(5):
                calls.put(self.queue, 2000)
        self.padded = self.pad(job.pad)

    def pad(self, calls: int) -> int:
        """Pad in the thread that commits; return what `pad` of the worker does."""
        if not self.job.crowd:
            return pad(self.job, calls)
        padding = Padding(self.job, calls)
        self.engine.writer._crowded = True
        self.engine.writer.run(padding)
        return padding.made

    def act(self) -> None:
        """Make the call."""
        calls, leases = self.calls, self.leases
        acts: dict[str, Callable[[], object]] = {
            "put": lambda: calls.put(self.queue, 100),
            "put_large": lambda: calls.put(self.queue, 30_000),
            "put_many": lambda: calls.put_many(self.queue, 20, 400),
            "put_drafts": lambda: calls.put_drafts(
                self.queue,
                [(Put(0, 50, "dedup", "key"), 5, 0), (Put(0, 50, None, "key", 2), 0, 9000)],
            ),
            "claim": lambda: calls.claim(self.group, 4),
            "ack": lambda: calls.ack(leases),
            "fail": lambda: calls.fail(leases[0], 5.0),
            "reject": lambda: calls.reject(leases[0]),
            "release": lambda: calls.release(leases),
            "pair_ack": lambda: calls.ack(leases),
            "pair_reject": lambda: calls.reject(leases[0]),
            "cancel": lambda: calls.cancel(self.queue, [1, 2]),
            "checkpoint": self._checkpoint,
            "backup": self._backup,
            "close": self.engine.close,
        }
        try:
            acts[self.job.kind]()
        except EmbedqError as error:
            self.result = error.code

    def _checkpoint(self) -> None:
        with self.engine.writer.lock:
            self.engine.store.rest(100)

    def _backup(self) -> None:
        self.engine.backup(Path(self.job.path).with_name(BACKUP))

    def struck(self) -> bool:
        """Whether the fault has struck by now; if not, it strikes here."""
        if self.job.kind == "close":
            return pad(self.job, self.job.probes) >= 0
        try:
            return self.pad(self.job.probes) >= 0
        except EmbedqError:
            return True  # a store that has stopped


def single(job: Job, note: Callable[[Event], object]) -> None:
    """Make the call of the job and write down what was seen; the process ends here."""
    seen = Seen()
    if job.kind == "open":
        _open(job, note, seen)
    else:
        engine = engine_of(job)
        refusals = _Refusals(note)
        one = _Single(job, engine, calls_of(job, engine, refusals))
        if one.padded < 0:  # only the counting was asked for
            seen.before = -one.padded
        else:
            refusals.code = ""
            one.act()
            seen.result = one.result or refusals.code
            seen.struck = one.struck()
            _afterwards(one, refusals, seen, note)
    Path(job.path).with_name(SEEN).write_bytes(msgspec.json.encode(seen))
    os._exit(0)


def _open(job: Job, note: Callable[[Event], object], seen: Seen) -> None:
    pad(job, job.pad)
    try:
        engine = engine_of(job)
    except EmbedqError as error:
        seen.result = error.code
    seen.struck = pad(job, job.probes) >= 0
    if not seen.result:
        calls = calls_of(job, engine, note)
        calls.put(engine.queue("sole"), 10)
        engine.close()
        note(Closed())


def _afterwards(
    one: _Single, refusals: _Refusals, seen: Seen, note: Callable[[Event], object]
) -> None:
    if one.job.kind == "close":
        if not seen.result:
            note(Closed())
        return
    seen.later = refusals.of(lambda: one.calls.put(one.queue, 50))
    one.engine.upkeep.round()
    trouble = one.engine.upkeep.trouble
    seen.round = getattr(trouble, "code", "") if trouble else ""
    seen.at_last = refusals.of(lambda: one.calls.put(one.queue, 50))
    stopped = one.engine.store.stopped
    one.engine.close()
    if stopped is None:
        note(Closed())


class _Refusals:
    """Passes events on, and keeps the code of the latest refusal."""

    def __init__(self, note: Callable[[Event], object]) -> None:
        self._note = note
        self.code = ""

    def __call__(self, event: Event) -> None:
        """Note an event."""
        if not isinstance(event, Call | Answer):
            self.code = getattr(event, "code", "")
        self._note(event)

    def of(self, act: Callable[[], object]) -> str:
        """Return the code with which a call was refused, "" if it was not."""
        self.code = ""
        act()
        return self.code
