"""The program of a worker process: import the handler, connect to the host, run messages.

Knows: signals, the pipe to the process that watches over it, when it has to go.
Does not know: what a handler does, who starts it again.

SIGTERM: end after the message in work. SIGUSR2: the handler's time is over, or the worker has to
go now (board.Order). SIGINT is ignored: a Ctrl-C reaches every process of the terminal, and the
application decides.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import traceback
from collections.abc import MutableSequence, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from types import FrameType
from typing import Final, NamedTuple

from embedq.broker.leases import Lease
from embedq.errors import EmbedqError
from embedq.ipc.remote import RemoteDesk
from embedq.workers.board import Board, Order
from embedq.workers.finding import find
from embedq.workers.here import HERE, UNGUARDED
from embedq.workers.memory import resident
from embedq.workers.reference import Reference
from embedq.workers.reports import Note, Reports, WorkerEvents
from embedq.workers.runner import Pairs, Runner, released
from embedq.workers.solo import SoloCrew
from embedq.workers.spec import Consumers, ConsumerSpec

#: Seconds that an orphan has to finish the message in work.
ORPHAN_S: Final = 4.0
#: Exit codes beside 0, here.UNGUARDED and those of signals.
CANNOT_START: Final = 70
ORPHANED: Final = 71
#: Seconds to find a host at the start.
CONNECT_S: Final = 10.0
#: Seconds to tell the last things.
_TELL_S: Final = 1.0


class Orders(NamedTuple):
    """What a worker is told at its start. `max_…`: when it asks to be replaced."""

    path: str
    reference: Reference
    name: str
    session: bytes
    boss: bytes
    max_messages: int | None = None
    max_rss: int | None = None  # bytes


class Lines(NamedTuple):
    """What connects a worker with the process that watches over it.

    `pipe`: notes to it, and its end. `fatal`: what faulthandler writes. `cells`: see Board.
    """

    pipe: Connection
    fatal: Connection
    cells: MutableSequence[float]


class WorkerDesk(RemoteDesk):
    """The connection of a worker, which its handlers use, too."""

    def announce(self) -> None:
        """Tell nobody: the application knows."""


def main(orders: Orders, lines: Lines) -> None:
    """Run a worker process to its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked by seat.py until here
    faulthandler.enable(lines.fatal.fileno())
    reports = Reports(lines.pipe)
    try:
        worker = Worker(orders, lines, reports)
    except BaseException as error:  # noqa: BLE001 - told by the application
        unguarded = isinstance(error, SystemExit) and error.code == UNGUARDED
        if not unguarded:
            reports.tell(Note("refused", _told(error)))
        reports.close(_TELL_S)
        sys.exit(UNGUARDED if unguarded else CANNOT_START)
    worker.run()


class Sheet:
    """Where a worker notes what it is at."""

    def __init__(self, desk: RemoteDesk, board: Board) -> None:
        self._desk = desk
        self._board = board

    def started(self, leases: Sequence[Lease], deadline: float | None) -> None:
        """A handler is about to get these messages; it must end by then."""
        self._desk.started(*leases)
        self._board.busy = len(leases)
        if deadline is not None:
            self._board.until = deadline

    def ended(self, pairs: Pairs) -> None:
        """A handler has ended, and so its messages will."""
        board = self._board
        board.until = 0.0
        board.busy = 0
        self._desk.ended(pairs)
        given_back = released(pairs)
        board.released += given_back
        board.finished += len(pairs) - given_back


class Worker:
    """A worker process that is connected and has its handler."""

    def __init__(self, orders: Orders, lines: Lines, reports: Reports) -> None:
        self._orders = orders
        self._pipe = lines.pipe
        self._board = Board(lines.cells)
        self._reports = reports
        self._asked = False
        self._patience = threading.Event()
        spec, consumers = find(orders.reference)
        desk = self._desk = self._make_desk(consumers)
        desk.open(CONNECT_S)
        self._crew = self._make_crew(spec, desk)
        HERE.desk = desk
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGUSR2, self._on_order)

    def _make_desk(self, consumers: Consumers) -> WorkerDesk:
        orders = self._orders
        desk = WorkerDesk(
            orders.path,
            name=orders.name,
            session=orders.session,
            boss=orders.boss,
            patience_s=None,
        )
        desk.redact = consumers.redact()
        desk.events = WorkerEvents(self._reports)
        desk.events.hide = desk.redact
        return desk

    def _make_crew(self, spec: ConsumerSpec, desk: RemoteDesk) -> SoloCrew:
        group = desk.group(desk.declare(spec.queue, {}), spec.group)
        if spec.retry is not None:
            group.most = spec.retry.stored_max_attempts
        runner = Runner(desk, group, spec)
        sheet = Sheet(desk, self._board)
        return SoloCrew(runner, group, desk, sheet, after=self._look_at_myself)

    def run(self) -> None:
        """Handle messages until told to end, or until the application is gone."""
        threading.Thread(target=self._listen, name="embedq-boss", daemon=True).start()
        self._reports.tell(Note("ready"))
        try:
            self._crew.serve()
        finally:
            self._desk.close()
            self._reports.close(_TELL_S)

    # ---------------------------------------------------------------- asked from outside

    def _on_term(self, _signal: int, _frame: FrameType | None) -> None:
        if self._crew.is_late:  # it has swallowed the exception
            self._crew.interrupt()
        self._crew.close()

    def _on_order(self, _signal: int, _frame: FrameType | None) -> None:
        if self._board.order is Order.INTERRUPT:
            self._crew.interrupt()
        else:
            self._crew.expire()

    def _listen(self) -> None:
        """Wait for the end of the application: its pipe breaks when it dies."""
        with suppress(EOFError, OSError):
            while True:
                self._pipe.recv_bytes()
        self._crew.close()
        # A handler that has not ended by then is given back by the host, as that of any worker.
        self._patience.wait(ORPHAN_S)
        os._exit(ORPHANED)

    # ---------------------------------------------------------------------- recycling

    def _look_at_myself(self) -> None:
        """Ask to be replaced, once, when there is a reason to. After each batch of messages."""
        reason = None if self._asked else self._reason()
        if reason is not None:
            self._asked = True
            self._reports.tell(Note("recycle", reason))

    def _reason(self) -> str | None:
        orders, finished = self._orders, self._board.finished
        if orders.max_messages is not None and finished >= orders.max_messages:
            return f"{finished} messages"
        if orders.max_rss is not None:
            rss = resident(os.getpid())
            if rss >= orders.max_rss:
                return f"{rss >> 20} MB of memory"
        return None


def _told(error: BaseException) -> str:
    if isinstance(error, EmbedqError):
        return str(error)
    return "".join(traceback.format_exception(error))
