"""One place in a pool: the worker process in it, from its start to the report of its end.

Knows: how a worker is spawned, what it says through its pipe, how it is told to end.
Does not know: when it is started again, messages.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from ctypes import c_double
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from embedq.ipc.calls import WorkerDeath
from embedq.storage.lastwords import parsed
from embedq.workers import child
from embedq.workers.here import PREFIX
from embedq.workers.reference import refer
from embedq.workers.spec import ConsumerSpec

if TYPE_CHECKING:
    from embedq.workers.pool import Employer

#: Seconds between the three ways to end a handler that is late: exception, TERM, KILL.
STEP_S: Final = 1.0
_WORDS_BYTES: Final = 64 << 10
_decode = msgspec.msgpack.Decoder(child.Note).decode


class Exit(NamedTuple):
    """How a worker process ended, and how long it has lived."""

    death: WorkerDeath
    lived_s: float

    @property
    def code(self) -> int:
        """Its exit code, negative for a signal."""
        return self.death.code or 0


class Seat:
    """A place for one worker. Belongs to the thread of its pool, but for the calls that end it."""

    def __init__(
        self, number: int, spec: ConsumerSpec, desk: Employer, monotonic: Callable[[], float]
    ) -> None:
        self.number = number
        self.start_at = 0.0
        #: How many workers in a row have died young.
        self.failures = 0
        #: It was told to go.
        self.leaving = False
        self._spec = spec
        self._desk = desk
        self._monotonic = monotonic
        self._process: Any = None
        self._pipe: Connection | None = None
        self._session = b""
        self._started_at = 0.0
        self._rss = 0
        self._deadline = 0.0
        self._late_steps = 0
        self._fatal: Connection | None = None
        self._words = b""
        self._until: Any = None

    # ------------------------------------------------------------------------- its life

    def start(self) -> None:
        """Spawn a worker."""
        spec, desk = self._spec, self._desk
        self._session = secrets.token_bytes(16)
        name = f"{PREFIX}{spec.name}-{self.number}"
        orders = child.Orders(
            path=str(Path(desk.path).absolute()),
            reference=refer(spec.function, spec.queue, spec.group, spec.name),
            name=name,
            session=self._session,
            boss=desk.token,
            max_messages=spec.max_messages,
            max_rss=spec.max_rss,
            max_age_s=spec.max_age,
        )
        context = multiprocessing.get_context("spawn")
        self._pipe, pipe = context.Pipe()
        self._fatal, fatal = context.Pipe(duplex=False)
        self._until = context.RawValue(c_double, 0.0)
        lines = child.Lines(pipe, fatal, self._until)
        self._process = context.Process(target=child.main, args=(orders, lines), name=name)
        self._process.start()
        pipe.close()
        fatal.close()
        self._words = b""
        self.leaving = False
        self._deadline, self._late_steps, self._rss = 0.0, 0, 0
        self._started_at = self._monotonic()

    @property
    def is_alive(self) -> bool:
        """Whether there is a worker that has not been buried."""
        return self._process is not None

    @property
    def has_ended(self) -> bool:
        """Whether the worker has ended."""
        return self._process is not None and self._process.exitcode is not None

    @property
    def pid(self) -> int | None:
        """The process, if there is one."""
        process = self._process
        return None if process is None else process.pid

    @property
    def waited_for(self) -> list[Any]:
        """What becomes ready when there is something to look at."""
        process = self._process
        if process is None:
            return []
        return [process.sentinel, *(end for end in (self._pipe, self._fatal) if end is not None)]

    def notes(self) -> Iterator[child.Note]:
        """Go through what the worker has said."""
        try:
            while self._pipe is not None and self._pipe.poll():
                yield _decode(self._pipe.recv_bytes())
        except (EOFError, OSError):
            self._pipe = None

    def bury(self) -> Exit:
        """Return how the worker ended; the seat is free."""
        process = self._process
        process.join()
        self.listen()
        fatal, frames = parsed(self._words.decode("utf-8", "replace"))
        death = WorkerDeath(self._session, process.exitcode, self._rss, fatal, frames)
        end = Exit(death, self._monotonic() - self._started_at)
        process.close()
        self._process = None
        for line in (self._pipe, self._fatal):
            if line is not None:
                line.close()
        self._pipe = self._fatal = None
        return end

    def listen(self) -> None:
        """Take in what faulthandler writes, so that it can write on."""
        while self._fatal is not None and self._fatal.poll():
            data = os.read(self._fatal.fileno(), _WORDS_BYTES)
            if not data:
                self._fatal.close()
                self._fatal = None
            self._words = (self._words + data)[:_WORDS_BYTES]

    # ------------------------------------------------------------------------- its end

    def hurry(self, now: float) -> None:
        """End a handler that is late: exception, TERM, KILL. Called now and then."""
        self._rss = _rss_of(self.pid) or self._rss
        if self._spec.timeout is None or self._process is None:
            return
        deadline = self._until.value
        if deadline != self._deadline:
            self._deadline, self._late_steps = deadline, 0
        if not deadline:
            return
        if now >= deadline + self._late_steps * STEP_S:
            step = (signal.SIGUSR2, signal.SIGTERM, signal.SIGKILL)[min(self._late_steps, 2)]
            self._late_steps += 1
            self._send(step)

    def leave(self) -> None:
        """Let the worker end after the message it is at."""
        if not self.leaving and self._process is not None:
            self.leaving = True
            self._send(signal.SIGTERM)

    def terminate(self) -> None:
        """Interrupt what the worker is at."""
        self.leaving = True
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End the worker at once."""
        self.leaving = True
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        process = self._process
        if process is not None and process.exitcode is None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)


def _rss_of(pid: int | None) -> int:
    """Return the resident set of a process in bytes, 0 where that cannot be told."""
    if pid is None or sys.platform != "linux":
        return 0
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
