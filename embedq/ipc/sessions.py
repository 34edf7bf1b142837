"""The sessions of a host: how each begins, is taken up again, and ends.

Knows: who is connected, whose process has ended, what becomes of leases that nobody holds.
Does not know: sockets, requests (serving.py).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from embedq.broker import moves
from embedq.broker.desk import Desk
from embedq.broker.leases import Lease
from embedq.broker.numbered import Numbers
from embedq.errors import EmbedqError
from embedq.ipc import frames, marks as marked
from embedq.ipc.calls import WorkerDeath
from embedq.ipc.ends import Ends
from embedq.ipc.heirs import Heirs
from embedq.ipc.liveness import (
    Connections,
    came_before,
    has_ended,
    peer_of,
    watch_process,
)
from embedq.ipc.session import Session
from embedq.storage import answered
from embedq.storage.ops import CloseSession, OpenSession

_log = logging.getLogger("embedq.ipc")

#: Seconds that a client may be away before its leases end.
RECONNECT_GRACE_S: Final = 1.0

#: Seconds after the end of a process until its connection must be closed, too.
_LINGER_S: Final = 0.1
#: Seconds after the end of a connection: what came over it is read first.
_DRAIN_S: Final = 0.005
#: Seconds between two looks for leases that ended by themselves.
_LOOK_S: Final = 0.25

_TOKEN_BYTES: Final = 16

Send = Callable[[bytes, frames.Answer], object]
#: Told that the last session has ended, and whether its client left in order.
OnEmpty = Callable[[bool], object]


class Sessions:
    """All sessions, by address and by token. Belongs to the loop of the server."""

    def __init__(
        self,
        desk: Desk,
        send: Send,
        flush: Callable[[Session], object],
        *,
        folder: Path,
        grace_s: float = RECONNECT_GRACE_S,
        on_empty: OnEmpty = lambda _: None,
    ) -> None:
        self._desk = desk
        self._send = send
        self._flush = flush
        self._folder = folder
        self.ends = Ends(desk, folder)
        self._heirs = Heirs(desk, self.ends)
        self._grace_s = grace_s
        self._loop = asyncio.get_running_loop()
        self.connections: Connections[bytes] = Connections(came_before)
        self.by_address: dict[bytes, Session] = {}
        self.by_token: dict[bytes, Session] = {}
        #: Addresses whose session is being opened, with what they sent meanwhile.
        self.opening: dict[bytes, list[frames.Requests]] = {}
        self._watched: dict[Session, int] = {}
        self._timers: dict[Session, asyncio.TimerHandle] = {}
        self._looking = False
        self._on_empty = on_empty
        self._leaving = 0
        self.refused = 0

    def close(self) -> frozenset[Lease]:
        """Forget all sessions; return what is held by those that can show it to the next host."""
        held = set()
        for session in list(self.by_token.values()):
            if session.marks is not None and not session.ended and _lives(session.marks):
                held |= {each.lease for each in session.leases.values()}
            self._forget(session)
        self.ends.close()
        return frozenset(held)

    # --------------------------------------------------------------------------- begin

    def hello(
        self, address: bytes, fd: int, hello: frames.Hello, then: Callable[[Session], object]
    ) -> None:
        """A client introduces itself. `then(session)` is called once it is welcomed."""
        is_open, loser = self.connections.claim(fd, address)
        if loser is not None:
            self.closed(loser)
        version = next((v for v in frames.VERSIONS if v in hello.versions), None)
        if version is None:
            text = (
                f"the host speaks the versions {_listed(frames.VERSIONS)} of the wire, and "
                f"{hello.name} speaks {_listed(hello.versions)}"
            )
            self.refuse(address, "wrong_version", text)
        elif len(hello.session) != _TOKEN_BYTES:
            self.refuse(address, "protocol_error", f"a session has {_TOKEN_BYTES} bytes")
        elif is_open:
            session = self.by_token.get(hello.session)
            if session is None or session.expected:
                self.opening[address] = []
                self.ends.do(self._open(address, fd, hello, version, then))
            else:
                self._take_up(session, address, fd, hello, version)
        else:
            # Its connection has closed; a client that is there says hello again over another.
            _log.debug("a hello of %s came behind the end of its connection", hello.name)

    def refuse(self, address: bytes, code: str, text: str) -> None:
        """Tell a client that it is not served."""
        self.refused += 1
        self._send(address, frames.Refused(code, text, list(frames.VERSIONS)))

    async def _open(
        self,
        address: bytes,
        fd: int,
        hello: frames.Hello,
        version: int,
        then: Callable[[Session], object],
    ) -> None:
        op = OpenSession(hello.name, self._desk.now_ms(), hello.session)
        try:
            await self._desk.arun(moves.Change([op]))
        except EmbedqError as error:
            self.opening.pop(address, None)
            self.refuse(address, error.code, error.message)
            return
        if address not in self.opening:
            return  # it left meanwhile
        session = self.by_token.get(hello.session)
        if session is None or session.expected:
            places = _places_of(hello.marks)
            numbers = Numbers(op.id, answered.decode(op.requests))
            if session is None:
                session = Session(hello, numbers, places, expected=True)
            else:
                session.numbers = numbers
                session.provide(places)
            self.by_token[hello.session] = session
            self._stop_timer(session)
            await self._heirs.give_anew(session, hello)
            if address not in self.opening:  # and gone again
                self._await_return(session)
                return
        self._take_up(session, address, fd, hello, version)
        then(session)

    def _take_up(
        self, session: Session, address: bytes, fd: int, hello: frames.Hello, version: int
    ) -> None:
        """A session is connected now, perhaps again."""
        if session.address is not None:
            self.by_address.pop(session.address, None)
            self.connections.release(session.address)
            self.connections.claim(fd, address)
        self._stop_timer(session)
        session.discard()
        session.update(hello)
        session.address = address
        self.by_address[address] = session
        self._watch(session, fd)
        session.queue(self._welcome(session, hello, version), 1024 + 16 * len(hello.held))
        self._flush(session)

    def _welcome(self, session: Session, hello: frames.Hello, version: int) -> frames.Welcome:
        desk = self._desk
        tokens: list[tuple[int, int]] = []
        shown: set[int] = set()
        for position, told in enumerate(hello.held):
            held = session.find(told)
            if held is not None:
                tokens.append((position, held.lease.counter))
                shown.add(held.lease.counter)
                if told.started:
                    session.known_started.add(held.lease.counter)
        # What was handed over and never arrived, or was let go.
        missing = [c for c in session.leases if c not in shown and c not in session.settling]
        if missing:
            self.ends.do(self.ends.give_back(session, missing))
        return frames.Welcome(
            version=version,
            epoch=desk.store.epoch,
            session=session.id,
            pid=os.getpid(),
            key=desk.store.key,
            now_ms=desk.now_ms(),
            tokens=tokens,
            marks=session.places,
        )

    def _stop_timer(self, session: Session) -> None:
        timer = self._timers.pop(session, None)
        if timer is not None:
            timer.cancel()

    def expect(self) -> None:
        """Wait for the sessions of earlier hosts: those that live for a moment, others not."""
        for session in self._heirs.expected(self._folder):
            self.by_token[session.token] = session
            if self._is_dead(session):
                session.freeze()
                self._died(session)
            else:
                self._await_return(session)
                self._watch_pid(session, session.pid or None)
        self._heirs.listen()

    def _await_return(self, session: Session) -> None:
        self._timers[session] = self._loop.call_later(self._grace_s, self._missed, session)

    # ----------------------------------------------------------------------------- watch

    def _watch(self, session: Session, fd: int) -> None:
        """Learn at once when the process of a session ends."""
        self._unwatch(session)
        pid = peer_of(fd)
        if pid is None:
            pid = _holder_of(session.marks)
        self._watch_pid(session, pid)

    def _watch_pid(self, session: Session, pid: int | None) -> None:
        watch = None if pid is None or pid == os.getpid() else watch_process(pid)
        if watch is not None:
            self._watched[session] = watch
            self._loop.add_reader(watch, self._process_ended, session)

    def _unwatch(self, session: Session) -> None:
        watch = self._watched.pop(session, None)
        if watch is not None:
            self._loop.remove_reader(watch)
            os.close(watch)

    def _process_ended(self, session: Session) -> None:
        watch = self._watched.get(session)
        if watch is not None:
            self._loop.remove_reader(watch)  # it stays readable
        # A child of it may hold the connection open.
        wait = _DRAIN_S if session.address is None else _LINGER_S
        self._loop.call_later(wait, self._died, session)

    def _is_dead(self, session: Session) -> bool:
        watch = self._watched.get(session)
        if watch is not None:
            return has_ended(watch)
        if session.marks is None:
            return False
        try:
            return os.path.exists(session.marks) and not marked.is_alive(session.marks)  # noqa: PTH110
        except OSError:
            return False

    # ------------------------------------------------------------------------------- end

    def closed(self, address: bytes) -> None:
        """A connection is closed. What came over it may still have to be read."""
        self.opening.pop(address, None)
        self._loop.call_later(_DRAIN_S, self._disconnected, address)

    def _disconnected(self, address: bytes) -> None:
        session = self.by_address.pop(address, None)
        if session is None or session.address != address:
            return  # it came back over another connection
        session.address = None
        session.discard()
        if self._is_dead(session):
            self._died(session)
        else:
            self._await_return(session)

    def drop(self, session: Session, code: str, text: str) -> None:
        """A client that breaks the rules is not served any more."""
        if session.address is not None:
            self.refuse(session.address, code, text)
        if not session.ended:
            self._forget(session)
            self.ends.do(self.ends.drop(session, text))
            self._look_round()

    def reported(self, death: WorkerDeath) -> None:
        """Somebody who watched over the process of a session says how it ended."""
        self.ends.reported(death)
        session = self.by_token.get(death.session)
        if session is not None:
            self._loop.call_later(_LINGER_S, self._died, session)

    def _died(self, session: Session) -> None:
        """The process of a session has ended."""
        if not session.ended:
            self._forget(session)
            self.ends.do(self.ends.bury(session))
            self._look_round()

    def _missed(self, session: Session) -> None:
        """A client has been away for too long."""
        if not session.ended:
            self._forget(session)
            self.ends.do(self.ends.give_up(session, self._grace_s))
            self._look_round()

    def _forget(self, session: Session) -> None:
        if session.address is not None:
            self.by_address.pop(session.address, None)
            self.connections.release(session.address)
        if self.by_token.get(session.token) is session:
            del self.by_token[session.token]
        self._heirs.forget(session)
        self._stop_timer(session)
        self._unwatch(session)
        session.end()

    async def leave(self, session: Session) -> None:
        """A client leaves in order: everything goes back."""
        address = session.address
        self._forget(session)
        self._leaving += 1
        try:
            await self.ends.give_back(session, list(session.leases))
            await self._desk.arun(moves.Change([CloseSession(session.id)]))
        finally:
            self._leaving -= 1
            self._look_round(in_order=True)
        session.address = address  # for the last answer

    def _look_round(self, *, in_order: bool = False) -> None:
        if not (self.by_token or self.opening or self._leaving):
            self._on_empty(in_order)

    # ------------------------------------------------------------------------------ lost

    def look(self) -> None:
        """Tell clients of leases that ended without them. Goes on while there are leases."""
        if not self._looking:
            self._looking = True
            self._loop.call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        self._looking = False
        some = False
        for session in list(self.by_token.values()):
            gone = session.lost()
            if gone and session.address is not None:
                session.queue(frames.Lost(gone), 16 * len(gone))
                self._flush(session)
            some = some or session.holds
        if some:
            self.look()


def _listed(versions: Sequence[int]) -> str:
    return " and ".join(map(str, versions[:8])) or "none"


def _places_of(marks: str | None) -> int:
    """Return how many places a file of marks has."""
    if marks is None:
        return 0
    try:
        return len(marked.read_marks(marks))
    except OSError as error:
        _log.warning("the marks %s cannot be read: %s", marks, error)
        return 0


def _holder_of(marks: str | None) -> int | None:
    """Return the process that holds a file of marks; None if that is not known."""
    if marks is None:
        return None
    try:
        return marked.owner_of(marks) or None
    except OSError:
        return None


def _lives(marks: str) -> bool:
    """Whether the client of these marks is there; no, if that cannot be found out."""
    try:
        return marked.is_alive(marks)
    except OSError as error:
        _log.warning("the marks %s cannot be looked at: %s", marks, error)
        return False
