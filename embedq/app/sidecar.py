"""The program of a sidecar: the host of one database file, and nothing else.

Knows: what it is told at its start, for whom it stays, which signals it leaves to others.
Does not know: the application, who starts it again (beside.py).

It stays for as long as a process is connected. Signals that ask a whole terminal, service or
machine to end do not end it before those whose messages it has: they still have to settle them.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from embedq.clock import SystemClock
from embedq.errors import EmbedqError
from embedq.limits import Limits

if TYPE_CHECKING:
    from embedq.broker.desk import Desk
    from embedq.ipc.server import Server

#: Exit codes beside 0.
CANNOT_START: Final = 70
STORE_STOPPED: Final = 71

#: Seconds that a sidecar waits for the process that started it to connect.
FIRST_S: Final = 10.0
#: Seconds that a sidecar stays when the last process has ended without leaving, or never came.
LINGER_S: Final = 1.0
_LOOK_S: Final = 0.1
#: Seconds in which clients are told why the store has stopped.
_TELL_S: Final = 0.2

#: What ends the wait of the main thread: "empty" after the last process left in order, "gone" when
#: it ended otherwise, "failed" with the store, "asked" by SIGTERM.
Word = Literal["empty", "gone", "failed", "asked"]


class Orders(msgspec.Struct, frozen=True):
    """What a sidecar is told at its start, on one line of its standard input."""

    path: str
    durability: Literal["full", "normal"]
    limits: Limits
    redact: tuple[str, ...]
    #: The process that starts it.
    starter: int
    endpoint: str | None = None
    keys: str | None = None


def main() -> int:
    """Host a file until nobody is connected; returns the exit code.

    Standard output says one thing: `null` when it serves, or why it cannot.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    words: SimpleQueue[Word] = SimpleQueue()
    # The only thing that a signal handler may always call: it needs no lock that others hold.
    signal.signal(signal.SIGTERM, lambda *_: words.put("asked"))
    logging.basicConfig(
        format="embedq sidecar %(process)d: %(levelname)s: %(message)s", level=logging.WARNING
    )
    line = sys.stdin.buffer.readline()
    if not line:
        return CANNOT_START  # who started it is gone
    try:
        sidecar = Sidecar(msgspec.json.decode(line, type=Orders), words)
    except Exception as error:  # noqa: BLE001 - raised by who started it
        from embedq.ipc.failures import failed  # noqa: PLC0415 - as below

        _report(failed(0, error))
        return CANNOT_START
    _report(None)
    os.chdir("/")
    return sidecar.serve()


class Sidecar:
    """A host without an application. Raises what opening a file raises."""

    def __init__(self, orders: Orders, words: SimpleQueue[Word]) -> None:
        # Here: who only starts a sidecar needs none of this.
        from embedq.app.hosting import listening_at  # noqa: PLC0415
        from embedq.broker.host import open_engine  # noqa: PLC0415
        from embedq.broker.redaction import Patterns  # noqa: PLC0415
        from embedq.ipc.place import sessions_left  # noqa: PLC0415
        from embedq.ipc.server import Server  # noqa: PLC0415
        from embedq.ipc.verbs import served  # noqa: PLC0415

        self._starter = orders.starter
        self._words = words
        listening = listening_at(orders.endpoint, orders.keys)
        desk: Desk = open_engine(
            orders.path,
            durability=orders.durability,
            limits=orders.limits,
            survivors=sessions_left(orders.path),
        )
        try:
            desk.redact = desk.events.hide = Patterns(orders.redact) if orders.redact else None
            desk.events.on("store_failed", lambda _: words.put("failed"))
            desk.record_crashes()
            desk.announce()
            server: Server = Server(
                *(desk, orders.path),
                verbs=served(desk.office),
                listening=listening,
                on_empty=self._on_empty,
            )
            self._desk, self._server = desk, server
            server.start()
        except BaseException:
            desk.close()
            raise

    def serve(self) -> int:
        """Serve until nobody is connected, or until the store has stopped."""
        self._wait()
        stopped = self._desk.store.stopped
        if stopped is not None:
            time.sleep(_TELL_S)
        try:
            self._server.stop("" if stopped is None else stopped.message)
        finally:
            with suppress(EmbedqError):  # it was told and logged when it happened
                self._desk.close()
        return 0 if stopped is None else STORE_STOPPED

    def _on_empty(self, in_order: bool) -> None:  # noqa: FBT001 - as the server calls it
        """The last process has gone. One that left in order waits for what the lock file says."""
        if in_order:
            self._announce("")
        self._words.put("empty" if in_order else "gone")

    def _announce(self, endpoint: str) -> None:
        with suppress(EmbedqError):  # the lock file is gone, and the store will notice
            self._desk.store.announce(endpoint)  # type: ignore[attr-defined]  # it is a file

    def _wait(self) -> None:
        monotonic = SystemClock().monotonic
        has_served = False
        until: float | None = monotonic() + FIRST_S
        while True:
            word = self._word(None if until is None else _LOOK_S)
            now = monotonic()
            if word == "failed":
                return
            if self._server.stats.sessions:
                has_served, until = True, None
                if word == "empty":  # somebody has come meanwhile, and must be found
                    self._announce(self._server.endpoint)
                continue
            if word in {"empty", "asked"}:
                return
            if until is None or (not has_served and os.getppid() != self._starter):
                until = min(until or now + LINGER_S, now + LINGER_S)
                has_served = True
            if now >= until:
                return

    def _word(self, timeout: float | None) -> Word | None:
        try:
            return self._words.get(timeout=timeout)
        except Empty:
            return None


def _report(failure: Any) -> None:  # noqa: ANN401 - a frame of the ipc room, or None
    """Tell who started it, and let go of its pipe."""
    with suppress(OSError):  # it is gone; without clients the sidecar ends soon
        os.write(1, msgspec.json.encode(failure) + b"\n")
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nothing, number)
    os.close(nothing)


if __name__ == "__main__":
    sys.exit(main())
