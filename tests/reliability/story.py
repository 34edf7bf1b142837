"""What a journal tells, as tables: messages, where each stands in its groups, who removed what.

Knows: how lines follow from each other: answers from calls, settlements from runs, deaths.
Does not know: what must be true (checker.py), what the file holds.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tests.reliability.invariants_events import Answer, Call, Closed, Opened, Put, Refusal
from tests.reliability.journal import Buried, Ending, Line, Settled, Stale, Start

#: The origin of a copy that only its own copies tell of.
UNKNOWN = -1


@dataclass(eq=False)
class Delivered:
    """A delivery that was started, and the lines that tell of its end."""

    line: Line
    start: Start
    host: int
    ending: Line | None = None
    settled: Line | None = None
    stale: Line | None = None

    @property
    def how(self) -> str:
        """How it was to end; empty if nobody got that far."""
        record = None if self.ending is None else self.ending.record
        return record.how if isinstance(record, Ending) else ""

    def may_be_over(self, at: int) -> bool:
        """Whether it may have ended by then: by its handler, or because its time was over."""
        return self.ending is not None or self.lease_over(at)

    def lease_over(self, at: int) -> bool:
        """Whether its lease may have ended by itself by then."""
        return bool(self.start.until) and at >= self.start.until

    @property
    def lines(self) -> list[Line]:
        """The evidence."""
        found = (self.line, self.ending, self.settled, self.stale)
        return [line for line in found if line is not None]


@dataclass(eq=False)
class Track:
    """A message in a group: its deliveries, and that it died."""

    deliveries: list[Delivered] = field(default_factory=list)
    buried: Line | None = None

    @property
    def last(self) -> Delivered | None:
        """The newest delivery."""
        return self.deliveries[-1] if self.deliveries else None

    @property
    def acked(self) -> Delivered | None:
        """A delivery whose ack was confirmed."""
        found = (d for d in self.deliveries if d.how == "done" and d.settled is not None)
        return next(found, None)


@dataclass(eq=False)
class Message:
    """A message that somebody tried to put. `seqs`: the seqs it was seen with, and of which."""

    put: Put
    queue: str
    called: Line
    answered: Line | None = None
    refused: Line | None = None
    answer: int = 0  # the seq that a put with a known dedup key was answered with
    seqs: dict[int, int] = field(default_factory=dict)  # seq: origin, 0 for none

    @property
    def lines(self) -> list[Line]:
        """The evidence."""
        found = (self.called, self.answered, self.refused)
        return [line for line in found if line is not None]


@dataclass(eq=False)
class Made:
    """A call other than a put: when it was made and answered."""

    called: Line
    call: Call
    answered: Line | None = None


class Story:
    """Takes in lines, one after the other."""

    def __init__(self) -> None:
        self.messages: dict[int, Message] = {}  # by tag
        self.tags: dict[int, int] = {}  # by seq
        self.tracks: dict[tuple[int, str], Track] = defaultdict(Track)  # by seq and group
        self.calls: dict[str, list[Made]] = defaultdict(list)  # by name
        self.cancelled: dict[int, Line] = {}  # by seq
        self.hosts: list[list[Line]] = []  # the first and the last line of each
        self.closed = True
        self.opened: Line | None = None
        self._open: dict[int, Message | Made | list[Message]] = {}  # by id of the call
        self.living: dict[int, Delivered] = {}  # of this host, by token
        self.slots: dict[str, list[Delivered]] = {}

    @property
    def host(self) -> int:
        """The number of the host that speaks."""
        return len(self.hosts)

    def feed(self, line: Line) -> None:
        """Take in the next line."""
        if self.hosts and not isinstance(line.record, Opened):
            self.hosts[-1][1] = line
        match line.record:
            case Opened():
                self._opened(line)
            case Closed():
                self._closed(line)
            case Call():
                self._called(line, line.record)
            case Answer():
                self._answered(line, line.record)
            case Refusal():
                self._refused(line, line.record)
            case Start():
                self._started(line, line.record)
            case Buried():
                self.tracks[line.record.seq, line.record.group].buried = line
            case Ending() | Settled() | Stale():
                self._ended(line, line.record)

    def _ended(self, line: Line, record: Ending | Settled | Stale) -> None:
        delivered = self.living.get(record.counter)
        if delivered is not None:
            setattr(delivered, type(record).__name__.lower(), line)

    def _opened(self, line: Line) -> None:
        self.hosts.append([line, line])
        self.opened = line
        self.closed = False
        self.living, self.slots = {}, {}

    def _closed(self, line: Line) -> None:
        """What is still held when a host closes, it gives back."""
        self.closed = True
        for delivered in self.living.values():
            if delivered.ending is None:
                given_back = Ending(delivered.start.counter, "released")
                delivered.ending = line._replace(record=given_back)

    def _called(self, line: Line, call: Call) -> None:
        if call.name == "put":
            made = [Message(put, call.queue, line) for put in call.puts]
            for message in made:
                # A put is repeated after a crash, under its dedup key.
                self.messages.setdefault(message.put.tag, message)
            self._open[call.id] = [self.messages[message.put.tag] for message in made]
        else:
            other = Made(line, call)
            self._open[call.id] = other
            self.calls[call.name].append(other)

    def _answered(self, line: Line, answer: Answer) -> None:
        made = self._open.pop(answer.id, None)
        if isinstance(made, Made):
            made.answered = line
            if made.call.name == "cancel":
                self.cancelled.update(dict.fromkeys(answer.seqs, line))
        elif isinstance(made, list):
            for position, message in enumerate(made):
                message.answered = message.answered or line
                seq = answer.seqs[position] if answer.seqs else 0
                if position in answer.duplicates:
                    message.answer = seq
                elif seq:
                    self.learn(message, seq)

    def _refused(self, line: Line, refusal: Refusal) -> None:
        made = self._open.pop(refusal.id, None)
        if isinstance(made, list) and refusal.code not in Refusal.UNCERTAIN:
            for message in made:
                message.refused = line

    def learn(self, message: Message, seq: int, origin: int = 0) -> None:
        """A message was seen under a seq."""
        message.seqs.setdefault(seq, origin)
        self.tags.setdefault(seq, message.put.tag)

    def _started(self, line: Line, start: Start) -> None:
        found = Delivered(line, start, self.host)
        if start.slot:
            before = self.slots.get(start.slot, [])
            if before and before[0].start.run != start.run:
                # What it had was settled together with, or before, the claim of what it has now.
                for earlier in before:
                    if earlier.ending and not (earlier.settled or earlier.stale):
                        earlier.settled = line
                before = []
            self.slots[start.slot] = [*before, found]
        self.living[start.counter] = found
        self.tracks[start.seq, start.group].deliveries.append(found)
        message = self.messages.get(start.tag)
        if message is not None:
            if start.origin and start.origin not in self.tags:
                # A copy may die before its handler starts, by a death or by its age.
                self.learn(message, start.origin, UNKNOWN if message.seqs else 0)
            self.learn(message, start.seq, start.origin)

    # ------------------------------------------------------------------------- questions

    def died(self, delivered: Delivered) -> bool:
        """Whether its host ended before the delivery did in any way."""
        if delivered.ending is not None or (delivered.host == self.host and not self.closed):
            return False
        return not delivered.lease_over(self.hosts[delivered.host - 1][1].at)

    def may_be_removed(self, message: Message, seq: int) -> bool:
        """Whether somebody asked for a message to be removed, in time. `seq` 0: not known."""
        cancelled = {
            each
            for made in self.calls["cancel"]
            if made.call.queue == message.queue
            for each in made.call.seqs
        }
        if seq in cancelled or (not seq and not cancelled <= self.tags.keys()):
            return True
        return any(
            made.call.queue == message.queue
            and (made.answered is None or made.answered.number > message.called.number)
            for made in self.calls["purge"]
        )

    def purged(self, message: Message) -> Line | None:
        """Return the answer of a purge that must have removed a message, put before it began."""
        for made in self.calls["purge"]:
            confirmed = message.answered
            if (
                made.call.queue == message.queue
                and made.answered is not None
                and confirmed is not None
                and confirmed.number < made.called.number
                and not any(message.seqs.values())
            ):
                return made.answered
        return None

    def is_loose(self, seq: int, group: str) -> bool:
        """Whether somebody settles a message by its id, whoever holds it."""
        return any(
            seq in made.call.seqs and made.call.group == group for made in self.calls["by_id"]
        )

    def serving_ms(self, since: int, until: int) -> int:
        """Return for how long, between two moments, some host was there."""
        return sum(
            max(0, min(until, last.at) - max(since, first.at)) for first, last in self.hosts
        )

    def serves_after(self, host: int) -> int | None:
        """Return when the host after that one began to serve."""
        return self.hosts[host][0].at if host < len(self.hosts) else None
