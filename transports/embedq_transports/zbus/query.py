"""What `query` tells of a queue and its channels: the fields of both generations of the original.

Knows: the names of the fields, where each number comes from.
Does not know: how it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from embedq.errors import InvalidName
from embedq.names import to_wire
from embedq_transports.zbus.hub import Channel, Hub, Mq, Watch
from embedq_transports.zbus.making import DISK, MEMORY

if TYPE_CHECKING:
    from embedq.broker.stats import QueueStats


def describe(stats: QueueStats, hub: Hub) -> dict[str, Any]:
    """Return what there is to say of a queue."""
    known = hub.known(stats.name) or Mq()
    channels = [
        _channel(each.name, known.channels.get(each.name) or Channel()) for each in stats.groups
    ]
    subscribed = [each.last_sub_ms for each in known.channels.values() if each.last_sub_ms]
    return {
        "name": as_said(stats.name),
        "type": known.type or (DISK if stats.max_length is None else MEMORY),
        "mask": known.mask,
        "size": stats.stored,
        "messageDepth": stats.stored,
        "channels": channels,
        "channelList": channels,
        "consumerCount": sum(1 for _ in known.watches()),
        "creator": known.creator,
        "createdAt": known.created_ms,
        "lastPubTime": known.last_pub_ms,
        "lastSubTime": max(subscribed, default=None),
    }


def _channel(name: str, known: Channel) -> dict[str, Any]:
    return {
        "name": as_said(name),
        "mask": known.mask,
        "filter": known.filter.text or None,
        "offset": known.position,
        "lastSubTime": known.last_sub_ms,
        "subscriptions": [_subscription(each) for each in known.watches],
    }


def _subscription(watch: Watch) -> dict[str, Any]:
    found = watch.subscription
    return {
        "mq": watch.mq,
        "channel": watch.channel,
        "clientId": watch.session.source,
        "clientAddress": watch.session.peer,
        "filters": [watch.filter.text] if watch.filter.text else [],
        "window": None if found is None else found.credit,
    }


def as_said(name: str) -> str:
    """Return a name of the broker as clients say it."""
    try:
        return to_wire(name).decode()
    except (InvalidName, UnicodeDecodeError):
        return name
