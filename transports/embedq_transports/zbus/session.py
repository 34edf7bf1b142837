"""One zbus connection: what comes is done in order, answers go out in order, pushes between them.

Knows: who has to be known first, what waits for what, how an answer travels here.
Does not know: what commands do (commands.py, channels.py, calls.py), sockets.
"""

from __future__ import annotations

import uuid
from collections import deque
from http import HTTPStatus
from typing import Final

from embedq.errors import EmbedqError
from embedq.net import ANYBODY, Connection, Credentials, Identity, Session
from embedq_transports.unstored import Unstored
from embedq_transports.zbus.acknowledging import SETTLING, Held
from embedq_transports.zbus.answers import Answer, to_frame, to_response, told
from embedq_transports.zbus.calls import Calls
from embedq_transports.zbus.channels import Channels
from embedq_transports.zbus.commands import Commands
from embedq_transports.zbus.errors import failed
from embedq_transports.zbus.frames import close_frame
from embedq_transports.zbus.hub import Hub
from embedq_transports.zbus.icon import ICON
from embedq_transports.zbus.message import (
    BadInteger,
    Came,
    Ended,
    Event,
    Fault,
    Malformed,
    Opened,
    Write,
)
from embedq_transports.zbus.replies import Left, Replies
from embedq_transports.zbus.signing import proof
from embedq_transports.zbus.tags import BadFilter
from embedq_transports.zbus.task import Task
from embedq_transports.zbus.terms import Terms
from embedq_transports.zbus.wire import ServerWire

#: Answers due, from which on nothing more is begun: calls over HTTP may wait long for theirs.
_UNANSWERED: Final = 256
#: The listener goes away.
_GOING: Final = 1001


