"""Puts of one client that are not stored yet: what follows them waits, but not for room.

Knows: which queues they are for, how one that waits for room is told from one under way.
Does not know: protocols, which of their messages wait for which.

A client may make the room itself, by what it says next. Were that held back for a put that waits
for room, both would wait for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from embedq.errors import EmbedqError, QueueNotFound
from embedq.net import Connection

if TYPE_CHECKING:
    from embedq.broker.office import Office

#: Seconds: what is under way for longer may wait for room. Most are stored before.
_LOOK_S: Final = 0.05


class Unstored:
    """The puts of one connection, by the names of their queues."""

    __slots__ = ("_asked", "_connection", "_full", "_looks", "_puts", "_waits")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._puts: Counter[str] = Counter()
        # Queues that had no room when they were looked at. That counts for one message: what it
        # sets off may make room.
        self._full: set[str] = set()
        # Of those that are being looked at, the ones in which nothing was stored meanwhile.
        self._asked: set[str] = set()
        self._looks = False
        # There was no room, and nothing was stored since: look again at once.
        self._waits = False

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._puts)

    def add(self, queue: str) -> None:
        """One more is under way."""
        self._puts[queue] += 1

    def done(self, queue: str) -> None:
        """One is stored, or has failed."""
        self._puts[queue] -= 1
        if not self._puts[queue]:
            del self._puts[queue]
        self._full.discard(queue)
        self._asked.discard(queue)
        self._waits = False

    def hold(self, go_on: Callable[[], object]) -> bool:
        """Whether one is under way that does not wait for room: the next message has to wait.

        Then `go_on` is called when that may have changed without the answer to a put.
        """
        if self._puts.keys() <= self._full:
            self._full.clear()
            return False
        if not self._looks:
            self._looks = True
            if self._waits:
                self._look(go_on)
            else:
                self._connection.later(_LOOK_S, lambda: self._look(go_on))
        return True

    def _look(self, go_on: Callable[[], object]) -> None:
        names = self._asked = set(self._puts) - self._full
        asked, office = sorted(names), self._connection.broker.office

        def looked(full: set[str] | EmbedqError) -> None:
            self._looks = self._waits = False
            if not isinstance(full, EmbedqError):
                self._full |= full & self._asked
                self._waits = bool(self._full)
            go_on()

        if asked:
            self._connection.broker.call(lambda: _full(office, asked), looked)
        else:
            self._looks = False


def _full(office: Office, queues: list[str]) -> set[str]:
    """Return those in which puts wait because they are full. It blocks."""
    found = set()
    for queue in queues:
        try:
            if office.info(queue).policy.when_full == "block":
                stats = office.queue_stats(queue)
                if stats.max_length is not None and stats.length >= stats.max_length:
                    found.add(queue)
        except QueueNotFound:
            continue  # it is being made
    return found
