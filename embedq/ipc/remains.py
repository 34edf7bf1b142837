"""What a client leaves behind when it is gone: how each delivery that it held is to end.

Knows: how far each had come, and what whoever watched over the process says about its end.
Does not know: connections, the desk, how anything is committed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from embedq.broker.endings import DONE, RELEASED, Ending, Failed
from embedq.broker.leases import Lease
from embedq.ipc.calls import WorkerDeath
from embedq.ipc.marks import Progress
from embedq.ipc.session import Held, Session
from embedq.lifecycle import Outcome
from embedq.message import ErrorInfo

#: Why a worker was killed by those who watch over it (WorkerDeath.killed_for).
TIMEOUT: Final = "timeout"
DRAIN: Final = "drain"


class Remains(NamedTuple):
    """How deliveries end. `crashed`: those whose handlers may have ended their process.

    `late`: those that cost an attempt and are under no suspicion: their handlers were the reason
    to end the process, or clients of its listeners had them. They are among the pairs.
    """

    pairs: list[tuple[Lease, Ending]]
    crashed: list[Lease]
    late: list[Lease]
    #: How many are given back.
    released: int

    @property
    def started(self) -> list[Lease]:
        """Those that somebody had when the process ended."""
        return [*self.crashed, *self.late]


def sort_out(
    session: Session, epoch: int, cause: ErrorInfo, report: WorkerDeath | None = None
) -> Remains:
    """Say how the deliveries of a session end. `cause`: why it ended, for those it costs."""
    progress = session.progress(epoch)
    pairs: list[tuple[Lease, Ending]] = []
    crashed: list[Lease] = []
    late: list[Lease] = []
    released = 0
    for counter, held in session.leases.items():
        ending = _ending(held, progress.get(counter), cause, report)
        if ending is not None:
            pairs.append((held.lease, ending))
            released += ending is RELEASED
            if isinstance(ending, Failed) and ending.outcome is Outcome.TIMED_OUT:
                late.append(held.lease)
        elif held.lease.is_held:
            crashed.append(held.lease)
    return Remains(pairs, crashed, late, released)


def _ending(
    held: Held, progress: Progress | None, cause: ErrorInfo, report: WorkerDeath | None
) -> Ending | None:
    """Return how a delivery ends; None: it has crashed."""
    if progress is None:
        return RELEASED
    if progress is Progress.DONE:
        return DONE
    if progress is Progress.FAILED:
        text = f"the attempt had failed, and nobody has heard why; then {cause.message}"
        return Failed(ErrorInfo.capped(cause.type, text, cause.traceback))
    if held.outside or progress is Progress.OUTSIDE:
        # A client of its listener has it: no code ran with the message that could end the process.
        return Failed(cause, 0.0, Outcome.TIMED_OUT)
    return _killed(held.lease, report)


def _killed(lease: Lease, report: WorkerDeath | None) -> Ending | None:
    """Return how a delivery ends whose handler ran; None: it has crashed."""
    if report is None or not report.killed_for:
        return None
    if report.killed_for == TIMEOUT:
        return Failed(timeout_error(report.timeout_s), _delay(lease, report), Outcome.TIMED_OUT)
    return RELEASED


def timeout_error(seconds: float) -> ErrorInfo:
    """Say that a handler had to be ended together with its process."""
    text = (
        f"the handler ran for longer than {seconds:g} seconds, and neither an exception nor "
        "SIGTERM ended it: its worker process was killed"
    )
    return ErrorInfo.capped("Timeout", text)


def _delay(lease: Lease, report: WorkerDeath) -> float:
    delays = report.delays_s
    return delays[min(lease.attempt, len(delays)) - 1] if delays else 0.0
