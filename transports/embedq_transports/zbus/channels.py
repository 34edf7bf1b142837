"""Subscriptions of one connection: windows, filters, who of a channel gets a message.

Knows: that a window is set and not added, that filters decide between subscribers.
Does not know: how messages are written, how they are claimed.
"""

from __future__ import annotations

import uuid
from collections import Counter, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from embedq.errors import EmbedqError, GroupNotFound, QueueNotFound
from embedq.names import from_wire
from embedq.net import Delivery
from embedq_transports.zbus.acknowledging import WANTED
from embedq_transports.zbus.answers import told
from embedq_transports.zbus.envelope import WIRE_ID, answer_of, kept_of
from embedq_transports.zbus.errors import failed, no_channel, no_mq, status_of
from embedq_transports.zbus.hub import DELETE_ON_EXIT, EXCLUSIVE, Channel, Watch
from embedq_transports.zbus.tags import Filter
from embedq_transports.zbus.task import Task

if TYPE_CHECKING:
    from embedq_transports.zbus.session import ZbusSession


#: Messages of a channel that may be parked: they are in memory. With more, none is claimed.
_PARKED: Final = 256


class Channels:
    """What one connection subscribes to: any number of channels, each once."""

    def __init__(self, session: ZbusSession) -> None:
        self._session = session
        self._watches: dict[tuple[str, str], Watch] = {}
        #: Ids of puts without an answer yet: their messages are pushed behind it.
        self.unanswered: Counter[str] = Counter()
        self._late: deque[tuple[Watch, Delivery]] = deque()

    def __bool__(self) -> bool:
        """Whether anything is subscribed to."""
        return bool(self._watches)

    def subscribe(self, task: Task, mq: str, channel: str) -> None:
        """Subscribe, or set anew what the message names. Raises BadInteger, BadFilter."""
        session, message = self._session, task.message
        window = message.number("window")
        named = message.text("filter")
        wanted = Filter(named or "")
        ack = message.flag("ack", default=True)
        key = (from_wire(mq.encode()), from_wire(channel.encode()))
        known = self._watches.get(key)
        if known is not None:
            task.say(200, f"OK, SUB (mq={mq},channel={channel})", ack=ack)
            # Clients set the window anew by themselves, and name nothing else then.
            if named is not None:
                known.filter = wanted
            known.acknowledges = message.flag(WANTED, default=known.acknowledges)
            self._set(known, window, session.hub.channel(*key))
            return
        task.later()

        def found(error: EmbedqError | None) -> None:
            if error is not None:
                task.done(failed(error, task))
                return
            hub = session.hub
            place = hub.channel(*key)
            if place.watches and EXCLUSIVE & (place.mask | hub.mq(key[0]).mask):
                task.say(409, f"Channel({channel}) has its one subscriber")
                return
            watch = Watch(session, mq, channel, wanted, window)
            watch.acknowledges = message.flag(WANTED, default=False)
            self._watches[key] = watch
            place.watches.append(watch)
            place.last_sub_ms = session.connection.broker.now_ms()
            task.say(200, f"OK, SUB (mq={mq},channel={channel})", ack=ack)
            watch.subscription = session.connection.broker.subscribe(
                key[0],
                lambda delivery: self._came(watch, place, delivery),
                group=key[1],
                credit=None if window is None else max(0, window),
                create=False,
                failed=lambda error: self._failed(watch, error),
            )
            _unpark(place)

        session.connection.broker.find(*key, found)

    def _set(self, watch: Watch, window: int | None, place: Channel) -> None:
        watch.window = window
        if watch.subscription is not None:
            watch.subscription.credit = None if window is None else max(0, window)
        _unpark(place)

    # ------------------------------------------------------------------------------ messages

    def _came(self, watch: Watch, place: Channel, delivery: Delivery) -> None:
        """A message of the channel: it goes to this subscriber if its filter wants it."""
        place.position = max(place.position, delivery.seq + 1)
        tag = tag_of(delivery)
        if place.filter.wants(tag) and watch.filter.wants(tag):
            self.push(watch, delivery)
            return
        subscription = watch.subscription
        if subscription is not None and subscription.credit is not None:
            subscription.credit += 1  # it was not for this one
        hand_on(place, delivery, tag)

    def push(self, watch: Watch, delivery: Delivery) -> None:
        """Send a message, but never before the answer to the put that it comes from."""
        if self.unanswered:
            headers, rest = kept_of(delivery)
            if rest.source == self._session.source and headers.get(WIRE_ID) in self.unanswered:
                self._late.append((watch, delivery))
                return
        window = watch.subscription.credit if watch.subscription is not None else None
        answer = answer_of(delivery, watch.mq, watch.channel, window)
        if watch.acknowledges:
            answer.headers["attempt"] = str(delivery.attempt)
            self._session.held.keep(*watch.key, delivery)
            self._session.push(answer)
        else:
            self._session.push(answer, delivery.left)

    def answered(self, wire_id: str) -> None:
        """A put is answered: what waited for that goes out."""
        self.unanswered[wire_id] -= 1
        if self.unanswered[wire_id] <= 0:
            del self.unanswered[wire_id]
        late, self._late = self._late, deque()
        for watch, delivery in late:
            self.push(watch, delivery)

    def freed(self) -> None:
        """One that held as much as it may holds less: it can be handed something again."""
        for key in list(self._watches):
            _unpark(self._session.hub.channel(*key))

    # ------------------------------------------------------------------------------- the end

    def _failed(self, watch: Watch, error: EmbedqError) -> None:
        """Nothing can be had from a channel any more."""
        if isinstance(error, GroupNotFound | QueueNotFound):
            self.removed(watch)
        else:
            self._gone(watch, status_of(error), error.message)

    def removed(self, watch: Watch) -> None:
        """A channel is gone, alone or with its queue."""
        is_gone = watch.key[0] in self._session.hub.removed
        self._gone(watch, 404, no_mq(watch.mq) if is_gone else no_channel(watch.channel))

    def _gone(self, watch: Watch, status: int, text: str) -> None:
        """Nothing comes from a channel any more: say so, once, also who has no room."""
        if self._watches.get(watch.key) is not watch:
            return
        del self._watches[watch.key]
        self._session.hub.leave(watch)
        if watch.subscription is not None:
            watch.subscription.close()
        # Some clients look up every message by its id, and fail if it has none.
        answer = told(status, text, str(uuid.uuid4()))
        answer.headers.update(mq=watch.mq, channel=watch.channel)
        self._session.push(answer)

    def close(self) -> None:
        """The connection is gone: what is deleted with its last subscriber is."""
        session, hub = self._session, self._session.hub
        watches, self._watches = self._watches, {}
        for (queue, group), watch in watches.items():
            place = hub.leave(watch)
            if place is None:
                continue
            _unpark(place)
            if session.connection.site.is_draining or place.watches:
                continue
            mask = hub.mq(queue).mask
            if mask & DELETE_ON_EXIT and not hub.is_served(queue):
                session.commands.remove_all(session.connection.site.broker, queue)
            elif place.mask & DELETE_ON_EXIT:
                session.commands.remove_channel(session.connection.site.broker, queue, group)


