"""What is fuzzed: for each protocol its transport, what its clients send, how its answers read.

Knows: golden vectors, the clients of tests/interop, which outcomes a page of docs/protocols names.
Does not know: mutations, connections. A new protocol is a class here and a line in the table.

`MARK` stands for the id of a message that is there: whoever feeds an input puts a real one in.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Protocol

from websockets.frames import Opcode

from embedq.net import NetLimits
from embedq_transports.mmqp import client as mmqp_client, faults as mmqp_faults
from embedq_transports.mmqp.limits import MmqpLimits
from embedq_transports.mmqp.wire import ServerWire as MmqpWire
from embedq_transports.phpmq import wire as phpmq
from embedq_transports.sspq import wire as sspq
from embedq_transports.tmq import requests as tmq_requests, wire as tmq
from embedq_transports.tmq.commands import QueueOptions, QueueStatus
from embedq_transports.tmq.frames import LITTLE, PREAMBLE, TERMINATE, Content, Frame, Kind
from embedq_transports.tmq.limits import TmqLimits
from embedq_transports.zbus.limits import ZbusLimits
from embedq_transports.zbus.visitors import Visitors
from embedq_transports.zbus.wire import ServerWire as ZbusWire
from tests.fuzzing.promises import Account, Heard, Owed, owed_by_mmqp, owed_by_phpmq, owed_by_sspq
from tests.interop.mmqp_client import Mack, Poller, Reader
from tests.interop.phpmq_client import PhpmqClient
from tests.interop.sspq_client import CONFIRM, DEAD_RECEIVE, RECEIVE, SEND, packet
from tests.transports.mmqp import vectors as mmqp_vectors
from tests.transports.phpmq import vectors as phpmq_vectors
from tests.transports.sspq import vectors as sspq_vectors
from tests.transports.tmq import vectors as tmq_vectors
from tests.transports.zbus import frames_of as zbus_frames, vectors as zbus_vectors

MARK: Final = b"m" * 32
#: So small that inputs of some hundred bytes are on both sides of them.
LIMITS: Final = NetLimits(
    message_bytes=400,
    frame_bytes=2_000,
    pending_puts=8,
    subscriptions=4,
    unsent_pause_bytes=500,
    unsent_most_bytes=3_000,
)
_SHORT: Final = 1_000


class Wire(Protocol):
    @property
    def pending(self) -> bool: ...
    def feed(self, data: bytes) -> list[Any]: ...
    def end(self) -> list[Any]: ...


class Dialect:
    """One protocol."""

    name: ClassVar[str]
    #: Of its listener.
    options: ClassVar[dict[str, str]]
    #: Where messages wait for consumers.
    queue: ClassVar[str] = "q"
    #: It can be told how many messages are there. Not where clients may remove what others put.
    counts: ClassVar[bool] = True
    #: Who goes early may have got the beginning of an answer.
    answers_in_parts: ClassVar[bool] = False
    #: What it delivers is settled then, and has its id.
    tells_ids: ClassVar[bool] = False
    #: Why a connection may end, beside "end", "reset" and "protocol".
    causes: ClassVar[frozenset[str]] = frozenset({"too_slow"})
    #: bytes: what a wire may hold of a stream, under LIMITS.
    keeps: ClassVar[int]
    #: The codes of faults that its page names.
    faults: ClassVar[frozenset[str]]

    def wire(self) -> Wire:
        """A wire as the session makes it, under LIMITS."""
        raise NotImplementedError

    def seeds(self) -> Sequence[bytes]:
        """What clients send."""
        raise NotImplementedError

    def owes(self, account: Account) -> Owed | None:
        """What has to be stored of what a client has sent. None: that is not counted."""
        return None

    def delivered(self, answer: bytes) -> list[str]:
        """The ids of the messages in an answer, where it `tells_ids`."""
        raise NotImplementedError

    def misread(self, answer: bytes, wire: Wire, *, ends: bool = True) -> str | None:
        """What the client's own reader says is wrong; `wire` has read what the client sent.

        `ends`: the answer has to be whole.
        """
        raise NotImplementedError


class Recorder:
    """Takes the place of a socket: what a client sends is the session."""

    def __init__(self) -> None:
        self.sent = bytearray()

    def sendall(self, data: bytes) -> None:
        self.sent += data


class SspqDialect(Dialect):
    name = "sspq"
    options: ClassVar = {"queue": "q"}
    keeps = 400 + 8
    faults = frozenset(map(str, sspq.FaultCode))

    def wire(self) -> Wire:
        return sspq.ServerWire(sspq.WireLimits(LIMITS.message_bytes))

    def seeds(self) -> Sequence[bytes]:
        golden = [each.data for each in sspq_vectors.VECTORS if len(each.data) < _SHORT]
        ask, done = packet(RECEIVE), packet(CONFIRM)
        dead = packet(DEAD_RECEIVE)
        sessions = [
            b"".join(packet(SEND, 3, b"%d" % at) for at in range(12)),
            ask + done + ask + done + ask,
            packet(SEND, 0, b"x") + ask + packet(SEND, 255, b"y" * 300) + done + dead + done,
            ask + ask + dead + done + done + packet(SEND, 1, bytes(399)) + ask,
        ]
        return [*golden, *sessions]

    def owes(self, account: Account) -> Owed:
        return owed_by_sspq(self.queue, account)

    def misread(self, answer: bytes, _wire: Wire, *, ends: bool = True) -> str | None:
        reader = sspq.ClientWire()
        for event in [*reader.feed(answer), *reader.end()]:
            if not isinstance(event, sspq.Send | sspq.NoReceive):
                return repr(event)
        return None


class PhpmqDialect(Dialect):
    name = "phpmq"
    options: ClassVar = {"receipts": "1"}
    keeps = 2_000
    #: What cannot be stored or subscribed to closes the connection, with the code of the error.
    faults = frozenset(map(str, phpmq.FaultCode)) | {"not_allowed", "invalid_name"}

    def wire(self) -> Wire:
        return phpmq.ServerWire(limits=phpmq.WireLimits(content_bytes=LIMITS.message_bytes))

    def seeds(self) -> Sequence[bytes]:
        golden = [each.data for each in phpmq_vectors.VECTORS if len(each.data) < _SHORT]
        return [*golden, *(self._session(width, end) for width, end in self._forms())]

    @staticmethod
    def _forms() -> list[tuple[int, bytes]]:
        return [(32, b""), (32, b""), (35, b"\n"), (36, b"\r\n"), (36, b"")]

    @staticmethod
    def _session(width: int, separator: bytes) -> bytes:
        client = object.__new__(PhpmqClient)
        client.width, client.separator, client.speaks_ttl = width, separator, width == 36
        client.socket = recorder = Recorder()  # type: ignore[assignment]
        client.publish(b"q", b"Hello World")
        client.consume(b"q", 3)
        client.ack(b"q", MARK)
        client.publish(b"other", b"\0" * 300, 100)
        client.requeue(b"q", MARK, 5)
        client.bury(b"q", MARK)
        client.consume(b"q", 65_535)
        client.consume(b"q", 0)
        return bytes(recorder.sent)

    def owes(self, account: Account) -> Owed:
        return owed_by_phpmq(account)

    def misread(self, answer: bytes, wire: Wire, *, ends: bool = True) -> str | None:
        reader = phpmq.ClientWire(form=getattr(wire, "form", None) or phpmq.Form())
        for event in [*reader.feed(answer), *reader.end()]:
            if not isinstance(event, phpmq.Dispatch | phpmq.Receipt):
                return repr(event)
        return None


class MmqpDialect(Dialect):
    name = "mmqp"
    options: ClassVar = {"create": "1", "answer_bytes": "1024"}
    answers_in_parts = tells_ids = True
    keeps = 8_192 + 400  # a request of HTTP may be longer than a message here
    causes = frozenset({"refused", "too_slow"})
    faults = frozenset(map(str, mmqp_faults.FaultCode))

    def wire(self) -> Wire:
        return MmqpWire(MmqpLimits(body_bytes=LIMITS.message_bytes, answer_bytes=1024))

    def seeds(self) -> Sequence[bytes]:
        golden = [each.data for each in mmqp_vectors.FROM_CLIENT if len(each.data) < _SHORT]
        mack, poller, reader = Mack(("", 0)), Poller(("", 0)), Reader(("", 0))
        put, poll = mack.request("q", "hello"), poller.head(b"P", "q") + b"\x09"
        group = reader.head(b"P", "q") + b"\x01\x03mg1|0|"
        return [
            *golden,
            put * 9,
            put + poll,
            poll + poll,
            put + group,
            poll[:-1] + b"\x02\n" + put,
            poll[:-1] + b"\x01\x03mg1\0" + put,
            mack.request("q", "x" * 400),
        ]

    def owes(self, account: Account) -> Owed:
        return owed_by_mmqp(account)

    def delivered(self, answer: bytes) -> list[str]:
        return Heard(answer).ids

    def misread(self, answer: bytes, _wire: Wire, *, ends: bool = True) -> str | None:
        reader = mmqp_client.ClientWire()
        for event in [*reader.feed(answer), *(reader.end() if ends else ())]:
            if isinstance(event, mmqp_client.BadAnswer):
                return event.text
        return None


class TmqDialect(Dialect):
    name = "tmq"
    options: ClassVar = {"create": "1", "acknowledge": "1", "duplicate": "replace"}
    queue = "q/1"
    counts = False
    keeps = 64 * 1024 + 8 + 3 * 255  # a Hello, with everything around it
    causes = frozenset({"too_slow", "refused", "replaced"})
    faults = frozenset(map(str, tmq.FaultCode)) | {"foreign_source"}

    def wire(self) -> tmq.ServerWire:
        return tmq.ServerWire(TmqLimits(payload_bytes=LIMITS.message_bytes))

    def seeds(self) -> Sequence[bytes]:
        golden = [each.data for each in tmq_vectors.VECTORS if len(each.data) < _SHORT]
        sessions = [self._session(client, id) for client in self._clients() for id in ("", "c1")]
        hello = PREAMBLE + tmq.ClientWire().encode(tmq_requests.hello((("Client-Id", "c1"),)))
        return [*sessions * 8, *(hello + each for each in golden), *golden]

    @staticmethod
    def _clients() -> list[tmq.ClientWire]:
        return [tmq.ClientWire(), tmq.ClientWire(order="big")]

    @staticmethod
    def _session(client: tmq.ClientWire, id: str) -> bytes:
        lines = (("Client-Name", "bob"), ("Client-Type", "app"), *[("Client-Id", id)] * bool(id))
        options = QueueOptions(content_type=7, queue_status=QueueStatus.PULL, message_limit=2)
        made = tmq_requests.queue_payload(options)
        delivered = Frame(Kind.CHANNEL, 1, MARK, target=b"q")
        frames = [
            tmq_requests.hello(lines),
            tmq_requests.command(Content.JOIN, b"q", message_id=b"j"),
            tmq_requests.push(b"q", 1, b"hello", message_id=b"m", response=True, acknowledge=True),
            tmq_requests.delivery(delivered, b""),
            tmq_requests.response(delivered, 777, b"pong"),
            tmq_requests.command(Content.CREATE_QUEUE, b"jobs", message_id=b"c", payload=made),
            tmq_requests.push(
                b"jobs", 7, bytes(400), message_id=b"w", response=True, priority=True
            ),
            tmq_requests.pull(b"jobs", 7, message_id=b"p"),
            Frame(Kind.RESPONSE, 777, b"p", target=b"jobs", payload=b"pong"),
            tmq_requests.peer(b"@name:bob", 5, b"hello all", message_id=b"t"),
            tmq_requests.command(Content.LEAVE, b"q", message_id=b"l"),
            TERMINATE,
        ]
        return PREAMBLE + b"".join(map(client.encode, frames))

    def misread(self, answer: bytes, wire: Wire, *, ends: bool = True) -> str | None:
        order = getattr(wire, "dialect", LITTLE).content
        reader = tmq.ClientWire(order=order)
        for event in [*reader.feed(answer), *reader.end()]:
            if not isinstance(event, tmq.Greeted | tmq.Received):
                return repr(event)
        return None


class ZbusDialect(Dialect):
    name = "zbus"
    options: ClassVar = {"call_timeout": "1s"}
    counts = False
    keeps = 16_384 + 2_000  # a head, and what has come of a body
    faults = frozenset({"malformed", "too_large", "handshake", "origin", "frame", "truncated"})

    def wire(self) -> ZbusWire:
        limits = ZbusLimits(body_bytes=LIMITS.message_bytes, frame_bytes=2_000)
        return ZbusWire(limits, visitors=Visitors(hosts=frozenset()))

    def seeds(self) -> Sequence[bytes]:
        golden = [b"".join(map(zbus_vectors.unescaped, each.sent)) for each in zbus_vectors.HTTP]
        lines = [line.split(" ", 1)[1] for each in zbus_vectors.WEBSOCKET for line in each.sent]
        frames = [zbus_frames.frame(line) for line in lines if line.startswith("{")]
        make = b"GET /?cmd=create&mq=q&channel=default HTTP/1.1\r\n\r\n"
        sub = b"GET / HTTP/1.1\r\ncmd: sub\r\nmq: q\r\nchannel: default\r\nwindow: 2\r\n\r\n"
        pub = b"POST / HTTP/1.1\r\ncmd: pub\r\nmq: q\r\nContent-Length: 2\r\n\r\nhi"
        call = b"GET /q/x HTTP/1.1\r\nid: 1\r\n\r\n"
        ask = {"cmd": "sub", "mq": "q", "channel": "default", "acknowledge": True, "filter": "a.*"}
        session = [
            zbus_frames.message(headers={"cmd": "create", "mq": "q", "channel": "default"}),
            zbus_frames.message(headers=ask),
            zbus_frames.message(headers={**ask, "filter": None, "window": "1"}),
            zbus_frames.message(headers={"cmd": "pub", "mq": "q", "tag": "a.b"}, body={"a": [1]}),
            zbus_frames.message(headers={"cmd": "take", "mq": "q", "channel": "default"}),
            zbus_frames.message(
                headers={"cmd": "ack", "mq": "q", "channel": "default", "offset": 1}
            ),
            zbus_frames.message(headers={"cmd": "remove", "mq": "q", "channel": "default"}),
        ]
        opened = [zbus_frames.UPGRADE + each for each in frames]
        return [
            *golden,
            *opened,
            make + sub + pub * 9 + call,
            zbus_frames.UPGRADE + b"".join(session),
        ]

    def misread(self, answer: bytes, _wire: Wire, *, ends: bool = True) -> str | None:
        while answer.startswith(b"HTTP/1.1 "):
            head, found, answer = answer.partition(b"\r\n\r\n")
            if not found:
                return repr(head)
            if head.startswith(b"HTTP/1.1 101 "):
                reader = zbus_frames.Reader()
                frames = reader.feed(answer)
                texts = [each for each in frames if each.opcode is Opcode.TEXT]
                return reader.fault() or next(
                    (e for t in texts if (e := not_json(bytes(t.data)))), None
                )
            length = head.rpartition(b"Content-Length: ")[2]
            if b" 100 " not in head[:13]:
                answer = answer[int(length.split(b"\r\n")[0]) :]
        return repr(answer) if answer else None


def not_json(data: bytes) -> str | None:
    """Say what is wrong with an answer that has to be JSON."""
    try:
        json.loads(data)
    except (ValueError, RecursionError) as error:
        return repr(error)
    return None


DIALECTS: dict[str, type[Dialect]] = {
    "sspq": SspqDialect,
    "phpmq": PhpmqDialect,
    "mmqp": MmqpDialect,
    "tmq": TmqDialect,
    "zbus": ZbusDialect,
}
