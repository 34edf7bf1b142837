"""Who gets the next message of a group: the subscriptions of all connections, in rotation.

Knows: windows and credits, that settling and claiming share a commit, who takes at once.
Does not know: bytes, connections beyond their being clogged, what a message means.

One dispatcher serves all clients of a group: what they settle in one turn of the loop and what
they get next is one commit. It claims only what somebody has room for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from embedq.broker.endings import RELEASED, Ending, Released
from embedq.broker.leases import Lease
from embedq.broker.port import DeskPort, GroupPort
from embedq.errors import EmbedqError, GroupNotFound, StaleLease
from embedq.net.delivery import Delivery, Settled
from embedq.net.failing import as_error

if TYPE_CHECKING:
    from embedq.net.access import Access
    from embedq.net.network import Network

_PAUSES_S: Final = (0.05, 2.0)
#: Messages in one claim: at first, and at most while bodies are small.
_FIRST, _MOST = 16, 256
#: Bytes of one claim from which on the next one is smaller, up to which it may be larger.
_MUCH, _LITTLE = 4 << 20, 1 << 20


class Subscription:
    """The interest of one client in a group. `deliver` is called for each message.

    `window`: how many it may hold unsettled (None: the limit of a connection). `credit`: how many
    more it may get at all, whatever it settles (None: no bound). Both can be set at any time.
    """

    def __init__(
        self,
        access: Access,
        deliver: Callable[[Delivery], object],
        failed: Callable[[EmbedqError], object] | None,
        window: int | None,
        credit: int | None,
    ) -> None:
        self.access = access
        self.deliver = deliver
        self.failed = failed
        self.held: dict[int, Delivery] = {}
        self.is_open = True
        self.dispatcher: Dispatcher | None = None
        self._window = window
        self._credit = credit

    @property
    def window(self) -> int | None:
        """How many messages it may hold."""
        return self._window

    @window.setter
    def window(self, most: int | None) -> None:
        self._window = most
        self._changed()

    @property
    def credit(self) -> int | None:
        """How many more it may get."""
        return self._credit

    @credit.setter
    def credit(self, left: int | None) -> None:
        self._credit = left
        self._changed()

    @property
    def free(self) -> int:
        """How many it can get now."""
        if not self.is_open or self.access.is_clogged:
            return 0
        most = self.access.room
        if self._window is not None:
            most = min(most, self._window - len(self.held))
        if self._credit is not None:
            most = min(most, self._credit)
        return max(0, most)

    def find(self, message_id: str) -> Delivery | None:
        """Return what it holds of a message, by its id; None if it does not hold it."""
        if self.dispatcher is None:
            return None
        try:
            return self.held.get(self.dispatcher.desk.ids.decode(message_id))
        except EmbedqError:
            return None  # no id of ours

    def release(self) -> None:
        """Give back all that it holds, which costs no attempt."""
        for delivery in list(self.held.values()):
            delivery.release()

    def close(self) -> None:
        """Get nothing more. What it holds stays held, until it is settled."""
        if self.is_open:
            self.is_open = False
            self.access.subscriptions.discard(self)
            self._changed()

    def forget(self) -> None:
        """Know nobody any more whom it could call: the client is gone."""
        self.deliver, self.failed = _to_nobody, None

    def _changed(self) -> None:
        if self.dispatcher is not None:
            self.dispatcher.wake()

    def give(self, delivery: Delivery) -> None:
        """Call `deliver`. Of what that raises nobody keeps the message."""
        try:
            self.deliver(delivery)
        except Exception:
            delivery.release()
            raise

    def took(self, delivery: Delivery) -> None:
        """A message goes to it."""
        self.held[delivery.seq] = delivery
        if self._credit is not None:
            self._credit -= 1


def _to_nobody(delivery: Delivery) -> None:
    """Take the place of what was called for a client."""


class Take(NamedTuple):
    """A request for what is there now: `then` gets up to `most` deliveries, or none."""

    access: Access
    most: int
    then: Callable[[list[Delivery] | EmbedqError], object]


class _Ended(NamedTuple):
    delivery: Delivery
    ending: Ending
    then: Settled | None


class Dispatcher:
    """The clients of one group."""

    def __init__(self, network: Network, group: GroupPort) -> None:
        self.desk: DeskPort = network.desk
        self.group = group
        #: All deliveries that clients hold, by seq.
        self.held: dict[int, Delivery] = {}
        self._network = network
        self._subscriptions: deque[Subscription] = deque()
        self._takes: deque[Take] = deque()
        self._ended: list[_Ended] = []
        self._most = _FIRST
        self._something = asyncio.Event()
        self._claiming: asyncio.Task[None] | None = None
        self._pump: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------- what clients do

    def subscribe(self, subscription: Subscription) -> None:
        """Add a client."""
        subscription.dispatcher = self
        self._subscriptions.append(subscription)
        self.wake()

    def take(self, take: Take) -> None:
        """Get what is there now, without waiting for more."""
        self._takes.append(take)
        self.wake()

    def settle(self, delivery: Delivery, ending: Ending, then: Settled | None) -> None:
        """End a delivery; see Delivery.settle."""
        if delivery.is_settled:
            if then is not None:
                stale = StaleLease(f"message {delivery.seq} is settled already")
                self._network.soon(lambda: then(stale))
            return
        delivery.is_settled = True
        self.held.pop(delivery.seq, None)
        delivery.let_go()
        self._ended.append(_Ended(delivery, ending, then))
        self.wake()

    def wake(self) -> None:
        """Something has changed."""
        self._something.set()
        if self._pump is None:
            self._pump = self._network.start(self._serve())

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be done, nor waited for."""
        return self._pump is None

    # --------------------------------------------------------------------------- the pump

    async def _serve(self) -> None:
        try:
            while True:
                # First the rest of this turn: what all connections have brought goes together.
                await asyncio.sleep(0)
                self._something.clear()
                self._tidy()
                free = self._free()
                if self._ended or self._takes:
                    await self._step(0 if self._claiming else free)
                elif free and self._claiming is None:
                    self._claiming = self._network.start(self._claim(free))
                elif self._claiming is not None and not free:
                    self._claiming.cancel()
                    await asyncio.wait([self._claiming])
                elif not self._subscriptions and self._claiming is None:
                    return
                else:
                    await self._something.wait()
        finally:
            self._pump = None

    def _tidy(self) -> None:
        gone = [each for each in self._subscriptions if not each.is_open]
        for subscription in gone:
            self._subscriptions.remove(subscription)

    def _free(self) -> int:
        return min(self._most, sum(each.free for each in self._subscriptions))

    async def _claim(self, most: int) -> None:
        """Wait for messages beside the pump, which settles meanwhile."""
        try:
            leases = await self._exchange([], most, None)
            self._hand_out(leases, ())
        except EmbedqError as error:
            self._fail(error)
        finally:
            self._claiming = None
            self._something.set()

    async def _step(self, free: int) -> None:
        """Settle what has ended and claim what somebody has room for, in one commit.

        What is given back goes first, alone: a claim of the same commit would pass it by.
        """
        ended, self._ended = self._ended, []
        takes: list[Take] = []
        if any(isinstance(each.ending, Released) for each in ended):
            free = 0
            self._something.set()
        else:
            takes, self._takes = list(self._takes), deque()
        wanted = sum(take.most for take in takes)
        pairs = [(each.delivery.lease, each.ending) for each in ended]
        try:
            leases = await self._exchange(pairs, wanted + free, 0.0, ended)
        except EmbedqError as error:
            for take in takes:
                take.then(error)
            self._fail(error)
            return
        self._hand_out(leases, takes)

    async def _exchange(
        self,
        pairs: list[tuple[Lease, Ending]],
        most: int,
        timeout: float | None,
        ended: Sequence[_Ended] = (),
    ) -> Sequence[Lease]:
        """Settle and claim; what fails for a while is tried again until it is done."""
        pause = _PAUSES_S[0]
        while True:
            try:
                if most:
                    got = await self.desk.aexchange(
                        *(self.group, pairs, most),
                        timeout=timeout,
                        session=self.desk.listeners,
                        keep=True,
                    )
                    leases, stale = got.leases, got.stale
                else:
                    leases, stale = [], await self.desk.asettle(pairs)
            except Exception as error:
                told = as_error(error)
                if isinstance(error, GroupNotFound) and pairs and most:
                    most = 0  # what is held may be of use to nobody, but must end
                elif told.retryable:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _PAUSES_S[1])
                else:
                    for each in ended:
                        self._answer(each, told)
                    raise told from error
            else:
                gone = set(stale)
                for each in ended:
                    self._answer(each, _stale(each) if each.delivery.lease in gone else None)
                return leases

    def _answer(self, ended: _Ended, result: EmbedqError | None) -> None:
        """Tell how a settlement went. What that raises is one client's: the others go on."""
        if ended.then is None:
            return
        try:
            ended.then(result)
        except Exception as error:  # noqa: BLE001  # told as that of any other call
            told = {"message": "a call of the listeners failed", "exception": error}
            self._network.loop.call_exception_handler(told)

    def _hand_out(self, leases: Sequence[Lease], takes: Sequence[Take]) -> None:
        alive = self._network.is_alive
        size = 0
        for lease in leases:
            self.desk.keep(lease, alive)
            size += len(lease.message.body)
        self._learn(len(leases), size)
        rest = deque(leases)
        for take in takes:
            got = [rest.popleft() for _ in range(min(take.most, len(rest)))]
            take.then([self._deliver(lease, take.access, None) for lease in got])
        while rest:
            subscription = self._next()
            if subscription is None:
                break
            delivery = self._deliver(rest.popleft(), subscription.access, subscription)
            subscription.took(delivery)
            subscription.access.hand(subscription, delivery)
        for lease in rest:  # nobody wants them any more
            back = Delivery(self, lease, self._network.nobody, None)
            self.settle(back, RELEASED, None)

    def _deliver(
        self, lease: Lease, access: Access, subscription: Subscription | None
    ) -> Delivery:
        delivery = Delivery(self, lease, access, subscription)
        self.held[lease.seq] = delivery
        access.held.add(delivery)
        return delivery

    def _next(self) -> Subscription | None:
        """Return whose turn it is."""
        waiting = self._subscriptions
        for _ in range(len(waiting)):
            subscription = waiting[0]
            waiting.rotate(-1)
            if subscription.free:
                return subscription
        return None

    def _learn(self, count: int, size: int) -> None:
        """Claim fewer at once where bodies are large: they are all in memory."""
        if size > _MUCH:
            self._most = max(1, self._most // 4)
        elif count >= self._most and size < _LITTLE:
            self._most = min(_MOST, self._most * 2)

    def _fail(self, error: EmbedqError) -> None:
        """Nothing can be had from this group any more."""
        if isinstance(error, GroupNotFound):
            self._network.forget(self)
        subscriptions, self._subscriptions = list(self._subscriptions), deque()
        for subscription in subscriptions:
            subscription.close()
            subscription.access.subscription_failed(subscription, error)


def _stale(ended: _Ended) -> StaleLease:
    return StaleLease(f"the lease of message {ended.delivery.seq} no longer counts")
