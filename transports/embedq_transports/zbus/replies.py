"""Answers in the order of their requests, whenever each of them is known.

Knows: that a client of HTTP takes the next response for that of its oldest request, and one of a
WebSocket does not.
Does not know: what an answer says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

Left = Callable[[bool], object]


class Reply:
    """The place of one answer. `last`: the connection ends behind it. `apart`: it has no place."""

    __slots__ = ("apart", "data", "last", "left", "then")

    def __init__(self, *, last: bool = False, apart: bool = False) -> None:
        self.apart = apart
        self.data: bytes | None = None
        self.left: Left | None = None
        #: What follows once it is written.
        self.then: Callable[[], object] | None = None
        self.last = last


class Replies:
    """The places of answers that are due; `write` sends one, `over` is called behind the last."""

    def __init__(
        self, write: Callable[[bytes, Left | None], object], over: Callable[[], object]
    ) -> None:
        self._write = write
        self._over = over
        #: Those that are not sent.
        self.due: deque[Reply] = deque()
        #: Else each is sent once it is known, the last one behind those that are due.
        self.in_order = True

    def place(self, *, last: bool = False) -> Reply:
        """Take a place behind all others."""
        reply = Reply(last=last, apart=not (self.in_order or last))
        if not reply.apart:
            self.due.append(reply)
        return reply

    def fill(self, reply: Reply, data: bytes, left: Left | None = None) -> None:
        """Say what an answer is; none has no bytes. All that nothing stands before are sent."""
        if reply.apart:
            if data:
                self._write(data, left)
            return
        reply.data, reply.left = data, left
        due = self.due
        while due and (data_ := due[0].data) is not None:
            sent = due.popleft()
            if data_:
                self._write(data_, sent.left)
            if sent.then is not None:
                sent.then()
            if sent.last:
                self._over()
