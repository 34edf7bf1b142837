"""What channels and queues were told to be, kept as messages of a queue of its own.

Knows: that the last entry about a channel or queue counts, and that older ones can go.
Does not know: what the options mean.

An entry is durable before its command is answered, so that a queue is after a restart what it
was: a Push queue that became a Route queue would lose what is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from embedq.errors import EmbedqError
from embedq.message import Draft, Receipt
from embedq.net import Access, Site
from embedq_transports.entries import read_entries
from embedq_transports.tmq.commands import QueueOptions, encode_options, read_options
from embedq_transports.tmq.names import BOOK, key_of


class Entry(msgspec.Struct, frozen=True):
    """What holds for a channel, or for one of its queues. `options`: option lines."""

    channel: str
    queue: int | None = None
    options: str = ""
    removed: bool = False

    def read(self) -> QueueOptions:
        """Return the options; none for lines that are not ours."""
        try:
            return read_options(self.options.encode())
        except ValueError:
            return QueueOptions()


def entry(
    channel: str, queue: int | None, options: QueueOptions, *, removed: bool = False
) -> Entry:
    """Return an entry for options."""
    return Entry(channel, queue, encode_options(options).decode(), removed)


_Key = tuple[str, int | None]
_decode = msgspec.json.Decoder(Entry).decode


class Contents(msgspec.Struct, frozen=True):
    """What was read: the names of all queues, and the entries with their numbers, in order."""

    queues: list[str]
    entries: list[tuple[int, Entry]]


def read_book(broker: Access) -> Contents:
    """Read everything. It blocks. What is no entry is passed over."""
    queues = broker.office.queues()
    return Contents(queues, read_entries(broker, BOOK, _decode) if BOOK in queues else [])


class Book:
    """The entries of a listener's broker."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._seqs: dict[_Key, int] = {}

    def known(self, entries: Sequence[tuple[int, Entry]]) -> None:
        """Entries were read, in order; those of which there are newer ones are removed."""
        self._seqs = {_key(known): seq for seq, known in entries}
        self._remove([seq for seq, known in entries if self._seqs[_key(known)] != seq])

    def _remove(self, seqs: list[int]) -> None:
        # If this fails older entries stay, and the newest still counts.
        if seqs:
            office = self._site.broker.office
            self._site.broker.call(lambda: office.cancel(BOOK, seqs))

    def write(self, new: Entry, then: Callable[[EmbedqError | None], object]) -> None:
        """Store an entry; `then` is called once it is durable, or gets the error."""

        def stored(result: Receipt | EmbedqError) -> None:
            if isinstance(result, EmbedqError):
                then(result)
                return
            old = self._seqs.pop(_key(new), None)
            self._seqs[_key(new)] = result.seq
            self._remove([] if old is None else [old])
            then(None)

        self._site.broker.put(BOOK, Draft(msgspec.json.encode(new)), stored)


def _key(known: Entry) -> _Key:
    return key_of(known.channel), known.queue
