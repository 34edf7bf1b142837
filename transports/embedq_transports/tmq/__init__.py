"""TMQ 1.0: channels with queues, and messages between clients, in frames of at least eight bytes.

Knows: the transport, its options, which files speak it: `wire` reads, `answers` and `requests`
build, `frames` is the layout; `session` is one client, `hub` what all of them share.
Does not know: sockets and how messages are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Literal, cast

from embedq.limits import LIMITS
from embedq.net import Connection, Options, Session, Site
from embedq_transports.tmq.commands import QueueOptions, QueueStatus
from embedq_transports.tmq.hub import Hub
from embedq_transports.tmq.limits import TMQ_LIMITS
from embedq_transports.tmq.session import TmqSession
from embedq_transports.tmq.terms import Deliveries, Terms

_ACK_TIMEOUT_S: Final = 15.0
#: Messages of a queue on their way to its members at once, at most.
_WINDOW, _WINDOW_MOST = 1_024, 65_535


class TmqTransport:
    """The transport. It has options of its own.

    `order` (auto): little or big instead of what the Hello shows. `group` (default): the consumer
    group. `create` (false): whether a push, or a join, makes what it names. `duplicate` (refuse):
    replace lets a client take the place of one with its id. `deliveries` (auto): when a producer
    gets a Delivery: stored, acknowledged, never. `redeliveries` (0): how often a message comes
    again that nobody acknowledges in time. `window` (1024): messages of a queue on their way at
    once. `ping` (120s), 0 for never. `answers` (30s): how long a Response to a channel message is
    waited for.

    For queues and channels that do not say otherwise: `status` (push), `acknowledge` (false),
    `ack_timeout` (15s), `hide_names` (false), `ids` (true): whether a message without an id gets
    one.
    """

    name: Final = "tmq"
    default_port: Final = 48_050
    has_login: Final = True

    def open(self, site: Site) -> Callable[[Connection], Session]:
        """Return what makes a session. Raises InvalidOption."""
        hub = Hub(site, terms_of(site.options, site))
        return lambda connection: TmqSession(connection, hub)


def terms_of(options: Options, site: Site) -> Terms:
    """Read the options of a listener. Raises InvalidOption."""
    payload = min(TMQ_LIMITS.payload_bytes, site.limits.message_bytes)
    order = options.choice("order", "auto", ("auto", "little", "big"))
    statuses = [status.value for status in QueueStatus if status is not QueueStatus.STOPPED]
    return Terms(
        limits=replace(TMQ_LIMITS, payload_bytes=payload),
        options=QueueOptions(
            queue_status=QueueStatus(options.choice("status", QueueStatus.PUSH.value, statuses)),
            request_acknowledge=options.flag("acknowledge", default=False),
            acknowledge_timeout=round(options.seconds("ack_timeout", _ACK_TIMEOUT_S) * 1000),
            use_message_id=options.flag("ids", default=True),
            hide_client_names=options.flag("hide_names", default=False),
        ),
        order=cast("Literal['auto', 'little', 'big']", order),
        group=options.text("group") or "default",
        create=options.flag("create", default=False),
        replace=options.choice("duplicate", "refuse", ("refuse", "replace")) == "replace",
        deliveries=Deliveries(options.choice("deliveries", "auto", list(Deliveries))),
        redeliveries=options.number("redeliveries", 0, 0, LIMITS.attempts_max),
        window=options.number("window", _WINDOW, 1, _WINDOW_MOST),
        ping_s=options.seconds("ping", 120.0),
        answers_s=options.seconds("answers", 30.0),
    )


TMQ: Final = TmqTransport()
