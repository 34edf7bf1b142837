"""The host's end: one thread and one loop, through which other processes are served.

Knows: what comes through which door, what goes to which session.
Does not know: sockets (door.py), what requests do (serving.py), when sessions end (sessions.py).
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from embedq.broker.desk import Desk
from embedq.errors import StoreFailed
from embedq.ipc import frames, place
from embedq.ipc.calls import Verb, WorkerDeath
from embedq.ipc.frames import ProtocolError
from embedq.ipc.liveness import is_at
from embedq.ipc.serving import Serving
from embedq.ipc.session import UNSENT_MOST, Session
from embedq.ipc.sessions import RECONNECT_GRACE_S, OnEmpty, Sessions
from embedq.ipc.tending import NEEDED, Tending
from embedq.storage import descriptors
from embedq.storage.fork import on_fork

if TYPE_CHECKING:
    from embedq.broker.leases import Lease
    from embedq.ipc.abroad import Abroad, Listening
    from embedq.ipc.door import Door

_log = logging.getLogger("embedq.ipc")

#: Messages read in one turn of the loop: answers must leave between two.
_TURN: Final = 256
_START_S: Final = 10.0
_RETRY_S: Final = 0.05
#: Characters of what a client calls itself.
_NAME_MOST: Final = 200
#: Frames kept for a client whose session is being opened.
_EARLY: Final = 256


class ServerStats(NamedTuple):
    """What a server has seen. `sessions` and `connections` are those of now."""

    sessions: int
    connections: int
    messages: int
    frames: int
    refused: int


class Server:
    """Serves the desk of a host to the other processes of this machine and user.

    `path`: the database, beside which the socket is. `verbs`: the calls that clients may make.
    `listening`: where clients on other machines are served, too; None: nowhere. `on_empty`, called
    on the loop: the last session has ended; True: its client left in order, and waits for that.
    """

    def __init__(
        self,
        desk: Desk,
        path: str | os.PathLike[str],
        *,
        verbs: Mapping[str, Verb] | None = None,
        grace_s: float = RECONNECT_GRACE_S,
        listening: Listening | None = None,
        on_empty: OnEmpty = lambda _: None,
    ) -> None:
        self._desk = desk
        self._folder = place.folder_of(path)
        self._verbs = verbs or {}
        self._grace_s = grace_s
        self._socket_path = place.socket_path(self._folder, desk.store.epoch)
        self.endpoint = place.endpoint_of(self._socket_path)
        self._listen_abroad = listening
        self._on_empty = on_empty
        self._abroad: Abroad | None = None
        self._tending: Tending | None = None
        self._doors: dict[bytes, Door] = {}
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self.outlived: frozenset[Lease] = frozenset()  # what clients can show to the next host
        self._pid = 0
        self._listening: list[int] = []
        #: Bytes that may wait for a client that does not read, before it is dropped.
        self.most_unsent = UNSENT_MOST
        self.messages = self.frames = 0
        self._blocked: dict[Session, bytes] = {}
        self._flushing: dict[Session, None] = {}
        self._retrying = False

    # ------------------------------------------------------------------- start and stop

    def start(self) -> None:
        """Bind the socket and serve on a thread of its own; the lock file names the socket.

        Raises InsecurePermissions, StoreFailed: then nobody is served.
        """
        place.make_folder(self._folder)
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="embedq-ipc", daemon=True)
        self._thread.start()
        if not self._started.wait(_START_S):
            raise StoreFailed(f"{self.endpoint}: the server did not start in {_START_S} s")
        if self._failure is not None:
            raise StoreFailed(
                f"{self.endpoint}: the socket cannot be served: {self._failure}"
            ) from self._failure
        self._announce(self.endpoint)
        on_fork(self)
        try:
            place.tidy(self._folder, self._desk.store.epoch)
        except (OSError, StoreFailed) as error:
            _log.warning("what earlier hosts left in %s stays there: %s", self._folder, error)

    def stop(self, reason: str = "") -> None:
        """Say goodbye to the clients and serve no more. Safe to call twice; nothing in a fork."""
        thread, loop = self._thread, self._loop
        if thread is None or self._pid != os.getpid():
            return
        self._thread = None
        self._announce("")
        if loop is not None:
            with suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(self._leave, reason)
        thread.join()
        place.remove(self._socket_path)

    def forked_in_child(self) -> None:
        """Let go of the parent's connections in a child: they must not outlive the parent."""
        path = str(self._socket_path)
        sessions = getattr(self, "_sessions", None)
        fds = [] if sessions is None else sessions.connections.fds()
        port = None if self._abroad is None else self._abroad.port
        for fd in [*self._listening, *fds]:
            if is_at(fd, path, port):
                os.close(fd)

    def _announce(self, endpoint: str) -> None:
        announce = getattr(self._desk.store, "announce", None)
        if announce is not None:  # a store in memory has no lock file
            announce(endpoint)

    def report(self, death: WorkerDeath) -> None:
        """Take in how a process ended that this process watched over. From any thread."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # it serves no longer
                loop.call_soon_threadsafe(self._sessions.reported, death)

    @property
    def stats(self) -> ServerStats:
        """What has happened so far. Roughly: other threads do not wait for the loop."""
        if not self._started.is_set() or self._failure is not None:
            return ServerStats(0, 0, 0, 0, 0)
        sessions = self._sessions
        kept_out = 0 if self._abroad is None else self._abroad.gate.refused
        return ServerStats(
            *(len(sessions.by_token), len(sessions.connections)),
            *(self.messages, self.frames, sessions.refused + kept_out),
        )

    # ----------------------------------------------------------------------- the thread

    def _run(self) -> None:
        try:
            descriptors.check(NEEDED)
            with asyncio.Runner() as runner:  # first the loop: it may not be to be had
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001  # told to who starts it
            if not self._started.is_set():
                self._failure = error
            else:
                _log.exception("the server of %s ended", self.endpoint)
        finally:
            self._started.set()

    async def _serve(self) -> None:
        import zmq  # noqa: PLC0415  # 30 ms: only who serves pays for it, on this thread

        self._ending = asyncio.get_running_loop().create_future()
        self._sessions = Sessions(
            *(self._desk, self._send_one, self._flush_later),
            folder=self._folder,
            grace_s=self._grace_s,
            on_empty=self._on_empty,
        )
        self._serving = Serving(
            self._desk,
            self._verbs,
            self._sessions.reported,
            self._flush_later,
            self._sessions.leave,
        )
        self._loop = asyncio.get_running_loop()  # last: from now on others call it
        context = zmq.Context()
        try:
            self._open_doors(context)
            self._sessions.expect()
            self._started.set()
            await self._ending
        finally:
            if self._tending is not None:
                self._tending.end()
            if self._abroad is not None:
                self._abroad.close()
            for door in self._doors.values():
                door.close()
            self._serving.close()
            self.outlived = self._sessions.close()
            context.term()

    def _open_doors(self, context: Any) -> None:  # noqa: ANN401  # of ZeroMQ, see `_serve`
        from embedq.ipc.abroad import Abroad  # noqa: PLC0415  # it loads ZeroMQ
        from embedq.ipc.router import local_door  # noqa: PLC0415  # as above

        most = self._desk.limits.batch_bytes + frames.OVERHEAD
        door = local_door(context, most)
        self._doors[door.mark] = door
        door.open(self.endpoint, self._read, self._read_monitor)
        self._tending = Tending(door, self._socket_path)
        if self._listen_abroad is not None:
            abroad = self._abroad = Abroad(context, most, self._listen_abroad, self._desk)
            self._doors[abroad.door.mark] = abroad.door
            abroad.open(self._read, self._read_monitor)

    def _leave(self, reason: str) -> None:
        for session in list(self._sessions.by_token.values()):
            if session.address is not None:
                session.queue(frames.Leaving(reason))
                self._flush(session)
        if not self._ending.done():
            self._ending.set_result(None)

    # -------------------------------------------------------------------------- reading

    def _read_monitor(self, door: Door) -> None:
        connections = self._sessions.connections
        for what, fd in door.arrivals():
            gone = None
            if what == "listening":
                self._listening.append(fd)
            elif what == "accepted":
                gone = connections.accepted(fd)
            elif what == "closed":
                gone = connections.closed(fd)
            elif self._abroad is not None:
                self._abroad.failed(fd)
            if gone is not None:
                self._sessions.closed(gone)

    def _read(self, door: Door) -> None:
        """Read what has come, as far as one turn of the loop goes."""
        if self._ending.done():
            return
        self._read_monitor(door)
        for _ in range(_TURN):
            found = door.receive()
            if found is None:
                break
            self.messages += 1
            try:
                self._take(door, *found)
            except Exception:  # noqa: BLE001  # one message must not end the service of the others
                _log.exception("a message could not be served")
        else:
            door.read_again()
        for session in list(self._blocked):
            self._flush(session)

    def _take(self, door: Door, address: bytes, parts: list[Any]) -> None:
        sessions = self._sessions
        session = sessions.by_address.get(address)
        try:
            requests = _decoded(parts)
        except ProtocolError as error:
            self._reject(address, session, error.code, error.message)
            return
        self.frames += len(requests)
        if session is not None:
            self._handle(session, requests)
        elif address in sessions.opening:
            early = sessions.opening[address]
            early += requests[: _EARLY - len(early)]
        elif len(requests) == 1 and isinstance(requests[0], frames.Hello):
            self._greet(door, address, parts[0], requests[0])
        else:
            self._reject(address, None, "no_session", "the first frame must be Hello")

    def _greet(self, door: Door, address: bytes, part: Any, hello: frames.Hello) -> None:  # noqa: ANN401
        from embedq.ipc.door import fd_of, user_of  # noqa: PLC0415  # it loads ZeroMQ

        self._read_monitor(door)
        name = hello.name[:_NAME_MOST]
        if self._abroad is not None and door is self._abroad.door:
            # Its files are on another machine, and nothing here may be read because it says so.
            hello = msgspec.structs.replace(hello, marks=None, name=f"{user_of(part)}/{name}")
        elif name != hello.name:
            hello = msgspec.structs.replace(hello, name=name)
        self._sessions.hello(address, fd_of(part), hello, lambda s: self._opened(address, s))

    def _opened(self, address: bytes, session: Session) -> None:
        early = self._sessions.opening.pop(address, [])
        if early:
            self._handle(session, early)

    def _handle(self, session: Session, requests: list[frames.Requests]) -> None:
        for request in requests:
            if isinstance(request, frames.Hello):
                self._reject(session.address or b"", session, "protocol_error", "a second Hello")
                return
            self._serving.handle(session, request)

    def _reject(self, address: bytes, session: Session | None, code: str, text: str) -> None:
        if session is not None:
            self._sessions.drop(session, code, text)
        else:
            self._sessions.opening.pop(address, None)
            self._sessions.refuse(address, code, text)

    # -------------------------------------------------------------------------- sending

    def _flush_later(self, session: Session) -> None:
        """Send what a session has to get once this turn of the loop is over."""
        if not self._flushing:
            asyncio.get_running_loop().call_soon(self._flush_all)
        self._flushing[session] = None

    def _flush_all(self) -> None:
        sessions, self._flushing = self._flushing, {}
        for session in sessions:
            try:
                self._flush(session)
            except Exception:  # noqa: BLE001  # nor one session
                _log.exception("the answers to session %s could not be sent", session.name)
        if self._sessions.by_token:
            self._sessions.look()

    def _flush(self, session: Session) -> None:
        """Send what a session has to get, as far as it takes it."""
        data = self._blocked.pop(session, None)
        while session.address is not None:
            if data is None:
                message = session.next_message()
                if not message:
                    return
                data = frames.encode(message)
            if not self._send(session.address, data):
                self._blocked[session] = data
                if session.unsent_bytes + len(data) > self.most_unsent:
                    self._sessions.drop(session, "too_slow", "the client does not read")
                self._retry_later()
                return
            data = None

    def _send(self, address: bytes, data: bytes) -> bool:
        """Send one message; False: the client does not take it now."""
        return self._doors[address[:1]].send(address, data)

    def _send_one(self, address: bytes, answer: frames.Answer) -> None:
        """Send an answer to somebody who has no session, if it takes it."""
        self._send(address, frames.encode([answer]))

    def _retry_later(self) -> None:
        if not self._retrying:
            self._retrying = True
            asyncio.get_running_loop().call_later(_RETRY_S, self._retry)

    def _retry(self) -> None:
        self._retrying = False
        for session in list(self._blocked):
            if session.ended or session.address is None:
                del self._blocked[session]
            else:
                self._flush(session)


def _decoded(parts: list[Any]) -> list[frames.Requests]:
    if len(parts) != 1:
        raise ProtocolError(f"a message of {len(parts)} parts, not 1")
    return frames.decode_requests(parts[0].buffer)
