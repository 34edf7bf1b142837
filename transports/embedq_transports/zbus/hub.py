"""What the connections of all zbus listeners of a broker share: who is there, what was created.

Knows: sessions by their source, the settings of queues and channels, who subscribes to which.
Does not know: bytes; how commands change any of it.

Settings live as long as the process: the queues and groups themselves are the broker's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from embedq.names import from_wire
from embedq.net import Delivery, Subscription
from embedq_transports.zbus.tags import Filter

if TYPE_CHECKING:
    from embedq_transports.zbus.session import ZbusSession

DELETE_ON_EXIT: Final = 1
EXCLUSIVE: Final = 2


class Watch:
    """One subscription of a session to a channel."""

    def __init__(
        self, session: ZbusSession, mq: str, channel: str, wanted: Filter, window: int | None
    ) -> None:
        self.session = session
        #: Their names as the client said them.
        self.mq = mq
        self.channel = channel
        self.filter = wanted
        self.window = window
        #: What it gets is held until it is acked.
        self.acknowledges = False
        self.subscription: Subscription | None = None

    @property
    def key(self) -> tuple[str, str]:
        """The names of queue and group."""
        return from_wire(self.mq.encode()), from_wire(self.channel.encode())

    def has_room(self) -> bool:
        """Whether it can take one more message."""
        found = self.subscription
        return found is not None and found.is_open and (found.credit is None or found.credit > 0)


class Channel:
    """What is known of a channel. `position`: the offset behind what was handed out last."""

    def __init__(self) -> None:
        self.mask = 0
        self.filter = Filter("")
        self.position = 0
        self.last_sub_ms: int | None = None
        self.watches: list[Watch] = []
        #: Messages that only subscribers without room want.
        self.parked: deque[Delivery] = deque()


class Mq:
    """What is known of a queue that the broker has anyway."""

    def __init__(self) -> None:
        self.type = "disk"
        self.mask = 0
        self.creator = ""
        self.created_ms: int | None = None
        self.last_pub_ms: int | None = None
        self.channels: dict[str, Channel] = {}

    def watches(self) -> Iterator[Watch]:
        """Go through the subscriptions of all its channels."""
        for channel in self.channels.values():
            yield from channel.watches


class Hub:
    """Names of queues and channels are those of the broker."""

    def __init__(self) -> None:
        self.sessions: dict[str, ZbusSession] = {}
        #: Queues that were removed: the broker keeps them, empty, but here there are none.
        self.removed: set[str] = set()
        self._queues: dict[str, Mq] = {}

    def mq(self, queue: str) -> Mq:
        """Return what is known of a queue."""
        return self._queues.setdefault(queue, Mq())

    def channel(self, queue: str, group: str) -> Channel:
        """Return what is known of a channel."""
        return self.mq(queue).channels.setdefault(group, Channel())

    def known(self, queue: str) -> Mq | None:
        """Return what is known of a queue, if anything is."""
        return self._queues.get(queue)

    def forget(self, queue: str, group: str | None = None) -> None:
        """A queue, or a channel of it, is gone."""
        if group is None:
            self._queues.pop(queue, None)
            self.removed.add(queue)
        elif queue in self._queues:
            self._queues[queue].channels.pop(group, None)

    def is_served(self, queue: str) -> bool:
        """Whether anybody subscribes to a queue."""
        known = self._queues.get(queue)
        return known is not None and any(True for _ in known.watches())
