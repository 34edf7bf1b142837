"""Every call of an engine with its first, second, third … system call failing.

Knows: how a case is set up, repeated and opened afterwards, what callers may be told.
Does not know: strace's words, what the child does.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from embedq.broker.host import open_engine
from tests.reliability.invariants_events import Closed, Event
from tests.reliability.invariants_file import read
from tests.reliability.killing import Chain, Worker, worker
from tests.reliability.nth import at_call
from tests.reliability.worker import PAD, Job
from tests.reliability.worker_calls import Calls
from tests.reliability.worker_single import BACKUP, SEEN, WAITING, Seen, prepare

CALLS = (
    "put",
    "put_large",
    "put_many",
    "put_drafts",
    "claim",
    "ack",
    "fail",
    "reject",
    "release",
    "pair_ack",
    "pair_reject",
    "cancel",
    "checkpoint",
    "backup",
    "close",
    "open",
)

#: Faults: the system call and its error.
FAULTS = (("pwrite64", "EIO"), ("pwrite64", "ENOSPC"), ("fdatasync", "EIO"), ("fsync", "EIO"))

#: More system calls than any of them makes.
_MOST = 160

#: The tag of the first message of a child.
_FIRST = 100_000

#: What must succeed on a full disk.
_PASS = frozenset(CALLS) - {"put", "put_large", "put_many", "put_drafts", "backup", "open"}


@dataclass
class Outcome:
    """What became of one call: how often a fault struck it, what went wrong."""

    faults: int = 0
    refused: int = 0
    problems: list[str] = field(default_factory=list)


class Cases:
    """Runs calls under one kind of fault. `stride`: of the numbers from the fifth one on."""

    stride = 1

    def __init__(self, program: Worker, folder: Path, call: str, error: str) -> None:
        self._program = program
        self._case = folder / "case"
        self._call = call
        self._error = error
        self._template = folder / "template"
        self._history: list[Event] = []
        self._make_template()

    def _make_template(self) -> None:
        self._template.mkdir(mode=0o700)
        with open_engine(self._template / "q.db", upkeep=False) as engine:
            prepare(Calls(engine, self._history.append))

    def every(self, kind: str, **options: object) -> Outcome:
        """Let the n-th system call of a call fail, for n = 1, 2, 3 … until it gets through.

        Stops at the first problem. `options` are those of the job.
        """
        outcome = Outcome()
        job = Job(
            path=str(self._case / "q.db"),
            kind=kind,
            first=_FIRST,
            call=self._call,
            **options,  # type: ignore[arg-type]
        )
        before = self._before(job)
        for number in (*range(1, 5), *range(5, _MOST, self.stride)):
            pad = _MOST - before - number
            exact = msgspec.structs.replace(job, pad=pad, probes=number + 2)
            seen, problems = self._once(exact)
            where = f"{kind}: {self._call} number {number}, {self._error}: "
            outcome.problems += [where + problem for problem in problems]
            if problems or not seen.struck:
                return outcome
            outcome.faults += 1
            outcome.refused += bool(seen.result)
        raise AssertionError(f"{kind} makes more than {_MOST} calls of {self._call}")

    def _before(self, job: Job) -> int:
        """Count the calls that a child makes before the one under test."""
        if job.kind == "open":
            return 0
        self._renew()
        _, status = self._program.run(msgspec.structs.replace(job, pad=_MOST))
        assert status == 0
        return _MOST - self._seen().before

    def _renew(self) -> None:
        shutil.rmtree(self._case, ignore_errors=True)
        shutil.copytree(self._template, self._case)

    def _seen(self) -> Seen:
        return msgspec.json.decode((self._case / SEEN).read_bytes(), type=Seen)

    def _once(self, job: Job) -> tuple[Seen, list[str]]:
        self._renew()
        one = Chain(self._case / "q.db")
        one.feed([*self._history, Closed()])
        one.checker.adopt(read(one.path, check=False))
        events, status = self._program.run(job)
        if status:
            return Seen(), [f"the child ended with {status}"]
        seen = self._seen()
        one.feed(events)
        problems = [*self._told(job.kind, seen), *one.check(drain=True)]
        if job.kind == "backup":
            problems += self._backup_problems(seen)
        return seen, problems

    def _told(self, kind: str, seen: Seen) -> Iterator[str]:
        full = self._error == "ENOSPC"
        told = {"store_full"} if full else {"store_failed"}
        if full and kind in _PASS:
            told = set()  # the ballast made room
        if seen.result and seen.result not in told:
            yield f"the caller was told {seen.result}"
        if seen.result and not seen.struck:
            yield f"refused with {seen.result} before the fault"
        if kind in {"open", "close"}:
            return
        if (full or kind == "backup" or not seen.struck) and seen.at_last:
            yield f"puts were refused for ever: {seen.later!r}, {seen.round!r}, {seen.at_last!r}"
        if not full and kind != "backup" and seen.struck and seen.later != "store_failed":
            # Nobody knows what the disk holds now (D6).
            yield f"the store went on: {seen.result!r}, {seen.later!r}"

    def _backup_problems(self, seen: Seen) -> Iterator[str]:
        target = self._case / BACKUP
        if target.with_name(f"{BACKUP}.part").exists():
            yield "a part of a backup was left"
        if not target.exists():
            if not seen.result:
                yield "there is no backup"
        elif seen.result and self._call != "fsync":
            # Only the sync of the folder comes when the copy has its name.
            yield f"a backup that ended with {seen.result!r} exists"
        else:
            copy = read(target)
            yield from copy.damage
            if len(copy.messages) != 2 * WAITING:
                yield f"the backup holds {len(copy.messages)} messages"


@contextmanager
def cases(folder: Path, call: str, error: str) -> Iterator[Cases]:
    """Run the worker under strace with one kind of fault."""
    case = folder / "case"
    paths = [
        str(case / name)
        for name in ("q.db", "q.db-wal", PAD, BACKUP, f"{BACKUP}.part", f"{BACKUP}.part-journal")
    ]
    if call == "fsync":
        paths.append(str(case))  # the folder, whose new names are synced
    with worker(*at_call(call, f"error={error}", _MOST, paths)) as program:
        yield Cases(program, folder, call, error)
