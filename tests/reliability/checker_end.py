"""What must be left when a journal is over: every message at its end, in one place, whole.

Knows: which ends a message may come to, what a call that got no answer may have done.
Does not know: how the file was read, what was judged line by line (checker.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tests.reliability.checker import Broken, Rules, read_story
from tests.reliability.invariants_events import Call, body
from tests.reliability.invariants_file import Held, Letter
from tests.reliability.journal import Line
from tests.reliability.story import UNKNOWN, Delivered, Message, Story, Track


def check(lines: Sequence[Line], held: Held, rules: Rules) -> list[Broken]:
    """Return which promises were broken, by a journal and by the file that its hosts left."""
    reading = read_story(lines, rules)
    ending = End(reading.story, held, rules, lines[-1].at if lines else 0)
    return [*reading.broken, *ending.problems()]


class End:
    """Compares a story with what is in the file."""

    def __init__(self, story: Story, held: Held, rules: Rules, now: int) -> None:
        self.story = story
        self.held = held
        self.rules = rules
        self.now = now
        for seq in held.places_known():
            message = story.messages.get(held.tag(seq))
            if message is not None:
                story.learn(message, seq, held.origins.get(seq, 0))
        self.copies = Counter(
            origin
            for message in story.messages.values()
            for origin in message.seqs.values()
            if origin > 0
        )

    def problems(self) -> Iterator[Broken]:
        """Go through everything."""
        for text in self.held.damage:
            yield Broken("P4", 0, f"the file: {text}")
        yield from self._bodies()
        for message in self.story.messages.values():
            yield from self._message(message)
            for seq in message.seqs:
                for group in self.held.groups.get(message.queue, {}):
                    track = self.story.tracks.get((seq, group), Track())
                    yield from self._fate(message, seq, group, track)
                    yield from self._waits(message, track)
        for (seq, group), letter in self.held.dead.items():
            yield from self._letter(seq, group, letter)
        yield from self._redriven()
        yield from self._batches()
        yield from self._runs()

    # -------------------------------------------------------------------- what is there

    def _bodies(self) -> Iterator[Broken]:
        for seq in self.held.places_known():
            tag = self.held.tag(seq)
            message = self.story.messages.get(tag)
            if message is None:
                yield Broken("P4", tag, f"is in the file as seq {seq}, but nobody put it")
            elif any(found != body(tag, message.put.size) for found in self.held.bodies(seq)):
                yield Broken("P4", tag, f"is in the file with another body (seq {seq})")

    def _message(self, message: Message) -> Iterator[Broken]:
        tag, lines = message.put.tag, tuple(message.lines)
        originals = [seq for seq, origin in message.seqs.items() if not origin]
        if len(originals) > 1:
            yield Broken("P10", tag, f"was put twice: it has seqs {sorted(originals)}", lines)
        if message.refused is not None and message.answered is None and originals:
            yield Broken("P4", tag, "was refused, but stored", lines)
        if message.put.dedup is not None:
            yield from self._dedup(message, originals)
        elif message.answered is not None and not originals:
            # The answer may come from a host that confirms before it knows the seq.
            yield Broken("P1", tag, "is lost: its put was confirmed", lines)

    def _dedup(self, message: Message, originals: list[int]) -> Iterator[Broken]:
        tag, key, lines = message.put.tag, message.put.dedup, tuple(message.lines)
        same = [
            other
            for other in self.story.messages.values()
            if (other.queue, other.put.dedup) == (message.queue, key)
        ]
        stored = [other.put.tag for other in same if other.seqs]
        if originals and len(stored) > 1 and tag == stored[0]:
            what = f"has the dedup key of {stored[1:]}, and all are stored"
            yield Broken("P10", tag, what, lines)
        if message.answered is not None and not stored and not self._gone_quietly(message):
            yield Broken("P1", tag, "is lost: its put was confirmed", lines)
        known = self.story.tags.get(message.answer)
        if known is not None and known not in {other.put.tag for other in same}:
            what = f"was answered with seq {message.answer}, of message {known}"
            yield Broken("P10", tag, what, lines)

    # ---------------------------------------------------------------------- how it ended

    def _gone_quietly(self, message: Message, seq: int = 0) -> bool:
        """Whether a message may have left without a trace."""
        removed = self.story.may_be_removed(message, seq)
        return removed or message.queue in self.rules.drops

    def _fate(self, message: Message, seq: int, group: str, track: Track) -> Iterator[Broken]:
        tag, last = message.put.tag, track.last
        lines = (*message.lines, *(() if last is None else last.lines))
        where = f"(seq {seq}) in {message.queue}/{group}"
        places = self.held.places(seq, message.queue, group)
        if len(places) > 1:
            yield Broken("P7", tag, f"{where} is in two places: {sorted(places)}", lines)
        elif places == {"waiting"}:
            removed = self.story.cancelled.get(seq) or self.story.purged(message)
            if removed is not None and not message.seqs[seq]:
                yield Broken("P2", tag, f"{where} was removed, but is there", (*lines, removed))
            if track.acked is not None:
                yield Broken("P3", tag, f"{where} was acked, but waits", lines)
            elif self.rules.drained:
                yield Broken("P2", tag, f"{where} is stuck", lines)
        elif places == {"dead"}:
            if track.acked is not None:
                yield Broken("P3", tag, f"{where} was acked, but is dead", lines)
        elif not self._is_explained(message, seq, group, track):
            yield from self._unexplained(message, seq, track, f"{where} is gone", lines)

    def _is_explained(self, message: Message, seq: int, group: str, track: Track) -> bool:
        """Whether a message that is settled, or gone, may be."""
        last = track.last
        if last is not None and last.how == "done":
            return True
        if self._gone_quietly(message, seq) or self.story.is_loose(seq, group):
            return True
        if self.copies[seq] > 0 or UNKNOWN in message.seqs.values():
            return True
        return last is not None and self._may_be_copied(message, last)

    def _may_be_copied(self, message: Message, last: Delivered) -> bool:
        """Whether a letter may have been redriven as a copy that left before it was delivered."""
        for made in self.story.calls["redrive"]:
            if made.call.queue != message.queue:
                continue
            if made.answered is None:
                if self.story.may_be_removed(message, 0):
                    return True
            elif made.answered.number > last.line.number:
                seqs = getattr(made.answered.record, "seqs", ())
                if any(seq not in self.story.tags for seq in seqs):
                    return True  # another rule asks where that one is
        return False

    def _unexplained(
        self, message: Message, seq: int, track: Track, what: str, lines: tuple[Line, ...]
    ) -> Iterator[Broken]:
        tag, last = message.put.tag, track.last
        if track.buried is not None or (last is not None and last.how == "rejected"):
            yield Broken("P7", tag, f"{what}: it was dead, and there is no letter", lines)
        elif last is not None:
            yield Broken("P2", tag, f"{what}: its last delivery did not end it", lines)
        elif message.answered is not None or message.seqs[seq]:
            yield Broken("P1", tag, f"{what}: it was confirmed and never delivered", lines)
        else:
            yield Broken("P2", tag, f"{what}: it was stored and never delivered", lines)

    def _waits(self, message: Message, track: Track) -> Iterator[Broken]:
        """Judge how long a delivery took to come again (P8)."""
        for one, after in zip(track.deliveries, track.deliveries[1:], strict=False):
            due = self._due(one)
            waited = 0 if due is None else self.story.serving_ms(due, after.line.at)
            if waited > self.rules.redelivery_ms:
                what = f"came again only after {waited} ms of service"
                yield Broken("P8", message.put.tag, what, (*one.lines, after.line))

    def _due(self, one: Delivered) -> int | None:
        if one.ending is not None:
            return one.ending.at
        if one.start.until:
            return one.start.until
        return self.story.serves_after(one.host)

    # -------------------------------------------------------------------- dead letters

    def _letter(self, seq: int, group: str, letter: Letter) -> Iterator[Broken]:
        message = self.story.messages.get(self.held.tag(seq))
        if message is None:
            return
        track = self.story.tracks.get((seq, group), Track())
        tag, most = message.put.tag, self.rules.most(message)
        lines = (*message.lines, *(line for each in track.deliveries for line in each.lines))
        deaths = self.story.host - 1
        numbers = letter.attempts
        if numbers != list(range(1, len(numbers) + 1)):
            yield Broken("P5", tag, f"is dead with attempts {numbers}", lines)
        started = max((each.start.attempt for each in track.deliveries), default=0)
        released = track.last is not None and track.last.how == "released"
        if len(numbers) < started - released:
            what = f"is dead with attempts {numbers}, but {started} were started"
            yield Broken("P5", tag, what, lines)
        hows = {each.how for each in track.deliveries}
        fit = {
            "max_attempts": bool(most) and len(numbers) >= most,
            "crashed": deaths >= self.rules.max_crashes
            or (bool(most) and deaths > 0 and len(numbers) >= most),
            "rejected": "rejected" in hows or self.story.is_loose(seq, group),
            "expired": bool(message.put.ttl_ms),
        }
        if not fit.get(letter.reason, False):
            promise = "P4" if letter.reason == "corrupt" else "P5"
            what = f"is dead as {letter.reason} after attempts {numbers} of {most}"
            yield Broken(promise, tag, what, lines)

    def _redriven(self) -> Iterator[Broken]:
        """A letter is there, or its copy is, never both."""
        for origin, copies in self.copies.items():
            tag = self.story.tags.get(origin, 0)
            message = self.story.messages.get(tag)
            queue = "" if message is None else message.queue
            groups = self.held.groups.get(queue, {})
            letters = sum((origin, group) in self.held.dead for group in groups)
            if copies + letters > len(groups):
                what = f"(seq {origin}) has {letters} letters and {copies} copies"
                yield Broken("P7", tag, what, () if message is None else tuple(message.lines))
        for made in self.story.calls["redrive"]:
            answer = None if made.answered is None else made.answered.record
            for seq in getattr(answer, "seqs", ()):
                if seq not in self.story.tags and made.answered is not None:
                    what = f"is lost: it was redriven as seq {seq}"
                    if not self._may_have_left(made.call, seq):
                        yield Broken("P1", 0, what, (made.called, made.answered))

    def _may_have_left(self, call: Call, seq: int) -> bool:
        removed = any(seq in made.call.seqs for made in self.story.calls["cancel"])
        purged = any(made.call.queue == call.queue for made in self.story.calls["purge"])
        return removed or purged or call.queue in self.rules.drops

    # ---------------------------------------------------------------- one transaction each

    def _batches(self) -> Iterator[Broken]:
        """A put of several messages without an answer happened wholly or not at all."""
        by_call: dict[int, list[Message]] = {}
        for message in self.story.messages.values():
            by_call.setdefault(message.called.number, []).append(message)
        for together in by_call.values():
            sure = [message for message in together if message.put.dedup is None]
            gone = [m for m in sure if not m.seqs and not self._gone_quietly(m)]
            there = [m for m in sure if m.seqs]
            if gone and there and gone[0].answered is None:
                what = f"is missing from a put of {len(together)}, of which others are stored"
                yield Broken("P7", gone[0].put.tag, what, (*gone[0].lines, *there[0].lines))

    def _runs(self) -> Iterator[Broken]:
        """Messages of one run that were all done were settled together, or not at all."""
        runs: dict[tuple[int, str, int], list[tuple[Track, Delivered]]] = {}
        for track in self.story.tracks.values():
            for one in track.deliveries:
                if one.start.slot and one.how == "done":
                    run = (one.host, one.start.slot, one.start.run)
                    runs.setdefault(run, []).append((track, one))
        for found in runs.values():
            again = [self._came_again(track, one) for track, one in found]
            if any(again) and not all(again):
                settled = next(
                    one for (_, one), more in zip(found, again, strict=True) if not more
                )
                came = next(one for (_, one), more in zip(found, again, strict=True) if more)
                if not self._may_vanish(settled):
                    what = "was settled by half: another of its batch came again"
                    lines = (*settled.lines, *came.lines)
                    yield Broken("P7", settled.start.tag, what, lines)

    def _came_again(self, track: Track, one: Delivered) -> bool:
        place = (one.start.seq, one.start.group)
        return track.last is not one or place in self.held.dead or self.copies[one.start.seq] > 0

    def _may_vanish(self, one: Delivered) -> bool:
        message = self.story.messages.get(one.start.tag)
        if message is None or message.put.ttl_ms:
            return True
        return self._gone_quietly(message, one.start.seq)
