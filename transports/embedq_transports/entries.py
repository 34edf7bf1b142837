"""Books of listeners: a queue whose messages say what queues and channels were told to be.

Knows: how all entries of such a queue are read, in order.
Does not know: what an entry says, which of them count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from embedq.net import Access

T = TypeVar("T")

_PAGE: Final = 1_000


def read_entries(broker: Access, book: str, decode: Callable[[bytes], T]) -> list[tuple[int, T]]:
    """Return all entries of a queue that exists, with their numbers, in order. It blocks.

    What is no entry is passed over: `decode` raises MsgspecError for it.
    """
    found: list[tuple[int, T]] = []
    after = 0
    while rows := broker.office.peek(book, _PAGE, after):
        for row in rows:
            try:
                found.append((row.seq, decode(row.body)))
            except msgspec.MsgspecError:
                continue
        after = rows[-1].seq
    return found
