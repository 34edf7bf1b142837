"""The Deliveries that one client owes, found by queue and message id.

Knows: that ids are the producers' and need not be unique: the oldest message of an id is meant.
Does not know: what a Delivery sets off.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from embedq_transports.tmq.handout import Handout

_Key = tuple[object, bytes]


class Debts:
    """Messages that a client has been asked to acknowledge. With `most` it gets no more."""

    __slots__ = ("_by_key", "_keys", "_most")

    def __init__(self, most: int = sys.maxsize) -> None:
        self._most = most
        self._by_key: dict[_Key, dict[Handout, None]] = {}
        self._keys: dict[Handout, _Key] = {}

    @property
    def are_full(self) -> bool:
        """Whether there are as many as there may be."""
        return len(self._keys) >= self._most

    def add(self, queue: object, handout: Handout) -> None:
        """It was asked for one more."""
        key = (queue, handout.message_id)
        self._by_key.setdefault(key, {})[handout] = None
        self._keys[handout] = key

    def find(self, queue: object, message_id: bytes) -> Handout | None:
        """Return the oldest that is meant by a Delivery."""
        return next(iter(self._by_key.get((queue, message_id), ())), None)

    def drop(self, handout: Handout) -> None:
        """It is settled."""
        key = self._keys.pop(handout, None)
        if key is not None:
            same = self._by_key[key]
            del same[handout]
            if not same:
                del self._by_key[key]

    def all(self) -> Sequence[Handout]:
        """Return all of them."""
        return list(self._keys)
