"""One `take`: messages are taken until there are enough of them, or no more.

Knows: that an answer is bounded in bytes, that a channel is not made by asking it.
Does not know: how the answer travels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from embedq.errors import EmbedqError
from embedq.limits import MIB
from embedq.names import from_wire
from embedq.net import Delivery
from embedq_transports.zbus.acknowledging import WANTED
from embedq_transports.zbus.answers import NOTHING, messages, shown
from embedq_transports.zbus.envelope import answer_of
from embedq_transports.zbus.errors import failed
from embedq_transports.zbus.task import Task

if TYPE_CHECKING:
    from embedq_transports.zbus.session import ZbusSession

#: Messages taken at once; bytes of bodies from which on an answer takes no more.
_STEP: Final = 16
_ENOUGH: Final = MIB


class Taking:
    """Answers with up to `most` messages of a channel."""

    def __init__(self, session: ZbusSession, task: Task, mq: str, channel: str, most: int) -> None:
        self._session = session
        self._task = task
        self._mq = mq
        self._channel = channel
        self._key = (from_wire(mq.encode()), from_wire(channel.encode()))
        self._most = most
        #: What HEAD does not get stays.
        self._shows = task.bare
        self._acknowledges = not self._shows and task.message.flag(WANTED, default=False)
        self._found: list[Delivery] = []
        self._bytes = 0

    def start(self) -> None:
        """Look for the channel first."""
        self._task.later()
        self._session.connection.broker.find(*self._key, self._looked)

    def _looked(self, error: EmbedqError | None) -> None:
        if error is None:
            self._next()
        else:
            self._task.done(failed(error, self._task))

    def _next(self) -> None:
        most = min(_STEP, self._most - len(self._found))
        queue, group = self._key
        self._session.connection.broker.take(queue, most, self._taken, group=group)

    def _taken(self, got: list[Delivery] | EmbedqError) -> None:
        if isinstance(got, EmbedqError):
            for delivery in self._found:
                delivery.release()
            self._task.done(failed(got, self._task))
            return
        self._found += got
        self._bytes += sum(len(each.body) for each in got)
        if got and len(self._found) < self._most and self._bytes < _ENOUGH:
            self._next()
        else:
            self._answer()

    def _answer(self) -> None:
        found = self._found
        if found:
            place = self._session.hub.channel(*self._key)
            place.position = max(place.position, found[-1].seq + 1)

        def left(gone: bool) -> None:  # noqa: FBT001 - what Connection.write says
            for delivery in found:
                if not self._acknowledges or not gone:
                    delivery.left(gone and not self._shows)

        names = {"mq": self._mq, "channel": self._channel}
        answers = [answer_of(each, self._mq) for each in found]
        if self._acknowledges:
            for answer, delivery in zip(answers, found, strict=True):
                answer.headers["attempt"] = str(delivery.attempt)
                self._session.held.keep(*self._key, delivery)
        value = messages(answers)
        status = 200 if found else NOTHING
        self._task.done(shown(value, self._task.wire_id, status, **names), left)
