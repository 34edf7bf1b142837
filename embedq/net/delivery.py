"""A delivery to a client of a listener: a leased message, and how it ends.

Knows: what a transport may read of a message, that it is settled once.
Does not know: which bytes it becomes, how settlements are committed (dispatch.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from embedq.broker.endings import DONE, RELEASED, Ending, Failed, Rejected
from embedq.broker.leases import Lease
from embedq.errors import EmbedqError
from embedq.message import ErrorInfo

if TYPE_CHECKING:
    from embedq.net.access import Access
    from embedq.net.dispatch import Dispatcher, Subscription

#: What came of a settlement: None, or why it changed nothing (StaleLease, what the store says).
Settled = Callable[[EmbedqError | None], object]
_decode_headers: Final = msgspec.msgpack.Decoder(dict[str, str]).decode


class Delivery:
    """One message, held by a client until it is settled. Its lease is renewed meanwhile."""

    __slots__ = ("_dispatcher", "holder", "is_settled", "lease", "subscription")

    def __init__(
        self,
        dispatcher: Dispatcher,
        lease: Lease,
        holder: Access,
        subscription: Subscription | None,
    ) -> None:
        self._dispatcher = dispatcher
        self.lease = lease
        #: Who holds it: the broker access of a connection, or of a listener.
        self.holder = holder
        #: Whose slot it takes; None: it was taken.
        self.subscription = subscription
        self.is_settled = False

    # --------------------------------------------------------------------------- content

    @property
    def body(self) -> bytes:
        """The body."""
        return self.lease.message.body

    @property
    def id(self) -> str:
        """The message id: 32 hexadecimal characters, the same in every delivery."""
        return self._dispatcher.desk.ids.encode(self.lease.seq)

    @property
    def seq(self) -> int:
        """The message's number in the store."""
        return self.lease.seq

    @property
    def queue(self) -> str:
        """The name of its queue."""
        return self.lease.group.queue.name

    @property
    def attempt(self) -> int:
        """Which delivery this is, the first is 1."""
        return self.lease.attempt

    @property
    def max_attempts(self) -> int | None:
        """How many there may be; None is endless."""
        return self.lease.max_attempts or None

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; none if they cannot be read."""
        raw = self.lease.message.headers
        if raw is None:
            return {}
        try:
            return _decode_headers(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, TypeError):
            return {}  # damage must not hide the message

    @property
    def priority(self) -> int:
        """0 to 9."""
        return self.lease.message.priority

    @property
    def ordering_key(self) -> str | None:
        """The ordering key."""
        return self.lease.message.key

    @property
    def put_at_ms(self) -> int:
        """When it was put: milliseconds since 1970."""
        return self.lease.message.put_at

    @property
    def expires_at_ms(self) -> int | None:
        """When it expires, in the same unit; None is never."""
        return self.lease.message.expires

    @property
    def kind(self) -> int:
        """What kind of body it is (embedq.payload)."""
        return self.lease.message.kind

    def forget_content(self) -> None:
        """Keep neither body nor headers: it is held for a while, and then only settled."""
        self.lease.message = self.lease.message._replace(body=b"", headers=None)

    # --------------------------------------------------------------------------- holding

    def let_go(self) -> None:
        """Nobody holds it any more: its slot and its place in what one may hold are free."""
        holder = self.holder
        had_no_room = holder.room <= 0
        holder.held.discard(self)
        if self.subscription is not None:
            self.subscription.held.pop(self.seq, None)
        if had_no_room:
            holder.unclogged()  # it may have waited for room in other queues

    def move(self, subscription: Subscription) -> None:
        """Let it belong to another client, that of a subscription: who claimed it may leave."""
        self.let_go()
        self.holder, self.subscription = subscription.access, subscription
        subscription.access.held.add(self)
        subscription.took(self)

    # -------------------------------------------------------------------------- settling

    def settle(self, ending: Ending, then: Settled | None = None) -> None:
        """End it in some way (embedq.broker.endings); its slot is free at once.

        `then` is called when that is durable. A second settlement changes nothing.
        """
        self._dispatcher.settle(self, ending, then)

    def ack(self, then: Settled | None = None) -> None:
        """Done: it is not delivered again."""
        self.settle(DONE, then)

    def nack(
        self,
        why: str,
        *,
        delay_s: float = 0.0,
        tail: bool = False,
        then: Settled | None = None,
    ) -> None:
        """The attempt failed: again after a while, or behind all that wait; else dead.

        `why`: the cause, which with protocol and peer is stored with the attempt.
        """
        error = ErrorInfo.capped(self.holder.protocol, f"{self.holder.peer}: {why}")
        self.settle(Failed(error, delay_s, tail=tail), then)

    def reject(self, why: str, then: Settled | None = None) -> None:
        """Dead now, for a reason that also names protocol and peer."""
        holder = self.holder
        detail = f"{holder.protocol} {holder.peer}: {why}"
        self.settle(Rejected(detail=detail, by=holder.protocol), then)

    def release(self, then: Settled | None = None) -> None:
        """Give it back as if it had never been delivered."""
        self.settle(RELEASED, then)

    def left(self, gone: bool) -> None:  # noqa: FBT001 - what Connection.write says
        """Auto-ack: `connection.write(data, delivery.left)` acks it once its bytes have left.

        If they never will, it is released.
        """
        self.settle(DONE if gone else RELEASED)


#: What a take has brought.
Taken = list[Delivery] | EmbedqError


def give_all(then: Callable[[Taken], object], got: Taken) -> None:
    """Tell who took them. Of what that raises nobody keeps the messages."""
    try:
        then(got)
    except Exception:
        release_all(got)
        raise


def release_all(got: Taken) -> None:
    """Give back what nobody takes."""
    if not isinstance(got, EmbedqError):
        for delivery in got:
            delivery.release()
