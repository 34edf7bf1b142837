"""What must be true of a history of calls and of the file it left, whatever went wrong between.

Knows: the invariants I1 to I5 and I10 (docs/promises.md) as rules over calls, answers and rows.
Does not know: who called, how the host died, the engine, SQL.

The checker follows a history event by event: `feed`. When the host is gone, `problems` compares
what the history allows with what the file holds, and `adopt` takes over what the file decided
about the calls that got no answer, so that the history can go on with the next host.

A caller notes a call before it makes it and the answer after it has it. So a delivery may be
noted before the answer of the release or failure that made it possible, never before its call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.reliability.invariants_events import (
    Answer,
    Call,
    Closed,
    Delivered,
    Died,
    Elapsed,
    Event,
    Opened,
    Put,
    Refusal,
    body,
    digest,
)
from tests.reliability.invariants_file import Held

Token = tuple[int, int]  # epoch, counter

#: The default of a queue.
_ATTEMPTS = 5


@dataclass
class Track:
    """A message in a group, as far as the history tells."""

    attempt: int = 0  # deliveries started that count
    crashes: int = 0  # hosts that died with it so far
    crashed: int = 0  # how many had when the latest delivery started
    token: Token = (0, 0)  # of the latest delivery
    held: bool = False
    ending: str = ""  # the call that is to end the delivery and has no answer yet
    state: str = "waiting"  # or acked, dead
    may_end: bool = False  # its lease may have ended by itself
    undurable: int = 0  # attempts among those that the file may have forgotten

    def end(self) -> None:
        """The delivery is over."""
        self.held = self.may_end = False
        self.ending = ""


@dataclass
class Known:
    """A message that somebody tried to put. `stored` and `cancelled` None: nobody knows."""

    put: Put
    queue: str
    stored: bool | None = None
    seq: int | None = None
    cancelled: bool | None = False
    tracks: dict[str, Track] = field(default_factory=dict)

    def track(self, group: str) -> Track:
        """Return where it stands in a group."""
        return self.tracks.setdefault(group, Track())


#: A call, with the deliveries it is to end and their tokens.
Unanswered = tuple[Call, list[tuple[Track, Token]]]


class Checker:
    """Follows one file through any number of hosts. `broken` collects what was wrong so far.

    `max_attempts`: those of queues with other than the default.
    """

    def __init__(
        self, max_attempts: Mapping[str, int] | None = None, *, max_crashes: int = 3
    ) -> None:
        self._max_attempts = max_attempts or {}
        self._max_crashes = max_crashes
        #: What is confirmed from now on may be lost, wholly or not at all: durability "normal".
        self.undurable = False
        self._epoch = 0
        self._open: dict[int, Unanswered] = {}
        self._unknown: list[Unanswered] = []
        self._by_seq: dict[int, int] = {}
        self._copies: list[tuple[int, int]] = []  # tag of a duplicate, seq that answered it
        self._moving: dict[tuple[str, str, str], tuple[int, Track]] = {}  # by ordering key
        self.messages: dict[int, Known] = {}
        self.broken: list[str] = []
        self.confirmed = 0
        self.settled = 0

    # ------------------------------------------------------------------------- history

    def feed(self, event: Event) -> None:
        """Take in the next event."""
        match event:
            case Call():
                self._called(event)
            case Answer():
                self._answered(event)
            case Refusal():
                self._refused(event)
            case Opened(epoch):
                self._need(epoch > self._epoch, f"epoch {epoch} follows epoch {self._epoch}")
                self._epoch = epoch
            case Died():
                self._unknown += self._open.values()
                self._open = {}
            case Closed():
                self._closed()
            case Elapsed():
                for track in self._held_tracks():
                    track.may_end = True

    def _need(self, fact: bool, otherwise: str) -> None:  # noqa: FBT001 - reads as a sentence
        if not fact:
            self.broken.append(otherwise)

    def _held_tracks(self) -> Iterator[Track]:
        for known in self.messages.values():
            yield from (track for track in known.tracks.values() if track.held)

    def _of_seq(self, seq: int) -> Known | None:
        tag = self._by_seq.get(seq)
        return None if tag is None else self.messages[tag]

    def _called(self, call: Call) -> None:
        ends: list[tuple[Track, Token]] = []
        for put in call.puts:
            self.messages[put.tag] = Known(put, call.queue)
        for seq in call.seqs:
            known = self._of_seq(seq)
            if known is None:
                continue
            if call.name == "cancel":
                known.cancelled = known.cancelled or None
            else:
                track = known.track(call.group)
                ends.append((track, track.token))
                if track.held:
                    track.ending = call.name
        self._open[call.id] = (call, ends)

    def _answered(self, answer: Answer) -> None:
        call, ends = self._open.pop(answer.id)
        if self.undurable and call.name not in {"put", "claim"}:
            self._unknown.append((call, ends))
        elif call.name == "put":
            self._put(call, answer)
        elif call.name == "claim":
            for delivered in answer.deliveries:
                self._delivered(call, delivered)
        elif call.name == "cancel":
            for seq in call.seqs:
                known = self._of_seq(seq)
                if known is not None:
                    known.cancelled = known.cancelled or seq in answer.seqs
        else:
            for seq, (track, token) in zip(call.seqs, ends, strict=True):
                self._ended(call, seq, track, token)

    def _put(self, call: Call, answer: Answer) -> None:
        if self.undurable:
            self._unknown.append((call, []))
        for position, put in enumerate(call.puts):
            # A planted fault confirms before it can know the seq.
            seq = answer.seqs[position] if answer.seqs else None
            known = self.messages[put.tag]
            if position in answer.duplicates and seq is not None:
                known.stored = False
                self._copies.append((put.tag, seq))
                continue
            self.confirmed += 1
            known.stored = None if self.undurable else True
            if seq is not None:
                self._learn(known, seq)

    def _learn(self, known: Known, seq: int) -> None:
        tag = known.put.tag
        other = self._by_seq.setdefault(seq, tag)
        self._need(other == tag, f"seq {seq} was given to message {other} and message {tag}")
        self._need(known.seq in {None, seq}, f"message {tag} has seqs {known.seq} and {seq}")
        known.seq = seq

    def _delivered(self, call: Call, got: Delivered) -> None:
        known = self.messages.get(got.tag)
        if known is None:
            self.broken.append(f"a message was delivered that nobody put: {got}")
            return
        what = f"message {got.tag} (seq {got.seq}), attempt {got.attempt},"
        expected = digest(body(got.tag, known.put.size))
        self._need(got.digest == expected, f"{what} was delivered with another body")
        self._need(known.queue == call.queue, f"{what} came from queue {call.queue}")
        self._need(known.stored is not False, f"{what} was refused, but delivered")
        self._need(known.cancelled is not True, f"{what} was cancelled, but delivered")
        known.stored = known.stored if self.undurable else True
        self._learn(known, got.seq)
        track = known.track(call.group)
        if track.ending == "release":  # its answer is on the way, as this shows
            track.attempt -= 1
        self._need(track.state == "waiting", f"{what} was {track.state}, but delivered")
        alone = not track.held or bool(track.ending) or track.may_end
        self._need(alone, f"{what} was leased to somebody else")
        right = track.attempt + 1
        # An interrupted claim may have started an attempt that nobody saw.
        hidden = int(self._claimed(call.queue, call.group))
        self._need(right <= got.attempt <= right + hidden, f"{what} was to be attempt {right}")
        most = self._most(known)
        self._need(not most or got.attempt <= most, f"{what} of at most {most} was delivered")
        token = (self._epoch, got.counter)
        self._need(token > track.token, f"{what} has token {token} after {track.token}")
        self._check_key(call, known, track, what)
        track.end()
        track.attempt, track.token, track.held = got.attempt, token, True
        track.crashed = track.crashes
        track.undurable += self.undurable

    def _claimed(self, queue: str, group: str, *more: Unanswered) -> bool:
        """Whether a claim of the group got no answer, or is among `more`."""
        return any(
            call.name == "claim" and (call.queue, call.group) == (queue, group)
            for call, _ in (*self._unknown, *more)
        )

    def _check_key(self, call: Call, known: Known, track: Track, what: str) -> None:
        if known.put.key is None:
            return
        of_key = (call.queue, call.group, known.put.key)
        other, before = self._moving.get(of_key, (known.put.tag, track))
        if other != known.put.tag:
            over = not before.held or bool(before.ending) or before.may_end
            self._need(over, f"{what} was delivered while {other} of its key was")
        self._moving[of_key] = (known.put.tag, track)

    def _most(self, known: Known) -> int:
        most = known.put.max_attempts
        return self._max_attempts.get(known.queue, _ATTEMPTS) if most is None else most

    def _ended(self, call: Call, seq: int, track: Track, token: Token) -> None:
        self.settled += 1
        again = track.token != token
        once = again or track.held or track.may_end
        self._need(once, f"the delivery of seq {seq} had ended before a {call.name} was confirmed")
        known = self._of_seq(seq)
        if call.name == "ack":
            self._need(not again, f"seq {seq} was acked, but delivered again")
            track.state = "acked"
        elif call.name == "reject":
            self._need(not again, f"seq {seq} was rejected, but delivered again")
            track.state = "dead"
        elif again:
            return  # the delivery that follows was noted first
        elif call.name == "release":
            track.attempt -= 1
        elif known is not None and self._most(known) and track.attempt >= self._most(known):
            track.state = "dead"
        track.end()

    def _refused(self, refusal: Refusal) -> None:
        call, ends = self._open.pop(refusal.id)
        if refusal.code in Refusal.UNCERTAIN:
            self._unknown.append((call, ends))
            return
        for put in call.puts:
            self.messages[put.tag].stored = False
        for seq in call.seqs if call.name == "cancel" else ():
            known = self._of_seq(seq)
            if known is not None:
                known.cancelled = bool(known.cancelled)
        for track, token in ends:
            if track.token == token:
                track.ending = ""
                # Another lease of the same call may have been stale, and this one settled.
                track.may_end = track.may_end or refusal.code == "stale_lease"

    def _closed(self) -> None:
        for track in self._held_tracks():
            track.attempt -= 1
            track.end()

    # ------------------------------------------------------------------------- the file

    def problems(self, held: Held) -> list[str]:
        """Return what is wrong with the history and with the file that it left."""
        found = [*self.broken, *held.damage]
        found += [f"the message with tag {tag} is there twice" for tag in held.twice]
        found += [f"nobody put message {tag}" for tag in held.seqs if tag not in self.messages]
        for seq in held.orphans:
            known = self._of_seq(seq)
            # A claim may find that its message was cancelled only when it has been leased.
            if known is None or known.cancelled is False:
                found.append(f"deliveries of seq {seq} are left, but the message is gone")
        for known in self.messages.values():
            found += self._message(held, known)
        for call, ends in (*self._unknown, *self._open.values()):
            found += self._whole(held, call, ends)
        found += self._dedup(held)
        return found

    def _message(self, held: Held, known: Known) -> Iterator[str]:
        tag = known.put.tag
        seq = held.seqs.get(tag, known.seq)
        if tag in held.seqs:
            if known.stored is False:
                yield f"message {tag} was refused, but is there"
            if known.seq not in {None, seq}:
                yield f"message {tag} had seq {known.seq} and has seq {seq}"
            yield from self._body(held, known, held.seqs[tag])
        elif not known.stored:
            return
        groups = held.groups.get(known.queue, {})
        acked = all(known.track(group).state == "acked" for group in groups)
        if groups and acked and tag not in held.seqs:
            return  # most messages, most of the time
        if seq is None or not groups:
            if known.cancelled is False and tag not in held.seqs:
                yield f"message {tag} is lost: its put was confirmed"
            return
        for group in groups:
            yield from self._place(held, known, known.track(group), seq, group)
        everywhere = all(held.places(seq, known.queue, group) != {"waiting"} for group in groups)
        if everywhere and seq in held.messages and known.queue not in held.retained:
            yield f"message {tag} (seq {seq}) is settled everywhere, but still stored"

    @staticmethod
    def _body(held: Held, known: Known, seq: int) -> Iterator[str]:
        expected = body(known.put.tag, known.put.size)
        bodies = [held.messages[seq][1]] if seq in held.messages else []
        bodies += [letter.body for (of, _), letter in held.dead.items() if of == seq]
        if any(found != expected for found in bodies):
            yield f"message {known.put.tag} (seq {seq}) has another body"

    def _place(
        self, held: Held, known: Known, track: Track, seq: int, group: str
    ) -> Iterator[str]:
        places = held.places(seq, known.queue, group)
        allowed = self._allowed(known, track, seq <= held.groups[known.queue][group])
        what = f"message {known.put.tag} (seq {seq}) in {known.queue}/{group}"
        if len(places) > 1:
            yield f"{what} is in two places: {sorted(places)}"
        elif not places <= allowed:
            yield f"{what} is {', '.join(places)}, but must be {' or '.join(sorted(allowed))}"
        elif places != {"settled"}:
            yield from self._attempts(held, known, track, seq, group)

    def _allowed(self, known: Known, track: Track, below_floor: bool) -> set[str]:  # noqa: FBT001
        allowed = {{"acked": "settled"}.get(track.state, track.state)}
        if track.state == "waiting":
            if track.may_end and track.held:
                allowed |= {"settled", "dead"}
            if track.ending == "ack":
                allowed.add("settled")
            if track.ending == "reject" or self._exhausted(known, track):
                allowed.add("dead")
            if known.cancelled is True:
                allowed = allowed - {"waiting"} | {"settled"}
            if known.cancelled is None or below_floor:
                allowed.add("settled")
        return allowed

    def _exhausted(self, known: Known, track: Track) -> bool:
        most = self._most(known)
        if track.crashes >= self._max_crashes:
            return True
        return bool(most) and track.attempt >= most and (not track.held or bool(track.ending))

    def _attempts(
        self, held: Held, known: Known, track: Track, seq: int, group: str
    ) -> Iterator[str]:
        numbers = held.attempts(seq, group)
        what = f"message {known.put.tag} (seq {seq}) in {known.queue}/{group}"
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"{what} has attempts {numbers}"
        low = high = track.attempt
        if track.ending == "release" or track.may_end:
            low -= 1
        low -= track.undurable
        if self._claimed(known.queue, group, *self._open.values()) and (
            not track.held or track.ending or track.may_end
        ):
            high += 1
        if not low <= len(numbers) <= high:
            yield f"{what} has {len(numbers)} attempts, not {low} to {high}"
        rows = held.deliveries.get((seq, group), [])
        if track.attempt and len(rows) == track.attempt and not track.may_end:
            crashes = rows[-1].crashes
            if rows[-1].token == track.token and crashes != track.crashed:
                yield f"{what} has {crashes} crashes, not {track.crashed}"

    def _whole(self, held: Held, call: Call, ends: list[tuple[Track, Token]]) -> Iterator[str]:
        """A call without an answer happened wholly or not at all (I10)."""
        if call.name == "put":
            # A message with a dedup key may be missing because an earlier one answered for it.
            there = []
            for tag in [put.tag for put in call.puts if put.dedup is None]:
                seen = any(track.token > (0, 0) for track in self.messages[tag].tracks.values())
                # A delivery proves the put, unless that has been forgotten together with it.
                if tag in held.seqs or not (seen and self.undurable):
                    there.append(seen or tag in held.seqs)
        elif call.name in {"ack", "reject"}:
            there = [
                held.places(seq, call.queue, call.group) != {"waiting"}
                for seq, (track, token) in zip(call.seqs, ends, strict=True)
                if track.token == token and not track.may_end and self._is_sure(seq)
            ]
        else:
            return
        if any(there) and not all(there):
            yield f"half of a call happened: {sum(there)} of {len(there)} of {call}"

    def _is_sure(self, seq: int) -> bool:
        known = self._of_seq(seq)
        return known is not None and known.stored is True

    def _dedup(self, held: Held) -> Iterator[str]:
        firsts: dict[tuple[str, str], int] = {}
        for tag, known in self.messages.items():
            if known.put.dedup is None or not (known.stored or tag in held.seqs):
                continue
            first = firsts.setdefault((known.queue, known.put.dedup), tag)
            if first != tag:
                yield f"messages {first} and {tag} have the same dedup key, and both are stored"
        for tag, seq in self._copies:
            known = self.messages[tag]
            first = firsts.get((known.queue, known.put.dedup or ""), 0)
            original = self.messages.get(first)
            answered = None if original is None else held.seqs.get(first, original.seq)
            if answered is not None and answered != seq:
                yield f"the put of message {tag} was answered with seq {seq}, not {answered}"

    # -------------------------------------------------------------------------- go on

    def adopt(self, held: Held) -> None:
        """Believe the file about what nobody could know: the next host begins with it."""
        for tag, known in self.messages.items():
            seq = held.seqs.get(tag, known.seq)
            known.stored = bool(known.stored or tag in held.seqs)
            if not known.stored or seq is None:
                continue
            self._learn(known, seq)
            if known.cancelled is None:
                known.cancelled = tag not in held.seqs
            for group in held.groups.get(known.queue, {}):
                self._adopt(held, known, known.track(group), group)
        self._unknown, self._moving = [], {}

    @staticmethod
    def _adopt(held: Held, known: Known, track: Track, group: str) -> None:
        assert known.seq is not None
        place = next(iter(held.places(known.seq, known.queue, group)))
        track.state = "acked" if place == "settled" else place
        rows = held.deliveries.get((known.seq, group), [])
        track.attempt = len(held.attempts(known.seq, group))
        if rows and place == "waiting":
            track.token = rows[-1].token
            track.crashed = rows[-1].crashes
            track.crashes = track.crashed + (rows[-1].ended is None)
        track.end()
