"""What a client of a listener may do with queues, and all that it holds of them.

Knows: rights, limits of one client, what is under way for it, which deliveries it holds.
Does not know: bytes, how puts and settlements of many clients become one commit.

A session has one as `connection.broker`; what outlives connections uses that of its listener,
`site.broker`. Answers come as a call of `then`, later or at once, never after the connection's
end: with a value, or with an error of embedq in its place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from embedq.broker.endings import DONE, Ending
from embedq.errors import EmbedqError, LimitExceeded, NotAllowed
from embedq.message import Draft, Receipt
from embedq.net.delivery import Delivery, Settled, give_all, release_all
from embedq.net.dispatch import Subscription, Take
from embedq.net.making import Making
from embedq.net.owner import Owner
from embedq.net.pending import PendingPut
from embedq.net.puts import Stored
from embedq.net.unheld import settle_unheld

if TYPE_CHECKING:
    from embedq.broker.office import Office
    from embedq.broker.port import GroupPort, QueuePort
    from embedq.net.network import Network

T = TypeVar("T")
#: Bytes of a message beside its body, as far as limits count them.
_ENVELOPE = 64


class Access:
    """The queues as one client may use them. Names of queues are those of embedq.names.

    `making`: of a listener's own access. All its clients share that, so that it has no limits of
    one connection.
    """

    def __init__(self, network: Network, owner: Owner, making: Making | None = None) -> None:
        self._network = network
        self._owner = owner
        self._is_shared = making is not None
        self._making = making or owner.making
        self.held: set[Delivery] = set()
        self.subscriptions: set[Subscription] = set()
        #: Operations that have no answer yet, the puts among them, and the bytes of those.
        self.pending = self.pending_puts = self.pending_bytes = 0
        #: Bytes that a body may have.
        self._most = min(owner.limits.message_bytes, network.desk.limits.body_bytes)
        self._counts = owner.counts
        #: The client is gone: nothing is answered, and nobody waits for room.
        self.is_closed = False

    @property
    def office(self) -> Office:
        """Everything else that a host can be asked, with `call`: it blocks, so never here."""
        return self._owner.making.office

    @property
    def protocol(self) -> str:
        """The name of the protocol."""
        return self._owner.protocol

    @property
    def peer(self) -> str:
        """The address of the client, in words."""
        return self._owner.peer

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds: for times in drafts."""
        return self._network.desk.now_ms()

    def may(self, right: str, queue: str | None = None) -> bool:
        """Whether the client may "put", "consume" or "manage". Nobody may before the login."""
        identity = self._owner.identity
        return identity is not None and identity.may(right, queue)

    # ------------------------------------------------------------------------------- put

    def put(
        self, queue: str, draft: Draft, then: Stored | None = None, *, create: bool = True
    ) -> None:
        """Store a message; `then` gets its receipt once it is durable, or the error.

        Puts of one turn of the loop, from all connections, are one commit; those of one client
        into one queue keep their order. While a queue is full they wait, and with them the
        reading of this connection. A draft that a client has a say in beyond its body ought to
        be made by embedq.message.draft, which checks it.
        """
        size = len(draft.body)
        refusal = self._refuse_put(queue, size)
        size += _ENVELOPE
        self.pending_puts += 1
        self.pending_bytes += size
        self._begin()

        stored = PendingPut(self, then, size)
        if refusal is not None:
            self._network.soon(lambda: stored(refusal))
            return
        network = self._network
        known = network.names.known(queue)
        if known is not None:
            network.puts.add(known, draft, stored, self)
            return
        coming = network.puts.expect()

        def found(handle: QueuePort | EmbedqError) -> None:
            if isinstance(handle, EmbedqError):
                stored(handle)
            else:
                network.puts.add(handle, draft, stored, self)
            if not coming.done():
                coming.set_result(None)

        network.names.queue(queue, found, create=self._making if create else None)

    def put_done(self, then: Stored | None, result: Receipt | EmbedqError, size: int) -> None:
        """A put is over; its bytes count no more."""
        self.pending_puts -= 1
        self.pending_bytes -= size
        if self.is_closed and isinstance(result, EmbedqError):
            self._counts["put_failed", "gone"] += 1
        self._answer(then, result)

    def _refuse_put(self, queue: str, size: int) -> EmbedqError | None:
        if size > self._most:
            return LimitExceeded(
                f"queue {queue!r}: a body of {size} bytes is more than message_bytes={self._most}",
                limit="message_bytes",
            )
        return self._refuse("put", queue)

    def _refuse(self, right: str, queue: str | None) -> NotAllowed | None:
        if self.may(right, queue):
            return None
        identity = self._owner.identity
        who = "a client that has not logged in" if identity is None else repr(identity.name)
        return NotAllowed(f"{who} may not {right} in queue {queue!r}")

    # ------------------------------------------------------------------- get and settle

    @property
    def room(self) -> int:
        """How many more deliveries it may hold."""
        return sys.maxsize if self._is_shared else self._owner.limits.unacked - len(self.held)

    @property
    def is_clogged(self) -> bool:
        """Whether it gets nothing unasked now."""
        return self._owner.is_clogged

    def subscribe(
        self,
        queue: str,
        deliver: Callable[[Delivery], object],
        *,
        group: str = "default",
        window: int | None = None,
        credit: int | None = None,
        create: bool = True,
        failed: Callable[[EmbedqError], object] | None = None,
    ) -> Subscription:
        """Get messages of a group as they come, each with a call of `deliver`.

        `window`: how many may be held unsettled; `credit`: how many come at all until it is set
        again. Both can be changed at any time. Subscriptions of a group take turns. `failed` is
        called if the queue cannot be had, or its group is removed: then it is closed.
        """
        if self._is_shared and window is None:
            window = self._owner.limits.unacked
        subscription = Subscription(self, deliver, failed, window, credit)
        refusal = self._refuse("consume", queue)
        most = self._owner.limits.subscriptions
        if len(self.subscriptions) >= most and not self._is_shared:
            text = f"one connection may have subscriptions={most}"
            refusal = refusal or NotAllowed(text, limit="subscriptions")
        self.subscriptions.add(subscription)

        def found(handle: GroupPort | EmbedqError) -> None:
            if isinstance(handle, EmbedqError):
                subscription.close()
                self.subscription_failed(subscription, handle)
            elif subscription.is_open and not self.is_closed:
                self._network.dispatcher(handle).subscribe(subscription)

        if refusal is not None:
            why = refusal
            self._network.soon(lambda: found(why))
        else:
            self._network.names.group(queue, group, found, create=self._making if create else None)
        return subscription

    def take(
        self,
        queue: str,
        most: int,
        then: Callable[[list[Delivery] | EmbedqError], object],
        *,
        group: str = "default",
        create: bool = False,
    ) -> None:
        """Get what is there now, at most so many, without waiting; `then` gets a list.

        They are held like others, and count for no window.
        """
        refusal = self._refuse("consume", queue)
        self._begin()

        def taken(got: list[Delivery] | EmbedqError) -> None:
            if self.is_closed:
                release_all(got)
            self._answer(partial(give_all, then), got)

        def found(handle: GroupPort | EmbedqError) -> None:
            if isinstance(handle, EmbedqError):
                taken(handle)
            elif self.is_closed or most <= 0 or self.room <= 0:
                taken([])
            else:
                self._network.dispatcher(handle).take(Take(self, min(most, self.room), taken))

        if refusal is not None:
            why = refusal
            self._network.soon(lambda: found(why))
        else:
            self._network.names.group(queue, group, found, create=self._making if create else None)

    def settle_by_id(
        self,
        queue: str,
        message_id: str,
        ending: Ending = DONE,
        then: Settled | None = None,
        *,
        group: str = "default",
    ) -> None:
        """Settle a message by its id, whoever holds it, and if nobody does (UnknownMessage).

        Whose delivery it was gets its slot back. Costs no commit of its own while a client of a
        listener of this process holds the message.
        """
        network = self._network
        refusal = self._refuse("consume", queue)
        self._begin()

        def settled(result: EmbedqError | None) -> None:
            self._answer(then, result)

        def found(handle: GroupPort | EmbedqError) -> None:
            if isinstance(handle, EmbedqError):
                settled(handle)
                return
            try:
                seq = network.desk.ids.decode(message_id)
            except EmbedqError as error:
                settled(error)
                return
            delivery = network.dispatcher(handle).held.get(seq)
            if delivery is not None:
                delivery.settle(ending, settled)
                return
            office = network.desk.office
            network.call(lambda: settle_unheld(office, queue, group, seq, ending), settled)

        if refusal is not None:
            why = refusal
            network.soon(lambda: found(why))
        else:
            network.names.group(queue, group, found, create=None)

    # ----------------------------------------------------------------------- all the rest

    def find(self, queue: str, group: str, then: Callable[[EmbedqError | None], object]) -> None:
        """Tell whether a group is there, and make none: `then` gets None, or what is not found.

        Until it is removed, or the connection has ended, asking again costs nothing.
        """
        refusal = self._refuse("consume", queue)
        self._begin()

        def found(handle: GroupPort | EmbedqError) -> None:
            self._answer(then, handle if isinstance(handle, EmbedqError) else None)

        if refusal is not None:
            why = refusal
            self._network.soon(lambda: found(why))
        else:
            self._network.names.group(queue, group, found, create=None, make=False)

    def remove_group(
        self, queue: str, group: str, then: Callable[[EmbedqError | None], object] | None = None
    ) -> None:
        """Remove a group: its subscriptions fail, and what only it waited for leaves."""
        network, office = self._network, self.office

        def removed(error: EmbedqError | None) -> None:
            network.names.forget(queue, group)
            if then is not None:
                then(error)

        self.call(lambda: office.remove_group(queue, group), removed, right="manage", queue=queue)

    def declare(
        self,
        queue: str,
        then: Callable[[EmbedqError | None], object] | None = None,
        **changes: object,
    ) -> None:
        """Create a queue, or change those of its settings that are named (QueuePolicy)."""
        making = self._making

        def make() -> None:
            making.declare(queue, changes)

        self.call(make, then, right="manage", queue=queue)

    def call(
        self,
        function: Callable[[], T],
        then: Callable[[T | EmbedqError], object] | None = None,
        *,
        right: str | None = None,
        queue: str | None = None,
    ) -> None:
        """Call what blocks (`office`) on another thread; `then` gets what it returns or raises.

        `right`: what the client must be allowed to do.
        """
        refusal = None if right is None else self._refuse(right, queue)
        self._begin()

        def done(result: T | EmbedqError) -> None:
            self._answer(then, result)

        if refusal is not None:
            why = refusal
            self._network.soon(lambda: done(why))
        else:
            self._network.call(function, done)

    # ------------------------------------------------------------------------- for the room

    @property
    def is_busy(self) -> bool:
        """Whether something is held, waited for or under way: then it is not idle."""
        return bool(self.pending or self.held or self.subscriptions)

    def _begin(self) -> None:
        self.pending += 1
        self._owner.ops_changed()

    def _answer(self, then: Callable[[Any], object] | None, result: object) -> None:
        self.pending -= 1
        if then is not None and not self.is_closed:
            self._owner.answered(then, result)
        self._owner.ops_changed()

    def hand(self, subscription: Subscription, delivery: Delivery) -> None:
        """Give a delivery to the session; one that nobody takes goes back."""
        if self.is_closed:
            delivery.release()
        else:
            self._owner.called_back(lambda: subscription.give(delivery))

    def subscription_failed(self, subscription: Subscription, error: EmbedqError) -> None:
        """Tell that a subscription gets nothing any more."""
        failed = subscription.failed
        if failed is not None and not self.is_closed:
            self._owner.called_back(lambda: failed(error))

    def unclogged(self) -> None:
        """It takes messages again."""
        for subscription in self.subscriptions:
            if subscription.dispatcher is not None:
                subscription.dispatcher.wake()

    def end_subscriptions(self) -> None:
        """Get nothing more."""
        for subscription in list(self.subscriptions):
            subscription.close()

    def close(self) -> None:
        """The client is gone: what it holds is released, and its puts wait for no room."""
        self.is_closed = True
        for subscription in list(self.subscriptions):
            subscription.close()
            subscription.forget()
        for delivery in list(self.held):
            delivery.release()
        self._owner = self._network.gone  # two that know each other stay until Python collects
        self._network.puts.give_up(self)
