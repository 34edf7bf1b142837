"""One poll: messages are taken until there are enough of them, or no more, or an answer is full.

Of a group one message is held at a time: what was found of it has to leave before the next one
can be had. So an answer goes out in parts where its messages have groups.

Knows: what an MMQP answer cannot carry, whom a group leaves out, how much is held meanwhile.
Does not know: requests, the order of answers, when messages count as delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from embedq.errors import EmbedqError
from embedq.net import Access, Delivery
from embedq_transports.mmqp.answers import FIXED_BYTES, Record
from embedq_transports.mmqp.requests import MAIN_GROUP

Found = Callable[["Sequence[Delivery] | EmbedqError"], object]
#: Gets a part of what was found, and what to call once that is settled.
Part = Callable[[Sequence[Delivery], Callable[[], None]], object]
#: Messages taken at once: at first, and at most. All of a step are in memory.
_FIRST, _MOST = 16, 256
#: bytes: what surrounds body and group in a record: its size, their sizes, its end.
_AROUND: Final = FIXED_BYTES + 3 * 9 + 1


class Polling:
    """Takes up to `most` messages of a queue for one answer of at most `room` bytes.

    `group`: only messages of this group. Bodies that are not UTF-8 would end a client of the
    original: they are passed over. What is passed over is held until the poll is over, so that
    it is not met again, and then released, which costs no attempt. `part` gets what was found, if
    something of its groups may follow; `then` gets the rest, in the order of the queue, or the
    error.
    """

    def __init__(
        self,
        broker: Access,
        queue: str,
        most: int,
        room: int,
        then: Found,
        part: Part,
        *,
        group: str | None = None,
    ) -> None:
        self._broker = broker
        self._queue = queue
        self._most = most
        self._room = room
        self._then = then
        self._part = part
        self._group = group
        self._is_empty = True  # the answer, so far
        self._found: list[Delivery] = []
        self._passed: list[Delivery] = []
        self._step = _FIRST
        #: How many could not be answered because their bodies are not UTF-8.
        self.not_utf8 = 0

    def start(self) -> None:
        """Take the first messages. A poll for none still asks whether the queue is there."""
        self._go_on()

    def _take(self, most: int) -> None:
        self._broker.take(self._queue, most if self._most else 0, self._taken)

    def _taken(self, got: list[Delivery] | EmbedqError) -> None:
        if isinstance(got, EmbedqError):
            self._passed += self._found
            self._end(got)
            return
        full = False
        for delivery in got:
            size = _AROUND + len(delivery.body) + 4 * len(group_of(delivery))
            if full or not self._most or not self._suits(delivery):
                self._pass_over(delivery)
            elif size > self._room and not self._is_empty:
                full = True
                self._pass_over(delivery)
            else:
                self._room -= size
                self._most -= 1
                self._is_empty = False
                self._found.append(delivery)
        if full or not self._most:
            self._end(self._found)
        elif got and self._broker.room > 0:
            self._step = self._next_step(got)
            self._go_on()
        elif any(delivery.ordering_key for delivery in self._found):
            found, self._found = self._found, []
            self._part(found, self._go_on)
        else:
            self._end(self._found)

    def _pass_over(self, delivery: Delivery) -> None:
        delivery.forget_content()  # a whole queue may be passed over
        self._passed.append(delivery)

    def _go_on(self) -> None:
        self._take(min(self._most, self._step) if self._group is None else self._step)

    def _next_step(self, got: Sequence[Delivery]) -> int:
        """Return how many to take next: bodies like the last ones should fit the answer."""
        average = sum(len(each.body) for each in got) // len(got) + _AROUND
        return max(1, min(2 * self._step, _MOST, self._room // average))

    def _suits(self, delivery: Delivery) -> bool:
        if self._group is not None and group_of(delivery) != self._group:
            return False
        if not delivery.body.isascii():
            try:
                delivery.body.decode()
            except UnicodeDecodeError:
                self.not_utf8 += 1
                return False
        return True

    def _end(self, result: Sequence[Delivery] | EmbedqError) -> None:
        for delivery in self._passed:
            delivery.release()
        then = self._then
        del (
            self._then,
            self._part,
            self._found,
        )  # who is told knows this, too: they would keep the bodies
        then(result)


def group_of(delivery: Delivery) -> str:
    """Return the group of a message: its ordering key, or that of those that have none."""
    return delivery.ordering_key or MAIN_GROUP


def record_of(delivery: Delivery) -> Record:
    """Return a message as it stands in an answer."""
    put_at = delivery.put_at_ms
    return Record(
        delivery.body,
        group_of(delivery),
        put_at,
        put_at,
        delivery.attempt - 1,
        delivery.id.encode(),
    )
