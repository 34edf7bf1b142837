"""Kill a host again and again, open what it left, and go on with that: one file, many deaths.

Knows: the worker program and its pipe, when to kill, how a file is opened and checked afterwards.
Does not know: what the worker does, what the invariants are.
"""

from __future__ import annotations

import os
import random
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

import embedq
from embedq.broker.host import open_engine
from embedq.clock import VirtualClock
from tests.processes import kill
from tests.reliability.checker import Rules
from tests.reliability.checker_end import check
from tests.reliability.invariants import Checker
from tests.reliability.invariants_events import Answer, Closed, Died, Elapsed, Event
from tests.reliability.invariants_file import read
from tests.reliability.told import lines_of
from tests.reliability.worker import Ended, Job, Started
from tests.reliability.worker_calls import Calls, count_problems
from tests.reliability.worker_mixes import MAX_ATTEMPTS

ROOT = str(Path(embedq.__file__).parents[1])

#: Nothing a worker does may take longer than this.
_PATIENCE_S = 60.0
#: Delays of up to an hour are over by then.
_LATER_S = 7200.0
_MEMORY = Path("/dev/shm")
#: So much must be free there: eight times the watermark.
_ROOMY_BYTES = 512 << 20

_decode = msgspec.json.Decoder(Event | Started | Ended).decode


class Worker:
    """The worker program from its parent's side."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._in = process.stdin
        self._out = process.stdout
        self._rest = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)

    def start(self, job: Job) -> int:
        """Give a job to a child; return its pid."""
        self._in.write(msgspec.json.encode(job) + b"\n")
        self._in.flush()
        for message in self.messages():
            if isinstance(message, Started):
                return message.pid
        raise AssertionError("no child was started")

    def messages(self, until: float | None = None) -> Iterator[Event | Started | Ended]:
        """Return what the child says, until it ends or `until` (monotonic seconds) has come."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            line, newline, rest = self._rest.partition(b"\n")
            if newline:
                self._rest = rest
                message = _decode(line)
                yield message
                if isinstance(message, Ended):
                    return
                continue
            left = (deadline if until is None else until) - time.monotonic()
            if self._selector.select(max(0.0, left)):
                more = os.read(self._out.fileno(), 1 << 16)
                if not more:
                    raise AssertionError("the worker program ended")
                self._rest += more
            elif until is not None:
                return
            else:
                raise AssertionError(f"the worker said nothing for {_PATIENCE_S} s")

    def run(self, job: Job) -> tuple[list[Event], int]:
        """Let a child do a job to its end; return its events and how it ended."""
        self.start(job)
        return self.ended()

    def run_and_kill(self, job: Job, after_s: float) -> tuple[list[Event], int]:
        """Kill a child so long after it first confirmed anything."""
        pid = self.start(job)
        events: list[Event] = []
        for message in self.messages():
            if isinstance(message, Ended):
                return events, message.status
            assert not isinstance(message, Started)
            events.append(message)
            if isinstance(message, Answer):
                break
        more = self.messages(until=time.monotonic() + after_s)
        events += [event for event in more if not isinstance(event, Started | Ended)]
        os.kill(pid, signal.SIGKILL)
        rest, status = self.ended()
        return events + rest, status

    def ended(self) -> tuple[list[Event], int]:
        """Return what the child says until it ends, and how it ended."""
        events: list[Event] = []
        for message in self.messages():
            if isinstance(message, Ended):
                return events, message.status
            if not isinstance(message, Started):
                events.append(message)
        raise AssertionError("the child did not end")


@contextmanager
def worker(*under: str) -> Iterator[Worker]:
    """Run the worker program, `under` another one such as strace; it ends with this block."""
    with subprocess.Popen(
        [*under, sys.executable, "-m", "tests.reliability.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": ROOT},
        start_new_session=True,  # strace leaves behind what it runs if only it is killed
    ) as process:
        try:
            yield Worker(process)
            assert process.stdin is not None
            process.stdin.close()
            process.wait(_PATIENCE_S)
        finally:
            kill(process)


