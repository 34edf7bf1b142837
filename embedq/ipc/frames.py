"""The frames between a host and its clients: what each says, and how they become bytes.

Knows: every frame and its fields, the versions of the wire, how large a message may be.
Does not know: sockets, sessions, what a host or a client does about a frame.

A message on the wire is one MessagePack array of frames, so that whatever waits goes together. A
frame is an array of its number and its fields; fields are only ever added at the end, with a
default, so that the neighbouring version understands them. Requests carry a number `n`, chosen by
the client, rising within its session; exactly one answer carries the same `n`. Repeating a request
under its number after a reconnect is safe: the host answers, but does it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from embedq.errors import EmbedqError
from embedq.storage.rows import Row, Stored

#: What this code speaks, best first: the current version and the one before it.
#: 2: a delivery that is given back can go to the tail of its queue. 1: the first one.
VERSIONS: Final = (2, 1)

#: Bytes beyond the bodies that a message of the wire may have.
OVERHEAD: Final = 4 << 20


class ProtocolError(EmbedqError):
    """The other end of a connection sent something that is no frame."""

    code = "protocol_error"
    hint = "both ends need versions of embedq that know each other"


class Token(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Names a lease: the group, the message, the fencing token."""

    group: int
    seq: int
    counter: int


class Held(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A lease that a client still holds after its host died. `started`: a handler has it.

    `mark`: its place in the client's marks, which stays its own. `keep`: the host is to renew it.
    `outside`: a client of a listener has it.
    """

    group: int
    seq: int
    counter: int
    started: bool
    mark: int = -1
    keep: bool = False
    outside: bool = False


class WireEnding(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How a delivery ended. `what`: 0 done, 1 failed, 2 rejected, 3 released."""

    group: int
    seq: int
    counter: int
    what: int = 0
    error: bytes | None = None  # see ErrorInfo.encode
    delay_ms: int = 0
    outcome: int = 0  # embedq.lifecycle.Outcome
    reason: str = ""
    detail: str = ""
    by: str = ""
    tail: bool = False


class WireLease(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A delivery handed to a client. `mark`: its place in the client's marks (see marks.py)."""

    counter: int
    attempt: int
    mark: int
    lease_ms: int
    max_attempts: int  # that count for it; 0: endless
    suspect: bool
    message: Stored


# --------------------------------------------------------------------------- client to host


class Request(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a client sends."""


class Hello(Request, frozen=True, tag=1):
    """The first frame of a connection, alone in its message.

    `session`: 16 random bytes, the same after a reconnect. `epoch`: of the host that issued what
    is `held`. `marks`: the file of started deliveries, None if there is none. `boss`: the session
    of the process that watches over this one and will report its end.
    """

    versions: list[int]
    session: bytes
    name: str
    pid: int
    epoch: int = 0
    held: list[Held] = []
    marks: str | None = None
    boss: bytes | None = None


class Put(Request, frozen=True, tag=2):
    """Store plain messages of one kind. `seen`: all answers up to this number have arrived."""

    n: int
    queue: int
    kind: int
    bodies: list[bytes]
    seen: int = 0


class PutRows(Request, frozen=True, tag=3):
    """Store messages of any kind. `wait_ms`: how long to wait for room, None: for ever."""

    n: int
    queue: int
    rows: list[Row]
    wait_ms: int | None = 0
    seen: int = 0


class Exchange(Request, frozen=True, tag=4):
    """Settle deliveries, then claim up to `most` messages of a group, waiting up to `wait_ms`.

    With `most` 0 nothing is claimed. `wait_ms` None waits until there is something, or until
    Cancel. `lease_ms` None: the queue's. `keep`: the host renews these leases for as long as the
    session lives. `outside`: clients of listeners get them, so that none can end the process.
    """

    n: int
    endings: list[WireEnding]
    group: int = 0
    most: int = 0
    wait_ms: int | None = 0
    lease_ms: int | None = None
    keep: bool = False
    seen: int = 0
    outside: bool = False


class Cancel(Request, frozen=True, tag=5):
    """Wait no longer for request `n`: it is answered with what there is, or that there is no room.

    Has no answer of its own. For one that does not wait, or is not known, it changes nothing.
    """

    n: int


class Extend(Request, frozen=True, tag=6):
    """Let a lease end `ms` from now."""

    n: int
    token: Token
    ms: int


class Keep(Request, frozen=True, tag=7):
    """Renew a lease while the session lives, or (`on` false) no more. Has no answer."""

    token: Token
    on: bool


class Call(Request, frozen=True, tag=8):
    """Any rarer operation, by name. `args`: a MessagePack array."""

    n: int
    verb: str
    args: msgspec.Raw


class Listen(Request, frozen=True, tag=9):
    """Send the events of these names from now on, and no others. Has no answer."""

    names: list[str]


class Bye(Request, frozen=True, tag=10):
    """The client leaves in order: what it still holds is given back."""

    n: int


# --------------------------------------------------------------------------- host to client


class Answer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a host sends."""


class Welcome(Answer, frozen=True, tag=1):
    """The answer to Hello: `version` is spoken from now on.

    `session`: its number in the store. `key`: what ids are made with. `now_ms`: the host's wall
    clock. `tokens`: for each lease of Hello.held that still counts its position there and its new
    counter; the others no longer count. `marks`: places for marks that the session may use.
    """

    version: int
    epoch: int
    session: int
    pid: int
    key: bytes
    now_ms: int
    tokens: list[tuple[int, int]] = []
    marks: int = 0


class Stored_(Answer, frozen=True, tag=2):  # noqa: N801  # `Stored` is the row
    """Put is durable: the messages have the seqs from `first` on."""

    n: int
    first: int


class Receipts(Answer, frozen=True, tag=3):
    """PutRows is durable. `known`: positions whose dedup key was known, with the earlier seq."""

    n: int
    seqs: list[int]
    known: list[int] = []


class Exchanged(Answer, frozen=True, tag=4):
    """`stale`: positions of endings that changed nothing, as their leases no longer count."""

    n: int
    leases: list[WireLease]
    stale: list[int] = []


class Done(Answer, frozen=True, tag=5):
    """It is done."""

    n: int


class Result(Answer, frozen=True, tag=6):
    """What a call returned."""

    n: int
    value: msgspec.Raw


class Progress(Answer, frozen=True, tag=7):
    """How far a call is. More answers follow."""

    n: int
    done: int
    total: int


class Failed(Answer, frozen=True, tag=8):
    """The request failed and changed nothing, unless the error says otherwise."""

    n: int
    code: str
    message: str
    hint: str | None = None
    details: dict[str, Any] = {}


class Told(Answer, frozen=True, tag=9):
    """An event."""

    name: str
    at: float
    fields: dict[str, Any]


class Lost(Answer, frozen=True, tag=10):
    """These leases no longer count: their time was over, or somebody removed the messages."""

    counters: list[int]


class Leaving(Answer, frozen=True, tag=11):
    """The host closes: no request after this one is served by it."""

    reason: str = ""


class Refused(Answer, frozen=True, tag=12):
    """The answer to a Hello that cannot be welcomed, or to something before Hello."""

    code: str
    message: str
    versions: list[int] = []


Requests = Hello | Put | PutRows | Exchange | Cancel | Extend | Keep | Call | Listen | Bye
Answers = (
    Welcome
    | Stored_
    | Receipts
    | Exchanged
    | Done
    | Result
    | Progress
    | Failed
    | Told
    | Lost
    | Leaving
    | Refused
)

_encode = msgspec.msgpack.Encoder().encode
_decode_requests = msgspec.msgpack.Decoder(list[Requests]).decode
_decode_answers = msgspec.msgpack.Decoder(list[Answers]).decode


def encode(frames: Sequence[Request] | Sequence[Answer]) -> bytes:
    """Return one message of the wire."""
    return _encode(frames)


def decode_requests(data: bytes | memoryview) -> list[Requests]:
    """Return the frames of a client's message. Raises ProtocolError."""
    try:
        return _decode_requests(data)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise ProtocolError(f"a message that is no list of requests: {error}") from error


def decode_answers(data: bytes | memoryview) -> list[Answers]:
    """Return the frames of a host's message. Raises ProtocolError."""
    try:
        return _decode_answers(data)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise ProtocolError(f"a message that is no list of answers: {error}") from error
