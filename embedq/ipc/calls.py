"""Calls and events: what a client asks for by name, and what it is told unasked.

Knows: that calls run on threads of their own, that events may be dropped for a slow client.
Does not know: what a call does, sockets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from embedq.errors import EmbedqError, InvalidOption, InvalidPayload
from embedq.events import Notice
from embedq.ipc import frames

if TYPE_CHECKING:
    import asyncio

    from embedq.broker.desk import Desk
    from embedq.ipc.session import Session

_log = logging.getLogger("embedq.ipc")

#: Tells how far a call is: (done, in all).
ProgressFn = Callable[[int, int], object]
#: Does a call on a thread of its own: arguments and result are MessagePack.
Verb = Callable[[bytes, ProgressFn], bytes]

#: The call by which a process reports the end of one that it watches over.
WORKER_DIED: Final = "worker_died"

#: Threads for calls: none of them is on the way of a message. Beside them is one for all calls of
#: which a host does one at a time.
_CALLERS: Final = 4

#: Bytes up to which the answer of any call is kept, should the client ask again. A larger one is
#: kept where the call must not be done twice; a thousand large answers of others would add up.
_KEPT_BYTES: Final = 4 << 10

_NOTHING: Final = msgspec.msgpack.encode(None)


class WorkerDeath(msgspec.Struct, frozen=True, array_like=True):
    """The arguments of `worker_died`.

    `code`: as `subprocess` gives it, negative for a signal. `rss`: bytes, 0 if not known. `fatal`
    and `frames`: what the process wrote while it crashed (see storage.rows.Death). `killed_for`:
    why it was killed by whoever watched over it, "timeout" or "drain"; "": it was not.
    `timeout_s`: the timeout, `delays_s`: until the next attempt, after the first one, the second…
    `in_order`: it was told to go, and went.
    """

    session: bytes
    code: int | None = None
    rss: int = 0
    fatal: str = ""
    frames: str = ""
    killed_for: str = ""
    timeout_s: float = 0.0
    delays_s: tuple[float, ...] = ()
    in_order: bool = False


Report = Callable[[WorkerDeath], object]


class Send(Protocol):
    """Lets an answer wait for the end of the loop's turn."""

    def __call__(self, session: Session, answer: frames.Answer, size: int = 64) -> None:
        """Take an answer of about `size` bytes."""


class Calls:
    """The calls and the events of all sessions, on the loop of their server."""

    def __init__(
        self, desk: Desk, verbs: Mapping[str, Verb], report: Report, answer: Send
    ) -> None:
        self._desk = desk
        self._verbs = verbs
        self._report = report
        self._answer = answer
        from asyncio import get_running_loop  # noqa: PLC0415  # clients know calls, too

        self._loop = get_running_loop()
        self._callers = ThreadPoolExecutor(_CALLERS, "embedq-call")
        self._reader = ThreadPoolExecutor(1, "embedq-read")

    def close(self) -> None:
        """Let no call begin any more."""
        for threads in (self._callers, self._reader):
            threads.shutdown(wait=False, cancel_futures=True)

    async def call(self, session: Session, request: frames.Call) -> None:
        """Do a call, on another thread, and answer with what it returned."""
        n = request.n
        earlier = session.remembered(n)
        answer = earlier if isinstance(earlier, bytes) else None
        if answer is None:
            verb = self._verb(request)
            loop = self._loop

            def progress(done: int, total: int) -> None:
                told = frames.Progress(n, done, total)
                _soon(loop, self._answer, session, told)

            args = bytes(request.args)
            answer = await loop.run_in_executor(self._threads(verb), verb, args, progress)
            if len(answer) <= _KEPT_BYTES or not is_repeatable(verb):
                session.remember(n, answer)
        self._answer(session, frames.Result(n, msgspec.Raw(answer)), 64 + len(answer))

    def _verb(self, request: frames.Call) -> Verb:
        if request.verb == WORKER_DIED:
            self._tell_death(request)
            return _nothing
        verb = self._verbs.get(request.verb)
        if verb is None:
            raise InvalidOption(f"this host knows no call {request.verb!r}")
        return verb

    def _threads(self, verb: Verb) -> ThreadPoolExecutor:
        return self._reader if is_done_in_turn(verb) else self._callers

    def _tell_death(self, request: frames.Call) -> None:
        try:
            death = msgspec.msgpack.decode(request.args, type=WorkerDeath)
        except msgspec.MsgspecError as error:
            raise InvalidPayload(f"arguments of {WORKER_DIED}: {error}") from error
        self._report(death)

    def listen(self, session: Session, request: frames.Listen) -> None:
        """Tell a session of the events of these names, and of no others."""
        wanted = set(request.names)
        for name in set(session.listening) - wanted:
            session.listening.pop(name)()
        for name in wanted - set(session.listening):
            try:
                off = self._desk.events.on(name, lambda notice: self._hear(session, notice))
            except EmbedqError as error:
                _log.warning("session %s cannot listen: %s", session.name, error)
                continue
            session.listening[name] = off

    def _hear(self, session: Session, notice: Notice) -> None:
        """Pass an event on. Called on the thread of the events."""
        fields = msgspec.to_builtins(dict(notice.fields), enc_hook=str)
        told = frames.Told(notice.name, notice.at, fields)
        _soon(self._loop, self._tell, session, told)

    def _tell(self, session: Session, told: frames.Told) -> None:
        if session.is_full:
            session.untold += 1
        else:
            texts = [value for value in told.fields.values() if isinstance(value, str)]
            self._answer(session, told, 256 + sum(map(len, texts)))


def is_repeatable(verb: Verb) -> bool:
    """Whether a call may be done again when nobody knows its answer any more; see `once`."""
    return bool(getattr(verb, "repeat", False))


def is_done_in_turn(verb: Verb) -> bool:
    """Whether a host does one such call at a time; see `in_turn`."""
    return bool(getattr(verb, "in_turn", False))


def _nothing(_: bytes, __: ProgressFn) -> bytes:
    return _NOTHING


def _soon(loop: asyncio.AbstractEventLoop, act: Callable[..., object], *args: Any) -> None:  # noqa: ANN401
    """Call something on the loop, from another thread. One that has ended does not matter."""
    try:
        loop.call_soon_threadsafe(act, *args)
    except RuntimeError:
        _log.debug("the server has closed before something could be passed on")
