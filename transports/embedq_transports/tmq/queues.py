"""One queue of a channel: which of its members get a message, and how many are on their way.

Knows: copies to all, to the first, in turn; when members read too slowly; when a Delivery is due.
Does not know: what clients may ask for (orders.py), bytes.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from embedq.errors import EmbedqError
from embedq.net import Delivery, Site, Subscription
from embedq_transports.tmq.answers import delivered
from embedq_transports.tmq.commands import QueueOptions, QueueStatus
from embedq_transports.tmq.envelope import frame_of
from embedq_transports.tmq.frames import Frame
from embedq_transports.tmq.handout import Handout, Member
from embedq_transports.tmq.names import queue_name
from embedq_transports.tmq.terms import HANDED_OUT, QueueTerms, Terms, queue_terms

if TYPE_CHECKING:
    from embedq.net.timers import Timer
    from embedq_transports.tmq.channels import Channel

#: Before the Delivery of one message nothing else goes out (Wait-For-Acknowledge).
_ONE: Final = 1
_NEW: Final = object()


class Queue:
    """A queue, as the members of its channel see it. `name`: that of the broker's queue."""

    def __init__(
        self, site: Site, channel: Channel, content_type: int, terms: Terms, name: str = ""
    ) -> None:
        self._site = site
        self._listener = terms
        self.channel = channel
        self.content_type = content_type
        self.name = name or queue_name(channel.name, content_type)
        self._subscription: Subscription | None = None
        self._members: list[Member] = []  # those who may consume, in order of joining
        self._last: Member | None = None  # who had the last turn
        self._window = 0
        self._looking = False
        self._due: deque[tuple[float, Handout]] = deque()  # the soonest first
        self._timer: tuple[float, Timer] | None = None  # for the first of them
        # What somebody has had and given back: for those who get it next it is not new.
        self._had: OrderedDict[int, None] = OrderedDict()
        self.options = QueueOptions()
        self.terms: QueueTerms = self._terms()

    def _terms(self) -> QueueTerms:
        layers = (self.options, self.channel.options, self._listener.options)
        return queue_terms(layers, self._listener.deliveries)

    def change(self, options: QueueOptions) -> None:
        """It, or its channel, has other options from now on."""
        self.options = options
        self.terms = self._terms()
        self.joined_or_left()

    # ------------------------------------------------------------------------------ members

    @property
    def is_heard(self) -> bool:
        """Whether somebody is there who would get a message."""
        return bool(self._members)

    def joined_or_left(self) -> None:
        """The members of the channel have changed."""
        self._members = [each for each in self.channel.members if each.may("consume", self.name)]
        wanted = bool(self._members) and self.terms.status in HANDED_OUT
        if self._subscription is not None and not (wanted and self._subscription.is_open):
            self.close()
        if wanted and self._subscription is None and not self._site.is_draining:
            self._window = self._room()
            self._subscription = self._site.broker.subscribe(
                self.name,
                self._hand_out,
                group=self._listener.group,
                window=self._window,
                failed=self._failed,
            )
        self.look()

    def close(self) -> None:
        """Hand nothing out any more."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()

    def _failed(self, error: EmbedqError) -> None:
        # It is tried again when members change, and whenever the channels are looked at.
        self._site.count("not_subscribed", error.code)
        if self._subscription is not None and not self._subscription.is_open:
            self._subscription = None

    def look(self) -> None:
        """Hand out as many as the members can take: none while all of them read too slowly."""
        self._looking = False
        if self._subscription is not None:
            waits = all(each.is_clogged or each.debts.are_full for each in self._members)
            self._set_window(0 if waits else self._room())

    def _room(self) -> int:
        return _ONE if self.terms.one_by_one else self._listener.window

    def _set_window(self, room: int) -> None:
        if self._subscription is not None and room != self._window:
            self._window = room
            self._subscription.window = room

    # ---------------------------------------------------------------------------- messages

    def _hand_out(self, delivery: Delivery) -> None:
        members = self._chosen()
        if not members or self._subscription is None:
            # It was claimed before the last of them left, or held as much as it may.
            self._set_window(0)
            delivery.release()
            return
        frame, handout = self.prepare(delivery)
        is_new = self.is_new(delivery)
        first, rest = (
            delivered(
                frame,
                first_acquirer=is_first,
                acknowledge=handout.asks,
                hide_source=self.terms.hides,
            )
            for is_first in (is_new, False)
        )
        copies = [(member, rest if number else first) for number, member in enumerate(members)]
        self.send(handout, copies)
        if all(each.is_full or each.debts.are_full for each in self._members):
            self._set_window(0)
        if not self._looking:
            self._looking = True
            self._site.soon(self.look)

    def is_new(self, delivery: Delivery) -> bool:
        """Whether nobody has had a message before, as far as this listener knows."""
        return self._had.pop(delivery.seq, _NEW) is _NEW and delivery.attempt == 1

    def prepare(self, delivery: Delivery, answers: bytes = b"") -> tuple[Frame, Handout]:
        """Return the push that a message was, and what keeps its consumers.

        `answers`: the id of a request, under which it will be acknowledged.
        """
        terms = self.terms
        frame = frame_of(
            delivery, self.channel.target, self.content_type, makes_ids=terms.makes_ids
        )
        # Nobody could acknowledge a message without an id.
        wire_id = answers or frame.message_id
        asks = terms.asks and bool(wire_id)
        handout = Handout(
            *(delivery, wire_id, frame.message_id, frame.source),
            asks=asks,
            asks_s=terms.asks_s,
            ended=self._handed_out,
        )
        return frame, handout

    def send(self, handout: Handout, copies: Sequence[tuple[Member, Frame]]) -> None:
        """Give copies to members, and wait for their Delivery if one is asked for."""
        handout.send(self, copies)
        if handout.asks and handout.asks_s:
            self._add_due(self._site.now() + handout.asks_s, handout)
            self._wait()

    def _handed_out(self, handout: Handout) -> None:
        if handout.comes_again:
            self._had[handout.delivery.seq] = None
            if len(self._had) > self._listener.window:
                self._had.popitem(last=False)  # taken by somebody else meanwhile
        if not self._window:
            self.look()
        while self._due and self._due[0][1].is_over:
            self._due.popleft()

    def _chosen(self) -> Sequence[Member]:
        members = self._members
        if self.terms.status is not QueueStatus.ROUND_ROBIN:
            found = [each for each in members if not each.debts.are_full]
            return found[:1] if self.terms.first_only else found
        begin = 0
        if self._last in members:
            begin = members.index(self._last) + 1
        turns = members[begin:] + members[:begin]
        turns = [each for each in turns if not each.debts.are_full]
        if not turns:
            return ()
        self._last = next((each for each in turns if not each.is_full), turns[0])
        return (self._last,)

    # ------------------------------------------------------------------------ Deliveries due

    def _add_due(self, at: float, handout: Handout) -> None:
        later = 0  # of those before: only where the time has become shorter meanwhile
        while later < len(self._due) and self._due[-1 - later][0] > at:
            later += 1
        self._due.insert(len(self._due) - later, (at, handout))

    def _wait(self) -> None:
        if not self._due:
            return
        at = self._due[0][0]
        if self._timer is not None:
            if self._timer[0] <= at:
                return
            self._timer[1].cancel()
        self._timer = (at, self._site.later(at - self._site.now(), self._overdue))

    def _overdue(self) -> None:
        self._timer = None
        now = self._site.now()
        while self._due and (self._due[0][1].is_over or self._due[0][0] <= now):
            _, handout = self._due.popleft()
            if not handout.is_over:
                handout.overdue(self._listener.redeliveries)
        self._wait()