class ZbusSession(Session):
    """Puts overlap, everything else waits for what came before it.

    `source`: the name by which a reply finds this connection, for as long as it lives.
    """

    def __init__(self, connection: Connection, terms: Terms, hub: Hub) -> None:
        self.connection = connection
        self.terms = terms
        self.hub = hub
        self.source = str(uuid.uuid4())
        self.peer = f"/{connection.peer}"
        self.held = Held(self)
        self.channels = Channels(self)
        self.calls = Calls(self)
        self.commands = Commands(self)
        self._asks = connection.site.asks
        self._wire = ServerWire(
            terms.limits, visitors=terms.visitors, keep_raw=self._asks, extra=terms.allowed
        )
        #: The places of answers.
        self.replies = Replies(connection.write, self._over)
        self._due = self.replies.due
        self._waiting: deque[Event] = deque()
        #: Whether it is a WebSocket by now.
        self.is_websocket = self._sends_frames = False
        # Nothing more is read until what waits has begun.
        self._holds = False
        # Something is under way that all which follows waits for.
        self._busy = not hub.is_ready
        #: What was put and has no answer yet.
        self.unstored = Unstored(connection)
        self._cause = "end"
        self._has_ended = self._goes = self._is_over = False
        hub.sessions[self.source] = self
        if self._busy:
            hub.when_ready(lambda: connection.called_back(self.finished))
        if not self._asks:
            connection.admit(ANYBODY)

    # ------------------------------------------------------------------ called by the network

    def received(self, data: bytes) -> None:
        """Read messages, and do what can be done now."""
        self.answers = False
        events = self._wire.feed(data)
        self.frames += len(events)
        self.pending = self._wire.pending
        self._waiting += events
        self._go()
        if self.answers:  # unless a request has begun behind it, or waits for its turn
            self.answers = not (self.pending or self._waiting)

    def ended(self) -> bool:
        """No more comes: what came is still done and answered."""
        self._has_ended = True
        self._waiting += self._wire.end()
        self._go()
        return bool(self._waiting or self._due or self._busy or self.unstored)

    def draining(self) -> None:
        """Take nothing more; say goodbye once all that is under way is answered."""
        self._goes = True
        self._waiting.clear()
        self.settled()

    def lost(self, cause: str) -> None:
        """Whoever waits for something of this connection waits in vain."""
        del cause
        self.hub.sessions.pop(self.source, None)
        self._waiting.clear()
        self.channels.close()
        self._wire.forget()
        # They know this: together they would be kept until Python looks for circles. Whoever comes
        # from elsewhere finds a session in the hub, or not.
        del self.held, self.channels, self.calls, self.commands, self.replies

    # ------------------------------------------------------------------------------ in order

    def _go(self) -> None:
        """Begin what can begin."""
        waiting, due = self._waiting, self._due
        while waiting and not self._busy and not self._is_over and len(due) < _UNANSWERED:
            event = waiting[0]
            if self.unstored and not (_is_put(event) or self._passes(event)):
                break
            waiting.popleft()
            if isinstance(event, Came):
                self._begin(event)
            else:
                self._say(event)
        holds = (len(waiting) > 0 or len(due) >= _UNANSWERED) and not self._is_over
        if holds is not self._holds:
            self._holds = holds
            if holds:
                self.connection.hold()
            else:
                self.connection.unhold()

    def _passes(self, event: Event) -> bool:
        """Whether it may begin before what was put is stored, as it may be what makes the room."""
        if isinstance(event, Fault | Ended | Opened):
            return False
        return _settles(event) or not self.unstored.hold(self.settled)

    def settled(self) -> None:
        """Something is done: go on, or end if that was all."""
        if self._waiting or self._holds:
            self._go()
        if self._waiting or self._due or self._busy or self.unstored:
            return
        if self._goes and not self._is_over and self._sends_frames:
            self._is_over = True
            self.connection.write(close_frame(_GOING))
        elif self._has_ended and not self._is_over:
            self._over()

    def _say(self, event: Write | Opened | Malformed | Fault | Ended) -> None:
        """Answer what is no message."""
        match event:
            case Write(data):
                self.replies.fill(self.replies.place(), data)
            case Opened(data):
                self.is_websocket = True
                reply = self.replies.place()
                reply.then = self._opened
                self.replies.fill(reply, data)
            case Malformed(text, wire_id, last, status, bare, origin):
                if status == HTTPStatus.FORBIDDEN:
                    self.connection.site.count("refused", "page")
                task = Task(self, last=last, bare=bare, origin=origin)
                task.done(told(status, text, wire_id))
            case Fault(code, text, answer):
                self.connection.site.faulty(self.connection, code, text)
                self._cause = "protocol"
                self.replies.fill(self.replies.place(last=True), answer)
            case Ended(answer):
                self.replies.fill(self.replies.place(last=True), answer)

    def _opened(self) -> None:
        """The answer to the handshake is sent: pushes are frames from now on, and so are answers.

        Those have ids, so each is sent once it is known.
        """
        self._sends_frames = True
        self.replies.in_order = False

    def _over(self) -> None:
        """Nothing follows: close, so that the client can read what is written."""
        if not self._is_over:
            self._is_over = True
            self._waiting.clear()
            self.connection.finish(self._cause, linger=not self.is_websocket)

    # ------------------------------------------------------------------------------ messages

    def _begin(self, came: Came) -> None:
        message = came.message
        origin = message.text("origin") or ""
        task = Task(self, message, last=came.last, bare=came.bare, origin=origin)
        command = message.text("cmd")
        if command is None and not self.is_websocket:
            if message.method == "OPTIONS" and self._preflight(task, origin):
                return
            if message.url == "/favicon.ico" and not message.body:
                task.done(Answer({"Content-Type": "image/x-icon"}, 0, ICON, 200))
                return
        if self._asks and command != "ping":
            self._ask(task)
        else:
            self._run(task)

    def _preflight(self, task: Task, origin: str) -> bool:
        """Tell a browser what a page may send, if pages may at all."""
        message = task.message
        if not self.terms.allowed(origin) or message.text("access-control-request-method") is None:
            return False
        headers = {
            "access-control-allow-methods": "POST,GET,OPTIONS,PUT",
            "access-control-allow-headers": message.text("access-control-request-headers") or "",
            "access-control-max-age": "0",
        }
        task.done(Answer(headers, 0, b"", 200))
        return True

    def _ask(self, task: Task) -> None:
        """Every message says who it is of; what is missing is told in the original's order."""
        message = task.message
        key = message.text("apikey")
        for name, value in (("apiKey", key), ("signature", message.text("signature"))):
            if value is None:
                task.done(told(403, f"missing {name} in request", message.text("id")))
                return
        signed = proof(message, constant=self.terms.constant)
        tried: list[bytes] = []

        def proves(secret: bytes) -> bool:
            tried.append(secret)
            return signed(secret)

        def known(identity: Identity | None) -> None:
            self._busy = False
            if identity is not None:
                self._run(task)
            else:
                text = "signature mismatched" if tried else "apiKey not exists"
                task.done(told(403, text, message.text("id")))
            self.settled()

        self._busy = True
        self.connection.login(Credentials(key or "", b"", proves), known)

    def _run(self, task: Task) -> None:
        """Do what a message says; what it says wrongly is told."""
        try:
            self.commands.run(task)
        except BadInteger as error:
            task.done(told(500, str(error), task.wire_id))
        except BadFilter as error:
            task.done(told(400, str(error), task.wire_id))
        except EmbedqError as error:
            task.done(failed(error, task))

    # ------------------------------------------------------------------------- for the others

    def began(self) -> None:
        """Something is under way that all which follows waits for."""
        self._busy = True

    def finished(self) -> None:
        """It has been answered."""
        self._busy = False
        self.settled()

    def encode(
        self,
        answer: Answer,
        *,
        as_frame: bool,
        keep: bool = True,
        bare: bool = False,
        origin: str = "",
    ) -> bytes:
        """Return an answer as it travels here."""
        if as_frame:
            return to_frame(answer)
        return to_response(answer, keep=keep, bare=bare, extra=self.terms.allowed(origin))

    def push(self, answer: Answer, left: Left | None = None) -> None:
        """Send what was not asked for."""
        self.connection.write(self.encode(answer, as_frame=self._sends_frames), left)


def _is_put(event: Event) -> bool:
    return isinstance(event, Came) and event.message.text("cmd") == "pub"


def _settles(event: Event) -> bool:
    return isinstance(event, Came) and event.message.text("cmd") in SETTLING
