"""One message under way: its id, the place of its answer, whether others wait for it.

Knows: that it is answered once, and what `ack` and HEAD change about that.
Does not know: what it asks for.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from embedq_transports.zbus.answers import Answer, sentence, told
from embedq_transports.zbus.message import Message
from embedq_transports.zbus.replies import Left

if TYPE_CHECKING:
    from embedq_transports.zbus.session import ZbusSession

_NOTHING = Message({}, {})


class Task:
    """What a session does for one message.

    `wire_id`: its id, made if it has none. `bare`: its answer is without a body.
    """

    __slots__ = (
        "_as_frame",
        "_is_busy",
        "_origin",
        "_put",
        "_reply",
        "_session",
        "bare",
        "is_done",
        "message",
        "wire_id",
    )

    def __init__(
        self,
        session: ZbusSession,
        message: Message = _NOTHING,
        *,
        last: bool = False,
        bare: bool = False,
        origin: str = "",
    ) -> None:
        self.message = message
        self.wire_id = message.text("id") or str(uuid.uuid4())
        self.is_done = False
        self._session = session
        self._as_frame = session.is_websocket
        self.bare = bare
        self._origin = origin
        self._reply = session.replies.place(last=last)
        self._is_busy = False
        self._put: str | None = None

    def later(self) -> None:
        """It is answered later. What comes behind it waits."""
        self._is_busy = True
        self._session.began()

    def puts(self, queue: str) -> None:
        """It is answered once what it puts is stored. More puts may follow it."""
        self._put = queue
        self._session.unstored.add(queue)
        if self._is_busy:
            self._is_busy = False
            self._session.finished()

    def detach(self) -> None:
        """Nothing waits for it any more but its answer."""
        if self._put is not None:
            self._session.unstored.done(self._put)
            self._put = None
            self._session.settled()
        elif self._is_busy:
            self._is_busy = False
            self._session.finished()

    def done(self, answer: Answer | None, left: Left | None = None) -> None:
        """Answer it, or not at all. A second answer changes nothing."""
        if self.is_done:
            return
        data = b""
        if answer is not None:
            data = self._session.encode(
                answer,
                as_frame=self._as_frame,
                keep=not self._reply.last,
                bare=self.bare,
                origin=self._origin,
            )
        self._fill(data, left)

    def _fill(self, data: bytes, left: Left | None = None) -> None:
        self.is_done = True
        self._session.replies.fill(self._reply, data, left)
        self.detach()

    def say(self, status: int, text: str, *, ack: bool = True) -> None:
        """Answer with a sentence; `ack` False: with nothing."""
        if not ack or self._as_frame or self.bare or self._origin:
            self.done(told(status, text, self.wire_id) if ack else None)
        elif not self.is_done:
            self._fill(sentence(status, text, self.wire_id, keep=not self._reply.last))
