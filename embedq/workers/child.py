"""The program of a worker process: import the handler, connect to the host, run messages.

Knows: signals, the pipe to the process that watches over it, when it has to go.
Does not know: what a handler does, who starts it again.

SIGTERM: end after the message in work (a second one: now). SIGUSR2: the handler's time is over.
SIGINT is ignored: a Ctrl-C reaches every process of the terminal, and the application decides.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import resource
import signal
import sys
import threading
import traceback
from ctypes import c_double
from multiprocessing.connection import Connection
from types import FrameType
from typing import Final, NamedTuple

import msgspec

from embedq.broker.leases import Lease
from embedq.errors import EmbedqError
from embedq.ipc.remote import RemoteDesk
from embedq.workers.finding import find
from embedq.workers.here import HERE
from embedq.workers.reference import Reference
from embedq.workers.runner import Runner
from embedq.workers.solo import SoloCrew
from embedq.workers.spec import ConsumerSpec

#: Seconds that an orphan has to finish the message in work.
ORPHAN_S: Final = 4.0
#: Exit codes beside 0 and those of signals.
CANNOT_START: Final = 70
ORPHANED: Final = 71
#: Seconds to find a host at the start.
CONNECT_S: Final = 10.0

_log = logging.getLogger("embedq.workers")


class Orders(NamedTuple):
    """What a worker is told at its start. `recycle_…`: when it asks to be replaced."""

    path: str
    reference: Reference
    name: str
    session: bytes
    boss: bytes
    max_messages: int | None = None
    max_rss: int | None = None  # bytes
    max_age_s: float | None = None


class Note(msgspec.Struct, frozen=True, array_like=True):
    """What a worker tells the process that watches over it.

    `what`: "ready", "recycle" (it wants to be replaced), "refused" (it cannot start) or "ended".
    """

    what: str
    text: str = ""
    finished: int = 0
    released: int = 0


class Lines(NamedTuple):
    """What connects a worker with the process that watches over it.

    `pipe`: notes to it, and its end. `fatal`: what faulthandler writes. `until`: when the handler
    that runs must end (monotonic seconds), 0.0 for none; readable whatever the worker does.
    """

    pipe: Connection
    fatal: Connection
    until: c_double


def main(orders: Orders, lines: Lines) -> None:
    """Run a worker process to its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable(lines.fatal.fileno())
    try:
        worker = Worker(orders, lines)
    except BaseException as error:
        _tell(lines.pipe, Note("refused", _told(error)))
        if isinstance(error, Exception):
            sys.exit(CANNOT_START)
        raise
    worker.run()


class Sheet:
    """Where a worker notes what it is at."""

    def __init__(self, desk: RemoteDesk, until: c_double) -> None:
        self._desk = desk
        self._until = until

    def started(self, *leases: Lease) -> None:
        """A handler is about to get these messages."""
        self._desk.started(*leases)

    def until(self, deadline: float | None) -> None:
        """The handler that runs now must end by then; None: none runs."""
        self._until.value = deadline or 0.0


class Worker:
    """A worker process that is connected and has its handler."""

    def __init__(self, orders: Orders, lines: Lines) -> None:
        self._orders = orders
        self._lines = lines
        self._pipe = lines.pipe
        self._began = 0.0
        self._asked = False
        self._patience = threading.Event()
        spec = find(orders.reference)
        desk = HERE.desk = RemoteDesk(
            orders.path,
            name=orders.name,
            session=orders.session,
            boss=orders.boss,
            patience_s=None,
        )
        desk.open(CONNECT_S)
        self._desk = desk
        self._crew = self._make_crew(spec, desk)
        self._began = desk.monotonic()
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGUSR2, self._on_late)

    def _make_crew(self, spec: ConsumerSpec, desk: RemoteDesk) -> SoloCrew:
        group = desk.group(desk.declare(spec.queue, {}), spec.group)
        if spec.retry is not None:
            group.most = spec.retry.stored_max_attempts
        runner = Runner(desk, group, spec)
        return SoloCrew(
            runner, group, desk, Sheet(desk, self._lines.until), after=self._look_at_myself
        )

    def run(self) -> None:
        """Handle messages until told to end, or until the application is gone."""
        threading.Thread(target=self._listen, name="embedq-boss", daemon=True).start()
        _tell(self._pipe, Note("ready"))
        crew = self._crew
        try:
            crew.serve()
        finally:
            self._desk.close()
        _tell(self._pipe, Note("ended", finished=crew.finished, released=crew.released))

    # ---------------------------------------------------------------- asked from outside

    def _on_term(self, _signal: int, _frame: FrameType | None) -> None:
        if self._crew.closed or self._crew.is_late:
            self._crew.interrupt()
        self._crew.close()

    def _on_late(self, _signal: int, _frame: FrameType | None) -> None:
        self._crew.expire()

    def _listen(self) -> None:
        """Wait for the end of the application: its pipe breaks when it dies."""
        try:
            while True:
                self._pipe.recv_bytes()
        except (EOFError, OSError):
            pass
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
            _tell(self._pipe, Note("recycle", reason))

    def _reason(self) -> str | None:
        orders, crew = self._orders, self._crew
        if orders.max_messages is not None and crew.finished >= orders.max_messages:
            return f"{crew.finished} messages"
        if orders.max_age_s is not None:
            age = self._desk.monotonic() - self._began
            if age >= orders.max_age_s:
                return f"{age:.0f} seconds"
        if orders.max_rss is not None:
            rss = peak_rss()
            if rss >= orders.max_rss:
                return f"{rss >> 20} MB of memory"
        return None


def peak_rss() -> int:
    """Return the largest resident set of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _tell(pipe: Connection, note: Note) -> None:
    try:
        pipe.send_bytes(msgspec.msgpack.encode(note))
    except OSError:
        _log.debug("nobody watches over this worker any more")


def _told(error: BaseException) -> str:
    if isinstance(error, EmbedqError):
        return str(error)
    return "".join(traceback.format_exception(error))
