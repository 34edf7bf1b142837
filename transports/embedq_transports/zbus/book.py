"""What queues and channels were told to be, kept as messages of a queue of its own.

Knows: that the last entry about a queue or a channel counts, and that older ones can go.
Does not know: what types, masks and filters mean.

An entry is durable before its command is answered, so that a queue is after a restart what it
was: a queue that was removed would have its old messages again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from embedq.errors import EmbedqError
from embedq.message import Draft, Receipt
from embedq.net import Access
from embedq_transports.entries import read_entries

#: The queue that keeps the entries. Clients find none of this name, and can make none.
BOOK: Final = "@zbus"

Then = Callable[[EmbedqError | None], object]


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """What holds for a queue, or for one of its channels. Names are those of the broker.

    `removed`: it is gone, a queue with all its channels.
    """

    queue: str
    channel: str | None = None
    type: str | None = None
    mask: int = 0
    filter: str = ""
    creator: str = ""
    created_ms: int | None = None
    removed: bool = False


_decode: Final = msgspec.json.Decoder(Entry).decode


class Numbered(msgspec.Struct, frozen=True):
    """An entry and its number in the book."""

    seq: int
    entry: Entry


def read_book(broker: Access) -> list[Numbered]:
    """Return all entries, in order. It blocks. What is no entry is passed over."""
    if BOOK not in broker.office.queues():
        return []
    return [Numbered(*each) for each in read_entries(broker, BOOK, _decode)]


class Book:
    """The entries that count. Belongs to the loop's thread."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str | None, Numbered]] = {}
        #: How many entries about a queue or channel are not durable yet: which counts is unknown.
        self._coming: Counter[tuple[str, str | None]] = Counter()

    def known(self, broker: Access, entries: Sequence[Numbered]) -> list[Entry]:
        """Entries were read, in order; return those that count, the others are removed."""
        gone = [seq for each in entries for seq in self._keep(each)]
        self._cancel(broker, gone)
        return [each.entry for named in self._kept.values() for each in named.values()]

    def write(self, broker: Access, entry: Entry, then: Then) -> None:
        """Store an entry; `then` is called once it is durable, or gets the error.

        What the book says already is not written, and neither is that a channel is like any
        other, or gone, if the book knows nothing of it.
        """
        key = (entry.queue, entry.channel)
        if not self._coming[key]:
            kept = self._kept.get(entry.queue, {}).get(entry.channel)
            if entry == kept.entry if kept is not None else _says_nothing(entry):
                then(None)
                return
        self._coming[key] += 1

        def stored(result: Receipt | EmbedqError) -> None:
            self._coming[key] -= 1
            if not self._coming[key]:
                del self._coming[key]
            if isinstance(result, EmbedqError):
                then(result)
                return
            self._cancel(broker, self._keep(Numbered(result.seq, entry)))
            then(None)

        broker.put(BOOK, Draft(msgspec.json.encode(entry)), stored)

    def _keep(self, new: Numbered) -> list[int]:
        """Note an entry; return the numbers of those that do not count any more."""
        entry = new.entry
        named = self._kept.setdefault(entry.queue, {})
        kept = named.get(entry.channel)
        if kept is not None and kept.seq > new.seq:
            return [new.seq]
        gone = [] if kept is None else [kept.seq]
        named[entry.channel] = new
        if entry.removed:
            # Of a queue it must stay known that it is gone: the broker has it for ever.
            channels = [entry.channel] if entry.channel is not None else list(named)
            ended = [c for c in channels if c is not None and named[c].seq <= new.seq]
            gone += [named.pop(channel).seq for channel in ended]
        return gone

    def _cancel(self, broker: Access, seqs: list[int]) -> None:
        # If this fails older entries stay, and the newest still counts.
        if seqs:
            office = broker.office
            broker.call(lambda: office.cancel(BOOK, seqs))


def _says_nothing(entry: Entry) -> bool:
    return entry.channel is not None and (
        entry.removed or entry == Entry(entry.queue, entry.channel)
    )
