"""One `create`: a queue and a channel are made if they are missing, their settings are set.

Knows: types, masks, where a new channel begins, what an offset and a checksum mean.
Does not know: how the answer travels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from embedq.errors import EmbedqError
from embedq.names import from_wire
from embedq.net import Delivery
from embedq_transports.zbus.envelope import WIRE_ID
from embedq_transports.zbus.errors import failed
from embedq_transports.zbus.message import LONG
from embedq_transports.zbus.tags import Filter
from embedq_transports.zbus.task import Task

if TYPE_CHECKING:
    from embedq.broker.office import Office
    from embedq_transports.zbus.session import ZbusSession

MEMORY, DISK, DB = "memory", "disk", "db"
#: Offsets that are no number of a message: a new channel begins at the end.
_AT_END: Final = -1
_STEP: Final = 256


class Making:
    """Makes what one message names. Every type is kept on disk; `memory` is bounded."""

    def __init__(self, session: ZbusSession, task: Task, mq: str) -> None:
        message = task.message
        self._session = session
        self._task = task
        self._mq = mq
        self._channel = message.text("channel")
        self._type = message.text("mqtype")
        self._queue = from_wire(mq.encode())
        self._group = None if self._channel is None else from_wire(self._channel.encode())
        self._mask = message.number("mqmask")
        self._channel_mask = message.number("channelmask")
        self._offset = message.number("offset", LONG)
        filter_text = message.text("filter")
        self._filter = None if filter_text is None else Filter(filter_text)
        self._checksum = message.text("checksum")

    def start(self) -> None:
        """Make it."""
        task, broker = self._task, self._session.connection.broker
        if self._type not in (None, MEMORY, DISK, DB):
            task.say(500, f"mqType({self._type}) Not Support")
            return
        task.later()
        office = broker.office
        is_gone = self._queue in self._session.hub.removed
        broker.call(
            lambda: self._make(office, is_gone), self._made, right="manage", queue=self._queue
        )

    def _make(self, office: Office, is_gone: bool) -> tuple[bool, bool]:  # noqa: FBT001 - a fact
        """Make queue and channel, on another thread; return what was new, and what is wrong."""
        is_new = is_gone or self._queue not in office.queues()
        if is_new:
            office.declare(self._queue, self._settings())
        if self._offset is not None and self._offset >= 0 and self._checksum is not None:
            found = office.peek(self._queue, 1, self._offset - 1)
            if found and (found[0].seq != self._offset or not _is(found[0], self._checksum)):
                return is_new, False
        if self._group is not None:
            office.group(self._queue, self._group, self._start())
        return is_new, True

    def _settings(self) -> dict[str, Any]:
        """Return the settings of a new queue."""
        most = self._session.terms.memory
        if self._type in (None, MEMORY) and most is not None:
            return {"max_length": most, "when_full": "drop_oldest"}
        return {}

    def _start(self) -> str:
        """Return where a new channel begins."""
        if self._offset is not None:
            return "end" if self._offset == _AT_END else "beginning"
        return "auto" if self._type in (None, MEMORY) else "beginning"

    def _made(self, made: tuple[bool, bool] | EmbedqError) -> None:
        task, hub = self._task, self._session.hub
        if isinstance(made, EmbedqError):
            task.done(failed(made, task))
            return
        is_new, is_right = made
        hub.removed.discard(self._queue)
        known = hub.mq(self._queue)
        if is_new:
            known.type = self._type or MEMORY
            known.creator = self._session.peer
            known.created_ms = self._session.connection.broker.now_ms()
        if self._mask is not None:
            known.mask = self._mask

        def kept(error: EmbedqError | None) -> None:
            if error is not None:
                task.done(failed(error, task))
            elif not is_right:
                text = f"another message than {self._checksum} is at offset {self._offset}"
                task.say(400, text)
            elif self._group is None:
                task.say(200, f"OK, CREATE (mq={self._mq})")
            else:
                self._set_channel(self._group)

        hub.keep(self._session.connection, self._queue, None, kept)

    def _set_channel(self, group: str) -> None:
        hub = self._session.hub
        place = hub.channel(self._queue, group)
        if self._channel_mask is not None:
            place.mask = self._channel_mask
        if self._filter is not None:
            place.filter = self._filter

        def kept(error: EmbedqError | None) -> None:
            if error is None:
                self._skip(group)
            else:
                self._task.done(failed(error, self._task))

        hub.keep(self._session.connection, self._queue, group, kept)

    def _skip(self, group: str) -> None:
        """Pass over what stands before the offset; what is settled cannot come back."""
        offset = self._offset
        if offset is None or offset <= 0:
            self._task.say(200, f"OK, CREATE (mq={self._mq},channel={self._channel})")
            return
        broker = self._session.connection.broker

        def taken(got: list[Delivery] | EmbedqError) -> None:
            if isinstance(got, EmbedqError):
                self._task.done(failed(got, self._task))
                return
            for delivery in got:
                if delivery.seq < offset:
                    delivery.ack()
                else:
                    delivery.release()
            if got and got[-1].seq < offset:
                broker.take(self._queue, _STEP, taken, group=group)
            else:
                self._task.say(200, f"OK, CREATE (mq={self._mq},channel={self._channel})")

        broker.take(self._queue, _STEP, taken, group=group)


def _is(found: Any, checksum: str) -> bool:  # noqa: ANN401  # a row of the store
    """Whether a stored message has this id."""
    headers = msgspec.msgpack.decode(found.headers) if found.headers else {}
    return bool(headers.get(WIRE_ID) == checksum)
