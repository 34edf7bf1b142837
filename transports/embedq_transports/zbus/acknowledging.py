"""Acknowledgements, which the original does not have: for those who ask for them.

Knows: what one connection holds, and the commands that settle it: ack, nack, reject.
Does not know: who subscribes to what, how answers travel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from embedq.errors import EmbedqError
from embedq.limits import LIMITS
from embedq.names import from_wire
from embedq.net import Delivery
from embedq_transports.zbus.errors import failed
from embedq_transports.zbus.message import LONG
from embedq_transports.zbus.task import Task

if TYPE_CHECKING:
    from embedq_transports.zbus.session import ZbusSession

#: The header of `sub` and `take` that asks for it, in lower case.
WANTED: Final = "acknowledge"
#: The commands that need not wait for what was put before them.
SETTLING: Final = frozenset({"ack", "nack", "reject"})
_MOST_DELAY_S: Final = LIMITS.delay_max_s


class Held:
    """The messages that one connection holds, by queue, channel and offset."""

    def __init__(self, session: ZbusSession) -> None:
        self._session = session
        self._held: dict[tuple[str, str, int], Delivery] = {}

    def keep(self, queue: str, group: str, delivery: Delivery) -> None:
        """A message goes to the client, and is its own until it is settled or the client ends."""
        self._held[queue, group, delivery.seq] = delivery

    @property
    def is_full(self) -> bool:
        """Whether it holds as much as one connection may."""
        return len(self._held) >= self._session.connection.limits.unacked

    def settle(self, task: Task) -> None:
        """Do an ack, a nack or a reject. Raises BadInteger."""
        message = task.message
        command = (message.text("cmd") or "").lower()
        mq, channel = message.text("mq"), message.text("channel")
        offset = message.number("offset", LONG)
        if mq is None or channel is None or offset is None:
            missing = "mq" if mq is None else "channel" if channel is None else "offset"
            task.say(400, f"{command} command, missing {missing} field")
            return
        delay_ms = message.number("delay") or 0
        if not 0 <= delay_ms <= _MOST_DELAY_S * 1000:
            task.say(400, "delay is no number of milliseconds that a message may wait")
            return
        reply, was_full = message.flag("ack", default=True), self.is_full
        delivery = self._held.pop(
            (from_wire(mq.encode()), from_wire(channel.encode()), offset), None
        )
        if delivery is None:
            task.say(404, f"Offset({offset}) Not Held")
            return
        task.later()

        def answer(error: EmbedqError | None) -> None:
            if error is None:
                where = f"mq={mq},channel={channel},offset={offset}"
                task.say(200, f"OK, {command.upper()} ({where})", ack=reply)
            else:
                task.done(failed(error, task))

        connection = self._session.connection

        def settled(error: EmbedqError | None) -> None:
            connection.called_back(lambda: answer(error))  # unless it has ended meanwhile

        reason = message.text("reason") or f"{command} of the client"
        if command == "ack":
            delivery.ack(settled)
        elif command == "nack":
            delivery.nack(reason, delay_s=delay_ms / 1000, then=settled)
        else:
            delivery.reject(reason, settled)
        if was_full:
            self._session.channels.freed()
