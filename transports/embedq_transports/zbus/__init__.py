"""zbus 1.0: HTTP/1.1 and WebSocket on one port; queues with channels.

Knows: the transport, its options, which files speak it: `wire` turns bytes into events, `session`
these into operations and answers; `bodies`, `tags` and `signing` are rules of both dialects.
Does not know: sockets and how messages are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Final

from embedq.errors import TransportNotFound
from embedq.net import Connection, Session, Site

#: What reads HTTP and frames: the extra embedq[zbus].
_NEEDED: Final = ("httptools", "websockets")


class ZbusTransport:
    """The transport. It has options of its own.

    `memory` (1000): how many messages a queue of the type memory keeps, 0 is no bound.
    `call_timeout` (30s): after how long a call over HTTP is answered with 504. `constant`
    (false): whether signatures count that are the same for every message. `origins`: whose
    pages may open a WebSocket; `cors`: whose pages may send over HTTP and read answers; `hosts`:
    by which names it may be called beside addresses and localhost. * is everybody's, or any.
    `monitor` (false): paths show queues, and are no calls.
    """

    name: Final = "zbus"
    default_port: Final = 15555
    has_login: Final = True

    def open(self, site: Site) -> Callable[[Connection], Session]:
        """Return what makes a session. Raises InvalidOption, TransportNotFound."""
        missing = [name for name in _NEEDED if find_spec(name) is None]
        if missing:
            are = "is" if len(missing) == 1 else "are"
            raise TransportNotFound(
                f"zbus needs {' and '.join(missing)}, which {are} not installed",
                hint="pip install 'embedq[zbus]'",
            )
        # Not before somebody wants it: the two libraries take longer to load than embedq.
        from embedq_transports.zbus.hub import Hub  # noqa: PLC0415
        from embedq_transports.zbus.session import ZbusSession  # noqa: PLC0415
        from embedq_transports.zbus.terms import terms_of  # noqa: PLC0415

        terms, hub = terms_of(site.options, site), site.share(Hub)
        hub.read(site)
        return lambda connection: ZbusSession(connection, terms, hub)


ZBUS: Final = ZbusTransport()
