"""Build the disks that a power loss could have left, and check what is on them.

Knows: which writes a sync has made durable, how the others may be lost, reordered or torn.
Does not know: how writes were recorded, what the messages mean.

Files and the names of new files count as durable at once; a disk that lies about syncs and the
file of shared memory (`-shm`, made anew by the next opening) are not modelled.
"""

from __future__ import annotations

import copy
import random
import sqlite3
import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from embedq.broker.host import open_engine
from embedq.clock import VirtualClock
from embedq.errors import EmbedqError
from tests.reliability.invariants import Checker
from tests.reliability.invariants_events import Answer, Elapsed
from tests.reliability.invariants_file import Held, read
from tests.reliability.recording import Recording, Said, Step, Sync, Truncate, Unlink, Write
from tests.reliability.worker_calls import Calls, count_problems
from tests.reliability.worker_mixes import MAX_ATTEMPTS

_SECTOR = 512
_TORN = 0.2
#: Every so many images the engine opens it and delivers everything.
_DEEP = 20
_LATER_S = 7200.0
_TAGS = 1 << 40

Change = Write | Truncate | Unlink


@dataclass
class _File:
    """What is durable of a file, and what is only in the page cache."""

    content: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)

    @property
    def unlinked(self) -> bool:
        """Whether its name has been taken from it."""
        return any(isinstance(change, Unlink) for change in self.pending)


class Disk:
    """The files of a folder up to some moment, each with what is durable and what is not."""

    def __init__(self, recording: Recording) -> None:
        self._steps = [step for step in recording.steps if not isinstance(step, Said)]
        self._folder = str(Path(recording.path).parent)
        self._next = 0
        self._syncing: list[Sync] = []
        self._files: dict[str, _File] = {}
        #: When the newest sync of the log began that was over in time.
        self.log_synced = -1
        self._log = f"{recording.path}-wal"

    def advance(self, cut: int) -> None:
        """Let everything happen that had begun at `cut`."""
        while self._next < len(self._steps) and self._steps[self._next].begin <= cut:
            self._begin(self._steps[self._next])
            self._next += 1
        for sync in [sync for sync in self._syncing if sync.end <= cut]:
            self._syncing.remove(sync)
            self._sync(sync)

    def _begin(self, step: Step) -> None:
        if isinstance(step, Sync):
            self._syncing.append(step)
        elif not isinstance(step, Said) and not step.path.endswith(("-shm", ".ballast")):
            known = self._files.get(step.path)
            if known is None or (known.unlinked and not isinstance(step, Unlink)):
                # A new file has the name now, and names of new files are durable at once.
                known = self._files[step.path] = _File()
            known.pending.append(step)

    def _sync(self, sync: Sync) -> None:
        if sync.path == self._folder:
            for path in [path for path, known in self._files.items() if known.unlinked]:
                if all(
                    change.end < sync.begin
                    for change in self._files[path].pending
                    if isinstance(change, Unlink)
                ):
                    del self._files[path]
            return
        if sync.path == self._log:
            self.log_synced = max(self.log_synced, sync.begin)
        known = self._files.get(sync.path)
        if known is None:
            return
        later: list[Change] = []
        for change in known.pending:
            if change.end < sync.begin and not isinstance(change, Unlink):
                _apply(known.content, change)
            else:
                later.append(change)
        known.pending = later

    def image(self, rng: random.Random) -> dict[str, bytes]:
        """Return what a power loss at this moment could leave: {path: content}."""
        pending = sorted(
            (change for known in self._files.values() for change in known.pending),
            key=lambda change: change.begin,
        )
        chosen = _chosen(pending, rng)
        found = {}
        for path, known in self._files.items():
            content = bytearray(known.content)
            gone = False
            for change in known.pending:
                if isinstance(change, Unlink):
                    gone = id(change) in chosen
                elif id(change) in chosen:
                    _apply(content, change, chosen[id(change)])
            if not gone:
                found[path] = bytes(content)
        return found


def _chosen(pending: list[Change], rng: random.Random) -> dict[int, random.Random | None]:
    """Choose what reached the disk, by id; with a source of chance those that are torn."""
    kind = rng.choice(("none", "all", "prefix", "prefix", "subset", "subset"))
    if kind == "none":
        return {}
    if kind == "prefix":
        pending = pending[: rng.randrange(len(pending) + 1)]
    elif kind == "subset":
        share = rng.random()
        pending = [change for change in pending if rng.random() < share]
    torn = 0.0 if kind == "all" else _TORN
    return {id(change): rng if rng.random() < torn else None for change in pending}


def _apply(
    content: bytearray, change: Write | Truncate, torn: random.Random | None = None
) -> None:
    if isinstance(change, Truncate):
        del content[change.size :]
        content.extend(bytes(change.size - len(content)))
        return
    start, data = change.offset, change.data
    if torn is None:
        _put(content, start, data)
        return
    at = 0
    while at < len(data):
        size = min(len(data) - at, _SECTOR - (start + at) % _SECTOR)
        if torn.random() < 0.5:
            _put(content, start + at, data[at : at + size])
        at += size


def _put(content: bytearray, start: int, data: bytes) -> None:
    if len(content) < start:
        content.extend(bytes(start - len(content)))
    content[start : start + len(data)] = data


