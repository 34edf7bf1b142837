"""A pool of worker processes for one consumer: started, watched over, replaced, ended.

Knows: when the next worker may start, what is done about one that is late, old or dead.
Does not know: how a process is made (seat.py), messages, what the host does about a death.

One thread watches over all of a pool, and nobody else touches its workers. One that dies is
replaced, alone, after a pause that doubles while nothing gets done; one that is to be replaced
goes when its successor is there.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing.util  # noqa: F401 - its own end of the program must come after ours
import signal
import threading
import weakref
from contextlib import suppress
from multiprocessing import Pipe, resource_tracker
from multiprocessing.connection import wait
from typing import Any, Final, Protocol

from embedq.ipc.calls import WorkerDeath
from embedq.workers.bell import Bell
from embedq.workers.here import UNGUARDED
from embedq.workers.reports import Note
from embedq.workers.runner import Runner
from embedq.workers.seat import Exit, Seat

_log = logging.getLogger("embedq.workers")

#: Seconds between two looks at workers of whom nothing is expected.
_LOOK_S: Final = 5.0
_PAUSES_S: Final = (0.1, 10.0)
#: A worker that has lived for so long has started well.
_SETTLED_S: Final = 10.0
#: Seconds that workers get when the program ends without having stopped its broker.
_EXIT_S: Final = 0.5
#: What workers were told last.
_GO_ON, _LEAVE, _INTERRUPT, _KILL = range(4)

_UNGUARDED_TEXT: Final = (
    "the program opens its broker while a worker process imports it, which would go on for ever; "
    'write `if __name__ == "__main__":` above what is to run only once. No worker is started'
)


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

    def __init__(self, runner: Runner, employer: Employer, bell: Bell) -> None:
        self.spec = runner.spec
        self.stuck = 0
        self.notice_s = 0.0
        self.ended = False
        self._employer = employer
        self._bell = bell
        self._tell = runner.tell
        self._emit = runner.desk.events.emit
        self._monotonic = runner.desk.monotonic
        self._told = self._done = _GO_ON
        self._given_up = False
        #: What workers have done that are gone.
        self._finished = self._released = 0
        self._seats = [self._seat(n + 1) for n in range(self.spec.concurrency)]
        self._wake_theirs, self._wake_ours = Pipe(duplex=False)
        name = f"embedq-pool-{self.spec.name}"
        self._thread = threading.Thread(target=self._watch, name=name, daemon=True)

    def _seat(self, number: int) -> Seat:
        return Seat(number, self.spec, self._employer, self._monotonic)

    @property
    def running(self) -> int:
        """How many messages are in handlers."""
        return sum(seat.board.busy for seat in list(self._seats) if seat.is_alive)

    @property
    def finished(self) -> int:
        """How many messages have come to an end."""
        alive = [seat.board.finished for seat in list(self._seats) if seat.is_alive]
        return self._finished + sum(alive)

    @property
    def released(self) -> int:
        """How many were given back."""
        alive = [seat.board.released for seat in list(self._seats) if seat.is_alive]
        return self._released + sum(alive)

    @property
    def pids(self) -> list[int]:
        """The processes."""
        return [seat.pid for seat in list(self._seats) if seat.pid is not None]

    # ------------------------------------------------------------------- watching over

    def start(self) -> None:
        """Start the workers, in the background."""
        _pools.add(self)
        self._thread.start()

    def _watch(self) -> None:
        try:
            while not (self._told and not any(seat.is_alive for seat in self._seats)):
                self._obey()
                self._fill()
                self._wait()
                for seat in list(self._seats):
                    if seat.is_alive:
                        self._look_at(seat)
                self._replace_one()
        except Exception:  # noqa: BLE001 - whatever it was, nobody may be left unwatched
            _log.exception("the worker processes of %s are no longer watched over", self.spec)
            for seat in self._seats:
                seat.kill()
        finally:
            self.ended = True
            self._wake_ours.close()
            self._wake_theirs.close()
            self._bell.ring()

    def _obey(self) -> None:
        told = self._told
        for seat in self._seats:
            if told >= _LEAVE:
                seat.leave()
            if told >= _INTERRUPT > self._done:
                seat.interrupt()
            if told >= _KILL:
                seat.kill()
        self._done = told

    def _fill(self) -> None:
        """Start a worker in each empty seat whose time has come."""
        now = self._monotonic()
        for seat in self._seats:
            if self._told or self._given_up:
                return
            if not seat.is_alive and now >= seat.start_at:
                self._start(seat)

    def _start(self, seat: Seat) -> None:
        try:
            _hold_back_interrupts()
            seat.start()
        except OSError as error:
            self._refused(seat, f"the system cannot start it: {error}")
            self._later(seat, failed=True)

    def _wait(self) -> None:
        waited_for: list[Any] = [self._wake_theirs]
        now = self._monotonic()
        pause = _LOOK_S if self.spec.timeout is None else min(_LOOK_S, self.spec.timeout)
        for seat in self._seats:
            waited_for += seat.waited_for
            next_at = seat.next_step_at if seat.is_alive else seat.start_at
            if next_at and not (self._given_up and not seat.is_alive):
                pause = min(pause, max(0.005, next_at - now))
        if self._wake_theirs in wait(waited_for, pause):
            self._wake_theirs.recv_bytes()

    def _look_at(self, seat: Seat) -> None:
        seat.listen()
        for note in seat.notes():
            self._take(seat, note)
        if seat.has_ended:
            for note in seat.notes():  # its last ones
                self._take(seat, note)
            self._bury(seat)
            return
        now = self._monotonic()
        seat.look(now)
        if self.spec.max_age is not None and now - seat.started_at >= self.spec.max_age:
            seat.recycle_for = seat.recycle_for or f"{now - seat.started_at:.0f} seconds"

    def _take(self, seat: Seat, note: Note) -> None:
        """Take in what a worker says."""
        if note.what == "event":
            self._emit(note.text, times=1, **dict(note.fields))
        elif note.what == "recycle":
            seat.recycle_for = note.text
        elif note.what == "refused":
            seat.refusal = note.text
        elif note.what == "ready":
            seat.is_ready = True
            former, seat.instead_of = seat.instead_of, None
            if former is not None:
                former.leave()

    def _replace_one(self) -> None:
        """Let one worker that is old have a successor; it goes when that one is ready."""
        if self._told or any(seat.instead_of or seat.leaving for seat in self._seats):
            return
        for seat in self._seats:
            if seat.recycle_for and seat.is_alive:
                self._tell(
                    "worker_recycled",
                    number=seat.number,
                    pid=seat.pid,
                    reason=seat.recycle_for,
                )
                successor = self._seat(seat.number)
                successor.instead_of = seat
                self._seats.append(successor)
                return

    # --------------------------------------------------------------------- after a death

    def _bury(self, seat: Seat) -> None:
        end = seat.bury()
        self._finished += seat.board.finished
        self._released += seat.board.released
        self._employer.report_death(end.death)
        if not end.in_order:
            self._explain(seat, end)
        self._later(seat, failed=end.code != 0 and not self._did_well(seat, end))
        heir = next((each for each in self._seats if each.instead_of is seat), None)
        if heir is not None:
            heir.instead_of = None
        if len(self._seats) > self.spec.concurrency:
            self._seats.remove(seat)

    def _did_well(self, seat: Seat, end: Exit) -> bool:
        return seat.board.finished > 0 or (end.was_ready and end.lived_s >= _SETTLED_S)

    def _later(self, seat: Seat, *, failed: bool) -> None:
        """Say when the next worker may start."""
        pause = _PAUSES_S[0] * 2 ** min(seat.failures, 10) if failed and seat.failures else 0.0
        seat.failures = seat.failures + 1 if failed else 0
        seat.start_at = self._monotonic() + min(_PAUSES_S[1], pause)

    def _explain(self, seat: Seat, end: Exit) -> None:
        """Tell why a worker could not start, if that is what has happened."""
        if end.code == UNGUARDED and not end.was_ready:
            if not self._given_up:
                self._given_up = True
                self._refused(seat, _UNGUARDED_TEXT)
        elif seat.refusal:
            self._refused(seat, seat.refusal)
        elif not end.was_ready and end.code > 0:
            text = f"it ended with exit code {end.code} before it was ready; see its own output"
            self._refused(seat, text)

    def _refused(self, seat: Seat, error: str) -> None:
        self._tell("worker_refused", number=seat.number, error=error)

    # ------------------------------------------------------------------------- ending

    def is_handling_here(self) -> bool:
        """Whether this thread runs one of its handlers: they are in other processes."""
        return False

    def is_on_this_loop(self) -> bool:
        """Whether its handlers run on the loop of this thread."""
        return False

    def close(self) -> None:
        """Start nobody any more; workers end after the message they are at."""
        self._order(_LEAVE)

    def cancel(self) -> None:
        """Interrupt the handlers that still run: their messages are given back."""
        self._order(_INTERRUPT)

    def abandon(self) -> None:
        """End the workers that are still there, whatever they do: what they have is given back."""
        self._order(_KILL)

    def give_back(self) -> None:
        """Nothing is left: the host takes back what a dead worker held."""

    def _order(self, order: int) -> None:
        self._told = max(self._told, order)
        with suppress(OSError):  # closed: all have ended already
            self._wake_ours.send_bytes(b"")

    def end_with_program(self) -> None:
        """End the workers of a program that ends without having stopped its broker."""
        for end in (self.cancel, self.abandon):
            end()
            self._thread.join(_EXIT_S)


def _hold_back_interrupts() -> None:
    """Let a Ctrl-C while a worker is being started not end it with a traceback.

    The mask of this thread is inherited, and child.py lifts it once it ignores the signal. The
    first child that is spawned starts a tracker of resources before it, which lifts it here.
    """
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


_pools: weakref.WeakSet[ProcessCrew] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for pool in list(_pools):
        if not pool.ended:
            pool.end_with_program()
