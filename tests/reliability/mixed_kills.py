"""Kill mixed hosts at random moments, let a last one finish, and have everything judged.

Knows: when to kill, that one file goes through all of it, what a run is summed up to.
Does not know: what hosts do (mixed_host.py), what must be true (checker.py).
"""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.reliability.checker import Broken, endings_of
from tests.reliability.checker_end import check
from tests.reliability.invariants_events import Answer
from tests.reliability.invariants_file import read
from tests.reliability.journal import Line, Start, read_journal
from tests.reliability.killing import Worker
from tests.reliability.mixed_host import RULES, journal_of
from tests.reliability.worker import Job

#: Every so often a host is killed while it opens, not after it has confirmed something.
_EARLY = 0.15
_OPENING_S = 0.08
#: The longest a host lives after it has confirmed something.
_LIFE_S = 0.5


@dataclass
class Outcome:
    """What a chain of deaths came to."""

    deaths: int = 0
    confirmed: int = 0
    started: int = 0
    ended: int = 0
    broken: list[Broken] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)

    @property
    def promises(self) -> set[str]:
        """Which promises were broken."""
        return {one.promise for one in self.broken}

    def told(self, most: int = 5) -> str:
        """Return the first problems, with their evidence."""
        return "\n".join([*self.trouble, *map(str, self.broken[:most])])


def mixed_chain(
    program: Worker, path: Path, *, deaths: int, seed: str, planted: str = "", **options: object
) -> Outcome:
    """Kill so many mixed hosts of one file, then let one empty the queues. Judges all of it."""
    rng = random.Random(seed)
    outcome = Outcome()
    for number in range(deaths + 1):
        job = Job(
            path=str(path),
            kind="mixed drain" if number == deaths else "mixed",
            seed=f"{seed}/{number}",
            first=1 + 100_000 * number,
            planted=planted,
            **options,  # type: ignore[arg-type]
        )
        if number == deaths:
            status, expected = program.run(job)[1], 0
        else:
            status, expected = _kill(program, job, rng), -signal.SIGKILL
            outcome.deaths += 1
        if status != expected:
            outcome.trouble.append(f"host {job.seed} ended with {status}")
    if not journal_of(path).exists():
        outcome.trouble.append(f"no host has written {journal_of(path)}")
        return outcome
    lines = read_journal(journal_of(path))
    # What the last host did not come to is its own trouble, and no broken promise.
    rules = replace(RULES, drained=False) if outcome.trouble else RULES
    outcome.broken = check(lines, read(path), rules)
    _count(outcome, lines)
    return outcome


def _kill(program: Worker, job: Job, rng: random.Random) -> int:
    if rng.random() >= _EARLY:
        return program.run_and_kill(job, rng.random() ** 2 * _LIFE_S)[1]
    pid = program.start(job)
    for _ in program.messages(until=time.monotonic() + rng.random() * _OPENING_S):
        pass
    os.kill(pid, signal.SIGKILL)
    return program.ended()[1]


def _count(outcome: Outcome, lines: list[Line]) -> None:
    outcome.confirmed = sum(
        len(line.record.seqs) for line in lines if isinstance(line.record, Answer)
    )
    outcome.started = sum(isinstance(line.record, Start) for line in lines)
    outcome.ended = endings_of(lines)
