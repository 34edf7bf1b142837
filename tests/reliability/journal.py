"""The journal of a host under test: one line for everything that must be known after a kill.

Knows: what can be noted, how it is written so that it outlives its writer, how it is read.
Does not know: the database, what must be true of a journal, who is killed.

A call is noted before it is made and its answer after it came; a delivery when its handler
starts, how it ends before anybody hears of that, and its settlement once that was confirmed. So
whatever the lines say has happened, and of what they do not say only that may have happened which
they announce.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.reliability.invariants_events import Answer, Call, Closed, Opened, Refusal


class Start(msgspec.Struct, frozen=True, array_like=True, tag="start"):
    """A handler, or a program that pulls, has a delivery.

    `counter`: its token within the epoch. `slot`: what handles one run after the other, and has
    settled a run once it starts the next; empty if that is not known. `until`: when the lease ends
    by itself (monotonic ms); 0: it is renewed. `origin`: the seq of the dead letter it was.
    """

    queue: str
    group: str
    seq: int
    attempt: int
    counter: int
    tag: int
    digest: str
    slot: str = ""
    run: int = 0
    until: int = 0
    origin: int = 0


class Ending(msgspec.Struct, frozen=True, array_like=True, tag="ending"):
    """A delivery is about to be settled: done, failed, rejected or released."""

    counter: int
    how: str


class Settled(msgspec.Struct, frozen=True, array_like=True, tag="settled"):
    """It was: the call returned."""

    counter: int


class Stale(msgspec.Struct, frozen=True, array_like=True, tag="stale"):
    """The call answered StaleLease."""

    counter: int


class Buried(msgspec.Struct, frozen=True, array_like=True, tag="buried"):
    """The event "dead" told of a dead letter."""

    queue: str
    group: str
    seq: int
    reason: str


Record = Call | Answer | Refusal | Opened | Closed | Start | Ending | Settled | Stale | Buried


class Line(NamedTuple):
    """A line that was read: its number, when it was written (monotonic ms), what it says."""

    number: int
    at: int
    record: Record

    def __str__(self) -> str:
        """Show it as evidence."""
        return f"{self.number}: {self.at} {self.record}"


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[int, Record]).decode


class Journal:
    """Appends lines to a file. Safe to use from any thread."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        # The last writer may have been killed in the middle of a line: an empty one says so.
        os.write(self._fd, b"\n\n")

    def note(self, record: Record) -> None:
        """Write a line at once; from then on it outlives this process."""
        line = _encode((now_ms(), record)) + b"\n"
        if os.write(self._fd, line) != len(line):
            raise OSError("a line was not written at once")


def now_ms() -> int:
    """Return what lines are stamped with; processes of one boot agree about it."""
    return time.monotonic_ns() // 1_000_000


def read_journal(path: Path) -> list[Line]:
    """Return the lines. Raises ValueError for one that is damaged other than by a kill."""
    found: list[Line] = []
    torn = ""
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line:
            torn = ""
            continue
        if torn:
            raise ValueError(torn)
        try:
            at, record = _decode(line)
        except msgspec.MsgspecError as error:
            torn = f"line {number} of {path} is damaged: {error}"
            continue
        found.append(Line(number, at, record))
    return found


def forged(records: Iterable[Record], step_ms: int = 1) -> list[Line]:
    """Return the lines of a journal that nobody wrote, `step_ms` apart."""
    return [Line(n, n * step_ms, record) for n, record in enumerate(records, 1)]
