"""What a store keeps and gives back, as plain records.

Knows: the fields of a message, a delivery, a dead letter, a queue, a group; their units.
Does not know: SQL, operations, what the records are used for.

All times are integer milliseconds of wall clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from embedq.policy import QueuePolicy

#: Header of a redriven message: the id it had before.
REDRIVEN_FROM = "redriven-from"


class Stored(NamedTuple):
    """A message as stored. `crc` is CRC-32 of the encoded headers, then the body."""

    seq: int
    queue: int
    put_at: int
    kind: int
    crc: int
    priority: int
    due: int | None
    expires: int | None
    key: str | None
    max_attempts: int | None
    headers: bytes | None
    body: bytes


class Row(NamedTuple):
    """A message to put that uses more than body and kind. `dedup_until` goes with `dedup_key`."""

    kind: int
    crc: int
    priority: int
    due: int | None
    expires: int | None
    key: str | None
    max_attempts: int | None
    headers: bytes | None
    body: bytes
    dedup_key: str | None = None
    dedup_until: int = 0


class DeliveryRow(NamedTuple):
    """One delivery of one message to one group; open while `ended` is None.

    Attempt 0: no delivery, but what is to be remembered of a message that had none.
    """

    seq: int
    group: int
    attempt: int
    epoch: int
    counter: int
    crashes: int
    session: int | None
    started: int
    ended: int | None
    outcome: int | None
    due: int | None
    closed: int | None
    error: bytes | None


class Touched(NamedTuple):
    """A waiting message that has been delivered before, with its latest delivery."""

    seq: int
    attempt: int
    crashes: int
    epoch: int
    counter: int
    open: bool  # True: the delivery was never closed (a crash, or it is leased right now)
    due: int | None  # retry not before; below 0: a place at the tail, see tail.py
    crashed: bool = False  # closed because its worker died


class Waiting(NamedTuple):
    """What the ready index must know of a waiting message that is not plain and fresh.

    `due` is its own time until the first delivery, afterwards that of the retry.
    """

    seq: int
    priority: int
    key: str | None
    due: int | None
    max_attempts: int | None
    touched: Touched | None


class Chunk(NamedTuple):
    """Part of a stream of waiting messages, in seq order.

    Every waiting message of the stream in (request.after, after] is either in `fresh` (its seq:
    never delivered, no ordering key) or in `others`.
    """

    fresh: list[int]
    others: list[Waiting]
    after: int


class DueChunk(NamedTuple):
    """Messages that become deliverable at a time, ordered by (due, seq), without ordering key."""

    rows: list[Waiting]  # `due` is the time that counts: the message's own or its retry's
    after: tuple[int, int]  # the last (due, seq) looked at: where the next request goes on
    complete: bool  # nothing comes after it


class DeadRow(NamedTuple):
    """A dead letter as stored."""

    id: int
    seq: int
    group: int
    queue: int
    died: int
    reason: str
    detail: str
    moved_by: str
    attempts: bytes | None
    put_at: int
    kind: int
    crc: int
    priority: int
    key: str | None
    max_attempts: int | None
    headers: bytes | None
    body: bytes


class Death(NamedTuple):
    """How a process ended without closing, as far as others can know; deaths.py makes words of it.

    `record`: who had its record of crashes (lastwords.py); "": nobody. `fatal`, `frames`: what it
    wrote itself. `same_boot`: the machine has run on since (None: cannot be told). `stopped`: the
    code of the error for which it gave the store up alive. `code`: its exit code, negative for a
    signal, where somebody waited for it.
    """

    pid: int | None = None
    same_boot: bool | None = None
    record: str = ""
    fatal: str = ""
    frames: str = ""
    stopped: str = ""
    code: int | None = None


@dataclass(slots=True)
class GroupRow:
    """A consumer group. Messages up to `floor` are settled for it.

    `hold_ms`: of a position (storage/held.py), how long messages are held for it; 0: for ever.
    """

    id: int
    queue: int
    name: str
    floor: int
    settled: int
    hold_ms: int | None = None


@dataclass(slots=True)
class QueueRow:
    """A queue. `last` is an upper bound of its highest seq."""

    id: int
    name: str
    policy: QueuePolicy
    paused: bool
    stored: int
    dead: int
    last: int
