"""What a database file holds, read with nothing but sqlite3: the other half of every check.

Knows: the tables, where a message stands in each group, which counts follow from the rows.
Does not know: the history that led here, the store's own reading code.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from embedq.storage.rows import REDRIVEN_FROM
from tests.reliability.invariants_events import tag_of

#: Outcomes from here on are final.
_FINAL = 10
#: Ids begin with the seq.
SEQ_DIGITS = 12

_decode_headers = msgspec.msgpack.Decoder(dict[str, str]).decode


class Row(NamedTuple):
    """A delivery."""

    attempt: int
    epoch: int
    counter: int
    crashes: int
    ended: int | None
    outcome: int | None

    @property
    def token(self) -> tuple[int, int]:
        """What fences the delivery."""
        return (self.epoch, self.counter)


class Letter(NamedTuple):
    """A dead letter: where it came from, its body, why it died, the numbers of its attempts."""

    queue: str
    body: bytes
    reason: str
    attempts: list[int]


@dataclass
class Held:
    """What is in the file. Messages by seq; deliveries and dead letters by (seq, group name)."""

    messages: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    deliveries: dict[tuple[int, str], list[Row]] = field(default_factory=dict)
    dead: dict[tuple[int, str], Letter] = field(default_factory=dict)
    groups: dict[str, dict[str, int]] = field(default_factory=dict)  # queue: {group: floor}
    retained: set[str] = field(default_factory=set)
    damage: list[str] = field(default_factory=list)
    seqs: dict[int, int] = field(default_factory=dict)  # tag: seq, stored or dead
    orphans: set[int] = field(default_factory=set)  # seqs with deliveries and no message
    twice: list[int] = field(default_factory=list)  # tags that have more than one seq
    origins: dict[int, int] = field(default_factory=dict)  # seq: that of the letter it was

    def places_known(self) -> list[int]:
        """Return the seqs of all messages and dead letters."""
        return sorted({*self.messages, *(seq for seq, _ in self.dead)})

    def bodies(self, seq: int) -> list[bytes]:
        """Return the bodies that are there of a message: stored, and in its dead letters."""
        found = [self.messages[seq][1]] if seq in self.messages else []
        return found + [letter.body for (of, _), letter in self.dead.items() if of == seq]

    def tag(self, seq: int) -> int:
        """Return the tag of a message that is there."""
        return tag_of(self.bodies(seq)[0])

    def places(self, seq: int, queue: str, group: str) -> set[str]:
        """Return where a message stands in a group: waiting, dead, or settled."""
        found = set()
        if (seq, group) in self.dead:
            found.add("dead")
        # A damaged file may have lost the group.
        if seq in self.messages and seq > self.groups.get(queue, {}).get(group, 0):
            rows = self.deliveries.get((seq, group), ())
            if not any((row.outcome or 0) >= _FINAL for row in rows):
                found.add("waiting")
        return found or {"settled"}

    def attempts(self, seq: int, group: str) -> list[int]:
        """Return the numbers of the attempts that were started and count."""
        if (seq, group) in self.dead:
            return self.dead[seq, group].attempts
        return [row.attempt for row in self.deliveries.get((seq, group), ()) if row.attempt]


def read(path: Path, *, check: bool = True) -> Held:
    """Read a whole file through a connection of its own; `check` has SQLite check it, too."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA query_only=1")
        connection.execute("BEGIN")
        return held_by(connection, check=check)


def held_by(connection: sqlite3.Connection, *, check: bool = True) -> Held:
    """Read everything through a connection."""
    held = Held()
    run = connection.execute
    if check:
        held.damage += [row[0] for row in run("PRAGMA integrity_check") if row[0] != "ok"]
        held.damage += [f"foreign key: {row}" for row in run("PRAGMA foreign_key_check")]
    queues: dict[int, str] = {}
    for id_, name, retained in run("SELECT id, name, retained FROM queue"):
        queues[id_] = name
        held.groups[name] = {}
        if retained:
            held.retained.add(name)
    groups: dict[int, str] = {}
    for id_, queue, name, floor in run("SELECT id, queue, name, floor FROM consumer_group"):
        groups[id_] = name
        held.groups.setdefault(queues.get(queue, ""), {})[name] = floor
    for seq, queue, crc, headers, body in run("SELECT seq, queue, crc, headers, body FROM msg"):
        held.messages[seq] = (queues.get(queue, ""), body)
        _take(held, seq, crc, headers or b"", body)
    deliveries = defaultdict(list)
    for seq, grp, *row in run(
        "SELECT seq, grp, attempt, epoch, counter, crashes, ended, outcome FROM delivery "
        "ORDER BY seq, grp, attempt"
    ):
        deliveries[seq, groups.get(grp, "")].append(Row._make(row))
    held.deliveries = dict(deliveries)
    for seq, grp, queue, reason, attempts, crc, headers, body in run(
        "SELECT seq, grp, queue, reason, attempts, crc, headers, body FROM dead"
    ):
        letter = Letter(queues.get(queue, ""), body, reason, _numbers(held, seq, attempts))
        held.dead[seq, groups.get(grp, "")] = letter
        _take(held, seq, crc, headers or b"", body)
    held.orphans = {seq for seq, _ in held.deliveries} - held.messages.keys()
    return held


def _numbers(held: Held, seq: int, attempts: bytes | None) -> list[int]:
    try:
        return [record[0] for record in msgspec.msgpack.decode(attempts or b"\x90")]
    except msgspec.DecodeError as error:
        held.damage.append(f"the attempts of dead message {seq}: {error}")
        return []


def _take(held: Held, seq: int, crc: int, headers: bytes, body: bytes) -> None:
    if crc != zlib.crc32(body, zlib.crc32(headers)):
        held.damage.append(f"the checksum of message {seq} does not match its body")
        headers = b""
    tag = tag_of(body)
    if held.seqs.setdefault(tag, seq) != seq:
        held.twice.append(tag)
    origin = _decode_headers(headers).get(REDRIVEN_FROM) if headers else None
    if origin is not None:
        held.origins[seq] = int(origin[:SEQ_DIGITS], 16)


class Counts(NamedTuple):
    """The counts of a queue and its groups: stored, dead, {group: settled}."""

    stored: int
    dead: int
    settled: dict[str, int]


def counts(held: Held) -> dict[str, Counts]:
    """Count what is there for each queue."""
    found = {}
    for queue, groups in held.groups.items():
        seqs = [seq for seq, (of, _) in held.messages.items() if of == queue]
        settled = {
            group: sum("waiting" not in held.places(seq, queue, group) for seq in seqs)
            for group in groups
        }
        dead = sum(letter.queue == queue for letter in held.dead.values())
        found[queue] = Counts(len(seqs), dead, settled)
    return found
