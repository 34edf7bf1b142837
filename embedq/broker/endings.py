"""How a delivery may end, as values, and the task that settles many at once.

Knows: the endings, that all of one call are settled in one commit.
Does not know: what each ending commits (settling.py), who decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from embedq.broker import redaction
from embedq.broker.leases import Lease
from embedq.broker.settling import (
    Acks,
    Failures,
    Rejections,
    Releases,
    Settle,
    TailReleases,
)
from embedq.broker.state import GroupState
from embedq.lifecycle import Outcome, Reason
from embedq.message import ErrorInfo
from embedq.storage.ops import Op
from embedq.storage.writer import Task

if TYPE_CHECKING:
    from embedq.broker.engine import Engine


@dataclass(frozen=True, slots=True)
class Done:
    """The message is done."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed: again after `delay_s` seconds, or dead without attempts left.

    `tail`: again at once instead, behind all that wait now (a message with an ordering key keeps
    its place).
    """

    error: ErrorInfo | None = None
    delay_s: float = 0.0
    outcome: Outcome = Outcome.FAILED
    tail: bool = False


@dataclass(frozen=True, slots=True)
class Rejected:
    """Dead now, whatever attempts are left. `by`: who decided."""

    reason: Reason = Reason.REJECTED
    detail: str = ""
    error: ErrorInfo | None = None
    by: str = ""
    outcome: Outcome = Outcome.FAILED


@dataclass(frozen=True, slots=True)
class Released:
    """Given back as if it had never been delivered; with `tail` behind all that wait now."""

    tail: bool = False


Ending = Done | Failed | Rejected | Released

DONE: Final = Done()
RELEASED: Final = Released()
RELEASED_TO_TAIL: Final = Released(tail=True)


class Together(Task):
    """Several tasks in one commit, in order."""

    __slots__ = ("tasks",)

    def __init__(self, tasks: Sequence[Task]) -> None:
        super().__init__(sum([task.size for task in tasks]))
        self.tasks = tasks

    def prepare(self) -> Sequence[Op]:
        """Return what all of them commit."""
        ops: list[Op] = []
        for task in self.tasks:
            ops += task.prepare()
        return ops

    def apply(self) -> None:
        """Bring memory up to date, one after the other."""
        for task in self.tasks:
            task.apply()

    def undo(self) -> None:
        """Nothing was committed."""
        for task in self.tasks:
            task.undo()


class AllAlone(Together):
    """Several tasks in a commit that has nothing else."""

    __slots__ = ()

    alone = True


class Settlement(Together):
    """Settle deliveries of any groups, each in its own way.

    A lease named twice is settled the way that was named first.
    """

    __slots__ = ()

    tasks: Sequence[Settle]

    def __init__(self, engine: Engine, pairs: Iterable[tuple[Lease, Ending]]) -> None:
        endings: dict[Lease, Ending] = {}
        for lease, ending in pairs:
            endings.setdefault(lease, ending)
        super().__init__(_tasks(engine, endings))

    @property
    def stale(self) -> list[Lease]:
        """The leases that no longer counted: nothing was changed for them."""
        return [lease for task in self.tasks for lease in task.stale]


def _tasks(engine: Engine, endings: dict[Lease, Ending]) -> list[Settle]:
    """Make as few tasks as possible: acks and releases of a group go together."""
    if len(endings) == 1:
        (lease,) = endings
        if endings[lease] is DONE:
            return [Acks(engine, lease.group, [lease])]
    done: dict[GroupState, list[Lease]] = {}
    released: dict[tuple[GroupState, bool], list[Lease]] = {}
    tasks: list[Settle] = []
    for lease, ending in endings.items():
        group = lease.group
        match ending:
            case Done():
                done.setdefault(group, []).append(lease)
            case Released(tail):
                released.setdefault((group, tail), []).append(lease)
            case Failed(error, delay_s, outcome, tail):
                text = redaction.stored(error, engine.redact)
                delay_ms = round(delay_s * 1000)
                failed = (engine, group, [lease], outcome, text, delay_ms)
                tasks.append(Failures(*failed, tail=tail))
            case Rejected():
                tasks.append(_rejection(engine, lease, ending))
    tasks += [Acks(engine, group, leases) for group, leases in done.items()]
    for (group, tail), leases in released.items():
        tasks.append((TailReleases if tail else Releases)(engine, group, leases))
    return tasks


def _rejection(engine: Engine, lease: Lease, ending: Rejected) -> Rejections:
    group = lease.group
    task = Rejections(engine, group, [lease], ending.reason, ending.detail, ending.by)
    task.cause = redaction.stored(ending.error, engine.redact)
    task.outcome = ending.outcome
    return task
