"""One PHPMQ connection: publishes, one window, acks by id, and never a reply.

Knows: what each message of a client does to queues, what is sent and to whom.
Does not know: bytes, sockets, how messages are stored and leased.

Numbers in brackets, as in (4), are the sections of docs/protocols/phpmq.md.
"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from embedq.errors import (
    EmbedqError,
    GroupNotFound,
    QueueNotFound,
    StaleLease,
    UnknownMessage,
)
from embedq.message import Draft, Receipt as Stored
from embedq.names import from_wire
from embedq.net import (
    DONE,
    Connection,
    Delivery,
    Ending,
    Rejected,
    Released,
    Session,
    Subscription,
)
from embedq_transports.phpmq.wire import (
    WIRE_LIMITS,
    Ack,
    Consume,
    DeadLetter,
    Dispatch,
    Event,
    Fault,
    Form,
    Publish,
    Receipt,
    Requeue,
    ServerWire,
    WireLimits,
    encode,
    seconds_left,
)
from embedq_transports.unstored import Unstored

RELEASED_TO_TAIL: Final = Released(tail=True)
#: What is not there, or not held any more, is as settled as it can be: nobody is told (7).
_UNKNOWN: Final = (UnknownMessage, StaleLease, QueueNotFound, GroupNotFound)
#: What others have put reaches a client, however little it may send itself.
_ANY_BODY: Final = replace(WIRE_LIMITS, content_bytes=sys.maxsize)
#: What the third package of a dispatch depends on (4).
TTLS: Final = ("auto", "always", "never")


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for all connections of a listener: its options."""

    limits: WireLimits
    form: Form | None
    group: str
    attempts: int
    receipts: bool
    ttl: str
    per_queue: bool
    create: bool


