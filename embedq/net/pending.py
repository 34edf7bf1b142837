"""What waits for the answer to a put.

Knows: whose put it is, how many bytes it counts, who is told.
Does not know: what is put, where.
"""

from __future__ import annotations

from typing import Protocol

from embedq.errors import EmbedqError
from embedq.message import Receipt
from embedq.net.puts import Stored


class Putting(Protocol):
    """Whose put it is."""

    def put_done(self, then: Stored | None, result: Receipt | EmbedqError, size: int) -> None:
        """A put is over; its bytes count no more."""
        ...


class PendingPut:
    """Called with the receipt, or with the error.

    One object and not a function with its cells: thousands wait at once, and Python's collector
    looks at each of them again and again.
    """

    __slots__ = ("_owner", "_size", "_then")

    def __init__(self, owner: Putting, then: Stored | None, size: int) -> None:
        self._owner = owner
        self._then = then
        self._size = size

    def __call__(self, result: Receipt | EmbedqError) -> None:
        """Pass it on."""
        self._owner.put_done(self._then, result, self._size)
