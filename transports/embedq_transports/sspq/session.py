"""One SSPQ connection: at most one request waits, at most one message is held.

Knows: what each packet asks of the queue of its listener, what the end of a connection means.
Does not know: bytes of packets, sockets, how messages are stored.

Numbers in brackets, as in (6), are the sections of docs/protocols/sspq.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from embedq.errors import EmbedqError
from embedq.message import draft
from embedq.net import Connection, Delivery, Released, Session, Subscription
from embedq.net.dead import Asking, HeldLetter, dead_desk
from embedq_transports.sspq.storing import Storing
from embedq_transports.sspq.wire import (
    Confirm,
    DeadReceive,
    Event,
    Fault,
    FaultCode,
    NoReceive,
    Receive,
    Send,
    ServerWire,
    Unknown,
    WireLimits,
    attempts_allowed,
    encode,
    retries_left,
)


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for all connections of a listener.

    `retries`: the byte that replaces that of every message (None: the sender's counts). `dead`:
    whether dead letters are handed out. `hold_s`: how long a message may be held (0: for ever).
    """

    queue: str
    limits: WireLimits
    retries: int | None = None
    dead: bool = True
    hold_s: float = 0.0


class SspqSession(Session):
    """Puts, hands out one message at a time, and gives back what was not confirmed."""

    def __init__(self, connection: Connection, terms: Terms) -> None:
        self._connection = connection
        self._terms = terms
        self._wire = ServerWire(terms.limits)
        self._held: Delivery | HeldLetter | None = None
        self._waiting: Subscription | Asking | None = None
        self._storing = Storing(connection, terms.queue, self._not_stored, self._is_stored)
        self._has_ended = False

    # ------------------------------------------------------------------ called by the network

    def received(self, data: bytes) -> None:
        """Do what has come, in order."""
        self._came(self._wire.feed(data))
        self.pending = self._wire.pending

    def ended(self) -> bool:
        """The client sends no more: what is complete counts, a request that waits is dropped."""
        self._stop_waiting()
        self._came(self._wire.end())
        self._has_ended = True
        return self._storing.is_busy

    def draining(self) -> None:
        """Say to a client that waits that nothing will come."""
        if self._waiting is not None:
            self._stop_waiting()
            self._refuse()

    def lost(self, cause: str) -> None:
        """Give back what was not confirmed, behind all others: an attempt, unless we stop."""
        self._stop_waiting()
        for _ in range(self._storing.lost()):
            self._count("put_failed", "gone")
        held, self._held = self._held, None
        if isinstance(held, HeldLetter):
            held.give_back()
        elif held is not None and self._connection.site.is_draining:
            held.settle(Released(tail=True))
        elif held is not None:
            held.nack(f"the connection ended without a CONFIRM ({cause})", tail=True)

    # ------------------------------------------------------------------------------ packets

    def _came(self, events: list[Event]) -> None:
        for event in events:
            self.frames += 1
            match event:
                case Send():
                    self._put(event)
                case Receive():
                    self._receive()
                case Confirm():
                    self._confirm()
                case DeadReceive():
                    self._dead_receive()
                case Unknown(kind, _):
                    self._count("unknown", f"{kind:02x}")
                case Fault(code, _, text):
                    self._fault(code, text)
                case NoReceive():  # a client's is an Unknown
                    raise AssertionError

    def _fault(self, code: FaultCode, text: str) -> None:
        evidence = self._wire.evidence.hex(" ")
        self._connection.fault(code, f"{text} ({evidence})" if evidence else text)

    def _put(self, packet: Send) -> None:
        """Store a message. There is no answer: one that cannot be stored now is not dropped."""
        forced = self._terms.retries
        most = attempts_allowed(packet.retries if forced is None else forced)
        self._storing.put(draft(packet.payload, max_attempts=most or 0))

    def _not_stored(self, error: EmbedqError) -> None:
        self._count("put_failed", error.code)
        if not error.retryable:
            self._connection.fault("refused", error.message)

    def _is_stored(self) -> None:
        if self._has_ended and not self._storing.is_busy:
            self._connection.finish("end")

    def _may_ask(self, what: str) -> bool:
        """Whether a request counts: one at a time, and none while something is held (6)."""
        if self._held is not None or self._waiting is not None:
            self._count("ignored", what)
            return False
        broker, site = self._connection.broker, self._connection.site
        if site.is_draining or not broker.may("consume", self._terms.queue):
            self._refuse()
            return False
        return True

    def _receive(self) -> None:
        if self._may_ask("receive"):
            # A new one for each request: so connections are served in the order of asking.
            self._waiting = self._connection.broker.subscribe(
                self._terms.queue, self._deliver, credit=1, failed=self._cannot_have
            )

    def _dead_receive(self) -> None:
        if not self._terms.dead:
            if self._held is None:
                self._refuse()
            else:
                self._count("ignored", "dead_receive")
        elif self._may_ask("dead_receive"):
            desk = dead_desk(self._connection.site.network, self._terms.queue)
            self._waiting = desk.ask(self._deliver_letter)

    def _confirm(self) -> None:
        held, self._held = self._held, None
        if isinstance(held, Delivery):
            held.ack(self._settled)
        elif held is not None:
            held.remove(self._settled)
        else:
            self._count("ignored", "confirm")

    def _settled(self, error: EmbedqError | None) -> None:
        if error is not None:
            self._count("confirm_failed", error.code)

    # ------------------------------------------------------------------------------ answers

    def _deliver(self, delivery: Delivery) -> None:
        self._stop_waiting()
        self._held = delivery
        left = retries_left(delivery.max_attempts, delivery.attempt)
        self._connection.write(encode(Send(delivery.body, left)))
        self._watch(delivery)

    def _deliver_letter(self, letter: HeldLetter) -> None:
        self._waiting = None
        self._held = letter
        self._connection.write(encode(Send(letter.body, 0)))
        self._watch(letter)

    def _watch(self, held: Delivery | HeldLetter) -> None:
        """End the connection if it holds its message too long: a late CONFIRM hits another."""

        def over() -> None:
            if self._held is held:
                self._connection.abort("held_too_long")

        if self._terms.hold_s:
            self._connection.later(self._terms.hold_s, over)

    def _cannot_have(self, error: EmbedqError) -> None:
        self._waiting = None
        self._count("receive_failed", error.code)
        self._refuse()

    def _refuse(self) -> None:
        self._connection.write(encode(NoReceive()))

    def _stop_waiting(self) -> None:
        waiting, self._waiting = self._waiting, None
        if isinstance(waiting, Subscription):
            waiting.close()
        elif waiting is not None:
            waiting.cancel()

    def _count(self, what: str, of: str) -> None:
        self._connection.site.count(what, of)
