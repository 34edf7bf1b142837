"""What becomes of the deliveries that a client held when it ended, and how that is told.

Knows: marks, reports about processes, which deliveries have crashed and which go back.
Does not know: connections, how an end is noticed (sessions.py).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from embedq.broker import crashing, deaths, moves
from embedq.broker.desk import Desk
from embedq.broker.endings import RELEASED
from embedq.errors import StoreFailed
from embedq.ipc import place
from embedq.ipc.calls import WorkerDeath
from embedq.ipc.marks import SUFFIX
from embedq.ipc.remains import TIMEOUT, Remains, sort_out, timeout_error
from embedq.ipc.session import Session
from embedq.message import ErrorInfo
from embedq.storage.ops import CloseSession
from embedq.storage.rows import Death

if TYPE_CHECKING:
    from collections.abc import Coroutine

_log = logging.getLogger("embedq.ipc")

#: Seconds that whoever watches over a process has to say how it ended.
REPORT_S: Final = 0.3
#: Reports that are kept, of processes that have no session yet or any more.
_REPORTS: Final = 256
#: Messages that an event names.
_NAMED: Final = 5


class Ends:
    """Settles what sessions held. Belongs to the loop of the server."""

    def __init__(self, desk: Desk, folder: Path) -> None:
        self._desk = desk
        self._folder = folder
        self._loop = asyncio.get_running_loop()
        self._reports: dict[bytes, asyncio.Future[WorkerDeath]] = {}
        self._work: set[asyncio.Task[Any]] = set()

    def close(self) -> None:
        """Leave the rest to the desk."""
        for task in self._work:
            task.cancel()

    def reported(self, death: WorkerDeath) -> None:
        """Somebody who watched over the process of a session says how it ended."""
        report = self._report_of(death.session)
        if not report.done():
            report.set_result(death)

    def _report_of(self, token: bytes) -> asyncio.Future[WorkerDeath]:
        report = self._reports.get(token)
        if report is None:
            report = self._reports[token] = self._loop.create_future()
            while len(self._reports) > _REPORTS:
                del self._reports[next(iter(self._reports))]
        return report

    async def bury(self, session: Session) -> None:
        """Settle what a session held whose process has ended, and tell."""
        report: WorkerDeath | None = None
        if session.boss is not None:
            with suppress(TimeoutError):
                future = asyncio.shield(self._report_of(session.token))
                report = await asyncio.wait_for(future, REPORT_S)
        self._reports.pop(session.token, None)
        death = Death(pid=session.pid)
        if report is not None:
            death = death._replace(code=report.code, fatal=report.fatal, frames=report.frames)
        cause = deaths.describe(death, "worker")
        if report is not None and report.killed_for == TIMEOUT:
            cause = timeout_error(report.timeout_s)
        left = await self._settle(session, cause, report)
        self._remove_marks(session)
        await self._desk.arun(moves.Change([CloseSession(session.id)]))
        if report is not None and report.in_order and not left.started:
            return  # only its farewell has not arrived: a busy host was too slow to read it
        self._desk.events.emit(
            "worker_died",
            worker=session.name,
            pid=session.pid,
            cause=deaths.summary(cause),
            rss=0 if report is None else report.rss,
            started=len(left.started),
            released=left.released,
            messages=[self._desk.ids.encode(lease.seq) for lease in left.started[:_NAMED]],
        )

    async def give_up(self, session: Session, away_s: float) -> None:
        """Settle what a session held that has been away for too long, and tell."""
        text = (
            f"{session} has not answered for {away_s} s: it was stopped, or its connection broke"
        )
        left = await self._settle(session, ErrorInfo.capped("ClientLost", text))
        self._desk.events.emit(
            "client_lost",
            client=session.name,
            pid=session.pid,
            seconds=away_s,
            started=len(left.started),
            released=left.released,
        )

    async def late(self, session: Session) -> None:
        """Settle a delivery that was met after its session had ended."""
        cause = session.cause or ErrorInfo.capped("ClientLost", f"{session} is gone")
        await self._settle(session, cause)

    async def drop(self, session: Session, text: str) -> None:
        """Settle what a session held that broke the rules."""
        cause = ErrorInfo.capped("ClientDropped", f"{session} was dropped: {text}")
        await self._settle(session, cause)

    async def _settle(
        self, session: Session, cause: ErrorInfo, report: WorkerDeath | None = None
    ) -> Remains:
        """End what a session held: what had started has crashed, what waits costs nothing."""
        session.cause = cause
        left = sort_out(session, self._desk.store.epoch, cause, report)
        counters = list(session.leases)
        session.settling.update(counters)
        try:
            await self._desk.asettle(left.pairs)
            await crashing.acrashed(self._desk, left.crashed, cause)
        finally:
            session.dropped(counters)
        return left

    async def give_back(self, session: Session, counters: list[int]) -> None:
        """Let deliveries be ready again, as if they had never started."""
        held = [session.leases[counter] for counter in counters if counter in session.leases]
        session.settling.update(counters)
        try:
            await self._desk.asettle([(each.lease, RELEASED) for each in held])
        finally:
            session.dropped(counters)

    def _remove_marks(self, session: Session) -> None:
        marks = session.marks
        if marks is None or Path(marks).parent != self._folder or not marks.endswith(SUFFIX):
            return
        try:
            place.remove(Path(marks))
        except StoreFailed as error:
            _log.warning("%s", error.message)

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something be done that no request waits for."""
        task = self._loop.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._work.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("a session could not be looked after", exc_info=task.exception())
