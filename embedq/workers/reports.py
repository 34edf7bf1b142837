"""What a worker process tells the process that watches over it, and how that gets there.

Knows: the pipe between them, that it may be full and that nobody may have to wait for it.
Does not know: what the other side does about it (pool.py), why something is told.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Final

import msgspec

from embedq.catalogue import CATALOGUE, COUNTED
from embedq.clock import SystemClock
from embedq.events import Listener, Notice, check_listener
from embedq.ipc.hearing import RemoteEvents

_log = logging.getLogger("embedq.workers")

#: Notes that may wait while the other side does not read; more are dropped.
BACKLOG: Final = 1_000


class Note(msgspec.Struct, frozen=True, array_like=True):
    """What a worker tells.

    `what`: "ready", "event", "recycle" (it wants to be replaced), "refused" (it cannot start) or
    "ended". `text` is the event's name, or the reason.
    """

    what: str
    text: str = ""
    finished: int = 0
    released: int = 0
    fields: Mapping[str, object] = {}


class Reports:
    """Sends notes, on a thread of its own: whoever tells something never waits."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._waiting: SimpleQueue[Note | None] = SimpleQueue()
        #: Notes that were dropped, as too many waited.
        self.dropped = 0
        self._thread = threading.Thread(target=self._send_all, name="embedq-reports", daemon=True)
        self._thread.start()

    def tell(self, note: Note) -> None:
        """Tell something, unless too much waits already. From any thread."""
        if self._waiting.qsize() >= BACKLOG:
            self.dropped += 1
        else:
            self._waiting.put(note)

    def close(self, timeout: float) -> None:
        """Wait until all has been sent, but not for longer than `timeout` seconds."""
        self._waiting.put(None)
        self._thread.join(timeout)

    def _send_all(self) -> None:
        while (note := self._waiting.get()) is not None:
            try:
                data = msgspec.msgpack.encode(note, enc_hook=str)
            except (TypeError, ValueError) as error:
                _log.warning("%s cannot be told: %s", note.what, error)
                continue
            try:
                self._pipe.send_bytes(data)
            except OSError:
                return  # nobody watches over this worker any more


class WorkerEvents(RemoteEvents):
    """The hub of a worker: its application counts, logs and hears what happens here.

    Whoever listens in the application's module listens there, so nobody is called in a worker.
    """

    def __init__(self, reports: Reports) -> None:
        super().__init__(SystemClock(), _ask_nobody)
        self._reports = reports

    def wanted(self, name: str) -> bool:
        """Whether the application has to be told."""
        return CATALOGUE[name].level != COUNTED

    def on(self, name: str, listener: Listener, *, queue: str | None = None) -> Callable[[], None]:
        """Check what is asked; nobody is called here. Raises InvalidOption."""
        check_listener(name, listener, queue)
        return _nothing

    def hear(self, notice: Notice) -> None:
        """The host was not asked for anything."""

    def _pass_on(self, notice: Notice) -> None:
        fields = self._hidden(notice).fields
        self._reports.tell(Note("event", notice.name, fields=dict(fields)))


def _ask_nobody(_names: list[str]) -> None:
    """The host is not asked for its events: it tells the application."""


def _nothing() -> None:
    """Nothing was begun that could be ended."""
