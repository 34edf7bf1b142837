"""A listener, as applications hold it: where it listens, its numbers, its end.

Knows: that the loop runs on another thread. Does not know: connections, protocols.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, Self

import msgspec

from embedq.errors import ListenFailed, NotRunning
from embedq.net.network import Network
from embedq.net.site import Site

_BIND_S: Final = 30.0
#: What else than a busy address (the hint of ListenFailed) is in the way.
_HINTS: Final = {
    errno.ENOENT: "make the folder of the socket first, or choose another path",
    errno.EACCES: "choose a port above 1023, or a folder that this user can write",
    errno.EADDRNOTAVAIL: "this machine has no such address: 127.0.0.1, or one that it has",
    socket.EAI_AGAIN: "the name service does not answer: write an address of this machine",
    socket.EAI_NONAME: "nobody knows a host of that name: write an address of this machine",
}
#: Seconds that clients have to finish when a listener stops.
GRACE_S: Final = 5.0


class ListenerStats(msgspec.Struct, frozen=True):
    """The numbers of a listener since it began. `connections`: open now.

    `refused`, `closed` and `faults` count by reason; bytes are those of ended connections.
    """

    url: str
    protocol: str
    connections: int
    accepted: int
    refused: Mapping[str, int]
    closed: Mapping[str, int]
    faults: Mapping[str, int]
    counts: Mapping[str, int]
    bytes_in: int
    bytes_out: int


class Listener:
    """One address at which clients of one protocol are served. Made by `Broker.listen`."""

    def __init__(self, network: Network, site: Site) -> None:
        self._network = network
        self._site = site
        self._draining: Future[int] | None = None
        self._told = False
        #: How many clients were cut, as they had not finished when the grace of the stop was over.
        self.cut = 0

    def bind(self) -> None:
        """Begin to listen. Raises ListenFailed, InvalidOption."""
        place = self._site.place
        where = place.path or f"{place.host}:{place.port}"
        try:
            self._network.run(self._site.open(), _BIND_S)
        except TimeoutError as error:
            raise ListenFailed(
                f"{self._site.protocol}: {where} was not ready within {_BIND_S:g} seconds",
                hint="see why this process, or the machine's name service, is so busy; try again",
            ) from error
        except OSError as error:
            raise ListenFailed(
                f"{self._site.protocol}: {where} cannot be listened at: {error.strerror or error}",
                hint=_HINTS.get(error.errno or 0),
            ) from error
        self._emit("listening")

    def _emit(self, event: str, **fields: Any) -> None:  # noqa: ANN401
        site = self._site
        self._network.desk.events.emit(event, listener=site.url, protocol=site.protocol, **fields)

    @property
    def address(self) -> tuple[str, int] | str:
        """Host and port, or the path of the Unix socket."""
        return self._site.address

    @property
    def url(self) -> str:
        """The address as a URL, with the port that was found if it was 0."""
        return self._site.url

    @property
    def protocol(self) -> str:
        """The name of the protocol."""
        return self._site.protocol

    @property
    def stats(self) -> ListenerStats:
        """What has happened so far. Roughly: other threads do not wait for the loop."""
        site = self._site
        counts = site.counts.copy()

        def of(what: str) -> dict[str, int]:
            return {why: n for (kind, why), n in counts.items() if kind == what}

        own = ("accepted", "refused", "closed", "fault")
        rest = {f"{k} {w}".rstrip(): n for (k, w), n in counts.items() if k not in own}
        open_now = list(site.connections)
        return ListenerStats(
            *(site.url, site.protocol, len(open_now), counts["accepted", ""]),
            *(of("refused"), of("closed"), of("fault"), rest),
            site.bytes_in + sum(each.channel.bytes_in for each in open_now),
            site.bytes_out + sum(each.channel.bytes_out for each in open_now),
        )

    def reload(self) -> None:
        """Read the certificates again: they hold for connections from now on.

        Raises InvalidOption; then the former ones stay. Files of tokens and users are read again
        by themselves.
        """
        self._site.context = self._site.read_certificates()

    def look(self) -> None:
        """Look at all deadlines and timers now; they are looked at anyway, twice a second."""

        async def look() -> None:
            self._network.timers.look()
            self._site.look()

        self._network.run(look())

    def begin_drain(self, grace: float = GRACE_S) -> None:
        """Accept nobody any more and let the clients go, in the background."""
        if self._draining is None:
            drain = self._site.drain(grace)
            self._draining = asyncio.run_coroutine_threadsafe(drain, self._network.loop)

    def hurry(self) -> None:
        """Cut who has not finished yet: the grace of a drain is over. From any thread."""
        with suppress(RuntimeError):  # the loop has ended, and with it the drain
            self._network.post(self._site.hurry)

    def close(self, grace: float = GRACE_S) -> None:
        """Accept nobody any more, let the clients finish for `grace` seconds, then cut them.

        Safe to call twice, and from any thread but that of the listeners.
        """
        if not self._network.is_alive():
            return
        self.begin_drain(grace)
        if self._draining is not None:
            self.cut = self._draining.result()
            if not self._told:
                self._told = True
                self._emit("listener_closed", cut=self.cut)

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """Show where it listens."""
        return f"<Listener {self.url}>"


def not_yet(url: str) -> NotRunning:
    """Return the error of a listener whose broker does not run."""
    return NotRunning(f"{url} is not listened at", hint="start the broker first")
