"""One listener on the loop: its sockets, its connections, its options, and its numbers.

Knows: who may connect and how many, which deadlines are over, what is counted.
Does not know: any protocol; other threads (listener.py).
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from embedq.net.access import Access
from embedq.net.connection import Connection
from embedq.net.limits import NetLimits
from embedq.net.options import Options
from embedq.net.port import ANYBODY, Authenticator, Credentials, Identity, Session, Transport
from embedq.net.timers import Timer
from embedq.net.url import Place

if TYPE_CHECKING:
    from embedq.net.network import Network

S = TypeVar("S")
#: Seconds between two looks at the deadlines of all connections.
_LOOK_S: Final = 0.5
_BACKLOG: Final = 512


class Site:
    """What a transport knows of the listener that it serves, and the listener's own part of it."""

    def __init__(
        self,
        network: Network,
        transport: Transport,
        place: Place,
        options: Options,
        limits: NetLimits,
        auth: Authenticator | None,
    ) -> None:
        self.network = network
        self.transport = transport
        self.place = place
        self.options = options
        self.limits = limits
        self.auth = auth
        #: The queues, for what belongs to no single connection.
        self.broker = Access(network, self)
        #: Who it is when it uses `broker`.
        self.identity: Identity | None = ANYBODY
        self.peer = "listener"
        self.connections: dict[Connection, None] = {}
        self.per_host: Counter[str] = Counter()
        #: What has happened: ("accepted", ""), ("refused", why), ("closed", why), …
        self.counts: Counter[tuple[str, str]] = Counter()
        self.bytes_in = self.bytes_out = 0
        self.is_draining = False
        self.address: tuple[str, int] | str = ""
        self.url = place.transport
        self._make: Callable[[Connection], Session] | None = None
        self._server: asyncio.Server | None = None
        self._looking: Timer | None = None
        self._empty: asyncio.Future[None] | None = None

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
        return cast("S", self.network.shared.setdefault(self.transport.name, make()))

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
        """Make a call of the transport's."""
        call()

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
        self._server = await loop.create_server(
            lambda: Connection(self), place.host, port, backlog=_BACKLOG, reuse_address=True
        )
        bound: socket.socket = self._server.sockets[0]
        name = bound.getsockname()
        self.address = (name[0], name[1])
        self.url = place.at(self.address)
        self._look()

    def close_doors(self) -> None:
        """Accept nobody any more."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def drain(self, grace_s: float) -> int:
        """Accept nobody, let clients go, cut those that stay. Returns how many were cut."""
        self.is_draining = True
        self.close_doors()
        for connection in list(self.connections):
            connection.drain()
        cut = 0
        if self.connections:
            self._empty = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._empty], timeout=grace_s)
            cut = len(self.connections)
            for connection in list(self.connections):
                connection.abort("drain")
            if self.connections:
                await asyncio.wait([self._empty], timeout=1.0)
        if self._looking is not None:
            self._looking.cancel()
        self.broker.close()
        return cut

    # --------------------------------------------------------------------- for connections

    def arrived(self, connection: Connection) -> str | None:
        """Take a connection in, or return why not."""
        limits, host = self.limits, connection.host
        refusal = None
        if self.is_draining:
            refusal = "draining"
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

    def left(self, connection: Connection, cause: str) -> None:
        """A connection has ended."""
        self.connections.pop(connection, None)
        self.per_host[connection.host] -= 1
        if not self.per_host[connection.host]:
            del self.per_host[connection.host]
        self.count("closed", cause)
        self.bytes_in += connection.bytes_in
        self.bytes_out += connection.bytes_out
        if self._empty is not None and not self.connections and not self._empty.done():
            self._empty.set_result(None)

    def faulty(self, connection: Connection, code: str, text: str) -> None:
        """A client broke its protocol, or a session failed."""
        self.count("fault", code)
        self.tell("connection_faulty", connection, reason=code, detail=text)

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
        auth = self.auth

        def known(identity: Identity | None) -> None:
            if identity is not None:
                connection.admit(identity)
            else:
                self.count("refused", "login")
                self.tell("login_failed", connection, name=credentials.name)
            connection.called_back(lambda: then(identity))

        if auth is None:
            known(ANYBODY)
        else:
            self.network.identify(auth, credentials, known)

    def _look(self) -> None:
        """Cut whoever is over a deadline."""
        now = self.now()
        for connection in list(self.connections):
            cause = connection.overdue(now)
            if cause is not None:
                self.count("overdue", cause)
                connection.abort(cause)
        self._looking = self.later(_LOOK_S, self._look)

    def look(self) -> None:
        """Do it now: for tests with a clock of their own."""
        if self._looking is not None:
            self._looking.cancel()
        self._look()