def tell_removed(watches: Iterable[Watch]) -> None:
    """Tell who subscribes to what was removed: who has no room would not notice."""
    for watch in watches:
        session = watch.session
        if session.source in session.hub.sessions:  # not gone meanwhile
            session.channels.removed(watch)


def tag_of(delivery: Delivery) -> str | None:
    """Return the tag of a message."""
    headers = delivery.headers
    tag = headers.get("tag")
    if tag is None:
        tag = next((value for name, value in headers.items() if name.lower() == "tag"), None)
    return tag


def hand_on(place: Channel, delivery: Delivery, tag: str | None) -> None:
    """Give a message to a subscriber that wants it; what nobody wants is dropped."""
    wanting = [each for each in place.watches if each.filter.wants(tag)]
    if not wanting or not place.filter.wants(tag):
        delivery.ack()
        return
    for watch in wanting:
        subscription = watch.subscription
        if subscription is not None and watch.has_room():
            delivery.move(subscription)
            watch.session.channels.push(watch, delivery)
            return
    place.parked.append(delivery)
    if len(place.parked) >= _PARKED:
        _let_come(place, 0)


def _unpark(place: Channel) -> None:
    """Somebody came, went, or has room: what waited for that is handed on again."""
    parked, place.parked = place.parked, deque()
    for delivery in parked:
        if not delivery.is_settled:
            hand_on(place, delivery, tag_of(delivery))
    if len(place.parked) < _PARKED:
        _let_come(place, None)


def _let_come(place: Channel, window: int | None) -> None:
    """Stop what comes from a channel whose parked messages fill the memory, or let it come."""
    for watch in place.watches:
        if watch.subscription is not None and watch.subscription.window != window:
            watch.subscription.window = window
