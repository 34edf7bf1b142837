"""What handlers have noted while everybody was killed around them, and what that must prove.

Knows: the lines of notes and logs, the promises that they can break, the file that is left.
Does not know: who was killed, and when.

A number may be handled again only if its worker had not gone on: what was done is noted before
anything else is started. One whose ack was confirmed never starts again, whoever has died.
"""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from embedq import Broker
from embedq.ipc.place import sessions_left
from tests.workers.pooled import until

#: What is noted of a number whose handler was done with it.
DONE: Final = frozenset({"end", "acking"})

#: What multiprocessing prints in a child whose parent was killed before it had said what to run.
_ORPHANED_AT_BIRTH: Final = re.compile(
    r"Traceback [^\n]*\n(?:[ \t][^\n]*\n)*?[^\n]*from_parent[^\n]*\n"
    r"(?:[ \t][^\n]*\n)*(?:EOFError: Ran out of input|_pickle\.UnpicklingError: [^\n]*)\n"
)


class Note(NamedTuple):
    """A line of a handler: start, then end; or start, acking, and what came of it."""

    what: str
    number: int
    seq: int
    worker: int


@dataclass
class Found:
    """What came of it. `done_under_fire`: numbers done while somebody was still killed."""

    kills: int = 0
    host_kills: int = 0
    done_under_fire: int = 0
    confirmed: int = 0
    unknown: int = 0
    twice: int = 0
    problems: list[str] = field(default_factory=list)


def read_notes(out: Path, at: int = 0) -> tuple[list[Note], int]:
    """Return the lines from an offset on, and where the next ones will be."""
    if not out.exists():
        return [], at
    with out.open("rb") as file:
        file.seek(at)
        data = file.read()
    whole = data[: data.rfind(b"\n") + 1]
    words = [line.split() for line in whole.decode("ascii").splitlines()]
    notes = [Note(what, int(n), int(seq), int(pid)) for what, n, seq, pid in words]
    return notes, at + len(whole)


def read_numbers(folder: Path, pattern: str) -> set[int]:
    """Return the numbers in logs of producers."""
    lines = [line for log in folder.glob(pattern) for line in log.read_text("ascii").split()]
    return set(map(int, lines))


def judge(folder: Path, notes: Sequence[Note], found: Found) -> None:
    """Enter what was broken."""
    confirmed = read_numbers(folder, "put*")
    unknown = read_numbers(folder, "unknown-put*")
    found.confirmed, found.unknown = len(confirmed), len(unknown)
    done = {note.number for note in notes if note.what in DONE}
    handled = {note.number for note in notes}
    found.problems += [f"{n} was confirmed and never done" for n in sorted(confirmed - done)]
    strangers = handled - confirmed - unknown
    found.problems += [f"{n} was never put" for n in sorted(strangers)]
    found.problems += [*_doubled(notes), *_repeated(notes, found), *_tracebacks(folder)]
    found.problems += _file(folder)


def _doubled(notes: Sequence[Note]) -> Iterator[str]:
    seqs: dict[int, set[int]] = defaultdict(set)
    for note in notes:
        seqs[note.number].add(note.seq)
    for number, each in seqs.items():
        if len(each) > 1:
            yield f"{number} was put once and is there as messages {sorted(each)}"


def _repeated(notes: Sequence[Note], found: Found) -> Iterator[str]:
    last: dict[int, int] = {}  # worker: where its last note is
    acked: set[int] = set()
    ends: dict[int, list[tuple[int, int]]] = defaultdict(list)  # number: (where, worker)
    for at, (what, number, _, worker) in enumerate(notes):
        if what == "start":
            found.twice += bool(ends[number])
            if number in acked:
                yield f"{number} started again although its ack was confirmed"
            for where, former in ends[number]:
                if last[former] > where:
                    yield f"{number} started again although worker {former} had gone on"
        last[worker] = at
        if what == "end":
            ends[number].append((at, worker))
        elif what == "acked":
            acked.add(number)


def _tracebacks(folder: Path) -> Iterator[str]:
    for log in sorted(folder.glob("log*")):
        text = _ORPHANED_AT_BIRTH.sub("", log.read_text("utf-8", "replace"))
        if "Traceback" in text:
            yield f"an application has printed: {text[text.index('Traceback') :][:2000]}"


def _file(folder: Path) -> Iterator[str]:
    path = folder / "app.db"
    connection = sqlite3.connect(path)
    try:
        (fine,) = connection.execute("PRAGMA integrity_check").fetchone()
        (messages,) = connection.execute("SELECT count(*) FROM msg").fetchone()
        (letters,) = connection.execute("SELECT count(*) FROM dead").fetchone()
    finally:
        connection.close()
    if fine != "ok":
        yield f"the file is damaged: {fine}"
    if messages or letters:
        yield f"{messages} messages and {letters} dead letters are left"
    yield from marks_left(path)


def marks_left(path: Path) -> Iterator[str]:
    """Say whose marks stay when the next host has come and gone.

    Who ends when there is no host any more, and has not heard that all is settled, leaves them.
    """
    if sessions_left(path):
        with Broker(path, role="host"), suppress(AssertionError):
            until(lambda: not sessions_left(path), "the next host takes the marks in", 20)
    if left := sessions_left(path):
        yield f"{len(left)} sessions have left marks behind"
