"""What one client has sent and what is not stored yet: in its order, again and again if need be.

Knows: that a SEND has no answer, so that nothing is dropped, and nothing overtakes what waits.
Does not know: packets, why something cannot be stored.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from typing import Final

from embedq.errors import EmbedqError
from embedq.message import Draft, Receipt
from embedq.net import Connection

#: Seconds until a message that could not be stored is tried again: at first, and at most.
_AGAIN_S: Final = (0.02, 0.5)
#: Why the connection is not read meanwhile.
_WHY: Final = "put"


class Storing:
    """The messages of a connection on their way into a queue.

    `failed` gets what is wrong for good; `stored` is called when a message is.
    """

    def __init__(
        self,
        connection: Connection,
        queue: str,
        failed: Callable[[EmbedqError], object],
        stored: Callable[[], object],
    ) -> None:
        self._connection = connection
        self._queue = queue
        self._failed = failed
        self._stored = stored
        self._waiting: list[tuple[int, Draft]] = []  # a heap, by the number of the message
        self._count = self._under_way = 0
        self._pause_s = _AGAIN_S[0]
        self._pauses = False

    @property
    def is_busy(self) -> bool:
        """Whether something that was sent is not stored."""
        return bool(self._waiting or self._under_way)

    def put(self, message: Draft) -> None:
        """Store a message behind those before it."""
        self._count += 1
        if self._waiting or self._one_by_one:
            heappush(self._waiting, (self._count, message))
            self._go_on()
        else:
            self._send(self._count, message)

    def lost(self) -> int:
        """The client is gone: return how many messages will not be tried again."""
        count = len(self._waiting)
        self._waiting.clear()
        self._failed, self._stored = _to_nobody, _nothing  # who is told knows this, too
        return count

    @property
    def _one_by_one(self) -> bool:
        """Whether the next message must not be sent before the one before it is stored.

        A queue that refuses what it has no room for may refuse one and take the one behind it.
        """
        if not self._under_way:
            return False
        known = self._connection.site.network.names.known(self._queue)
        return known is not None and known.policy.when_full == "reject"

    def _go_on(self) -> None:
        while self._waiting and not self._pauses and not self._one_by_one:
            self._send(*heappop(self._waiting))
        if self._waiting:
            self._connection.hold(_WHY)

    def _send(self, number: int, message: Draft) -> None:
        # No closures: two that know each other are garbage that only the collector finds.
        self._under_way += 1
        then = partial(self._done, number, message)
        self._connection.broker.put(self._queue, message, then)

    def _done(self, number: int, message: Draft, result: Receipt | EmbedqError) -> None:
        self._under_way -= 1
        if not isinstance(result, EmbedqError):
            self._pause_s = _AGAIN_S[0]
        elif result.retryable:
            heappush(self._waiting, (number, message))
            if not self._pauses:
                self._pauses = True
                self._connection.later(self._pause_s, self._again)
                self._pause_s = min(2 * self._pause_s, _AGAIN_S[1])
        if isinstance(result, EmbedqError):
            self._failed(result)
        if self._waiting:
            self._go_on()
        elif not self._under_way:
            # Not before: whose client is gone is noticed by reading, and then nothing is tried.
            self._connection.unhold(_WHY)
        self._stored()

    def _again(self) -> None:
        self._pauses = False
        self._go_on()


def _to_nobody(_error: EmbedqError) -> None:
    """Take the place of what was called for a client."""


def _nothing() -> None:
    """Do the same."""
