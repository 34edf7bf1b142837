"""The protocols that the benchmark of listeners measures: what clients of each write and read.

Knows: the bytes of a put, of a request and of a settlement; how a client consumes.
Does not know: sockets (bench_listener_client.py), embedq: nothing is shared with its wires.

A further protocol is one entry in WIRES.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import NamedTuple, Protocol

import bench_zbus_bytes as zbus

#: 1 KB that every protocol can carry.
TEXT = (string.ascii_letters + string.digits + "+/").encode() * 16
QUEUE = b"orders"
#: Messages of one connection under way where the wire lets a client choose.
WINDOW = 64
#: Messages that a client writes at once; then it wants to know that all of them are stored.
#: Few where each is synced alone: they must be done soon after the time is over.
_BURST, _MMQP_BURST, _SYNCED_BURST = 256, 64, 32


class Consumer(Protocol):
    """A client that takes messages and settles them, apart from its socket."""

    #: Whether the server closes after each answer.
    once: bool
    #: Whether something was asked for that has not come.
    waits: bool

    def begin(self) -> bytes:
        """Return what a new connection asks for."""
        ...

    def came(self, data: bytes, *, over: bool) -> bytes:
        """Take bytes in; return what settles the messages in them, and asks for more."""
        ...


class Shape(NamedTuple):
    """What the wire allows: messages under way on one connection, bytes of each, up and down.

    `once`: a connection carries one request for them.
    """

    window: int
    up: int
    down: int
    once: bool = False


class Wire(NamedTuple):
    """A protocol.

    `url`: of a listener. `put`: one message. `burst`: how many of them one connection carries
    before it is ended, which the server answers once they are stored. `consumer`: makes a client
    that takes and settles; `shape`: what it moves. `hello`: what a connection begins with.
    `queue`: the queue of the host that all this is about.
    """

    name: str
    url: str
    put: bytes
    burst: int
    consumer: Callable[[], Consumer]
    shape: Shape
    hello: bytes = b""
    queue: str = QUEUE.decode()


# ----------------------------------------------------------------------------------- SSPQ

_SSPQ_HEAD = 8


def _sspq(kind: int, retries: int = 0, payload: bytes = b"") -> bytes:
    return bytes((0x55, 0x99, kind, retries)) + len(payload).to_bytes(4, "big") + payload


_RECEIVE, _CONFIRM = _sspq(0xEC), _sspq(0xC0)


class SspqConsumer:
    """Confirms a message and asks for the next one in one segment, as the original does."""

    once = False

    def __init__(self) -> None:
        self.waits = False
        self._data = b""

    def begin(self) -> bytes:
        """Ask for the first message."""
        self.waits = True
        return _RECEIVE

    def came(self, data: bytes, *, over: bool) -> bytes:
        """Confirm the message once it is there."""
        self._data += data
        size = _SSPQ_HEAD + int.from_bytes(self._data[4:_SSPQ_HEAD], "big")
        if len(self._data) < max(size, _SSPQ_HEAD):
            return b""
        self._data = self._data[size:]
        self.waits = not over
        return _CONFIRM if over else _CONFIRM + _RECEIVE


# ---------------------------------------------------------------------------------- PHPMQ

_HEAD, _PACKAGE, _ID = 8, 32, 32


def _phpmq(kind: int, *packages: tuple[int, bytes]) -> bytes:
    parts = [b"H01%03d%02d" % (kind, len(packages))]
    for number, content in packages:
        parts += [b"P%02d%029d" % (number, len(content)), content]
    return b"".join(parts)


_ACK = _phpmq(4, (1, QUEUE), (3, bytes(_ID)))[:-_ID]
_DISPATCH = len(_phpmq(1, (1, QUEUE), (2, TEXT), (3, bytes(_ID))))


class PhpmqConsumer:
    """Holds a window and acknowledges each message by its id."""

    once = False
    #: What is held when it goes is given back.
    waits = False

    def __init__(self) -> None:
        self._data = b""

    def begin(self) -> bytes:
        """Open the window."""
        return _phpmq(2, (1, QUEUE), (4, b"%d" % WINDOW))

    def came(self, data: bytes, *, over: bool) -> bytes:  # noqa: ARG002  # the window stays
        """Acknowledge what is complete: all messages have the same size."""
        data = self._data + data
        whole = len(data) - len(data) % _DISPATCH
        self._data = data[whole:]
        ids = [data[at - _ID : at] for at in range(_DISPATCH, whole + 1, _DISPATCH)]
        return b"".join([_ACK + each for each in ids])


# ----------------------------------------------------------------------------------- MMQP


def _mmqp(text: bytes) -> bytes:
    digits = len(text).to_bytes((len(text).bit_length() + 7) // 8, "big")
    return bytes([len(digits)]) + digits + text


def _request(command: bytes) -> bytes:
    names = _mmqp(b"") + b":" + _mmqp(b"")
    return b"MMQP|\x00.\x01|" + command + b"|" + names + b"|" + _mmqp(QUEUE) + b"|"


_MMQP_PUT = _request(b"M") + _mmqp(b"main") + b"|" + _mmqp(TEXT) + b"\0"
_POLL = _request(b"P") + bytes([WINDOW])
#: A record: its size, its id, two times, a count, its group, its text, its end.
_RECORD = 3 + 64 + 16 + 16 + 4 + len(_mmqp(b"main")) + len(_mmqp(TEXT)) + 1


class MmqpConsumer:
    """Polls for many; they count as handled once they have left."""

    once = True

    def __init__(self) -> None:
        self.waits = False

    def begin(self) -> bytes:
        """Poll; the end of the connection ends the answer."""
        self.waits = True
        return _POLL

    def came(self, data: bytes, *, over: bool) -> bytes:  # noqa: ARG002
        """Settle nothing: there is no word for it."""
        return b""


# ------------------------------------------------------------------------------------ TMQ

_TMQ_HEAD, _TMQ_TYPE, _TMQ_LONG = 8, 1, 253
_HELLO, _JOIN = 101, 601
_SERVER, _CHANNEL, _DELIVERY = 0x10, 0x11, 0x13


def _tmq(kind: int, content: int, target: bytes, payload: bytes = b"", id: bytes = b"") -> bytes:
    size = len(payload)
    length = bytes([size]) if size < _TMQ_LONG else bytes([_TMQ_LONG]) + size.to_bytes(2, "little")
    head = bytes((0x80 | kind, 16, len(id), 0, len(target))) + content.to_bytes(2, "little")
    return head + length + id + target + payload


_TMQ_HELLO = b"TMQ/1.01" + _tmq(_SERVER, _HELLO, b"", b"CONNECT /\r\nClient-Type: bench\r\n")
_TMQ_PUT = _tmq(_CHANNEL, _TMQ_TYPE, QUEUE, TEXT)


class TmqConsumer:
    """Joins the channel and acknowledges each message by its id."""

    once = False
    #: What is not acknowledged when it goes is given back.
    waits = False

    def __init__(self) -> None:
        self._data = b""
        self._at = len(b"TMQ/1.01")

    def begin(self) -> bytes:
        """Greet and join."""
        return _TMQ_HELLO + _tmq(_SERVER, _JOIN, QUEUE)

    def came(self, data: bytes, *, over: bool) -> bytes:  # noqa: ARG002  # it stays a member
        """Acknowledge the messages that are complete; pass over what else is said."""
        data, at, answers = self._data + data, self._at, []
        while len(data) >= at + _TMQ_HEAD + 2:
            size, begin = data[at + 7], at + _TMQ_HEAD
            if size == _TMQ_LONG:
                size = int.from_bytes(data[begin : begin + 2], "little")
                begin += 2
            end = begin + sum(data[at + 2 : at + 5]) + size
            if len(data) < end:
                break
            if data[at] & 0x3F == _CHANNEL:
                id = data[begin : begin + data[at + 2]]
                answers.append(_tmq(_DELIVERY, _TMQ_TYPE, QUEUE, id=id))
            at = end
        self._data, self._at = data[at:], max(0, at - len(data))
        return b"".join(answers)


# --------------------------------------------------------------- beanstalkd, what is allowed


class BareConsumer:
    """Moves as many bytes as a protocol does, which mean nothing."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self.once = shape.once
        self.waits = False
        self._came = 0

    def begin(self) -> bytes:
        """Ask for as many as may be under way."""
        return bytes(self._shape.up * (1 if self.once else self._shape.window))

    def came(self, data: bytes, *, over: bool) -> bytes:
        """Ask for another one for each that has come."""
        if self.once:
            return b""
        self.waits = not over
        count, self._came = divmod(self._came + len(data), self._shape.down)
        return b"" if over else bytes(self._shape.up * count)


