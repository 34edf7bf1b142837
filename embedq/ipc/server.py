"""The host's end: one thread, one loop, one socket, through which other processes are served.

Knows: ZeroMQ's options, its edge-triggered descriptor and its monitor; what goes to which session.
Does not know: what requests do (serving.py), when sessions end (sessions.py).
"""

from __future__ import annotations

import asyncio
import logging
import os
import struct
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from embedq.broker.desk import Desk
from embedq.errors import StoreFailed
from embedq.ipc import frames, place
from embedq.ipc.calls import Verb, WorkerDeath
from embedq.ipc.frames import ProtocolError
from embedq.ipc.liveness import is_at
from embedq.ipc.serving import Serving
from embedq.ipc.session import UNSENT_MOST, Session
from embedq.ipc.sessions import RECONNECT_GRACE_S, Sessions
from embedq.storage.fork import on_fork

if TYPE_CHECKING:
    import zmq

_log = logging.getLogger("embedq.ipc")

#: Messages read in one turn of the loop: answers must leave between two.
_TURN: Final = 256
#: Messages from this size on are lent to ZeroMQ, not copied: to get one back takes 0.3 ms.
_LENT_BYTES: Final = 1 << 20
#: Milliseconds that a closing host spends on its last words.
_LINGER_MS: Final = 200
_START_S: Final = 10.0
_RETRY_S: Final = 0.05
#: What a monitor sends first: the event, and here a descriptor.
_EVENT: Final = struct.Struct("=Hi")
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
    """

    def __init__(
        self,
        desk: Desk,
        path: str | os.PathLike[str],
        *,
        verbs: Mapping[str, Verb] | None = None,
        grace_s: float = RECONNECT_GRACE_S,
    ) -> None:
        self._desk = desk
        self._folder = place.folder_of(path)
        self._verbs = verbs or {}
        self._grace_s = grace_s
        self._socket_path = place.socket_path(self._folder, desk.store.epoch)
        self.endpoint = place.endpoint_of(self._socket_path)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._pid = 0
        self._listening: list[int] = []
        #: Bytes that may wait for a client that does not read, before it is dropped.
        self.most_unsent = UNSENT_MOST
        self.messages = 0
        self.frames = 0
        self._blocked: dict[Session, bytes] = {}
        self._flushing: dict[Session, None] = {}
        self._is_reading = False
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
        for fd in [*self._listening, *fds]:
            if is_at(fd, path):
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
        return ServerStats(
            *(len(sessions.by_token), len(sessions.connections)),
            *(self.messages, self.frames, sessions.refused),
        )

    # ----------------------------------------------------------------------- the thread

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001  # told to who starts it
            if not self._started.is_set():
                self._failure = error
            else:
                _log.exception("the server of %s ended", self.endpoint)
        finally:
            self._started.set()

    async def _serve(self) -> None:
        import zmq  # noqa: PLC0415  # 30 ms: only who serves pays for it, on this thread

        self._zmq: Any = zmq
        self._ending = asyncio.get_running_loop().create_future()
        self._sessions = Sessions(
            *(self._desk, self._send_one, self._flush_later),
            folder=self._folder,
            grace_s=self._grace_s,
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
            self._bind(context)
            self._sessions.expect()
            self._started.set()
            await self._ending
        finally:
            self._unbind()
            self._serving.close()
            self._sessions.close()
            context.term()

    def _bind(self, context: zmq.Context[Any]) -> None:
        from embedq.ipc.router import router  # noqa: PLC0415  # it loads ZeroMQ

        most = self._desk.limits.batch_bytes + frames.OVERHEAD
        self._socket, self._monitor = router(context, most)
        self._socket.bind(self.endpoint)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._monitor.fileno(), self._read_monitor)
        loop.add_reader(self._socket.fileno(), self._read)
        loop.call_soon(self._read)

    def _unbind(self) -> None:
        if not hasattr(self, "_socket"):
            return
        loop = asyncio.get_running_loop()
        if hasattr(self, "_monitor"):
            with suppress(self._zmq.ZMQError):
                loop.remove_reader(self._monitor.fileno())
                loop.remove_reader(self._socket.fileno())
            self._socket.disable_monitor()
            self._monitor.close(linger=0)
        self._socket.close(linger=_LINGER_MS)

    def _leave(self, reason: str) -> None:
        for session in list(self._sessions.by_token.values()):
            if session.address is not None:
                session.queue(frames.Leaving(reason))
                self._flush(session)
        if not self._ending.done():
            self._ending.set_result(None)

    # -------------------------------------------------------------------------- reading

    def _events(self, socket: zmq.Socket[Any]) -> int:
        return int(socket.getsockopt(self._zmq.EVENTS))

    def _read_monitor(self) -> None:
        monitor, zmq = self._monitor, self._zmq
        while self._events(monitor) & zmq.POLLIN:
            event, fd = _EVENT.unpack(monitor.recv_multipart(zmq.NOBLOCK)[0])
            connections = self._sessions.connections
            if event == zmq.EVENT_LISTENING:
                self._listening.append(fd)
                continue
            if event == zmq.EVENT_ACCEPTED:
                gone = connections.accepted(fd)
            else:
                gone = connections.closed(fd)
            if gone is not None:
                self._sessions.closed(gone)

    def _read(self) -> None:
        """Read what has come, as far as one turn of the loop goes."""
        self._is_reading = False
        if self._ending.done():
            return
        zmq, socket = self._zmq, self._socket
        self._read_monitor()
        for _ in range(_TURN):
            if not self._events(socket) & zmq.POLLIN:
                break
            address, *parts = socket.recv_multipart(zmq.NOBLOCK, copy=False)
            self.messages += 1
            try:
                self._take(address.bytes, parts)
            except Exception:  # noqa: BLE001  # one message must not end the service of the others
                _log.exception("a message could not be served")
        else:
            self._read_again()
        for session in list(self._blocked):
            self._flush(session)

    def _read_again(self) -> None:
        """The descriptor tells of changes only: whoever sees something unread must say so."""
        if not self._is_reading:
            self._is_reading = True
            asyncio.get_running_loop().call_soon(self._read)

    def _take(self, address: bytes, parts: list[Any]) -> None:
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
            fd = parts[0].get(self._zmq.SRCFD)
            self._read_monitor()
            sessions.hello(address, fd, requests[0], lambda found: self._opened(address, found))
        else:
            self._reject(address, None, "no_session", "the first frame must be Hello")

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
        zmq, socket = self._zmq, self._socket
        if socket.closed:
            return True
        try:
            socket.send_multipart((address, data), zmq.NOBLOCK, copy=len(data) < _LENT_BYTES)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            # It is gone; the monitor tells, too. When it is back, it asks again.
        if self._events(socket) & zmq.POLLIN:
            self._read_again()
        return True

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
