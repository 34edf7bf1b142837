"""LINES: the protocol of the guide, one line for each request and answer.

    PUT queue text      STORED id
    GET queue           MESSAGE id text, as soon as there is one
    ACK id              OK
    LOGIN token         HELLO name

Anything else is answered with an ERROR line, and the connection is closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from embedq.errors import EmbedqError
from embedq.message import Draft, Receipt
from embedq.net import Connection, Credentials, Delivery, Identity, Session, Site, Subscription


class LinesWire:
    """Bytes in, lines out; knows nothing else."""

    def __init__(self, most: int) -> None:
        self._rest = b""
        self._most = most

    @property
    def pending(self) -> bool:
        return bool(self._rest)

    @property
    def too_long(self) -> bool:
        return len(self._rest) > self._most

    def feed(self, data: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines


class LinesSession(Session):
    def __init__(self, connection: Connection, *, create: bool) -> None:
        self.connection = connection
        self.create = create
        self.wire = LinesWire(connection.limits.frame_bytes)
        self.held: dict[str, Delivery] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.waiting: deque[bytes] = deque()
        self.asking = self.has_ended = False
        if not connection.site.asks:
            connection.admit()

    def received(self, data: bytes) -> None:
        self.waiting += self.wire.feed(data)
        self.go_on()
        self.pending = self.wire.pending
        if self.wire.too_long:
            self.connection.fault("too_long", "a line has no end")

    def go_on(self) -> None:
        """Do what has come; what follows a login waits until that is answered."""
        while self.waiting and not self.asking and not self.connection.is_closing:
            self.frames += 1
            self.request(self.waiting.popleft())

    def ended(self) -> bool:
        self.has_ended = True
        return self.asking

    def request(self, line: bytes) -> None:
        match line.decode("utf-8", "replace").split(" ", 2):
            case ["PUT", queue, text]:
                draft = Draft(text.encode())
                self.connection.broker.put(queue, draft, self.stored, create=self.create)
            case ["GET", queue]:
                self.get(queue)
            case ["ACK", id] if id in self.held:
                self.held.pop(id).ack(self.settled)
            case ["LOGIN", token]:
                self.asking = True
                self.connection.login(Credentials(secret=token.encode()), self.known)
            case _:
                self.say("ERROR this is no request")
                self.connection.fault("request", "not a request")

    def get(self, queue: str) -> None:
        known = self.subscriptions.get(queue)
        if known is not None and known.is_open:
            known.credit = (known.credit or 0) + 1
            return
        self.subscriptions[queue] = self.connection.broker.subscribe(
            queue, self.deliver, credit=1, create=self.create, failed=self.refuse
        )

    def stored(self, result: Receipt | EmbedqError) -> None:
        if isinstance(result, EmbedqError):
            self.refuse(result)
        else:
            self.say(f"STORED {result.id}")

    def deliver(self, delivery: Delivery) -> None:
        self.held[delivery.id] = delivery
        self.say(f"MESSAGE {delivery.id} {delivery.body.decode()}")

    def settled(self, error: EmbedqError | None) -> None:
        self.say("OK" if error is None else f"ERROR {error.code}")

    def known(self, identity: Identity | None) -> None:
        self.asking = False
        if identity is None:
            self.say("ERROR login")
            self.connection.close("login")
            return
        self.say(f"HELLO {identity.name}")
        self.go_on()
        if self.has_ended and not self.asking:
            self.connection.finish()

    def refuse(self, error: EmbedqError) -> None:
        self.say(f"ERROR {error.code}")

    def say(self, line: str) -> None:
        self.connection.write(line.encode() + b"\n")


class LinesTransport:
    name = "lines"
    default_port = 7777
    has_login = True

    def open(self, site: Site) -> Callable[[Connection], Session]:
        create = site.options.flag("create", default=True)
        return lambda connection: LinesSession(connection, create=create)


LINES = LinesTransport()