def bare(wire: Wire) -> Wire:
    """Return what moves the bytes of a protocol and nothing else."""
    return wire._replace(consumer=lambda: BareConsumer(wire.shape), hello=b"")


#: Not one of ours: it is put to in the same way.
BEANSTALKD = Wire(
    name="beanstalkd",
    url="",
    put=b"put 0 0 60 %d\r\n%b\r\n" % (len(TEXT), TEXT),
    burst=_SYNCED_BURST,
    consumer=SspqConsumer,
    shape=Shape(0, 0, 0),
)

# ------------------------------------------------------------------------------------ all

PHPMQ = Wire(
    name="phpmq",
    url="phpmq://127.0.0.1:0",
    put=_phpmq(1, (1, QUEUE), (2, TEXT)),
    burst=_BURST,
    consumer=PhpmqConsumer,
    shape=Shape(WINDOW, len(_ACK) + _ID, _DISPATCH),
)
SSPQ = Wire(
    name="sspq",
    url=f"sspq://127.0.0.1:0?queue={QUEUE.decode()}",
    put=_sspq(0x5E, 255, TEXT),
    burst=_BURST,
    consumer=SspqConsumer,
    shape=Shape(1, len(_CONFIRM + _RECEIVE), _SSPQ_HEAD + len(TEXT)),
)
MMQP = Wire(
    name="mmqp",
    url="mmqp://127.0.0.1:0?create=1",
    put=_MMQP_PUT,
    burst=_MMQP_BURST,
    consumer=MmqpConsumer,
    shape=Shape(WINDOW, len(_POLL), _RECORD, once=True),
)
TMQ = Wire(
    name="tmq",
    url=f"tmq://127.0.0.1:0?create=1&status=roundrobin&acknowledge=1&window={4 * WINDOW}",
    put=_TMQ_PUT,
    burst=_BURST,
    consumer=TmqConsumer,
    shape=Shape(WINDOW, len(_tmq(_DELIVERY, 1, QUEUE, id=bytes(_ID))), len(_TMQ_PUT) + _ID),
    hello=_TMQ_HELLO,
    queue=f"{QUEUE.decode()}/{_TMQ_TYPE}",
)
_BODY, _PUSH = TEXT.decode(), 300
ZBUS = Wire(
    name="zbus",
    url="zbus://127.0.0.1:0",
    put=zbus.say(_BODY, cmd="pub", mq=QUEUE.decode(), id="1"),
    burst=_BURST,
    consumer=lambda: zbus.Subscriber(QUEUE.decode(), "default"),
    # A window of 100 is opened again by 90 bytes, for every 50 messages.
    shape=Shape(zbus.WINDOW, 2, len(TEXT) + _PUSH),
    hello=zbus.UPGRADE,
)
WIRES = {wire.name: wire for wire in (PHPMQ, SSPQ, MMQP, TMQ, ZBUS)}
#: The other dialect of zbus, one request after the other's answer: bench_zbus.py has it measured.
ZBUS_HTTP = ZBUS._replace(
    name="zbus-http",
    put=zbus.request(TEXT, cmd="pub", mq=QUEUE.decode(), id="1"),
    hello=b"",
)
ALL = {**WIRES, BEANSTALKD.name: BEANSTALKD, ZBUS_HTTP.name: ZBUS_HTTP}
