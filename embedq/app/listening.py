"""`broker.listen`: what a broker with listeners is, without loading what they need.

Knows: that listeners run while the consumers do, and end before the file is closed.
Does not know: what a listener is made of (listeners.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from embedq.app.openable import Openable

if TYPE_CHECKING:
    from embedq.app.listeners import BrokerListener, Listening
    from embedq.net.limits import NetLimits
    from embedq.net.port import Authenticator, Credentials, Transport
    from embedq.net.tls import TLS
    from embedq.policy import Duration
    from embedq.workers.signals import Drainable


class Listenable(Openable):
    """A broker that can be reached over the network."""

    _listening: Listening | None = None

    def accompany(self, companion: Any) -> None:  # noqa: ANN401  # see Broker
        """Let something start and stop with the consumers."""
        raise NotImplementedError

    def listen(
        self,
        url: str,
        *,
        auth: Authenticator | Callable[[Credentials], object] | None = None,
        tls: TLS | None = None,
        allow: Iterable[str] | None = None,
        insecure: bool = False,
        limits: NetLimits | None = None,
        transport: Transport | None = None,
        **options: object,
    ) -> BrokerListener:
        """Serve clients of another protocol: `broker.listen("sspq://127.0.0.1:8888?queue=q")`.

        It listens while the consumers run: from now on if they do, else from the start. Port 0
        finds a free one (`.address` says which); `sspq+unix:///path` is a Unix socket that only
        this user can open. `options`: those of the protocol, which the URL may have, too.
        `transport`: one that no installed package brings. From embedq.net: `auth`, who says who a
        client is (TokenFile, UsersFile, a function of Credentials); `tls`, certificates (TLS);
        `limits` (NetLimits). `allow`: addresses and networks that may connect. What other machines
        can reach needs auth or certificates of clients, or `insecure`.

        Raises InvalidOption, TransportNotFound, InsecureListener, ListenFailed.
        """
        from embedq.app.listeners import Listening, Wish, listener_of  # noqa: PLC0415  # asyncio

        wish = Wish(
            url,
            transport=transport,
            limits=limits,
            auth=auth,
            tls=tls,
            allow=allow,
            insecure=insecure,
            options=options,
        )
        with self._lock:
            listening = self._listening
            if listening is None:
                listening = self._listening = Listening(lambda: self.desk)
                self.accompany(listening)
        return listener_of(listening, wish)

    def _clients_have(self, grace: Duration | None) -> None:
        """Let clients have the grace that somebody has asked for; else it is that of listeners."""
        listening, settings = self._listening, self.settings
        if listening is not None:
            is_said = grace is not None or settings.sources["grace"] != "default"
            listening.have(settings.grace_or(grace) if is_said else None)

    def _leaving(self, consumers: Drainable) -> Drainable:
        """Return what ends when the broker does: the consumers, and the listeners if any."""
        if self._listening is None:
            return consumers
        from embedq.app.listeners import Leaving  # noqa: PLC0415  # it is loaded by now

        return Leaving(consumers, self._listening)

    def _close(self) -> None:
        listening = self._listening
        if listening is not None:
            listening.close()
        super()._close()
