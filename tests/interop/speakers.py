"""Everybody who can put into a queue and take from it, spoken to alike: one table, `SPEAKERS`.

Knows: how a client of each protocol puts, takes and settles; that of Python, too.
Does not know: what has to come of it. A new protocol is a class here and a line in the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from embedq import Broker, Delivery
from tests.interop.mmqp_client import BAR, Mack, Poller, Refused, string
from tests.interop.phpmq_client import PhpmqClient
from tests.interop.sspq_client import Whole
from tests.interop.tmq_client import Frame, TmqClient
from tests.interop.zbus_client import ZbusClient

#: The queue of all of them; for TMQ that of a content type in a channel.
CHANNEL, CONTENT = "q", 1
QUEUE = f"{CHANNEL}/{CONTENT}"
PATIENCE_S = 30.0


class Taken(NamedTuple):
    """A message as its consumer sees it. What its wire does not carry is None.

    `left`: how many deliveries may follow, 255 for endless; `before`: how many there were.
    """

    body: bytes
    id: str | None = None
    key: str | None = None
    left: int | None = None
    before: int | None = None


class Speaker:
    """A client. Calls wait for their answer where the wire has one, at most PATIENCE_S."""

    #: The listener it needs; None: it is Python itself.
    url: ClassVar[str | None] = None
    #: It says when it is done with a message; else messages are done once they are sent.
    acks: ClassVar[bool] = True
    #: It only carries bodies that are UTF-8.
    is_text: ClassVar[bool] = False

    def __init__(self, broker: Broker, address: Any) -> None:
        """Connect to an address, or use the broker."""
        raise NotImplementedError

    def put(self, body: bytes) -> None:
        """Put a message. Raises Refused if the protocol says that it cannot."""
        raise NotImplementedError

    def take(self) -> Taken:
        """Wait for a message and hold it, if the protocol can."""
        raise NotImplementedError

    def done(self) -> None:
        """Settle what was taken last."""
        raise NotImplementedError

    def close(self) -> None:
        """End, in the way that its clients do."""
        raise NotImplementedError


class Python(Speaker):
    """The library."""

    def __init__(self, broker: Broker, _address: Any) -> None:
        self.queue = broker.queue(QUEUE, bytes)
        self.held: Delivery | None = None

    def put(self, body: bytes) -> None:
        self.queue.put(body)

    def take(self) -> Taken:
        self.held = held = self.queue.get(timeout=PATIENCE_S)
        left = 255 if held.max_attempts is None else held.max_attempts - held.attempt
        return Taken(held.body, held.id, held.ordering_key, left, held.attempt - 1)

    def done(self) -> None:
        assert self.held is not None
        self.held.ack()
        self.held = None

    def close(self) -> None:
        held, self.held = self.held, None
        if held is not None:
            held.release()


class SspqSpeaker(Speaker):
    """SSPQ: nothing beside the body but the tries that are left."""

    url = f"sspq://127.0.0.1:0?queue={QUEUE}"

    def __init__(self, _broker: Broker, address: Any) -> None:
        self.client = Whole(address, PATIENCE_S)

    def put(self, body: bytes) -> None:
        self.client.send(body)

    def take(self) -> Taken:
        body = self.client.receive()
        return Taken(body, left=self.client.retries)

    def done(self) -> None:
        self.client.confirm()

    def close(self) -> None:
        self.client.close()


class PhpmqSpeaker(Speaker):
    """PHPMQ: an id for each message."""

    url = "phpmq://127.0.0.1:0"

    def __init__(self, _broker: Broker, address: Any) -> None:
        self.client = PhpmqClient(address, timeout=PATIENCE_S)
        self.held: bytes | None = None
        self.asks = False

    def put(self, body: bytes) -> None:
        self.client.publish(QUEUE.encode(), body)

    def take(self) -> Taken:
        if not self.asks:
            self.client.consume(QUEUE.encode(), 1)
        self.asks = True
        message = self.client.receive()
        self.held = message.id
        return Taken(message.content, message.id.decode())

    def done(self) -> None:
        assert self.held is not None
        self.client.ack(QUEUE.encode(), self.held)

    def close(self) -> None:
        self.client.close()


class MmqpSpeaker(Speaker):
    """MMQP: text, with an id, a group and how often it was received before."""

    url = "mmqp://127.0.0.1:0"
    acks = False
    is_text = True

    def __init__(self, _broker: Broker, address: Any) -> None:
        self.sender = Mack(address)
        self.poller = Poller(address)

    def put(self, body: bytes) -> None:
        rest = string("main") + BAR + string(body) + b"\0"
        answer = self.sender.ask(self.sender.head(b"M", QUEUE) + rest)
        if answer:
            raise Refused(answer.decode().split("|", 3)[3])

    def take(self) -> Taken:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            for found in self.poller.poll(QUEUE, 1):
                id = found.id.rstrip(b"\0").decode()
                return Taken(found.body.encode(), id, found.group, before=found.receive_count)
        raise AssertionError("no message came")

    def done(self) -> None:
        """Nothing: what has been sent is settled."""

    def close(self) -> None:
        """Nothing: every request has a connection of its own."""


class TmqSpeaker(Speaker):
    """TMQ: an id and a priority; members get messages by themselves, here one at a time."""

    url = "tmq://127.0.0.1:0?acknowledge=1&deliveries=stored&window=1"

    def __init__(self, _broker: Broker, address: Any) -> None:
        self.client = TmqClient(address, timeout=PATIENCE_S)
        self.client.accepted()
        self.held: Frame | None = None
        self.is_member = False

    def put(self, body: bytes) -> None:
        self.client.put(CHANNEL, CONTENT, body)

    def take(self) -> Taken:
        if not self.is_member:
            assert self.client.join(CHANNEL) == 200
        self.is_member = True
        self.held = held = self.client.message()
        return Taken(held.body, held.id.decode())

    def done(self) -> None:
        assert self.held is not None
        self.client.ack(self.held)

    def close(self) -> None:
        self.client.close()


class ZbusSpeaker(Speaker):
    """zbus on a WebSocket: an id; a window of one for each message that is asked for."""

    url = "zbus://127.0.0.1:0"
    acks = False

    def __init__(self, _broker: Broker, address: Any) -> None:
        self.client = ZbusClient(address, PATIENCE_S)
        assert self.client.ask(cmd="create", mq=QUEUE, channel="default")["status"] == 200

    def put(self, body: bytes) -> None:
        answer = self.client.put(QUEUE, body)
        assert answer["status"] == 200, answer

    def take(self) -> Taken:
        self.client.say(cmd="sub", mq=QUEUE, channel="default", window=1, ack=False)
        message = self.client.next()
        return Taken(self.client.body(message), message["headers"]["id"])

    def done(self) -> None:
        """Nothing: what has been sent is settled."""

    def close(self) -> None:
        self.client.close()


SPEAKERS: dict[str, type[Speaker]] = {
    "Python": Python,
    "SSPQ": SspqSpeaker,
    "PHPMQ": PhpmqSpeaker,
    "MMQP": MmqpSpeaker,
    "TMQ": TmqSpeaker,
    "zbus": ZbusSpeaker,
}


def until(condition: Callable[[], object]) -> None:
    """Wait until something is true."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)