@dataclass
class Report:
    """How many images, and what was wrong with how many of them."""

    images: int = 0
    deep: int = 0  # opened by the engine, and everything delivered
    bad: int = 0
    unreadable: int = 0
    problems: list[str] = field(default_factory=list)

    def __add__(self, other: Report) -> Report:
        """Add up two reports."""
        return Report(
            self.images + other.images,
            self.deep + other.deep,
            self.bad + other.bad,
            self.unreadable + other.unreadable,
            self.problems + other.problems,
        )


def check(
    recording: Recording, number: int, folder: Path, *, seed: str, window: bool = False
) -> Report:
    """Check `number` images at random moments of a recording, made in `folder`.

    `window`: what was confirmed after the newest sync of the log may be lost, but only together:
    a message is not kept when one before it is lost.
    """
    rng = random.Random(seed)
    # More cuts than needed: at some there is not much that could be lost in different ways.
    cuts = sorted(rng.randrange(recording.last + 1) for _ in range(number // 3))
    history = _History(recording)
    disk = Disk(recording)
    report = Report()
    for passed, cut in enumerate(cuts):
        disk.advance(cut)
        checker = history.until(cut, sure=disk.log_synced if window else cut)
        share = -(-(number - report.images) // (len(cuts) - passed))
        for image in _different(disk, rng, share):
            report.images += 1
            _lay_out(image, folder, recording.path)
            deep = report.images % _DEEP == 0
            report.deep += deep
            problems = list(_problems(folder / Path(recording.path).name, checker, deep=deep))
            report.bad += bool(problems)
            report.unreadable += any("cannot be read" in problem for problem in problems)
            where = f"[seed {seed}, image {report.images}, cut {cut}] "
            report.problems += [where + problem for problem in problems]
    return report


def _different(disk: Disk, rng: random.Random, most: int) -> Iterator[dict[str, bytes]]:
    """Return up to `most` images of this moment, each one once."""
    seen: set[object] = set()
    for _ in range(2 * most):
        image = disk.image(rng)
        key = tuple(sorted((path, hash(content)) for path, content in image.items()))
        if key not in seen and len(seen) < most:
            seen.add(key)
            yield image


class _History:
    """What had been said at each moment, as far as it must have been kept."""

    def __init__(self, recording: Recording) -> None:
        self._said = [step for step in recording.steps if isinstance(step, Said)]
        self._begins = [step.begin for step in self._said]
        self._checker = Checker(MAX_ATTEMPTS)
        self._fed = 0

    def until(self, cut: int, *, sure: int) -> Checker:
        """Return a checker that knows everything up to `cut`, and holds to what is sure."""
        upto = bisect_right(self._begins, min(cut, sure))
        for step in self._said[self._fed : upto]:
            self._checker.feed(step.event)
        self._fed = max(self._fed, upto)
        if sure >= cut:
            return self._checker
        checker = copy.deepcopy(self._checker)
        checker.undurable = True
        for step in self._said[self._fed : bisect_right(self._begins, cut)]:
            checker.feed(step.event)
        return checker

    @property
    def confirmations(self) -> int:
        """How many calls were answered."""
        return sum(isinstance(step.event, Answer) for step in self._said)


def _lay_out(image: dict[str, bytes], folder: Path, database: str) -> None:
    name = Path(database).name
    for suffix in ("", "-wal", "-journal", "-shm", ".lock", ".ballast"):
        (folder / f"{name}{suffix}").unlink(missing_ok=True)
    for path, content in image.items():
        place = folder / Path(path).name
        place.write_bytes(content)
        place.chmod(0o600)


def _problems(path: Path, checker: Checker, *, deep: bool) -> Iterator[str]:
    try:
        held = _read(path)
    except (sqlite3.DatabaseError, TypeError, ValueError) as error:
        yield f"the file cannot be read: {error}"
        return
    found = checker.problems(held)
    if checker.undurable:
        found += _gaps(checker, held)
    yield from found
    if deep and not found:
        yield from _deliver(path, copy.deepcopy(checker))


def _read(path: Path) -> Held:
    """Read an image; one without our tables is as good as none."""
    if not path.exists():
        return Held()
    try:
        return read(path)
    except sqlite3.OperationalError as error:
        if "no such table: queue" in str(error):
            return Held()
        raise


def _gaps(checker: Checker, held: Held) -> Iterator[str]:
    """Find what was lost although something later was kept: losses must be at the end."""
    newest = max(held.seqs.values(), default=0)
    for tag, known in checker.messages.items():
        lost = tag not in held.seqs and known.seq is not None and known.seq < newest
        untouched = known.cancelled is False and not any(
            track.state != "waiting" or track.ending for track in known.tracks.values()
        )
        if lost and untouched:
            yield f"message {tag} (seq {known.seq}) is lost, but seq {newest} is there"


def _deliver(path: Path, checker: Checker) -> Iterator[str]:
    """Open an image as the next host would, and deliver everything."""
    try:
        engine = open_engine(path, clock=VirtualClock(time.time() + _LATER_S), upkeep=False)
    except EmbedqError as error:
        yield f"the engine refuses it: {error}"
        return
    try:
        held = read(path)
        checker.adopt(held)
        checker.undurable = False
        engine.upkeep.count()
        yield from count_problems(engine, held)
        calls = Calls(engine, checker.feed, _TAGS)
        for queue in engine.queues.values():
            for group in queue.groups:
                while calls.drain(group):
                    checker.feed(Elapsed())
                if group.waiting:
                    yield f"{group.waiting} messages are stuck in {queue.name}/{group.name}"
        yield from checker.problems(read(path))
    finally:
        engine.store.close(clean=False)
