"""The vocabulary of histories: calls, answers, refusals, and what became of the host.

Knows: how an event is written as one line, how a body is made from its tag and found out again.
Does not know: what must be true of a history, who wrote it.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import ClassVar

import msgspec

#: A write of at most this many bytes to a pipe arrives wholly or not at all.
LINE_BYTES = 4096


class Put(msgspec.Struct, frozen=True, array_like=True):
    """One message of a put: its tag tells what its body is."""

    tag: int
    size: int
    dedup: str | None = None
    key: str | None = None
    max_attempts: int | None = None  # None: the queue's; 0: endless
    priority: int = 0
    delay_ms: int = 0
    ttl_ms: int = 0  # 0: it does not expire


class Delivered(msgspec.Struct, frozen=True, array_like=True):
    """One lease as its consumer saw it; `counter` is its token, `digest` that of the body."""

    seq: int
    attempt: int
    counter: int
    tag: int
    digest: str


class Call(msgspec.Struct, frozen=True, array_like=True, tag="call"):
    """Somebody is about to call: put, claim, ack, fail, reject, release or cancel."""

    id: int
    name: str
    queue: str
    group: str = ""
    seqs: tuple[int, ...] = ()
    puts: tuple[Put, ...] = ()
    most: int = 0


class Answer(msgspec.Struct, frozen=True, array_like=True, tag="ok"):
    """The call returned. `seqs`: of a put, in order; of a cancel, those that were removed.

    `duplicates`: positions in a put that an earlier message with the same dedup key answered.
    """

    id: int
    seqs: tuple[int, ...] = ()
    duplicates: tuple[int, ...] = ()
    deliveries: tuple[Delivered, ...] = ()


class Refusal(msgspec.Struct, frozen=True, array_like=True, tag="no"):
    """The call raised an error of embedq with this code (or another exception: its type)."""

    #: After these nobody knows whether it happened: a sync failed, or the caller was interrupted.
    UNCERTAIN: ClassVar = frozenset({"store_failed", "store_corrupt", "KeyboardInterrupt"})

    id: int
    code: str


class Opened(msgspec.Struct, frozen=True, array_like=True, tag="opened"):
    """A host serves the file from now on."""

    epoch: int


class Closed(msgspec.Struct, frozen=True, array_like=True, tag="closed"):
    """The host closed the file and gave back what was leased."""


class Died(msgspec.Struct, frozen=True, array_like=True, tag="died"):
    """The host ended without closing; calls without an answer may or may not have happened."""


class Elapsed(msgspec.Struct, frozen=True, array_like=True, tag="elapsed"):
    """So much time passed that the leases of now may end by themselves."""


Event = Call | Answer | Refusal | Opened | Closed | Died | Elapsed

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Event).decode


def line_of(event: Event) -> bytes:
    """Return an event as one line, short enough to be written to a pipe at once."""
    line = _encode(event) + b"\n"
    if len(line) > LINE_BYTES:
        raise ValueError(f"an event of {len(line)} bytes would not be written at once")
    return line


def event_of(line: bytes) -> Event:
    """Return the event that a line holds."""
    return _decode(line)


@lru_cache(maxsize=20_000)
def body(tag: int, size: int) -> bytes:
    """Return the body of a message: its tag, then `size` bytes that nobody else's body has."""
    seed = hashlib.sha256(b"%d" % tag).digest()
    return b"%d:" % tag + (seed * (size // len(seed) + 1))[:size]


def tag_of(data: bytes) -> int:
    """Return the tag in a body; -1 if there is none."""
    head, colon, _ = data[:20].partition(b":")
    return int(head) if colon and head.isdigit() else -1


def digest(data: bytes) -> str:
    """Return what stands for a body in an event."""
    return hashlib.sha256(data).hexdigest()[:16]