class PhpmqSession(Session):
    """Serves one client. Nothing is answered: closing is the only sign of an error (4)."""

    def __init__(self, connection: Connection, terms: Terms) -> None:
        self._connection = connection
        self._broker = connection.broker
        self._terms = terms
        self._wire = ServerWire(form=terms.form, limits=terms.limits)
        # By the queue's name on the wire. Usually one: the next request takes its place.
        self._windows: dict[bytes, Subscription] = {}
        # Acks, requeues and dead letters that have no answer yet, the requeues among them, and
        # what waits for them, with all that came behind it (7).
        self._unsettled = self._moving = 0
        self._unstored = Unstored(connection)
        self._waiting: deque[Event] = deque()
        self._is_waiting = self._has_ended = self._is_broken = False
        # Of a first message that is not complete: whether more has come. None: nothing has.
        self._comes_more: bool | None = None
        # The client reads a header once and takes what came for the whole (4).
        connection.gathers = False

    # ------------------------------------------------------------------ called by the network

    def received(self, data: bytes) -> None:
        """Do what has come, in order."""
        self._do(self._wire.feed(data))
        if not self.frames:
            if self._comes_more is None:
                self._expect_more()
            else:
                self._comes_more = True

    def ended(self) -> bool:
        """An end of input is a disconnect, behind everything that came before it."""
        self._has_ended = True
        self._do(self._wire.end())
        return self._is_waiting

    def lost(self, cause: str) -> None:  # noqa: ARG002  # each cause means the same
        """What is complete counts; nobody waits for the rest any more."""
        waiting, self._waiting, self._is_waiting = self._waiting, deque(), False
        for event in waiting:
            if isinstance(event, (Publish, Ack, DeadLetter)):
                self._take(event)

    def _expect_more(self) -> None:
        """Close a client that falls silent within its first message: it may speak anything (7)."""

        def look() -> None:
            if self._comes_more and not self.frames:
                self._expect_more()
            elif not self.frames:
                self._connection.abort("frame_timeout")

        self._comes_more = False
        if login_s := self._connection.limits.login_s:
            self._connection.later(login_s, look)

    def _do(self, events: list[Event]) -> None:
        self.frames += len(events)
        self.pending = self._wire.pending
        self._waiting += events
        self._go_on()

    def _go_on(self) -> None:
        waiting, self._is_waiting = self._waiting, False
        while waiting:
            event = waiting[0]
            # Only a requeue waits for puts: all others, if nothing is to be settled, need no look.
            if (self._unsettled or isinstance(event, Requeue)) and self._must_wait(event):
                self._is_waiting = True
                self._connection.hold()
                return
            self._take(waiting.popleft())
        self._connection.unhold()
        if self._has_ended and not self._is_broken:
            self._connection.finish("end")

    def _again(self) -> None:
        """What something waits for may be over."""
        if self._is_waiting:
            self._go_on()

    def _must_wait(self, event: Event) -> bool:
        """Whether it would overtake what came before it, which has to ask the store (7)."""
        match event:
            case Consume() if self._unsettled:
                # It would bring again what was settled. Places that are free now stay so.
                self._close_windows(event)
                return True
            case Publish():
                return self._moving > 0
            case Requeue():
                # One that waits for room has no place yet, and this may make the room.
                return self._moving > 0 or self._unstored.hold(self._again)
            case _:
                return False

    def _take(self, event: Event) -> None:
        match event:
            case Publish():
                self._publish(event)
            case Ack(queue, id):
                self._settle(queue, id, DONE)
            case Consume():
                self._consume(event)
            case Requeue():
                self._requeue(event)
            case DeadLetter(queue, id):
                self._bury(queue, id)
            case Fault():
                self._fault(event)
            case Dispatch() | Receipt():
                raise AssertionError("a wire of servers reads what servers send")

    def _fault(self, fault: Fault) -> None:
        evidence = self._wire.evidence.hex(" ")
        text = f"{fault.text} ({evidence})" if evidence else fault.text
        self._break_off(fault.code.value, text)

    def _refuse(self, error: EmbedqError) -> None:
        self._break_off(error.code, error.message)

    def _break_off(self, code: str, text: str) -> None:
        """Close, once what came before is done: there is no other way to say what failed (4)."""
        if not self._is_broken:
            self._is_broken = True
            self._connection.site.faulty(self._connection, code, text)
            self._connection.finish("protocol")

    # ---------------------------------------------------------------------------------- put

    def _publish(self, event: Publish) -> None:
        expires = self._broker.now_ms() + event.ttl * 1000 if event.ttl else None
        draft = Draft(event.content, expires_at_ms=expires, max_attempts=self._terms.attempts)
        name = from_wire(event.queue)
        self._unstored.add(name)
        then = partial(self._published, event.queue, name)
        self._broker.put(name, draft, then, create=self._terms.create)

    def _published(self, queue: bytes, name: str, result: Stored | EmbedqError) -> None:
        self._unstored.done(name)
        if isinstance(result, EmbedqError):
            self._refuse(result)
        elif self._terms.receipts:
            self._send(Receipt(queue, result.id.encode()))
        self._again()

    # ----------------------------------------------------------------------------- consume

    def _consume(self, event: Consume) -> None:
        """Give back what is held, then hold at most `window` messages of this queue."""
        for queue in self._close_windows(event):
            self._windows.pop(queue).release()
        if event.window and not self._has_ended:
            self._windows[event.queue] = self._broker.subscribe(
                from_wire(event.queue),
                partial(self._deliver, event.queue),
                group=self._terms.group,
                window=event.window,
                create=self._terms.create,
                failed=self._refuse,
            )

    def _close_windows(self, event: Consume) -> list[bytes]:
        """Get nothing more for what it asked before; what is held stays so. Return the queues."""
        queues = [
            queue for queue in self._windows if not self._terms.per_queue or queue == event.queue
        ]
        for queue in queues:
            self._windows[queue].close()
        return queues

    def _deliver(self, queue: bytes, delivery: Delivery) -> None:
        ttl = None
        if self._terms.ttl == "always" or (self._terms.ttl == "auto" and self._wire.speaks_ttl):
            expires = delivery.expires_at_ms
            ttl = seconds_left(None if expires is None else expires - self._broker.now_ms())
        self._send(Dispatch(queue, delivery.body, delivery.id.encode(), ttl))

    def _send(self, message: Dispatch | Receipt) -> None:
        form = self._wire.form or Form()
        self._connection.write(encode(message, form, _ANY_BODY))

    # ------------------------------------------------------------------------------ settle

    def _settle(self, queue: bytes, id: bytes, ending: Ending) -> None:
        self._unsettled += 1
        self._broker.settle_by_id(
            from_wire(queue), _text(id), ending, self._settled, group=self._terms.group
        )

    def _settled(self, error: EmbedqError | None) -> None:
        self._unsettled -= 1
        if error is not None and not isinstance(error, _UNKNOWN):
            self._refuse(error)
        self._again()

    def _requeue(self, event: Requeue) -> None:
        """Put a message that this connection holds behind the others; any other stays (7)."""
        window = self._windows.get(event.queue)
        delivery = None if window is None else window.find(_text(event.id))
        if delivery is None:
            return
        self._unsettled += 1
        self._moving += 1
        expires = self._broker.now_ms() + event.ttl * 1000 if event.ttl else None
        if expires == delivery.expires_at_ms:
            delivery.settle(RELEASED_TO_TAIL, self._when_moved)
            return
        queue, seq = delivery.queue, delivery.seq
        set_expiry = self._broker.office.set_expiry

        def done(result: object) -> None:
            error = result if isinstance(result, EmbedqError) else None
            delivery.settle(RELEASED_TO_TAIL, lambda other: self._when_moved(error or other))

        # First the time to live: nobody else may get the message with its old one.
        self._broker.call(
            lambda: set_expiry(queue, seq, expires), done, right="consume", queue=queue
        )

    def _when_moved(self, error: EmbedqError | None) -> None:
        self._connection.called_back(partial(self._moved, error))

    def _moved(self, error: EmbedqError | None) -> None:
        self._moving -= 1
        self._settled(error)

    def _bury(self, queue: bytes, id: bytes) -> None:
        by = self._broker.protocol
        detail = f"{by} {self._broker.peer}: dead letter (006)"
        self._settle(queue, id, Rejected(detail=detail, by=by))


def _text(id: bytes) -> str:
    # An id is whatever the client says; one that is not ours is unknown.
    return id.decode("latin-1")
