"""SIGTERM and SIGINT while a broker runs: the first asks for an end, the second insists.

Knows: which handlers were there before, and calls the application's own ones as well.
Does not know: how consumers are drained.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Final, Protocol, Self

from embedq.workers.drain import Report

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_LOOK_S: Final = 0.5

Handler = Callable[[int, FrameType | None], Any]


class Signals:
    """A context in which SIGTERM and SIGINT are collected instead of ending the process.

    Only the main thread can set handlers. In another thread nothing is installed, `installed`
    stays empty and only `stop` ends a wait. A signal that was ignored stays ignored.
    `told` is called with every signal, in the signal handler: it must not wait for anything.
    """

    def __init__(self, told: Callable[[], object] | None = None) -> None:
        self._told = told
        self._pid = os.getpid()
        # A signal handler may interrupt the main thread anywhere, even inside this queue: the
        # put of a SimpleQueue is made for that. A lock or an Event here could deadlock.
        self._came: SimpleQueue[int | None] = SimpleQueue()
        self._before: dict[signal.Signals, Any] = {}
        #: What one of the application's own handlers raised, SystemExit for instance.
        self.failure: BaseException | None = None

    @property
    def installed(self) -> tuple[signal.Signals, ...]:
        """The signals that are collected."""
        return tuple(self._before)

    def __enter__(self) -> Self:
        """Install the handlers, if this is the main thread."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                before = signal.getsignal(number)
                # None: set by other means than Python, which could not be put back.
                if before not in (signal.SIG_IGN, None):
                    self._before[number] = before
                    signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        """Put the former handlers back, except where somebody else has put one meanwhile."""
        for number, before in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, before)
        self._before = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        before = self._before.get(signal.Signals(number))
        if os.getpid() != self._pid:
            _handle_as(before, number, frame)
            return
        self._came.put(number)
        if self._told is not None:
            self._told()
        # Python's own handler would raise KeyboardInterrupt here: that is what we are instead of.
        if callable(before) and before is not signal.default_int_handler:
            try:
                before(number, frame)
            except BaseException as error:  # noqa: BLE001 - raised once all is drained
                self.failure = self.failure or error

    def stop(self) -> None:
        """End a wait as a signal would. From any thread."""
        self._came.put(None)

    def wait(self) -> int | None:
        """Wait for a signal and return its number; None: `stop` was called."""
        while True:
            # Python runs signal handlers only when the main thread is woken, and a signal that
            # comes right before it falls asleep wakes nobody: hence the look now and then.
            with suppress(Empty):
                return self._came.get(timeout=_LOOK_S)


def _handle_as(before: Any, number: int, frame: FrameType | None) -> None:  # noqa: ANN401
    """Do in a forked child what would have been done without us: it is not drained."""
    if callable(before):
        before(number, frame)
    else:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


class Drainable(Protocol):
    """What can be ended (see crews.ConsumerRunner)."""

    def drain(self, grace_s: float, *, reason: str = "stop") -> Report:
        """Come to an end within `grace_s` seconds."""
        ...

    def hurry(self) -> None:
        """End the grace of the drain."""
        ...


def drain_at_signal(consumers: Drainable, signals: Signals, grace_s: float) -> Report:
    """Wait for the first signal (or for `stop`), then drain; a second signal ends the grace.

    The drain has a thread of its own: the calling one, which gets the signals, stays free.
    Afterwards it raises what one of the application's own signal handlers raised.
    """
    number = signals.wait()
    reason = "stop" if number is None else signal.Signals(number).name
    ended: list[Report | BaseException] = []

    def work() -> None:
        try:
            ended.append(consumers.drain(grace_s, reason=reason))
        except BaseException as error:  # noqa: BLE001 - raised below, on the caller's thread
            ended.append(error)
        signals.stop()

    thread = threading.Thread(target=work, name="embedq-drain")
    thread.start()
    while not ended:
        if signals.wait() is not None:
            consumers.hurry()
    thread.join()
    if isinstance(ended[0], BaseException):
        raise ended[0]
    if signals.failure is not None:
        raise signals.failure
    return ended[0]
