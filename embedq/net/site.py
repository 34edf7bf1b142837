"""One listener on the loop: its sockets, its connections, its options, and its numbers.

Knows: who may connect and how many, which deadlines are over, what is counted.
Does not know: any protocol; other threads (listener.py).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from embedq.net import sockets
from embedq.net.access import Access
from embedq.net.allow import AllowList
from embedq.net.connection import Connection
from embedq.net.limits import NetLimits
from embedq.net.logins import Logins
from embedq.net.making import Making
from embedq.net.options import Options
from embedq.net.port import ANYBODY, Authenticator, Credentials, Identity, Session, Transport
from embedq.net.timers import Timer
from embedq.net.tls import TLS
from embedq.net.url import Place
from embedq.storage.fork import immortalise, on_fork

if TYPE_CHECKING:
    from embedq.net.network import Network

_log = logging.getLogger("embedq.net")
S = TypeVar("S")
#: Seconds between two looks at the deadlines of all connections.
_LOOK_S: Final = 0.5
#: Connections that one turn of the loop accepts for a listener: each costs a third of a
#: millisecond until its first bytes are read, and all listeners of a crowd are busy at once.
_ACCEPT_MOST: Final = 2


class Site:
    """What a transport knows of the listener that it serves, and the listener's own part of it."""

    def __init__(
        self,
        network: Network,
        transport: Transport,
        place: Place,
        options: Options,
        limits: NetLimits,
        *,
        auth: Authenticator | None,
        tls: TLS | None = None,
        allow: AllowList | None = None,
    ) -> None:
        self.network = network
        self.transport = transport
        self.place = place
        self.options = options
        self.limits = limits
        self.auth = auth
        self._logins = None if auth is None else Logins(auth)
        self.tls = tls
        self.allow = allow
        #: Made of the certificates as they were read last.
        self.context: ssl.SSLContext | None = None
        #: What has happened: ("accepted", ""), ("refused", why), ("closed", why), …
        self.counts: Counter[tuple[str, str]] = Counter()
        #: Creates what clients name. What the listener's own options name is not counted.
        self.making = Making(network.desk, limits.created_queues)
        #: The queues, for what belongs to no single connection.
        self.broker = Access(network, self, Making(network.desk, None))
        #: Who it is when it uses `broker`.
        self.identity: Identity | None = ANYBODY
        self.peer = "listener"
        #: An orderly end tells clients that all was done: nobody else is to see one. A transport
        #: sets it in its `open`; its sessions turn resets off before they `finish`.
        self.end_confirms = False
        self.connections: dict[Connection, None] = {}
        self.per_host: Counter[str] = Counter()
        self.bytes_in = self.bytes_out = 0
        self.is_draining = False
        self.address: tuple[str, int] | str = ""
        self.url = place.transport
        self._make: Callable[[Connection], Session] | None = None
        self._servers: list[asyncio.Server] = []
        self._bound: list[socket.socket] = []
        self._file: tuple[int, int] | None = None
        self._looking: Timer | None = None
        self._empty: asyncio.Future[None] | None = None
        self._hurried = asyncio.Event()

    # ------------------------------------------------------------------ what transports use

    @property
    def protocol(self) -> str:
        """The name of the protocol."""
        return self.transport.name

    @property
    def has_login(self) -> bool:
        """Whether clients have to say who they are before they are admitted."""
        return self.transport.has_login

    @property
    def asks(self) -> bool:
        """Whether it is checked who clients are."""
        return self.auth is not None

    def share(self, make: Callable[[], S]) -> S:
        """Return what all listeners of this protocol and broker share; made by the first."""
        shared = self.network.shared
        if self.transport.name not in shared:
            shared[self.transport.name] = make()
        return cast("S", shared[self.transport.name])

    def now(self) -> float:
        """Return the monotonic clock in seconds."""
        return self.network.monotonic()

    def later(self, seconds: float, call: Callable[[], object]) -> Timer:
        """Call something after a while. `.cancel()` takes it back."""
        return self.network.timers.add(seconds, call)

    def soon(self, call: Callable[[], object]) -> None:
        """Call something in the next turn of the loop."""
        self.network.soon(call)

    def count(self, what: str, of: str = "") -> None:
        """Count something for the numbers of the listener."""
        self.counts[what, of] += 1

    # --------------------------------------------------------------------- as their owner

    @property
    def is_clogged(self) -> bool:
        """A listener itself takes everything."""
        return False

    def called_back(self, call: Callable[[], object]) -> None:
        """Make a call of the transport's. What it raises is its defect: all others go on."""
        try:
            call()
        except Exception:  # noqa: BLE001  # see _failed
            self._failed()

    def answered(self, then: Callable[[Any], object], result: object) -> None:
        """Give the transport an answer."""
        try:
            then(result)
        except Exception:  # noqa: BLE001  # see _failed
            self._failed()

    def _failed(self) -> None:
        """A transport has raised something: a defect, which is told and counted."""
        _log.exception("a call of the listener %s failed; the others go on", self.url)
        self.count("fault", "defect")

    def ops_changed(self) -> None:
        """Nothing depends on it."""

    # -------------------------------------------------------------------- begin and end

    async def open(self) -> None:
        """Let the transport read its options, then bind. Raises InvalidOption, OSError."""
        self._make = self.transport.open(self)
        self.options.check_all_known()
        loop = asyncio.get_running_loop()
        place = self.place
        port = self.transport.default_port if place.port is None else place.port
        self.context = await loop.run_in_executor(None, self.read_certificates)
        bind = partial(sockets.bind, place, port, resets=self.end_confirms)
        bound = await loop.run_in_executor(None, bind)
        if place.path is None:
            name = bound[0].getsockname()
            self.address = (name[0], name[1])
        else:
            self.address = place.path
            self._file = sockets.identity(place.path)
        self.url = place.at(self.address)
        self._bound = bound
        on_fork(self)
        for sock in bound:
            self.network.doors.opened(sock, self.url)
            self._servers.append(
                await loop.create_server(
                    lambda: Connection(self).channel, sock=sock, backlog=_ACCEPT_MOST
                )
            )
            sock.listen(sockets.BACKLOG)  # which asyncio has set to the same
        self._look()

    def read_certificates(self) -> ssl.SSLContext | None:
        """Read the files of TLS. Raises InvalidOption."""
        return None if self.tls is None else self.tls.context()

    async def close_doors(self) -> None:
        """Accept nobody any more."""
        loop = asyncio.get_running_loop()
        for server in self._servers:
            for sock in server.sockets:
                loop.remove_reader(sock.fileno())
        # What was accepted in this very turn becomes a connection first: asyncio forgets, and
        # never closes, a socket whose server was closed meanwhile.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for sock in self._bound:
            self.network.doors.closing(sock)
        if self._servers and self.place.path is not None and self._file is not None:
            sockets.remove(self.place.path, self._file)
        for server in self._servers:
            server.close()
        self._servers = []
        self._bound = []

    def forked_in_child(self) -> None:
        """Let go of the parent's sockets in a child: clients would not see the parent's end."""
        immortalise(self)  # or sockets that are closed here would be closed again, as others
        for sock in self._bound:
            sock.close()
        for connection in list(self.connections):
            connection.channel.let_go()

    async def drain(self, grace_s: float) -> int:
        """Accept nobody, let clients go, cut those that stay. Returns how many were cut."""
        self.is_draining = True
        await self.close_doors()
        for connection in list(self.connections):
            connection.drain()
        cut = 0
        if self.connections:
            self._empty = asyncio.get_running_loop().create_future()
            hurried = asyncio.ensure_future(self._hurried.wait())
            either = (self._empty, hurried)
            await asyncio.wait(either, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
            hurried.cancel()
            cut = len(self.connections)
            for connection in list(self.connections):
                connection.abort("drain")
            if self.connections:
                await asyncio.wait([self._empty], timeout=1.0)
        if self._looking is not None:
            self._looking.cancel()
        self.broker.close()
        return cut

    def hurry(self) -> None:
        """End the grace of a drain that is under way, or of the next one."""
        self._hurried.set()

    # --------------------------------------------------------------------- for connections

    def arrived(self, connection: Connection) -> str | None:
        """Take a connection in, or return why not."""
        limits, host = self.limits, connection.host
        refusal = None
        if self.is_draining:
            refusal = "draining"
        elif self.allow is not None and not self.allow.has(host):
            refusal = "address"
        elif len(self.connections) >= limits.connections:
            refusal = "connections"
        elif host and self.per_host[host] >= limits.connections_per_peer:
            refusal = "connections_per_peer"
        if refusal is not None:
            self.count("refused", refusal)
            self.tell("connection_refused", connection, reason=refusal)
            return refusal
        self.connections[connection] = None
        self.per_host[host] += 1
        self.count("accepted")
        return None

    def make_session(self, connection: Connection) -> Session:
        """Return the session of a new connection."""
        make = cast("Callable[[Connection], Session]", self._make)
        return make(connection)

    def ended(self, connection: Connection) -> None:
        """A client sends no more: it takes no place of its address from now on.

        Its connection may stay for as long as a queue is full, and a consumer at that address is
        who makes room.
        """
        self.per_host[connection.host] -= 1
        if not self.per_host[connection.host]:
            del self.per_host[connection.host]

    def left(self, connection: Connection, cause: str) -> None:
        """A connection has ended."""
        self.connections.pop(connection, None)
        if not connection.channel.has_ended:
            self.ended(connection)
        self.count("closed", cause)
        self.bytes_in += connection.channel.bytes_in
        self.bytes_out += connection.channel.bytes_out
        if self._empty is not None and not self.connections and not self._empty.done():
            self._empty.set_result(None)

    def faulty(self, connection: Connection, code: str, text: str) -> None:
        """A client broke its protocol, or a session failed."""
        self.count("fault", code)
        self.tell("connection_faulty", connection, reason=code, detail=text)

    def cut(self, connection: Connection, cause: str) -> None:
        """End a connection that is over a deadline, or does not read."""
        self.tell("connection_cut", connection, reason=cause)
        connection.abort(cause)

    def tell(self, event: str, connection: Connection, **fields: Any) -> None:  # noqa: ANN401
        """Emit an event about a connection."""
        events = self.network.desk.events
        events.emit(event, listener=self.url, peer=connection.peer, **fields)

    def identify(
        self,
        connection: Connection,
        credentials: Credentials,
        then: Callable[[Identity | None], object],
    ) -> None:
        """See Connection.login."""
        logins = self._logins

        def known(identity: Identity | None) -> None:
            if identity is not None:
                connection.admit(identity)
            else:
                self.count("refused", "login")
                self.tell("login_failed", connection, name=credentials.name)
            connection.called_back(lambda: then(identity))

        if logins is None:
            connection.admit()
            connection.called_back(lambda: then(connection.identity))
            return
        connection.hold("login")

        def answered(identity: Identity | None) -> None:
            connection.unhold("login")
            known(identity)

        connection.start(logins.ask(credentials, answered))

    def _look(self) -> None:
        """Cut whoever is over a deadline."""
        now = self.now()
        for connection in list(self.connections):
            cause = connection.overdue(now)
            if cause is not None:
                self.count("overdue", cause)
                self.cut(connection, cause)
        self._looking = self.later(_LOOK_S, self._look)

    def look(self) -> None:
        """Do it now: for tests with a clock of their own."""
        if self._looking is not None:
            self._looking.cancel()
        self._look()
