"""PHPMQ: many queues on one port, windows of unacknowledged messages, acks by id.

Knows: the transport, its options, which room does what: `wire` turns bytes into events and back,
`session` turns events into operations and deliveries into bytes.
Does not know: sockets and how messages are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from embedq.limits import LIMITS
from embedq.net import Connection, Options, Session, Site
from embedq_transports.phpmq.session import TTLS, PhpmqSession, Terms
from embedq_transports.phpmq.wire import WIRE_LIMITS, Form

_SEPARATORS: Final = {"": b"", "lf": b"\n", "crlf": b"\r\n"}
#: What `form=` may say: the width of a package header and what stands between the parts.
FORMS: Final = {
    f"{width}{separator and '-'}{separator}": Form(width, text)
    for width in (32, 35, 36)
    for separator, text in _SEPARATORS.items()
}


class PhpmqTransport:
    """The transport. It has options of its own.

    `form` (auto): 32, 35 or 36, with -lf or -crlf, instead of what the first message shows.
    `ttl` (auto): whether messages are sent with their time to live: auto, always, never.
    `receipts` (false): confirm each message, as the servers of three days did. `windows` (one):
    per-queue lets a connection have one for each queue. `group` (default): the consumer group.
    `attempts` (0): the bound of deliveries of what is put here; 0 is endless. `create` (true):
    whether a name makes a queue.
    """

    name: Final = "phpmq"
    default_port: Final = 9100
    has_login: Final = False

    def open(self, site: Site) -> Callable[[Connection], Session]:
        """Return what makes a session. Raises InvalidOption."""
        terms = terms_of(site.options, site)
        return lambda connection: PhpmqSession(connection, terms)


def terms_of(options: Options, site: Site) -> Terms:
    """Read the options of a listener. Raises InvalidOption."""
    form = options.choice("form", "auto", ["auto", *FORMS])
    return Terms(
        limits=replace(
            WIRE_LIMITS,
            name_bytes=min(WIRE_LIMITS.name_bytes, site.limits.name_bytes),
            content_bytes=min(WIRE_LIMITS.content_bytes, site.limits.message_bytes),
        ),
        form=FORMS.get(form),
        group=options.text("group") or "default",
        attempts=options.number("attempts", 0, 0, LIMITS.attempts_max),
        receipts=options.flag("receipts", default=False),
        ttl=options.choice("ttl", "auto", TTLS),
        per_queue=options.choice("windows", "one", ("one", "per-queue")) == "per-queue",
        create=options.flag("create", default=True),
    )


PHPMQ: Final = PhpmqTransport()
