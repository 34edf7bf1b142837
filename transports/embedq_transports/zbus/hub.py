"""What the connections of all zbus listeners of a broker share: who is there, what was created.

Knows: sessions by their source, the settings of queues and channels, who subscribes to which.
Does not know: bytes; how commands change any of it; how settings are kept (book.py).

The queues and groups themselves are the broker's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from embedq.errors import EmbedqError
from embedq.names import from_wire
from embedq.net import Connection, Delivery, Site, Subscription
from embedq_transports.zbus.book import BOOK, Book, Entry, Numbered, Then, read_book
from embedq_transports.zbus.tags import Filter

if TYPE_CHECKING:
    from embedq_transports.zbus.session import ZbusSession

DELETE_ON_EXIT: Final = 1
EXCLUSIVE: Final = 2
#: Seconds until what could not be read is read again.
_AGAIN_S: Final = 0.5


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
        if found is None or not found.is_open or (self.acknowledges and self.session.held.is_full):
            return False
        return found.credit is None or found.credit > 0


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
    """What is known of a queue that the broker has anyway. `type`: None if nobody named one."""

    def __init__(self) -> None:
        self.type: str | None = None
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
        #: Queues that were removed, and the book: the broker has them, but here there are none.
        self.removed: set[str] = {BOOK}
        self._queues: dict[str, Mq] = {}
        self._book = Book()
        self._ready: list[Callable[[], object]] | None = []

    # ------------------------------------------------------------------------ what was told

    @property
    def is_ready(self) -> bool:
        """Whether it is known what queues and channels were told before the last restart."""
        return self._ready is None

    def when_ready(self, then: Callable[[], object]) -> None:
        """Call something once that is known."""
        if self._ready is None:
            then()
        else:
            self._ready.append(then)

    def read(self, site: Site) -> None:
        """Find it out; a listener that begins asks for it, and asks again if that fails."""
        if self._ready is None:
            return
        broker = site.broker

        def found(entries: list[Numbered] | EmbedqError) -> None:
            if self._ready is None:
                return  # another listener was quicker
            if isinstance(entries, EmbedqError):
                site.count("not_read", entries.code)
                site.later(_AGAIN_S, lambda: self.read(site))
                return
            for entry in self._book.known(broker, entries):
                self._recall(entry)
            waiting, self._ready = self._ready, None
            for then in waiting:
                then()

        broker.call(lambda: read_book(broker), found)

    def _recall(self, entry: Entry) -> None:
        if entry.removed:
            self.removed.add(entry.queue)
        elif entry.channel is None:
            known = self.mq(entry.queue)
            known.type, known.mask = entry.type, entry.mask
            known.creator, known.created_ms = entry.creator, entry.created_ms
        else:
            place = self.channel(entry.queue, entry.channel)
            place.mask, place.filter = entry.mask, Filter(entry.filter)

    def keep(self, connection: Connection, queue: str, group: str | None, then: Then) -> None:
        """Let what holds for a queue, or a channel of it, survive restarts; `then` may go on.

        It is the listener that writes: clients may not.
        """
        known = self._queues.get(queue)
        place = None if known is None or group is None else known.channels.get(group)
        # Who lags behind a removal may have made a queue known again.
        if known is None or queue in self.removed or (group is not None and place is None):
            entry = Entry(queue, group, removed=True)
        elif place is not None:
            entry = Entry(queue, group, mask=place.mask, filter=place.filter.text)
        else:
            entry = Entry(
                queue,
                type=known.type,
                mask=known.mask,
                creator=known.creator,
                created_ms=known.created_ms,
            )
        self._book.write(
            connection.site.broker,
            entry,
            lambda error: connection.called_back(lambda: then(error)),
        )

    # --------------------------------------------------------------------- what is known now

    def mq(self, queue: str) -> Mq:
        """Return what is known of a queue."""
        known = self._queues.get(queue)
        if known is None:  # asked for each message that is put
            known = self._queues[queue] = Mq()
        return known

    def channel(self, queue: str, group: str) -> Channel:
        """Return what is known of a channel."""
        return self.mq(queue).channels.setdefault(group, Channel())

    def known(self, queue: str) -> Mq | None:
        """Return what is known of a queue, if anything is."""
        return self._queues.get(queue)

    def forget(self, queue: str, group: str | None = None) -> list[Watch]:
        """A queue, or a channel of it, is gone; return who has to be told."""
        if group is None:
            self.removed.add(queue)
            known = self._queues.pop(queue, None)
            return [] if known is None else list(known.watches())
        known = self._queues.get(queue)
        place = None if known is None else known.channels.pop(group, None)
        return [] if place is None else list(place.watches)

    def leave(self, watch: Watch) -> Channel | None:
        """A subscription has ended; return its channel, None if that is gone."""
        queue, group = watch.key
        known = self._queues.get(queue)
        place = None if known is None else known.channels.get(group)
        if place is None or watch not in place.watches:
            return None
        place.watches.remove(watch)
        return place

    def is_served(self, queue: str) -> bool:
        """Whether anybody subscribes to a queue."""
        known = self._queues.get(queue)
        return known is not None and any(True for _ in known.watches())
