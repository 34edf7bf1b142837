"""The one judge of promises: from a journal and the file that is left to what was broken.

Knows: what P1 to P10 (docs/promises.md) say about lines of a journal; `check` is pure.
Does not know: who wrote the journal, who was killed; checker_end.py knows what the file must be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.reliability.invariants_events import body, digest
from tests.reliability.journal import Ending, Line, Settled, Stale, Start
from tests.reliability.story import Delivered, Message, Story, Track


class Broken(NamedTuple):
    """A promise that was broken, for which message, and the lines that show it."""

    promise: str
    tag: int
    what: str
    evidence: tuple[Line, ...] = ()

    def __str__(self) -> str:
        """Say all of it."""
        lines = "".join(f"\n    {line}" for line in self.evidence)
        return f"{self.promise}: message {self.tag} {self.what}{lines}"


@dataclass(frozen=True)
class Rules:
    """What a journal cannot say by itself.

    `max_attempts`: of queues with other than the default. `ordered`: queues with one consumer
    that takes one message at a time, all of them put without a delay. `drops`: full queues that
    push the oldest messages out. `drained`: the last host went on until nothing waited any more.
    """

    max_attempts: Mapping[str, int] = field(default_factory=dict)
    ordered: frozenset[str] = frozenset()
    drops: frozenset[str] = frozenset()
    max_crashes: int = 3
    redelivery_ms: int = 10_000
    drained: bool = True

    def most(self, message: Message) -> int:
        """Return how many attempts a message has; 0: no bound."""
        own = message.put.max_attempts
        return self.max_attempts.get(message.queue, 5) if own is None else own


class Reading:
    """Goes through a journal line by line, and judges each by what came before it."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.story = Story()
        self.broken: list[Broken] = []
        self._keys: dict[tuple[str, str, str], list[Delivered]] = {}

    def feed(self, line: Line) -> None:
        """Judge a line, then remember it."""
        record = line.record
        if isinstance(record, Start):
            self.broken += self._start(line, record)
        elif isinstance(record, Settled):
            self.broken += self._settled(line, record)
        elif isinstance(record, Stale):
            self.broken += self._stale(line, record)
        self.story.feed(line)
        if isinstance(record, Start):
            self._note_key(record)

    # -------------------------------------------------------------------------- a start

    def _start(self, line: Line, start: Start) -> Iterator[Broken]:
        message = self.story.messages.get(start.tag)
        if message is None:
            yield Broken("P4", start.tag, "was delivered, but nobody put it", (line,))
            return
        yield from self._content(line, start, message)
        yield from self._copies(line, start, message)
        track = self.story.tracks[start.seq, start.group]
        yield from self._over(line, start, message, track)
        yield from self._beside(line, start, track)
        yield from self._attempt(line, start, message, track)
        if message.queue in self.rules.ordered and not track.deliveries and not start.origin:
            yield from self._order(line, start, message)

    @staticmethod
    def _content(line: Line, start: Start, message: Message) -> Iterator[Broken]:
        evidence = (*message.lines, line)
        if start.digest != digest(body(start.tag, message.put.size)):
            yield Broken("P4", start.tag, "was delivered with another body", evidence)
        if start.queue != message.queue:
            yield Broken("P4", start.tag, f"came from queue {start.queue}", evidence)
        if message.refused is not None and message.answered is None:
            yield Broken("P4", start.tag, "was refused, but delivered", evidence)

    def _copies(self, line: Line, start: Start, message: Message) -> Iterator[Broken]:
        story = self.story
        seqs = [seq for seq, origin in message.seqs.items() if not origin and seq != start.seq]
        if start.origin:
            if story.tags.get(start.origin, start.tag) != start.tag:
                yield Broken("P4", start.tag, f"is no copy of seq {start.origin}", (line,))
            if not any(made.call.queue == message.queue for made in story.calls["redrive"]):
                yield Broken("P4", start.tag, "was redriven by nobody", (*message.lines, line))
        elif seqs:
            what = f"was put twice: it has seq {seqs[0]} and seq {start.seq}"
            yield Broken("P10", start.tag, what, (*message.lines, line))
        if story.tags.get(start.seq, start.tag) != start.tag:
            what = f"has seq {start.seq}, which is that of message {story.tags[start.seq]}"
            yield Broken("P4", start.tag, what, (*message.lines, line))

    def _over(self, line: Line, start: Start, message: Message, track: Track) -> Iterator[Broken]:
        acked = track.acked
        if acked is not None:
            lines = (*message.lines, *acked.lines, line)
            yield Broken("P3", start.tag, "was acked, but delivered again", lines)
        # Who is rejected by id may have been claimed just before, and note its start just after.
        if track.buried is not None and not self.story.is_loose(start.seq, start.group):
            lines = (*message.lines, track.buried, line)
            yield Broken("P7", start.tag, "is a dead letter, but delivered again", lines)
        removed = self.story.cancelled.get(start.seq)
        if removed is not None:
            lines = (*message.lines, removed, line)
            yield Broken("P2", start.tag, "was cancelled, but delivered", lines)
        purged = None if start.origin else self.story.purged(message)
        opened = self.story.opened
        # A handler may be on its way to a message that is purged before it starts.
        if purged is not None and opened is not None and purged.number < opened.number:
            lines = (*message.lines, purged, line)
            yield Broken("P2", start.tag, "was purged, but delivered", lines)

    def _beside(self, line: Line, start: Start, track: Track) -> Iterator[Broken]:
        last = track.last
        if last is not None and self._is_running(last, line):
            loose = self.story.is_loose(start.seq, start.group)
            if not loose:
                what = "was delivered while another delivery of it went on"
                yield Broken("P9", start.tag, what, (*last.lines, line))
        key = self._key_of(start)
        for other in () if key is None else self._keys.get(key, ()):
            if other.start.seq > start.seq:
                what = f"was delivered after seq {other.start.seq} of its key"
                yield Broken("P9", start.tag, what, (other.line, line))
                break
            if other.start.seq != start.seq and self._is_running(other, line):
                what = f"was delivered while seq {other.start.seq} of its key was at work"
                yield Broken("P9", start.tag, what, (*other.lines, line))

    def _is_running(self, delivered: Delivered, line: Line) -> bool:
        return delivered.host == self.story.host and not delivered.may_be_over(line.at)

    def _key_of(self, start: Start) -> tuple[str, str, str] | None:
        message = self.story.messages.get(start.tag)
        if message is None or message.put.key is None:
            return None
        return (start.queue, start.group, message.put.key)

    def _note_key(self, start: Start) -> None:
        key = self._key_of(start)
        if key is not None:
            self._keys.setdefault(key, []).append(self.story.living[start.counter])

    def _attempt(
        self, line: Line, start: Start, message: Message, track: Track
    ) -> Iterator[Broken]:
        story = self.story
        most = self.rules.most(message)
        before = track.deliveries
        lines = (*(line for each in before for line in each.lines), line)
        if most and start.attempt > most:
            yield Broken("P5", start.tag, f"of {most} attempts has {start.attempt}", lines)
        last = track.last
        low = high = 1
        if last is not None:
            low = last.start.attempt + (last.how != "released")
            high = last.start.attempt + 1
        # Each death may hide one delivery that was handed over and had not started.
        high += story.host - (1 if last is None else last.host)
        if not low <= start.attempt <= high and not story.is_loose(start.seq, start.group):
            what = f"was to have attempt {low} to {high}, not {start.attempt}"
            yield Broken("P5", start.tag, what, lines)
        crashes = sum(story.died(each) for each in before)
        if crashes >= self.rules.max_crashes and not story.is_loose(start.seq, start.group):
            what = f"was delivered again after {crashes} deaths"
            yield Broken("P5", start.tag, what, lines)

    def _order(self, line: Line, start: Start, message: Message) -> Iterator[Broken]:
        """Judge a first delivery: nothing that waited already was to come before it."""
        free = self._free_since(start)
        rank = (-message.put.priority, start.seq)
        for other in self.story.messages.values():
            if other.queue != message.queue or other is message or not other.seqs:
                continue
            seq = next(iter(other.seqs))
            answered = other.answered
            if answered is None or answered.number > free or other.answer:
                continue
            if (-other.put.priority, seq) > rank or self._was_seen(seq, start.group):
                continue
            if other.put.ttl_ms or self.story.may_be_removed(other, seq):
                continue
            what = f"was delivered before message {other.put.tag}, which came first"
            yield Broken("P9", start.tag, what, (*other.lines, line))

    def _was_seen(self, seq: int, group: str) -> bool:
        track = self.story.tracks.get((seq, group))
        return track is not None and bool(track.deliveries or track.buried)

    def _free_since(self, start: Start) -> int:
        """Return the line since which the consumer has looked for its next message."""
        before = self.story.slots.get(start.slot)
        if before and before[-1].ending is not None:
            return before[-1].ending.number
        return 0 if self.story.opened is None else self.story.opened.number

    # --------------------------------------------------------------------- a settlement

    def _settled(self, line: Line, settled: Settled) -> Iterator[Broken]:
        delivered = self.story.living.get(settled.counter)
        if delivered is None or delivered.ending is None:
            yield Broken("P6", 0, "was settled by a token of nobody", (line,))
            return
        start = delivered.start
        lines = (*delivered.lines, line)
        if delivered.settled is not None:
            yield Broken("P6", start.tag, "was settled twice", lines)
        for other in self.story.tracks[start.seq, start.group].deliveries:
            newer = other.line.number > delivered.line.number
            if newer and other.line.number < delivered.ending.number:
                what = "was settled by the token of an earlier delivery"
                yield Broken("P6", start.tag, what, (delivered.line, other.line, *lines[1:]))

    def _stale(self, line: Line, stale: Stale) -> Iterator[Broken]:
        delivered = self.story.living.get(stale.counter)
        if delivered is None:
            yield Broken("P6", 0, "is stale by a token of nobody", (line,))
            return
        start, story = delivered.start, self.story
        message = story.messages.get(start.tag)
        if delivered.settled is not None or delivered.lease_over(line.at):
            return
        if message is None or story.is_loose(start.seq, start.group):
            return
        if not story.may_be_removed(message, start.seq):
            lines = (*delivered.lines, line)
            yield Broken("P6", start.tag, "was called stale while its lease counted", lines)


def read_story(lines: Sequence[Line], rules: Rules) -> Reading:
    """Read a whole journal."""
    reading = Reading(rules)
    for line in lines:
        reading.feed(line)
    return reading


def endings_of(lines: Sequence[Line]) -> int:
    """Count the deliveries that came to an end."""
    return sum(isinstance(line.record, Ending) for line in lines)