@contextmanager
def memory_folder(otherwise: Path) -> Iterator[Path]:
    """Make a folder in memory where there is one: a kill takes nothing from the page cache.

    Not in a small one: below its watermark an engine keeps no ballast and refuses puts, and then a
    test depends on what its neighbours have there.
    """
    if not _MEMORY.is_dir() or shutil.disk_usage(_MEMORY).free < _ROOMY_BYTES:
        yield otherwise
        return
    with tempfile.TemporaryDirectory(prefix="embedq-test-", dir=_MEMORY) as name:
        yield Path(name)


@dataclass
class Report:
    """What a chain of deaths came to."""

    deaths: int = 0
    confirmed: int = 0
    settled: int = 0
    problems: list[str] = field(default_factory=list)

    def __add__(self, other: Report) -> Report:
        """Add up two reports."""
        return Report(
            self.deaths + other.deaths,
            self.confirmed + other.confirmed,
            self.settled + other.settled,
            self.problems + other.problems,
        )


class Chain:
    """One file through many hosts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checker = Checker(MAX_ATTEMPTS)
        self.deaths = 0
        self._tags = 1
        self._events: list[Event] = []

    def first(self) -> int:
        """Return a tag from which on nobody has used any."""
        self._tags += 100_000
        return self._tags

    def feed(self, events: Sequence[Event]) -> None:
        """Take in what a host said."""
        for event in events:
            self._note(event)
        if not (events and isinstance(events[-1], Closed)):
            self._note(Died())
            self.deaths += 1

    def _note(self, event: Event) -> None:
        self.checker.feed(event)
        self._events.append(event)

    def check(self, *, drain: bool = False, clean: bool = True) -> list[str]:
        """Open the file as the next host would; return what is wrong. `drain` empties it."""
        clock = VirtualClock(time.time() + _LATER_S)
        engine = open_engine(self.path, clock=clock, upkeep=False)
        try:
            engine.upkeep.count()
            held = read(self.path)
            problems = self.checker.problems(held)
            problems += count_problems(engine, held)
            self.checker.adopt(held)
            if drain and not problems:
                problems += self._drain(Calls(engine, self._note, self.first()))
        finally:
            if clean:
                engine.close()
            else:
                engine.store.close(clean=False)
        return problems

    def _drain(self, calls: Calls) -> list[str]:
        """Deliver what is left: nothing may be stuck (P2), nothing come that was settled (P3)."""
        engine = calls.engine
        for queue in engine.queues.values():
            for group in queue.groups:
                while calls.drain(group):
                    self._note(Elapsed())
        held = read(self.path)
        problems = self.checker.problems(held) + list(count_problems(engine, held))
        problems += [
            f"{group.waiting} messages are stuck in {queue.name}/{group.name}"
            for queue in engine.queues.values()
            for group in queue.groups
            if group.waiting
        ]
        # The judge of whole hosts knows less of a call, and has the same opinion of all of them.
        rules = Rules(max_attempts=MAX_ATTEMPTS)
        return problems + [str(broken) for broken in check(lines_of(self._events), held, rules)]

    def report(self, problems: list[str]) -> Report:
        """Sum up."""
        return Report(self.deaths, self.checker.confirmed, self.checker.settled, problems)


def chain(
    program: Worker, path: Path, *, deaths: int, seed: str, planted: str = "", **options: object
) -> Report:
    """Kill mixes at random moments, counted from the first confirmation, on one file.

    Stops at the first problem. `options` are those of the job.
    """
    rng = random.Random(seed)
    one = Chain(path)
    problems: list[str] = []
    for number in range(deaths):
        job = Job(
            path=str(path),
            kind="mix",
            seed=f"{seed}/{number}",
            threads=rng.choice((1, 2, 4, 4)),
            first=one.first(),
            small=rng.random() < 0.5,
            planted=planted,
            **options,  # type: ignore[arg-type]
        )
        events, status = program.run_and_kill(job, rng.random() ** 2 * 0.12)
        one.feed(events)
        if status != -signal.SIGKILL:
            problems.append(f"the worker ended by itself: {status}")
        last = number == deaths - 1
        problems += one.check(drain=last, clean=rng.random() < 0.5)
        if problems:
            return one.report([f"{problem} [seed {job.seed}]" for problem in problems])
    return one.report([])
