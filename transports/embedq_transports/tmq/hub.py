"""What the clients of one listener share: who is online, which channels and queues there are.

Knows: names of clients, channels by name; how queues of the broker become queues of channels.
Does not know: bytes, who may do what (orders.py), how a message is handed out (queues.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from embedq.errors import EmbedqError
from embedq.net import Site
from embedq_transports.tmq.asked import Asked
from embedq_transports.tmq.book import Book, Contents, Entry, read_book
from embedq_transports.tmq.channels import Channel
from embedq_transports.tmq.handout import Member
from embedq_transports.tmq.names import channel_name, key_of, made_id, split, target_of
from embedq_transports.tmq.queues import Queue
from embedq_transports.tmq.terms import Terms

#: Seconds until what could not be read is read again.
_AGAIN_S: Final = 0.5
#: Seconds between two looks for queues that others have made, while somebody would hear of them.
_LOOK_S: Final = 5.0
_BY_NAME, _BY_TYPE = b"@name:", b"@type:"

Then = Callable[[EmbedqError | None], object]


class Hub:
    """One listener's clients and channels. Belongs to the loop's thread."""

    def __init__(self, site: Site, terms: Terms) -> None:
        self.site = site
        self.terms = terms
        self.book = Book(site)
        self.asked = Asked(site.now, terms.answers_s)
        self.channels: dict[str, Channel] = {}
        self._clients: dict[bytes, Member] = {}
        self._groups: dict[bytes, dict[Member, None]] = {}  # by "@name:…" and "@type:…"
        self._groups_of: dict[Member, Sequence[bytes]] = {}
        self._removed: set[tuple[str, int]] = set()
        self._ready: list[Callable[[], object]] | None = []
        self._reading: list[Then] = []  # who waits for the look that is under way
        self._unread: list[Then] = []  # and for the one after it
        self._is_looking = False
        self._read_book()

    # ------------------------------------------------------------------------------ begin

    def when_ready(self, then: Callable[[], object]) -> None:
        """Call something once it is known what was declared before the last restart."""
        if self._ready is None:
            then()
        else:
            self._ready.append(then)

    def _read_book(self) -> None:
        broker = self.site.broker
        broker.call(lambda: read_book(broker), self._book_read)

    def _book_read(self, found: Contents | EmbedqError) -> None:
        if isinstance(found, EmbedqError):
            self.site.count("not_read", found.code)
            self.site.later(_AGAIN_S, self._read_book)
            return
        self.book.known(found.entries)
        entries = {(key_of(entry.channel), entry.queue): entry for _, entry in found.entries}
        self._removed = {
            (channel, queue)
            for (channel, queue), entry in entries.items()
            if entry.removed and queue is not None
        }
        self._found(found.queues)
        for entry in entries.values():
            if not entry.removed:
                self._declare(entry)
        waiting, self._ready = self._ready or [], None
        for then in waiting:
            then()

    def _declare(self, entry: Entry) -> None:
        channel = self.make_channel(entry.channel)
        if channel is None:
            return
        if entry.queue is None:
            channel.is_declared = True
            channel.options = entry.read()
            for queue in channel.queues.values():
                queue.change(queue.options)
        else:
            self.make_queue(channel, entry.queue).change(entry.read())

    # --------------------------------------------------------------------------- channels

    def channel(self, target: bytes) -> Channel | None:
        """Return a channel that is there."""
        name = channel_name(target)
        return None if name is None else self.channels.get(key_of(name))

    def queue(self, target: bytes, content_type: int) -> Queue | None:
        """Return a queue that is there."""
        channel = self.channel(target)
        return None if channel is None else channel.queues.get(content_type)

    def make_channel(self, name: str) -> Channel | None:
        """Return a channel, made if it is missing; None for a name that no frame can carry."""
        channel = self.channels.get(key_of(name))
        if channel is None:
            target = target_of(name)
            if target is None or channel_name(target) is None:
                return None
            channel = self.channels[key_of(name)] = Channel(name, target)
        return channel

    def make_queue(self, channel: Channel, content_type: int, name: str = "") -> Queue:
        """Return a queue, made if it is missing. `name`: as somebody has made it already."""
        queue = channel.queues.get(content_type)
        if queue is None:
            self._removed.discard((key_of(channel.name), content_type))
            queue = Queue(self.site, channel, content_type, self.terms, name)
            channel.queues[content_type] = queue
            queue.joined_or_left()
        return queue

    def was_removed(self, channel: Channel, content_type: int) -> bool:
        """Whether a queue of the broker is none here, because a client has removed it."""
        return (key_of(channel.name), content_type) in self._removed

    def remove_queue(self, queue: Queue) -> None:
        """Forget a queue, until it is made again: the broker still has it."""
        queue.close()
        queue.channel.queues.pop(queue.content_type, None)
        self._removed.add((key_of(queue.channel.name), queue.content_type))

    def tidy(self, channel: Channel) -> None:
        """Forget a channel for which there is no reason any more."""
        if not channel.is_there:
            self.channels.pop(key_of(channel.name), None)

    # ------------------------------------------------------- what others make in the broker

    def look(self, then: Then) -> None:
        """Look for queues that were made in Python or by other protocols."""
        if self._reading:
            self._unread.append(then)  # what is under way may have missed it
            return
        self._reading.append(then)
        self.site.broker.call(self.site.broker.office.queues, self._looked)

    def _looked(self, found: Sequence[str] | EmbedqError) -> None:
        error = found if isinstance(found, EmbedqError) else None
        if not isinstance(found, EmbedqError):
            self._found(found)
        waiting, self._reading = self._reading, []
        again, self._unread = self._unread, []
        for then in waiting:
            then(error)
        for then in again:
            self.look(then)

    def _found(self, names: Sequence[str]) -> None:
        for name in names:
            parts = split(name)
            if parts is None or (key_of(parts[0]), parts[1]) in self._removed:
                continue
            channel = self.make_channel(parts[0])
            if channel is not None:
                self.make_queue(channel, parts[1], name)

    def look_now_and_then(self) -> None:
        """Look again and again, for as long as channels have members."""
        if not self._is_looking:
            self._is_looking = True
            self.site.later(_LOOK_S, self._look_again)

    def _look_again(self) -> None:
        self._is_looking = False
        if self.site.is_draining or not any(each.members for each in self.channels.values()):
            return

        def looked(_error: EmbedqError | None) -> None:
            for channel in self.channels.values():
                for queue in channel.queues.values():
                    queue.joined_or_left()
            self.look_now_and_then()

        self.look(looked)

    def drain(self) -> None:
        """The listener stops: hand nothing out any more."""
        for channel in self.channels.values():
            channel.close()

    # ---------------------------------------------------------------------------- clients

    def client(self, client_id: bytes) -> Member | None:
        """Return a client that is online."""
        return self._clients.get(client_id)

    def clients(self, target: bytes) -> Sequence[Member]:
        """Return whom a target means: a client, or all of a name or type."""
        if is_group(target):
            return list(self._groups.get(target, ()))
        client = self._clients.get(target)
        return () if client is None else (client,)

    def is_online(self, client: Member) -> bool:
        """Whether a client has arrived and has not left."""
        return client in self._groups_of

    def arrived(self, client: Member, name: bytes, kind: bytes) -> None:
        """A client is online."""
        self._clients[client.client_id] = client
        groups = [by + text for by, text in ((_BY_NAME, name), (_BY_TYPE, kind)) if text]
        self._groups_of[client] = groups
        for group in groups:
            self._groups.setdefault(group, {})[client] = None

    def left(self, client: Member) -> None:
        """A client is gone: it is in no channel any more."""
        if self._clients.get(client.client_id) is client:
            del self._clients[client.client_id]
        for group in self._groups_of.pop(client, ()):
            members = self._groups[group]
            del members[client]
            if not members:
                del self._groups[group]
        self.asked.left(client)
        for channel in list(client.joined):
            channel.leave(client)
            self.tidy(channel)

    def new_id(self) -> bytes:
        """Return the id of a message that has none of its own; b"" where none are made."""
        return made_id() if self.terms.makes_ids else b""


def is_group(target: bytes) -> bool:
    """Whether a target means clients by name or by type."""
    return target.startswith((_BY_NAME, _BY_TYPE))
