"""One TMQ connection: its handshake, the order of what it asks for, its signs of life.

Knows: who has to be known first, what waits for what, what an end means.
Does not know: bytes of frames, what a frame does (traffic.py), sockets.

Numbers and rules are those of docs/protocols/tmq.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from embedq.net import Connection, Credentials, Identity, Session
from embedq_transports.tmq.answers import (
    accepted,
    admitted,
    is_foreign,
    refused,
    status_for,
)
from embedq_transports.tmq.channels import Channel
from embedq_transports.tmq.debts import Debts
from embedq_transports.tmq.frames import PING, PREAMBLE, TERMINATE, Content, Dialect, Frame, Kind
from embedq_transports.tmq.hello import CLIENT_NAME, CLIENT_TOKEN, CLIENT_TYPE, Hello
from embedq_transports.tmq.hub import Hub
from embedq_transports.tmq.limits import ID_BYTES
from embedq_transports.tmq.names import made_id
from embedq_transports.tmq.traffic import Traffic
from embedq_transports.tmq.wire import (
    Dropped,
    Event,
    Fault,
    Greeted,
    LoggedIn,
    Received,
    ServerWire,
)
from embedq_transports.unstored import Unstored

#: bytes: unsent, from which on a client gets nothing more until some of them have left.
_FULL: Final = 1 << 20
#: Seconds: a client that was pinged has at least so long to say anything.
_GRACE_S: Final = 15.0


class TmqSession(Session):
    """Serves one client. Once it is logged in it is a Member, too."""

    def __init__(self, connection: Connection, hub: Hub) -> None:
        self._connection = connection
        self._hub = hub
        self._wire = ServerWire(hub.terms.limits, order=hub.terms.order)
        self._traffic: Traffic | None = None
        self._waiting: deque[Event] = deque()
        self._asking = False  # what follows waits for a login, a look or a command
        self._has_ended = self._over = self._leaving = False
        self._heard = connection.site.now()
        self._pinged = False
        self.client_id = b""
        self.debts = Debts(connection.limits.unacked)
        #: What it has pushed and is not stored yet.
        self.unstored = Unstored(connection)
        self.joined: dict[Channel, None] = {}

    # ------------------------------------------------------------------ called by the network

    def received(self, data: bytes) -> None:
        """Do what has come, in order."""
        self._heard = self._connection.site.now()
        self._pinged = False
        self._came(self._wire.feed(data))

    def ended(self) -> bool:
        """No more comes: what is complete is done first."""
        self._has_ended = True
        self._came(self._wire.end())
        return not self._over

    def draining(self) -> None:
        """Say goodbye, once what has come is stored: a client that hears it reads no more."""
        self._hub.drain()
        self._waiting.clear()
        self._over = True
        self._say_goodbye()

    def lost(self, cause: str) -> None:  # noqa: ARG002  # each cause means the same
        """Leave all channels; what nobody else can acknowledge goes back."""
        self._over = True
        self._hub.left(self)
        for handout in self.debts.all():
            handout.gone(self)
        self._traffic = None

    def _came(self, events: list[Event]) -> None:
        self._waiting += events
        self.frames += len(events)
        self.pending = self._wire.pending
        self.go_on()

    # ------------------------------------------------------------------------------ in order

    def go_on(self) -> None:
        """Do what can be done; what waits for an answer holds back what follows it."""
        if self._leaving:
            self._say_goodbye()
        while self._waiting and not (self._asking or self._over):
            event = self._waiting[0]
            if self.unstored and self._must_wait(event):
                break
            self._waiting.popleft()
            self._do(event)
        if self._waiting and not self._over:
            self._connection.hold()
            return
        self._connection.unhold()
        if self._has_ended and not (self._asking or self._over):
            self._finish("end")

    def _must_wait(self, event: Event) -> bool:
        """Whether it must not overtake the messages that this client has put before.

        One that waits for room has no place yet, and this may make the room.
        """
        return (
            isinstance(event, Received)
            and self._traffic is not None
            and self._traffic.follows_puts(event.frame)
            and self.unstored.hold(self.go_on)
        )

    def _do(self, event: Event) -> None:
        match event:
            case Received(frame):
                self._take(frame)
            case Dropped(frame, reason):
                self._drop(frame, reason)
            case Greeted():
                self._connection.write(PREAMBLE)
            case LoggedIn():
                self._log_in(event)
            case Fault():
                self._fail(event)

    def _take(self, frame: Frame) -> None:
        if frame.kind == Kind.TERMINATE:
            self._finish("end")
        elif not self._is_foreign(frame) and self._traffic is not None:
            self._traffic.take(frame)

    def _drop(self, frame: Frame, reason: str) -> None:
        if reason == "ttl" or not self._is_foreign(frame):
            self._connection.site.count("dropped", reason)

    def _is_foreign(self, frame: Frame) -> bool:
        foreign = is_foreign(frame, self.client_id)
        if foreign:
            self.fault("foreign_source", "a frame names another client as its source")
        return foreign

    def fault(self, code: str, text: str, answer: bytes = b"") -> None:
        """The client broke the protocol: what came before it still counts."""
        if answer:
            self._connection.write(answer)
        self._connection.site.faulty(self._connection, code, text)
        self._finish("protocol", linger=bool(answer))

    def _fail(self, fault: Fault) -> None:
        if fault.request is None or not self._is_foreign(fault.request):
            self.fault(fault.code.value, fault.text, self._told(fault))

    def _told(self, fault: Fault) -> bytes:
        """Return what its client hears of a fault, often nothing."""
        if not fault.status:
            return fault.answer
        if fault.request is None:
            return self.encode(refused(fault.status, self._hub.new_id()))
        request = admitted(fault.request, self.client_id)
        is_answered = request.message_id and request.ttl
        return self.encode(status_for(request, fault.status)) if is_answered else b""

    def _finish(self, cause: str, *, linger: bool = False) -> None:
        """`linger`: the client is to hear why, whatever it has sent meanwhile."""
        self._over = True
        self._waiting.clear()
        # Messages that come while the rest is stored would go to somebody who reads no more.
        self._hub.left(self)
        self._connection.unhold()
        self._connection.finish(cause, linger=linger)

    def asking(self) -> Callable[[Callable[[], object]], None]:
        """Hold back what follows; call what is returned with what the answer sets off."""
        self._asking = True

        def answered(then: Callable[[], object]) -> None:
            self._connection.called_back(partial(self._answered, then))

        return answered

    def _answered(self, then: Callable[[], object]) -> None:
        self._asking = False
        if not self._over:
            then()
            self.go_on()

    # ---------------------------------------------------------------------------------- login

    def _log_in(self, event: LoggedIn) -> None:
        if self._wire.dialect.content == "big":
            # Clients of that time read naively: each frame has to come by itself.
            self._connection.gathers = False
        answered = self.asking()
        self._hub.when_ready(lambda: answered(partial(self._ask, event)))

    def _ask(self, event: LoggedIn) -> None:
        connection, hello = self._connection, event.hello
        answered = self.asking()

        def known(identity: Identity | None) -> None:
            answered(partial(self._known, event, identity))

        if connection.identity is not None and not connection.site.asks:
            known(connection.identity)
            return
        name = hello.get(CLIENT_NAME) or event.client_id.decode("utf-8", "replace")
        token = hello.get(CLIENT_TOKEN).encode("utf-8", "surrogateescape")
        connection.login(Credentials(name, token), known)

    def _known(self, event: LoggedIn, identity: Identity | None) -> None:
        client_id = event.client_id or made_id()
        other = self._hub.client(client_id)
        if identity is None:
            self._turn_away(Content.UNAUTHORIZED)
        elif len(client_id) > ID_BYTES:
            self._turn_away(Content.BAD_REQUEST)
        elif other is not None and not self._hub.terms.replace:
            self._turn_away(Content.BUSY)
        else:
            if other is not None:
                other.replaced()
            self._begin(client_id, event.hello)

    def _turn_away(self, status: int) -> None:
        self.send(refused(status, self._hub.new_id()))
        self._finish("refused", linger=True)

    def _begin(self, client_id: bytes, hello: Hello) -> None:
        self.client_id = client_id
        self._traffic = Traffic(self, self._connection, self._hub)
        name, kind = (
            hello.get(key).encode("utf-8", "surrogateescape") for key in (CLIENT_NAME, CLIENT_TYPE)
        )
        self._hub.arrived(self, name, kind)
        self.send(accepted(client_id, self._hub.new_id()))
        self._watch()

    def replaced(self) -> None:
        """Another client has come with this id, and takes its place."""
        self._hub.left(self)
        self._over = True
        self._say_goodbye()
        self._connection.finish("replaced")

    def _say_goodbye(self) -> None:
        # A client that hears it closes at once: first what is being stored is answered.
        self._leaving = bool(self._connection.broker.pending_puts)
        if not self._leaving and self.client_id:
            self.send(TERMINATE)

    # ------------------------------------------------------------------------- signs of life

    def _watch(self) -> None:
        """Ping a client of which nothing was heard, and cut it if it stays silent."""
        every = self._hub.terms.ping_s
        if not every:
            return
        site, grace = self._connection.site, max(_GRACE_S, every / 4)
        now = site.now()
        if self._waiting or self._connection.broker.pending or self._connection.is_clogged:
            self._heard = now  # it is we who do not read, or it reads slowly
            self._pinged = False
        if self._pinged:
            site.cut(self._connection, "no_pong")
        elif now - self._heard < every:
            self._connection.later(self._heard + every - now, self._watch)
        else:
            self._pinged = True
            self.send(PING)
            self._connection.later(grace, self._watch)

    # ------------------------------------------------------------------------------ as Member

    @property
    def dialect(self) -> Dialect:
        """Its byte orders."""
        return self._wire.dialect

    @property
    def peer(self) -> str:
        """Its address in words."""
        return self._connection.peer

    @property
    def is_clogged(self) -> bool:
        """Whether bytes for it wait."""
        return self._connection.is_clogged

    @property
    def is_full(self) -> bool:
        """Whether so many wait that it must not get more now."""
        return self._connection.unsent >= min(
            _FULL, self._connection.limits.unsent_most_bytes // 2
        )

    def may_join(self, channel: Channel) -> bool:
        """Whether it may hear the queues of one more channel; one without any counts, too."""
        heard = sum(max(1, len(each.queues)) for each in (*self.joined, channel))
        return heard <= self._connection.limits.subscriptions

    def may(self, right: str, queue: str | None) -> bool:
        """Whether it may use a queue, or any."""
        return self._connection.broker.may(right, queue)

    def encode(self, frame: Frame) -> bytes:
        """Return a frame as it reads it."""
        return self._wire.encode(frame)

    def write(self, data: bytes, left: Callable[[bool], object] | None = None) -> None:
        """Send bytes; see Connection.write."""
        self._connection.write(data, left)

    def send(self, frame: Frame) -> None:
        """Send a frame."""
        self._connection.write(self._wire.encode(frame))
