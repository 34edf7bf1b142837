"""One place in a pool: the worker process in it, from its start to the report of its end.

Knows: how a worker is spawned, what it says through its pipe, how it is told to end.
Does not know: when it is started again, messages.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from embedq.ipc.calls import WorkerDeath
from embedq.ipc.liveness import has_ended, watch_process
from embedq.ipc.remains import DRAIN, TIMEOUT
from embedq.storage.lastwords import parsed
from embedq.workers import child
from embedq.workers.board import CELLS, Board, Order
from embedq.workers.here import PREFIX
from embedq.workers.memory import resident
from embedq.workers.reference import refer
from embedq.workers.reports import Note
from embedq.workers.spec import ConsumerSpec

if TYPE_CHECKING:
    from embedq.workers.pool import Employer

#: Seconds between the three ways to end a handler that is late: exception, TERM, KILL.
STEP_S: Final = 0.75
#: Signals that say so.
_STEPS: Final = (signal.SIGUSR2, signal.SIGTERM, signal.SIGKILL)
#: How a worker ends that was told to: by itself, or by a signal before it could catch it.
_IN_ORDER: Final = (0, -signal.SIGTERM, -signal.SIGUSR2)
#: Seconds that a process which has ended may take to be seen as such.
_REAP_S: Final = 1.0
_WORDS_BYTES: Final = 64 << 10
_decode = msgspec.msgpack.Decoder(Note).decode


class Exit(NamedTuple):
    """How a worker process ended.

    `was_ready`: it had begun to handle messages. `in_order`: it was told to go, and went.
    """

    death: WorkerDeath
    lived_s: float
    was_ready: bool
    in_order: bool

    @property
    def code(self) -> int:
        """Its exit code, negative for a signal."""
        return self.death.code or 0


class Seat:
    """A place for one worker. Belongs to the thread of its pool."""

    def __init__(
        self, number: int, spec: ConsumerSpec, desk: Employer, monotonic: Callable[[], float]
    ) -> None:
        self.number = number
        self.start_at = 0.0
        #: How many workers in a row have died young.
        self.failures = 0
        #: It was told to go.
        self.leaving = False
        self.is_ready = False
        #: Why it could not start, as it said itself.
        self.refusal = ""
        #: Why it is to be replaced, and the seat whose worker it is to replace.
        self.recycle_for = ""
        self.instead_of: Seat | None = None
        self.pid: int | None = None
        self.started_at = 0.0
        self._spec = spec
        self._desk = desk
        self._monotonic = monotonic
        self._process: Any = None
        self._pipe: Connection | None = None
        self._fatal: Connection | None = None
        self._watch: int | None = None
        self._session = b""
        self._rss = 0
        self._deadline = 0.0
        self._late_steps = 0
        self._killed_for = ""
        self._words = b""
        self._board = Board([0.0] * CELLS)

    # ------------------------------------------------------------------------- its life

    def start(self) -> None:
        """Spawn a worker. Raises OSError if the system has no room for it."""
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
        )
        context = multiprocessing.get_context("spawn")
        self._board = Board(context.RawArray("d", CELLS))
        self._pipe, pipe = context.Pipe()
        self._fatal, fatal = context.Pipe(duplex=False)
        lines = child.Lines(pipe, fatal, self._board.cells)
        process = context.Process(target=child.main, args=(orders, lines), name=name)
        # The pool may be one of a daemon; and handlers may have processes of their own.
        process.daemon = False
        try:
            process.start()
        finally:
            pipe.close()
            fatal.close()
        self._process, self.pid = process, process.pid
        self._watch = None if process.pid is None else watch_process(process.pid)
        self._words, self._killed_for, self.refusal, self.recycle_for = b"", "", "", ""
        self.leaving = self.is_ready = False
        self._deadline, self._late_steps, self._rss = 0.0, 0, 0
        self.started_at = self._monotonic()

    @property
    def is_alive(self) -> bool:
        """Whether there is a worker that has not been buried."""
        return self._process is not None

    @property
    def has_ended(self) -> bool:
        """Whether the worker has ended."""
        process = self._process
        if process is None or process.exitcode is not None:
            return process is not None
        # Where the application ignores SIGCHLD, or waits for children of any kind, nobody learns
        # how a worker has ended.
        return self._watch is not None and has_ended(self._watch) and process.exitcode is None

    @property
    def board(self) -> Board:
        """The numbers of the worker, or of the last one."""
        return self._board

    @property
    def waited_for(self) -> list[Any]:
        """What becomes ready when there is something to look at."""
        process = self._process
        if process is None:
            return []
        # The sentinel is a pipe, and children that the worker has forked keep it open.
        ends = (self._pipe, self._fatal, self._watch)
        return [process.sentinel, *(end for end in ends if end is not None)]

    def notes(self) -> Iterator[Note]:
        """Go through what the worker has said."""
        try:
            while self._pipe is not None and self._pipe.poll():
                yield _decode(self._pipe.recv_bytes())
        except (EOFError, OSError):
            self._pipe = None

    def bury(self) -> Exit:
        """Return how the worker ended; the seat is free."""
        process = self._process
        process.join(_REAP_S)
        self.listen()
        fatal, frames = parsed(self._words.decode("utf-8", "replace"))
        code = process.exitcode
        death = WorkerDeath(self._session, code, self._rss, fatal, frames)
        if code == -signal.SIGKILL and self._killed_for:
            death = self._explained(death)
        lived_s = self._monotonic() - self.started_at
        in_order = self.leaving and (code is None or code in _IN_ORDER)
        if code is not None:
            death = msgspec.structs.replace(death, in_order=in_order)
            process.close()
        self._process = self.pid = None
        for line in (self._pipe, self._fatal):
            if line is not None:
                line.close()
        if self._watch is not None:
            os.close(self._watch)
        self._pipe = self._fatal = self._watch = None
        return Exit(death, lived_s, self.is_ready, in_order)

    def _explained(self, death: WorkerDeath) -> WorkerDeath:
        """Say why the worker was killed: its message is not to blame for that."""
        if self._killed_for == DRAIN:
            return msgspec.structs.replace(death, killed_for=DRAIN)
        return msgspec.structs.replace(
            death,
            killed_for=TIMEOUT,
            timeout_s=self._spec.timeout or 0.0,
            delays_s=self._spec.delays(),
        )

    def listen(self) -> None:
        """Take in what faulthandler writes, so that it can write on."""
        while self._fatal is not None and self._fatal.poll():
            data = os.read(self._fatal.fileno(), _WORDS_BYTES)
            if not data:
                self._fatal.close()
                self._fatal = None
            self._words = (self._words + data)[:_WORDS_BYTES]

    # ------------------------------------------------------------------------- its end

    def look(self, now: float) -> None:
        """See how large the worker is and whether its handler is late. Called now and then."""
        self._rss = resident(self.pid) or self._rss
        if not self.next_step_at:
            return
        deadline = self._board.until
        if deadline != self._deadline:
            self._deadline, self._late_steps = deadline, 0
        if now >= self.next_step_at:
            step = _STEPS[min(self._late_steps, len(_STEPS) - 1)]
            self._late_steps += 1
            if step is signal.SIGKILL:
                self._killed_for = self._killed_for or TIMEOUT
            self._send(step)

    @property
    def next_step_at(self) -> float:
        """When something has to be done about the handler that runs; 0.0: nothing."""
        deadline = self._board.until if self._process is not None else 0.0
        if not deadline:
            return 0.0
        return deadline + (self._late_steps if deadline == self._deadline else 0) * STEP_S

    def leave(self) -> None:
        """Let the worker end after the message it is at."""
        if not self.leaving:
            self.leaving = True
            self._send(signal.SIGTERM)

    def interrupt(self) -> None:
        """Interrupt what the worker is at: it has to go now."""
        self.leaving = True
        self._board.order = Order.INTERRUPT
        self._send(signal.SIGUSR2)

    def kill(self) -> None:
        """End the worker at once."""
        self.leaving = True
        self._killed_for = self._killed_for or DRAIN
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        process = self._process
        if process is not None and process.exitcode is None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)
