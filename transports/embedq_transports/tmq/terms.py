"""What holds for a listener, its channels and its queues: options, and how they are inherited.

Knows: that a queue's own option counts before its channel's and that before the listener's.
Does not know: how anything is carried out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal

from embedq_transports.tmq.commands import QueueOptions, QueueStatus
from embedq_transports.tmq.limits import TmqLimits

#: Queues whose messages go to members by themselves.
HANDED_OUT: Final = frozenset({QueueStatus.ROUTE, QueueStatus.PUSH, QueueStatus.ROUND_ROBIN})


class Deliveries(StrEnum):
    """When a producer gets a Delivery for its message.

    AUTO is ACKNOWLEDGED for queues that ask their consumers for one, else STORED.
    """

    AUTO = "auto"
    STORED = "stored"  # once it is durable, if the producer asked for it
    ACKNOWLEDGED = "acknowledged"  # that of its first consumer
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for all connections of a listener. Times are seconds; see TmqTransport."""

    limits: TmqLimits
    options: QueueOptions
    order: Literal["auto", "little", "big"] = "auto"
    group: str = "default"
    create: bool = False
    replace: bool = False
    deliveries: Deliveries = Deliveries.AUTO
    redeliveries: int = 0
    window: int = 1_024
    ping_s: float = 120.0
    answers_s: float = 30.0

    @property
    def makes_ids(self) -> bool:
        """Whether messages get an id that have none: also those that the server itself sends."""
        return self.options.use_message_id is not False


def layered(layers: Sequence[QueueOptions]) -> QueueOptions:
    """Return options of which each is that of the first layer that says something."""
    found: dict[str, Any] = {}
    for layer in reversed(layers):
        for name in QueueOptions.__struct_fields__:
            value = getattr(layer, name)
            if value is not None:
                found[name] = value
    return QueueOptions(**found)


@dataclass(frozen=True, slots=True)
class QueueTerms:
    """What holds for one queue. Times are seconds, 0 is never; bounds are 0 for none."""

    status: QueueStatus
    asks: bool  # consumers are asked for a Delivery
    asks_s: float
    one_by_one: bool
    first_only: bool
    makes_ids: bool
    hides: bool
    keeps_ms: int
    messages: int
    message_bytes: int
    deliveries: Deliveries


def queue_terms(layers: Sequence[QueueOptions], deliveries: Deliveries) -> QueueTerms:
    """Return what the options of a queue, its channel and its listener come to."""
    said = layered(layers)
    asks = bool(said.request_acknowledge)
    if deliveries is Deliveries.AUTO:
        deliveries = Deliveries.ACKNOWLEDGED if asks else Deliveries.STORED
    return QueueTerms(
        status=said.queue_status or QueueStatus.PUSH,
        asks=asks,
        asks_s=(said.acknowledge_timeout or 0) / 1000,
        one_by_one=asks and bool(said.wait_for_acknowledge),
        first_only=bool(said.only_first_acquirer),
        makes_ids=said.use_message_id is not False,
        hides=bool(said.hide_client_names),
        keeps_ms=said.message_timeout or 0,
        messages=said.message_limit or 0,
        message_bytes=said.message_size_limit or 0,
        deliveries=deliveries,
    )
