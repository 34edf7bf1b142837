"""A campaign: so many inputs for a protocol, in rounds, and a report of what became of them.

Knows: that the same seed gives the same inputs, how to find the one input that is to blame.
Does not know: what is judged (arena.py, wires below), how a report is printed.
"""

from __future__ import annotations

import random
import resource
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from tests.fuzzing.arena import Problem, Round
from tests.fuzzing.dialects import DIALECTS, Dialect
from tests.fuzzing.mutations import mutated, pieces

#: Inputs in one round.
TOGETHER: Final = 100
#: Inputs that only the wire gets, for each that a session gets, too.
WIRES: Final = 3
#: MiB by which a campaign may grow.
GROWTH_MIB: Final = 64
_MOST_PROBLEMS: Final = 20


@dataclass
class Report:
    """What became of a campaign."""

    protocol: str
    seed: int
    inputs: int = 0
    sessions: int = 0
    seconds: float = 0.0
    grown_mib: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


def campaign(
    protocol: str, count: int, seed: int, *, until: float | None = None, most: int = 20
) -> Report:
    """Fuzz a protocol with `count` inputs, or as many as there is time for (monotonic seconds).

    `most`: problems after which it ends. With 1, nobody looks for the input that is to blame.
    """
    dialect = DIALECTS[protocol]()
    report = Report(protocol, seed)
    begin, base = time.process_time(), _peak_mib()
    inputs = mutated(dialect.seeds(), seed, count)
    number = 0
    while batch := list(islice(inputs, TOGETHER * (1 + WIRES))):
        through_wires(dialect, batch, seed + number, report)
        through_sessions(dialect, batch[:: 1 + WIRES], seed + number, report, blame=most > 1)
        report.inputs += len(batch)
        number += 1
        late = until is not None and time.monotonic() > until
        if late or len(report.problems) >= most:
            break
    report.seconds = time.process_time() - begin
    report.grown_mib = _peak_mib() - base
    if report.grown_mib > GROWTH_MIB:
        report.problems.append(f"memory grew by {report.grown_mib:.0f} MiB")
    return report


def through_sessions(
    dialect: Dialect, inputs: Sequence[bytes], seed: int, report: Report, *, blame: bool
) -> None:
    """Let inputs be connections of one listener. Who is to blame is found by trying each alone."""
    together = Round(dialect, inputs, seed)
    problems = together.run()
    report.sessions += len(inputs)
    report.outcomes.update(together.outcomes)
    if blame and any(problem.input is None for problem in problems):
        alone: list[Problem] = []
        for each in inputs:
            found = Round(dialect, [each], seed).run()
            alone += [Problem(problem.what, each) for problem in found]
        problems = [*problems, *alone]
    report.problems += [str(problem) for problem in problems[:_MOST_PROBLEMS]]


def through_wires(dialect: Dialect, inputs: Sequence[bytes], seed: int, report: Report) -> None:
    """Read inputs whole and cut: the same events, and no more kept than the limits allow."""
    rng = random.Random(seed)
    for data in inputs:
        try:
            wrong = misreads(dialect, data, pieces(rng, data))
        except Exception as error:  # noqa: BLE001  # whatever it is, it is what is looked for
            wrong = f"raises {error!r}"
        if wrong is not None:
            report.problems.append(str(Problem(f"a wire {wrong}", data)))


def misreads(dialect: Dialect, data: bytes, cut: Sequence[bytes]) -> str | None:
    """Return what is wrong with how a wire reads an input."""
    wire = dialect.wire()
    events = wire.feed(data)
    kept = kept_bytes(wire)
    events = [*events, *wire.end()]
    if kept > dialect.keeps:
        return f"keeps {kept} bytes"
    if len(cut) > 1:
        other = dialect.wire()
        found: list[Any] = []
        for piece in cut:
            found += other.feed(piece)
        found += other.end()
        if found != events:
            return f"reads {found} of pieces instead of {events}"
    return None


def kept_bytes(thing: object, depth: int = 2) -> int:
    """Count the bytes that a wire holds."""
    if isinstance(thing, bytes | bytearray):
        return len(thing)
    if isinstance(thing, list):
        return sum(kept_bytes(each, depth - 1) for each in thing) if depth else 0
    held = getattr(thing, "__dict__", None)
    return sum(kept_bytes(each, depth - 1) for each in held.values()) if held and depth else 0


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
