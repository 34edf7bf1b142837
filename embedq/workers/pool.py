"""A pool of worker processes for one consumer: started, watched over, replaced, ended.

Knows: when the next worker may start, what is done about one that is late, old or dead.
Does not know: how a process is made (seat.py), messages, what the host does about a death.

One thread watches over all of a pool. A worker that dies is replaced, alone, after a pause that
doubles while nothing gets done; one that wants to be replaced goes when its successor is there.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any, Final, Protocol

from embedq.ipc.calls import WorkerDeath
from embedq.workers.bell import Bell
from embedq.workers.seat import Seat
from embedq.workers.spec import ConsumerSpec

_log = logging.getLogger("embedq.workers")

_TICK_S: Final = 0.25
_PAUSES_S: Final = (0.1, 10.0)
#: How a worker ends that was told to: by itself, or by the signal before it could catch it.
_IN_ORDER: Final = (0, -signal.SIGTERM)
#: A worker that has lived for so long has started well.
_SETTLED_S: Final = 10.0


class Employer(Protocol):
    """What a pool asks of the desk of its process, local or remote."""

    @property
    def path(self) -> str:
        """Where the database is."""
        ...

    @property
    def token(self) -> bytes:
        """The session of this process."""
        ...

    def report_death(self, death: WorkerDeath) -> None:
        """Tell the host how a worker ended."""
        ...


class ProcessCrew:
    """The worker processes of one consumer."""

    def __init__(
        self,
        spec: ConsumerSpec,
        desk: Employer,
        bell: Bell,
        tell: Callable[..., object],
        monotonic: Callable[[], float],
    ) -> None:
        self.spec = spec
        self.finished = 0
        self.released = 0
        self.stuck = 0
        self.ended = False
        self._desk = desk
        self._bell = bell
        self._tell = tell
        self._monotonic = monotonic
        self._closed = False
        self._seats = [Seat(n, spec, desk, monotonic) for n in range(1, spec.concurrency + 1)]
        self._wake_ours, self._wake_theirs = _wake_pipe()
        name = f"embedq-pool-{spec.name}"
        self._thread = threading.Thread(target=self._watch, name=name, daemon=True)

    @property
    def running(self) -> int:
        """How many workers there are: what each is at is known to it alone."""
        return sum(seat.is_alive for seat in self._seats)

    @property
    def pids(self) -> list[int]:
        """The processes."""
        return [seat.pid for seat in self._seats if seat.pid is not None]

    # ------------------------------------------------------------------- watching over

    def start(self) -> None:
        """Start the workers, in the background."""
        self._thread.start()

    def _watch(self) -> None:
        try:
            while not (self._closed and not self.running):
                self._fill()
                self._wait()
                for seat in self._seats:
                    self._look_at(seat)
        except Exception:  # noqa: BLE001 - whatever it was, nobody may be left unwatched
            _log.exception("the worker processes of %s are no longer watched over", self.spec)
            for seat in self._seats:
                seat.kill()
        finally:
            self.ended = True
            self._bell.ring()

    def _fill(self) -> None:
        """Start a worker in each empty seat whose time has come."""
        now = self._monotonic()
        for seat in self._seats:
            if self._closed:
                return
            if not seat.is_alive and now >= seat.start_at:
                seat.start()

    def _wait(self) -> None:
        waited_for: list[Any] = [self._wake_theirs]
        for seat in self._seats:
            waited_for += seat.waited_for
        soon = min((seat.start_at for seat in self._seats if not seat.is_alive), default=None)
        pause = 60.0 if self.spec.timeout is None and not self._closed else _TICK_S
        if soon is not None:
            pause = min(pause, max(0.01, soon - self._monotonic()))
        if self._wake_theirs in wait(waited_for, pause):
            self._wake_theirs.recv_bytes()

    def _look_at(self, seat: Seat) -> None:
        seat.listen()
        for note in seat.notes():
            if note.what == "recycle":
                self._recycle(seat, note.text)
            elif note.what == "refused":
                self._tell("worker_refused", number=seat.number, reason=note.text)
            elif note.what == "ended":
                self.finished += note.finished
                self.released += note.released
        if seat.has_ended:
            self._bury(seat)
        else:
            seat.hurry(self._monotonic())

    def _recycle(self, seat: Seat, reason: str) -> None:
        """Let a worker go that wants to; one at a time, so that the others go on."""
        self._tell("worker_recycled", number=seat.number, pid=seat.pid, reason=reason)
        seat.leave()

    def _bury(self, seat: Seat) -> None:
        end = seat.bury()
        if not (seat.leaving and end.code in _IN_ORDER):
            self._desk.report_death(end.death)
        if end.code == 0 or end.lived_s >= _SETTLED_S:
            seat.failures = 0
        pause = _PAUSES_S[0] * 2**seat.failures if seat.failures else 0.0
        seat.failures += end.code != 0
        seat.start_at = self._monotonic() + min(_PAUSES_S[1], pause)

    # ------------------------------------------------------------------------- ending

    def is_handling_here(self) -> bool:
        """Whether this thread runs one of its handlers: they are in other processes."""
        return False

    def is_on_this_loop(self) -> bool:
        """Whether its handlers run on the loop of this thread."""
        return False

    def close(self) -> None:
        """Start nobody any more; workers end after the message they are at."""
        self._closed = True
        for seat in self._seats:
            seat.leave()
        self._wake()

    def cancel(self) -> None:
        """Interrupt the handlers that still run: their messages are given back."""
        for seat in self._seats:
            seat.terminate()

    def abandon(self) -> None:
        """End the workers that are still there, whatever they do."""
        for seat in self._seats:
            seat.kill()

    def give_back(self) -> None:
        """Nothing is left: the host takes back what a dead worker held."""

    def _wake(self) -> None:
        self._wake_ours.send_bytes(b"")


def _wake_pipe() -> tuple[Any, Any]:
    from multiprocessing import Pipe  # noqa: PLC0415  # only who has a pool pays for it

    theirs, ours = Pipe(duplex=False)
    return ours, theirs
