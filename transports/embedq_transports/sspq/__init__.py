"""SSPQ: one queue per listener, one unconfirmed message per connection.

Knows: the transport and its options; `wire` turns bytes into events and back, `session` these
into operations of the queue.
Does not know: sockets and how messages are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from embedq.errors import EmbedqError
from embedq.net import Connection, Session, Site
from embedq_transports.sspq.session import SspqSession, Terms
from embedq_transports.sspq.wire import ENDLESS, WireLimits


class SspqTransport:
    """The transport. It has options of its own.

    `queue`: which queue is served; it has to be given. `retries` (none): a retry byte that
    replaces that of every message. `dead` (true): whether dead letters are handed out. `hold`
    (0): after how long a client that holds its message is cut; 0 is never.
    """

    name: Final = "sspq"
    default_port: Final = 8888
    has_login: Final = False

    def open(self, site: Site) -> Callable[[Connection], Session]:
        """Return what makes a session. Raises InvalidOption."""
        options = site.options
        queue = options.required("queue", "which queue it serves: the wire names none")
        forced = options.number("retries", -1, 0, ENDLESS)
        terms = Terms(
            queue=queue,
            limits=WireLimits(site.limits.message_bytes),
            retries=None if forced < 0 else forced,
            dead=options.flag("dead", default=True),
            hold_s=options.seconds("hold", 0.0),
        )

        def declared(error: EmbedqError | None) -> None:
            if error is None:
                # Known before the first message comes: how it is stored depends on the queue.
                site.network.names.queue(queue, _found, create=None)
            else:
                site.count("not_declared", queue)

        site.broker.declare(queue, declared)
        return lambda connection: SspqSession(connection, terms)


def _found(_queue: object) -> None:
    """The network keeps it."""


SSPQ: Final = SspqTransport()
