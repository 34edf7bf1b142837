"""A client's connection to the host: one thread, one socket, requests that outlive a host.

Knows: when a host is there, when it is gone, what is sent again to the next one.
Does not know: what requests mean (remote.py), who becomes the next host.

Everything that waits goes out in one message; whoever asks is woken by the answer alone. The
thread needs the GIL only to pass messages on: that the process lives is told by libzmq's own
threads.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from _thread import allocate_lock
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from embedq.clock import Clock, SystemClock
from embedq.errors import EmbedqError, ForkedBroker, HostGone, StoreClosed
from embedq.ipc import frames
from embedq.ipc.failures import no_host, raised
from embedq.ipc.frames import VERSIONS, Answer, Hello, ProtocolError, Request
from embedq.ipc.ledger import Answered, Asked, Ledger, OnProgress, answer_of
from embedq.ipc.nudge import Nudge
from embedq.ipc.place import Found
from embedq.storage.fork import on_fork

if TYPE_CHECKING:
    from embedq.ipc.line import Line

_log = logging.getLogger("embedq.ipc")

_WELCOME_S: Final = 2.0
_LOOK_AGAIN_S: Final = 0.05
#: Seconds between two ticks, unless the owner says more.
TICK_S: Final = 1.0
#: Seconds, and how often, for which a caller lets the link's thread send what it has asked.
_NAP_S: Final = 50e-6
_NAPS: Final = 10

Make = Callable[[int, int], Request]


class Link:
    """One session with whoever is the host. Safe to use from any thread.

    `find`: where the host is, None if there is none now. `hello`: what to say beside the session
    and the versions. `patience_s`: how long requests wait for a host before they fail with
    NoHost; None: for ever. `on_welcome(welcome)`, `on_told(answer)` (Told, Lost, Leaving),
    `on_lost()`, `on_tick()` (now and then; returns in how many seconds again) and `on_missing()`
    (again and again while there is no host) run on the thread of the link, and must not wait.
    """

    def __init__(
        self,
        find: Callable[[], Found | None],
        hello: Callable[[], Hello],
        *,
        patience_s: float | None = 5.0,
        max_bytes: int = 64 << 20,
        clock: Clock | None = None,
        on_welcome: Callable[[frames.Welcome], object] = lambda _: None,
        on_told: Callable[[Answer], object] = lambda _: None,
        on_lost: Callable[[], object] = lambda: None,
        on_tick: Callable[[], float] = lambda: TICK_S,
        on_missing: Callable[[], object] = lambda: None,
    ) -> None:
        self._find = find
        self._hello = hello
        self._patience_s = patience_s
        self._max_bytes = max_bytes
        self._monotonic = (clock or SystemClock()).monotonic
        self._on_welcome = on_welcome
        self._on_told = on_told
        self._on_lost = on_lost
        self._on_tick = on_tick
        self._on_missing = on_missing
        self._lock = allocate_lock()
        self._ledger = Ledger()
        self._ending = False
        self._refused: Exception | None = None
        #: Why a host on another machine does not serve this process.
        self._nowhere = ""
        self._pid = os.getpid()
        self._nudge = Nudge()
        self.welcome: frames.Welcome | None = None
        self._welcomed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="embedq-link", daemon=True)
        on_fork(self)

    # ------------------------------------------------------------------------ asking

    def start(self, timeout: float | None = None) -> frames.Welcome:
        """Connect and return the host's welcome. Raises NoHost, or why the host refused."""
        self.begin()
        self._welcomed.wait(timeout)
        if self._refused is not None:
            raise self._refused
        if (welcome := self.welcome) is None:  # one look: the host may be gone before a second
            raise no_host(self._nowhere, ", or it has not answered in time")
        return welcome

    def begin(self) -> None:
        """Look for a host, in the background. What is asked meanwhile waits for one."""
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether it has been closed, or was refused."""
        return self._ending

    def ask(
        self, make: Make, *, repeat: bool = True, progress: OnProgress | None = None
    ) -> Answer:
        """Send a request and wait for its answer; see `send`. Raises what the host raised.

        `progress` is called here, on the caller's thread; what it raises ends the waiting.
        """
        if progress is not None:
            return self._ask_with_progress(make, progress, repeat=repeat)
        gate = allocate_lock()
        gate.acquire()
        asked = self.send(make, lambda _: gate.release(), repeat=repeat)
        gate.acquire()
        return answer_of(asked)

    def _ask_with_progress(self, make: Make, progress: OnProgress, *, repeat: bool) -> Answer:
        steps: SimpleQueue[tuple[int, int] | None] = SimpleQueue()

        def step(done: int, total: int) -> None:
            steps.put((done, total))

        asked = self.send(make, lambda _: steps.put(None), repeat=repeat, progress=step)
        while (told := steps.get()) is not None:
            progress(*told)
        return answer_of(asked)

    def send(
        self,
        make: Make,
        answered: Answered,
        *,
        repeat: bool = True,
        progress: OnProgress | None = None,
        note: Callable[[Asked], object] = lambda _: None,
    ) -> Asked:
        """Send what `make(n, seen)` returns; `answered(asked)` is called on the link's thread.

        `repeat`: it may be sent to the next host, too, if this one ends before it answers.
        `note(asked)` is called before it can be sent: for those who may be interrupted here.
        """
        with self._lock:
            self._check()
            ledger = self._ledger
            seen = ledger.seen
            n = ledger.number()
            asked = Asked(n, make(n, seen), answered, repeat=repeat, progress=progress)
            note(asked)
            ledger.enter(asked)
        self._nudge.give()
        return asked

    def let_out(self, asked: Asked) -> None:
        """Return once a request is on its way, or after a moment: for callers who compute on.

        They would keep the interpreter from the link's thread for as long as a switch takes.
        """
        for _ in range(_NAPS):
            if asked.sent or self.welcome is None:
                return
            time.sleep(_NAP_S)

    def cancel(self, n: int) -> None:
        """Let a request be answered with what there is: nobody waits any longer."""
        with self._lock:
            self._ledger.cancel(n)
        self._nudge.give()

    def pass_on(self, asked: Asked, answered: Answered) -> bool:
        """Let somebody else have the answer: nobody waits for it any more. False: it has come."""
        with self._lock:
            asked.answered = answered
            waits = self._ledger.get(asked.n) is asked
        if not waits:
            answered(asked)
        return waits

    def tell(self, frame: Request) -> None:
        """Send something that has no answer. What is lost with a host is not repeated."""
        with self._lock:
            self._check()
            self._ledger.outbox.append(frame)
        self._nudge.give()

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedBroker("this connection belongs to the parent process")
        if self._ending:
            raise self._refused or StoreClosed("the connection to the host is closed")

    # ------------------------------------------------------------------- the thread

    def _run(self) -> None:
        # 30 ms to import: only who connects pays for it, and not on the caller's thread.
        from embedq.ipc.line import Line  # noqa: PLC0415

        served_at = self._monotonic()
        try:
            while not self._ending:
                host = self._find_one()
                if host is None:
                    self._on_missing()
                else:
                    with Line(host.endpoint, self._max_bytes, self._nudge.end, host.keys) as line:
                        if self._understands(line):
                            served_at = self._monotonic()
                        self._nowhere = line.trouble
                        if line.refusal is not None:
                            self._refused, self._ending = line.refusal, True
                self._lose_patience(served_at)
        except Exception as error:  # noqa: BLE001 - whoever waits must learn of it
            _log.exception("the connection to the host failed")
            self._refused = error
        finally:
            self._end()

    def _understands(self, line: Line) -> bool:
        """Talk with a host until it is gone; False: nobody serves there, or something else."""
        try:
            if not self._greet(line):
                return False
            self._serve(line)
        except ProtocolError as wrong:
            error = wrong  # `wrong` ends with this block
            _log.warning("what answers for the host is not understood: %s", error)
            self._lost()
            self._fail(self._ledger.sent, lambda _: error)
            return False
        return True

    def _find_one(self) -> Found | None:
        try:
            return self._find()
        except (OSError, EmbedqError):
            _log.debug("looking for the host failed", exc_info=True)
            return None

    def _lose_patience(self, served_at: float) -> None:
        """Wait a moment before the next look for a host; after too many of them give up."""
        if self._ending:
            return
        patience = self._patience_s
        if patience is not None and self._monotonic() - served_at > patience:
            self._fail_all(no_host(self._nowhere))
        self._nudge.wait(_LOOK_AGAIN_S)

    def _greet(self, line: Line) -> bool:
        """Say hello and wait for the welcome; False: nobody serves there."""
        line.send(frames.encode([self._hello()]))
        until = self._monotonic() + _WELCOME_S
        while not self._ending and not line.is_gone:
            left = until - self._monotonic()
            if left <= 0:
                return False
            line.poll(min(left, 0.1))
            for data in line.received():
                first, *rest = frames.decode_answers(data)
                if isinstance(first, frames.Refused):
                    self._refuse(first)
                    return False
                if isinstance(first, frames.Welcome):
                    self._begin(first)
                    for answer in rest:
                        self._take(answer)
                    return True
        return False

    def _refuse(self, answer: frames.Refused) -> None:
        spoken = f"this process speaks {list(VERSIONS)}, the host {answer.versions}: "
        hint = spoken + "run neighbouring releases of embedq" if answer.versions else None
        self._refused = raised(frames.Failed(0, answer.code, answer.message, hint))
        self._ending = True

    def _begin(self, welcome: frames.Welcome) -> None:
        with self._lock:
            self._ledger.restart()
        self.welcome = welcome
        self._on_welcome(welcome)
        with self._lock:
            self._ledger.repeat()
        self._welcomed.set()

    def _serve(self, line: Line) -> None:
        """Pass messages to and fro until the host is gone."""
        pause = TICK_S
        tick_at = self._monotonic() + pause
        self._flush(line)
        while not self._ending and not line.is_gone:
            if line.poll(pause, to_send=bool(self._ledger.outbox)):
                self._nudge.clear()
            if self._monotonic() >= tick_at:
                self._nudge.signalled = False  # whoever set it may have been interrupted there
                pause = self._on_tick()
                tick_at = self._monotonic() + pause
            for data in line.received():
                for answer in frames.decode_answers(data):
                    self._take(answer)
            self._flush(line)
        if self._ending:
            self._say_goodbye(line)
        else:
            self._lost()

    def _flush(self, line: Line) -> None:
        while line.can_send and self._ledger.outbox:
            with self._lock:
                message = self._ledger.next_message()
            line.send(frames.encode(message))

    def _take(self, answer: Answer) -> None:
        n = getattr(answer, "n", None)
        if n is None:
            self._on_told(answer)
            return
        if isinstance(answer, frames.Progress):
            asked = self._ledger.get(n)
            if asked is not None and asked.progress is not None:
                asked.progress(answer.done, answer.total)
            return
        with self._lock:
            asked = self._ledger.settle(n)
            if asked is None:
                return
            asked.answer = answer
            answered = asked.answered
        answered(asked)

    def _lost(self) -> None:
        self.welcome = None
        self._on_lost()
        self._fail(self._ledger.lost, lambda a: HostGone(f"the host ended before it answered {a}"))

    def _fail_all(self, error: Exception) -> None:
        self._fail(self._ledger.drain, lambda _: error)

    def _fail(self, take: Callable[[], list[Asked]], error: Callable[[Asked], Exception]) -> None:
        with self._lock:
            failed = [(asked, asked.answered) for asked in take()]
            for asked, _ in failed:
                asked.error = error(asked)
        for asked, answered in failed:
            answered(asked)

    # -------------------------------------------------------------------------- end

    def close(self, timeout: float = 2.0) -> None:
        """Leave in order: what is on its way out is sent, then the host is told. Not from a fork.

        Requests that wait get StoreClosed.
        """
        if os.getpid() != self._pid or self._ending:
            return
        self._ending = True
        self._nudge.send()  # whatever is said to be on its way
        if self._thread.ident is None:
            self._end()
        elif self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _say_goodbye(self, line: Line) -> None:
        self._flush(line)
        with self._lock:
            n = self._ledger.number()
        line.send(frames.encode([frames.Bye(n)]))
        until = self._monotonic() + 1.0
        while not line.is_gone and self._monotonic() < until:
            line.poll(0.1)
            for data in line.received():
                for answer in frames.decode_answers(data):
                    if getattr(answer, "n", None) == n:
                        return
                    self._take(answer)
            self._flush(line)

    def _end(self) -> None:
        self._ending = True
        self.welcome = None
        self._fail_all(self._refused or StoreClosed("the broker has stopped meanwhile"))
        self._welcomed.set()
        self._nudge.close()

    def forked_in_child(self) -> None:
        """Refuse everything in a child made by fork."""
        self._lock = allocate_lock()
        self._ending = True
        self._refused = ForkedBroker("this connection belongs to the parent process")
