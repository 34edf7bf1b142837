"""One lease and its copies: whom a message went to, and what ends it.

Knows: that the first copy that has left, or the first Delivery, settles it, and that nobody left
who could do so gives it back.
Does not know: who is chosen (queues.py), connections.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from embedq.errors import EmbedqError
from embedq.message import ErrorInfo
from embedq.net import DONE, RELEASED, Delivery, Ending, Failed, Rejected
from embedq_transports.tmq.frames import Dialect, Frame

if TYPE_CHECKING:
    from embedq_transports.tmq.channels import Channel
    from embedq_transports.tmq.debts import Debts


class Member(Protocol):
    """A client, as those who send to it see it."""

    client_id: bytes
    #: What it was asked to acknowledge.
    debts: Debts
    #: The channels that it is in.
    joined: dict[Channel, None]

    @property
    def dialect(self) -> Dialect:
        """Its byte orders."""
        ...

    @property
    def peer(self) -> str:
        """Its address in words."""
        ...

    @property
    def is_clogged(self) -> bool:
        """Whether bytes for it wait."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether so many wait that it must not get more now."""
        ...

    def may_join(self, channel: Channel) -> bool:
        """Whether it may hear the queues of one more channel."""
        ...

    def may(self, right: str, queue: str | None) -> bool:
        """Whether it may use a queue, or any."""
        ...

    def encode(self, frame: Frame) -> bytes:
        """Return a frame as it reads it."""
        ...

    def write(self, data: bytes, left: Callable[[bool], object] | None = None) -> None:
        """Send bytes; see Connection.write."""
        ...

    def send(self, frame: Frame) -> None:
        """Send a frame."""
        ...

    def replaced(self) -> None:
        """Another client takes its place: it is closed."""
        ...


class Handout:
    """A message that is with its consumers.

    `asks`: they are asked for a Delivery; else it is done once a copy has left. `ended` is
    called when it is settled, in whatever way.
    """

    __slots__ = (
        "_ended",
        "_has_left",
        "asks",
        "asks_s",
        "comes_again",
        "delivery",
        "holders",
        "is_over",
        "message_id",
        "own_id",
        "source",
    )

    def __init__(
        self,
        delivery: Delivery,
        message_id: bytes,
        own_id: bytes,
        source: bytes,
        *,
        asks: bool,
        asks_s: float,
        ended: Callable[[Handout], object],
    ) -> None:
        self.delivery = delivery
        #: Under which id a Delivery comes, and which its producer knows: pulls have their own.
        self.message_id = message_id
        self.own_id = own_id
        #: Who put it.
        self.source = source
        self.asks = asks
        #: Seconds for a Delivery; 0 is for ever.
        self.asks_s = asks_s
        #: It has gone back, and somebody may have read it.
        self.comes_again = False
        self._has_left = False
        #: Those who can still settle it, in the order in which they got it.
        self.holders: dict[Member, None] = {}
        self.is_over = False
        self._ended = ended

    def send(self, queue: object, copies: Sequence[tuple[Member, Frame]]) -> None:
        """Give everybody a copy. `queue`: where a Delivery for it will come from."""
        self.holders = {member: None for member, _ in copies}
        if self.asks:
            for member, _ in copies:
                member.debts.add(queue, self)
        encoded: dict[tuple[int, Dialect], bytes] = {}
        for member, frame in copies:
            key = (id(frame), member.dialect)
            data = encoded.get(key)
            if data is None:
                data = encoded[key] = member.encode(frame)
            member.write(data, partial(self._left, member))

    def _left(self, member: Member, gone: bool) -> None:  # noqa: FBT001 - what Connection.write says
        self._has_left |= gone
        if not gone:
            self.gone(member)
        elif not self.asks:
            self._end(DONE)
            self._ended(self)

    def gone(self, member: Member) -> None:
        """A holder has ended. Without any the message goes back: no attempt of anybody's."""
        self.holders.pop(member, None)
        if not self.holders and not self.is_over:
            self.comes_again = self._has_left
            self._end(RELEASED)
            self._ended(self)

    def acknowledged(self, then: Callable[[EmbedqError | None], object]) -> None:
        """The first Delivery has come; `then` is called once that is durable."""
        self._end(DONE, then)
        self._ended(self)

    def overdue(self, redeliveries: int) -> None:
        """No Delivery has come in time: again, if that is wanted, else it is dead."""
        by = self.delivery.holder.protocol
        who = ", ".join(
            f"{member.peer} ({member.client_id.decode('utf-8', 'replace')})"
            for member in self.holders
        )
        why = f"{who}: no Delivery within {self.asks_s:g} seconds"
        if self.delivery.attempt <= redeliveries:
            self._end(Failed(ErrorInfo.capped(by, why)))
        else:
            self._end(Rejected(detail=f"{by} {why}", by=by))
        self._ended(self)

    def _end(
        self, ending: Ending, then: Callable[[EmbedqError | None], object] | None = None
    ) -> None:
        if self.is_over:
            return
        self.is_over = True
        self.delivery.settle(ending, then)
        if self.asks:
            for member in self.holders:
                was_full = member.debts.are_full
                member.debts.drop(self)
                if was_full:
                    for channel in member.joined:
                        channel.look()
        self.holders.clear()  # or a client that is gone, and this, would keep each other
