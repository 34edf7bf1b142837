"""The listeners of an application, which run while its consumers do.

Knows: what may be said about a listener, when it begins and ends.
Does not know: sockets and protocols (embedq.net).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from embedq.app.options import check_flag
from embedq.errors import InsecureListener, InvalidOption, shown
from embedq.net.allow import AllowList, is_loopback
from embedq.net.auth import authenticator
from embedq.net.finding import check_transport, find_transport
from embedq.net.limits import NET_LIMITS, NetLimits
from embedq.net.listener import GRACE_S, Listener, ListenerStats, not_yet
from embedq.net.network import Network
from embedq.net.options import Options
from embedq.net.port import Transport
from embedq.net.site import Site
from embedq.net.tls import TLS
from embedq.net.url import Place, parse_url

if TYPE_CHECKING:
    from embedq.broker.port import DeskPort
    from embedq.workers.drain import Report
    from embedq.workers.signals import Drainable


class Wish:
    """What is to be listened at, checked as far as that goes without a socket."""

    def __init__(
        self,
        url: str,
        *,
        transport: Transport | None,
        limits: NetLimits | None,
        auth: object,
        tls: TLS | None,
        allow: Iterable[str] | None,
        insecure: bool,
        options: dict[str, object],
    ) -> None:
        self.place: Place = parse_url(url)
        if transport is None:
            transport = find_transport(self.place.transport)
        self.transport = check_transport(transport, "transport=")
        if limits is not None and not isinstance(limits, NetLimits):
            raise InvalidOption(
                f"limits={shown(limits)} is no NetLimits",
                hint="write limits=NetLimits(connections=100), from embedq.net",
                argument="limits",
            )
        if auth is not None and not self.transport.has_login:
            raise InvalidOption(
                f"{url}: clients of {self.transport.name} cannot say who they are",
                hint="use client certificates",
                argument="auth",
            )
        self.limits = limits or NET_LIMITS
        self.auth = authenticator(auth)
        if tls is not None and not isinstance(tls, TLS):
            raise InvalidOption(
                f"tls={shown(tls)} is no TLS",
                hint='write tls=TLS("cert.pem", "key.pem"), from embedq.net',
                argument="tls",
            )
        self.tls = tls
        self.allow = None if allow is None else AllowList(allow)
        check_flag(insecure, "insecure")
        if not insecure:
            self._check_secure(url)
        for name in options:
            if name in self.place.options:
                text = f"{name} is in the URL and an argument"
                raise InvalidOption(text, argument=name)
        self.options: dict[str, object] = {**self.place.options, **options}
        self.url = url

    def _check_secure(self, url: str) -> None:
        """Raise InsecureListener if machines elsewhere can use it, whoever they are."""
        place = self.place
        if place.path is not None or is_loopback(place.host):
            return
        if self.auth is None and (self.tls is None or not self.tls.asks):
            raise InsecureListener(
                f"{url} can be reached from other machines, and asks nobody who they are"
            )


class Listening:
    """The listeners of one broker: a companion of its consumers. Safe from any thread."""

    def __init__(self, desk: Callable[[], DeskPort]) -> None:
        self._grace_s = GRACE_S
        self._desk = desk
        self._network: Network | None = None
        self._all: list[BrokerListener] = []

    def add(self, listener: BrokerListener) -> None:
        """Let a listener run with the others."""
        self._all.append(listener)
        if self._network is not None:
            try:
                listener.begin(self._network)
            except BaseException:
                self._all.remove(listener)
                raise

    def have(self, grace_s: float | None) -> None:
        """Let clients have so long to finish when the consumers end; None: GRACE_S."""
        self._grace_s = GRACE_S if grace_s is None else grace_s

    def start(self) -> None:
        """Listen at all of them, or at none. Raises why one cannot be."""
        self.close()
        self._network = Network(self._desk())
        try:
            for listener in self._all:
                listener.begin(self._network)
        except BaseException:
            self.close()
            raise

    def stop(self) -> None:
        """Accept nobody any more, and let the clients go; `close` waits for them."""
        for listener in self._all:
            if listener.inner is not None:
                listener.inner.begin_drain(self._grace_s)

    def close(self) -> None:
        """Wait until the clients are gone and what they did is settled. Safe to call twice."""
        network, self._network = self._network, None
        if network is None:
            return
        for listener in self._all:
            listener.end(self._grace_s)
        network.stop()

    def hurry(self) -> None:
        """Cut the clients that have not finished: the grace is over."""
        for listener in self._all:
            if listener.inner is not None:
                listener.inner.hurry()


class Leaving:
    """Consumers and listeners that end together: who is in a hurry cuts the clients, too."""

    def __init__(self, consumers: Drainable, listening: Listening) -> None:
        self._consumers = consumers
        self._listening = listening

    def drain(self, grace_s: float, *, reason: str = "stop") -> Report:
        """Drain the consumers, and wait until the clients are gone."""
        report = self._consumers.drain(grace_s, reason=reason)
        self._listening.close()
        return report

    def hurry(self) -> None:
        """End the grace of both."""
        self._consumers.hurry()
        self._listening.hurry()


class BrokerListener:
    """One address at which clients of one protocol are served: see `Broker.listen`."""

    def __init__(self, wish: Wish) -> None:
        self._wish = wish
        self.inner: Listener | None = None
        #: How many clients were cut when it ended last.
        self.cut = 0

    def begin(self, network: Network) -> None:
        """Listen. Raises ListenFailed, and InvalidOption with the address that it is about."""
        wish = self._wish
        site = Site(
            *(network, wish.transport, wish.place),
            *(Options(wish.options), wish.limits),
            auth=wish.auth,
            tls=wish.tls,
            allow=wish.allow,
        )
        listener = Listener(network, site)
        try:
            listener.bind()
        except InvalidOption as error:  # told at the start, when nobody remembers which one it is
            error.args = (f"{wish.url}: {error.message}",)
            raise
        self.inner = listener

    def end(self, grace_s: float) -> None:
        """Wait for the end of a drain, which may be hurried meanwhile."""
        inner = self.inner
        if inner is not None:
            inner.close(grace_s)
            self.inner, self.cut = None, inner.cut

    def _running(self) -> Listener:
        if self.inner is None:
            raise not_yet(self._wish.url)
        return self.inner

    @property
    def address(self) -> tuple[str, int] | str:
        """Host and port, or the path of a Unix socket. Raises NotRunning before the start."""
        return self._running().address

    @property
    def url(self) -> str:
        """The address as a URL, with the port that was found if it was 0."""
        return self._wish.url if self.inner is None else self.inner.url

    @property
    def protocol(self) -> str:
        """The name of the protocol."""
        return self._wish.transport.name

    @property
    def stats(self) -> ListenerStats:
        """The numbers so far. Raises NotRunning."""
        return self._running().stats

    def reload(self) -> None:
        """Read the certificates of TLS again. Raises InvalidOption; then the former ones stay."""
        self._running().reload()

    def look(self) -> None:
        """Look at all deadlines now; they are looked at anyway, twice a second."""
        self._running().look()

    def close(self, grace: float = GRACE_S) -> None:
        """Accept nobody any more, let clients finish for `grace` seconds, then cut them."""
        if self.inner is not None:
            self.inner.close(grace)

    def __repr__(self) -> str:
        return f"<Listener {self.url}>"


def listener_of(listening: Listening, wish: Wish) -> BrokerListener:
    """Return a new listener of a broker; it listens already if the others do."""
    listener = BrokerListener(wish)
    listening.add(listener)
    return listener
