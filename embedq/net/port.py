"""The port of transports: what a protocol gives to the network, and what the network asks of it.

Knows: Transport (one for each protocol), Session (one for each connection), who a client is.
Does not know: sockets, loops, how anything is done. docs/guide-transports.md tells how to use it.

Everything here is called on one thread, that of the loop, and nothing may block or wait there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from embedq.net.connection import Connection
    from embedq.net.site import Site

#: The entry points by which transports are found; the name of one is the scheme of its URLs.
ENTRY_POINTS: Final = "embedq.transports"


class Session:
    """The state of one connection: bytes come in, operations follow, bytes go out.

    Subclass it. An exception from any of its methods ends its connection and no other.
    """

    #: The connection is inside a frame: its deadline runs. Set it after each `received`.
    pending: bool = False
    #: Complete frames so far: when it rises, the deadline of the frame begins anew.
    frames: int = 0
    #: What was received last will be answered, and the client sends nothing before it has that:
    #: an acknowledgement by the kernel would be a packet for nothing.
    answers: bool = False

    def received(self, data: bytes) -> None:
        """Bytes have come. They may end anywhere; not called again once the session closes."""
        raise NotImplementedError

    def ended(self) -> bool | None:
        """The client will send no more, but may read on.

        Returns True to keep the connection. Otherwise it is finished: what is being stored is
        stored and answered, what is written leaves, then the connection is closed.
        """
        return None

    def draining(self) -> None:
        """The listener stops: say goodbye if the protocol can, and close soon.

        Without an answer here the connection is finished as after `ended`.
        """

    def lost(self, cause: str) -> None:
        """The connection is gone, whatever ended it; what is written now goes nowhere.

        Deliveries may be settled here in the way of the protocol; all others are released
        afterwards, which costs no attempt.
        """


class Transport(Protocol):
    """One protocol. An entry point in `embedq.transports` names an object like this."""

    #: The scheme of its URLs and the name in events and dead letters.
    name: str
    default_port: int
    #: Clients can prove who they are on the wire: without it listen(auth=) is refused, with it
    #: the deadline of the login runs until Connection.admit or a login that succeeds.
    has_login: bool

    def open(self, site: Site) -> Callable[[Connection], Session]:
        """Read the options of a listener; return what makes the session of a connection.

        State that several connections share lives in what is returned (or in `site.share`).
        Raises InvalidOption for an option it does not like.
        """
        ...


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a client is. `rights`: of "put", "consume", "manage"; `queues`: None is all of them."""

    name: str
    rights: frozenset[str] = frozenset({"put", "consume", "manage"})
    queues: frozenset[str] | None = None

    def may(self, right: str, queue: str | None = None) -> bool:
        """Whether the client may do this to a queue."""
        known = self.queues is None or queue is None or queue in self.queues
        return known and right in self.rights


#: Whoever can connect, where nobody asks.
ANYBODY: Final = Identity("")


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client says to prove who it is: a token, or a user and a password.

    `proves`: for protocols that sign instead: whether a secret made the signature for the name.
    """

    name: str = ""
    secret: bytes = field(default=b"", repr=False)
    proves: Callable[[bytes], bool] | None = None


class Authenticator(Protocol):
    """Says who a client is. See embedq.net.auth for those that read files."""

    def identify(self, credentials: Credentials) -> Identity | Awaitable[Identity | None] | None:
        """Return who this is, None for nobody.

        Called on a thread of its own; a coroutine is awaited on the loop.
        """
        ...
