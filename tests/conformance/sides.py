"""Two stores side by side: the same operation for both, and all answers in comparable form.

Knows: that stores may number queues, groups, sessions and dead letters as they like.
Does not know: which operations are worth trying (machine.py), any store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from embedq.storage.memory import MemoryStore
from embedq.storage.ops import Op, PutPlain
from embedq.storage.rows import DeadRow, DeliveryRow, Stored
from tests.conformance.atomicity import commit_and_fail
from tests.conformance.scenario import EVERYTHING, Scenario, Stores, attempts_of

KEYS = ("k", "l")
PRIORITIES = (0, 1, 2)


class Side(Scenario):
    """One store of a pair; `queues[n]` is the id of the n-th queue here, and so on."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores)
        self.queues: list[int] = []
        self.groups: list[int] = []
        self.sessions: list[int] = []
        self.removed: set[int] = set()  # numbers of groups

    def queue_number(self, id_: int) -> int:
        return self.queues.index(id_)

    def group_number(self, id_: int) -> int:
        return self.groups.index(id_)

    def live_groups(self) -> list[int]:
        """Return the numbers of the groups there are."""
        return [n for n in range(len(self.groups)) if n not in self.removed]

    def all_seqs(self) -> list[int]:
        return sorted(seq for queue in self.queues for seq in self.seqs(queue))

    def letter_ids(self) -> dict[tuple[int, int], int]:
        """Return the id of every dead letter by (seq, number of the group)."""
        return {
            (letter.seq, self.group_number(letter.group)): letter.id
            for queue in self.queues
            for letter in self.letters(queue)
        }

    # ------------------------------------------------------------------- answers

    def answers(self, limit: int, now: int, *, in_full: bool) -> Iterator[tuple[str, object]]:
        """Ask what a broker asks all the time or, in full, everything; name each answer."""
        store = self.store
        yield "last_seq and epoch", (store.last_seq, store.epoch)
        for number in self.live_groups():
            for name, answer in self._streams(self.groups[number], limit):
                yield f"{name} of group {number}", answer
        yield "messages", [self.messages_of(number) for number in range(len(self.queues))]
        if in_full:
            yield from self._answers_of_messages()
            yield from self._answers_of_counts(limit, now)

    def messages_of(self, number: int) -> list[Stored]:
        found = self.store.range(self.queues[number], 0, EVERYTHING)
        return [message._replace(queue=number) for message in found]

    def _streams(self, group: int, limit: int) -> Iterator[tuple[str, object]]:
        for priority in PRIORITIES:
            yield f"stream {priority}", self.waiting(group, priority, limit=limit)
        yield "delayed messages", self.timed(group, retries=False, limit=limit)
        yield "retries", self.timed(group, retries=True, limit=limit)
        yield "the tail", self.timed(group, retries=True, limit=limit, tails=True)
        yield "open deliveries", self.open_deliveries(group)

    def _answers_of_messages(self) -> Iterator[tuple[str, object]]:
        store, seqs = self.store, self.all_seqs()
        yield "messages by seq", [m.seq for m in sorted(store.messages([*seqs, EVERYTHING]))]
        rows = {seq: store.deliveries(seq) for seq in seqs}
        ranks = _ranks(rows)
        for seq in seqs:
            yield f"deliveries of {seq}", [self._delivery(found, ranks) for found in rows[seq]]
            unsettled = [self.group_number(group) for group in store.unsettled(seq)]
            yield f"groups that have not settled {seq}", unsettled
            for number in self.live_groups():
                latest = store.latest(self.groups[number], seq)
                shown = latest and self._delivery(latest, ranks)
                yield f"latest of {seq} in group {number}", shown
        for number in self.live_groups():
            for key in KEYS:
                for after in (0, *seqs[::4]):
                    found = store.next_of_key(self.groups[number], key, after)
                    yield f"first of {key} after {after} in group {number}", found

    def _answers_of_counts(self, limit: int, now: int) -> Iterator[tuple[str, object]]:
        store = self.store
        yield "catalogue", self._catalogue()
        letters = [letter for queue in self.queues for letter in self.letters(queue)]
        yield "dead letters", [self._letter(letter) for letter in letters]
        for letter in letters:
            assert store.dead_letter(letter.seq, letter.group) == letter
        queue = self.queue_number
        expired = sorted(store.expired(now, EVERYTHING))  # the order of equal times is free
        yield "expired", [(seq, queue(id_)) for seq, id_ in expired]
        tally = store.begin_tally()()
        yield (
            "counts",
            (
                {queue(id_): count for id_, count in tally.stored.items() if count},
                {queue(id_): last for id_, last in tally.last.items()},
                {self.group_number(id_): n for id_, n in tally.settled.items() if n},
                {queue(id_): count for id_, count in tally.dead.items() if count},
                tally.upto,
            ),
        )
        yield "sessions", list(store.session_names(self.sessions).values())

    def _catalogue(self) -> object:
        queues, groups = self.store.catalogue()
        return (
            [
                (self.queue_number(q.id), q.name, q.policy, q.paused, q.stored, q.dead, q.last)
                for q in queues
            ],
            [
                (self.group_number(g.id), self.queue_number(g.queue), g.name, g.floor, g.settled)
                for g in groups
            ],
        )

    def _delivery(self, found: DeliveryRow, ranks: dict[int, tuple[int, int]]) -> object:
        session = None if found.session is None else self.sessions.index(found.session)
        closed = None if found.closed is None else ranks[found.closed]
        group = self.group_number(found.group)
        return found._replace(group=group, session=session)._asdict() | {"closed": closed}

    def _letter(self, letter: DeadRow) -> object:
        values: dict[str, Any] = letter._asdict()
        del values["id"]
        group, queue = self.group_number(letter.group), self.queue_number(letter.queue)
        return values | {"group": group, "queue": queue, "attempts": attempts_of(letter)}


def _ranks(rows: dict[int, list[DeliveryRow]]) -> dict[int, tuple[int, int]]:
    """Return (epoch, rank) of each closing number: stores may count commits differently."""
    numbers = {row.closed for found in rows.values() for row in found if row.closed is not None}
    return {number: (number >> 40, rank) for rank, number in enumerate(sorted(numbers))}


class Twin(NamedTuple):
    """One operation for both stores, and what of its outcome must be the same."""

    left: Op
    right: Op
    outcome: Callable[[Side, Op], object]


class Pair:
    """Two stores that must not be told apart. The left one is a MemoryStore, the oracle."""

    def __init__(self, left: Stores, right: Stores) -> None:
        self.left, self.right = Side(left), Side(right)
        self.sides = (self.left, self.right)
        self._used = 0  # the highest seq that a message ever got

    def twin(self, make: Callable[[Side], Op], outcome: Callable[[Side, Any], object]) -> Twin:
        return Twin(make(self.left), make(self.right), outcome)

    def commit(self, twins: list[Twin]) -> None:
        """Commit a batch to both and compare the outcomes."""
        before = self.left.store.last_seq
        self.left.commit(*(twin.left for twin in twins))
        if self.left.store.last_seq > before:
            self._used = self.left.store.last_seq
        self.right.commit(*(twin.right for twin in twins))
        for twin in twins:
            left = twin.outcome(self.left, twin.left)
            right = twin.outcome(self.right, twin.right)
            assert left == right, f"{type(twin.left).__name__}: {left} != {right}"

    def put_alone(self, twin: Twin) -> None:
        for side, op in ((self.left, twin.left), (self.right, twin.right)):
            assert isinstance(op, PutPlain)
            side.put_alone(op)
            assert op.first == side.store.last_seq - op.count + 1
        self._used = self.left.store.last_seq
        assert twin.outcome(self.left, twin.left) == twin.outcome(self.right, twin.right)

    def fail(self, twins: list[Twin], error: type[BaseException]) -> None:
        """Commit a batch that fails at its end; both must forget all of it."""
        commit_and_fail(self.left.store, [twin.left for twin in twins], error)
        commit_and_fail(self.right.store, [twin.right for twin in twins], error)
        self.align()

    def reopen(self, *, clean: bool) -> None:
        for side in self.sides:
            side.reopen(clean=clean)
        self.align()
        assert self.left.store.clean == self.right.store.clean
        assert self.left.store.clean or not clean

    def align(self) -> None:
        """Let the oracle skip the seqs that the other one does after a failure or a crash."""
        oracle, last_seq = self.left.store, self.right.store.last_seq
        assert isinstance(oracle, MemoryStore)
        assert last_seq >= self._used, "a seq will be used twice"
        oracle.last_seq = oracle._state.last_seq = last_seq

    def compare(self, limit: int, now: int, *, in_full: bool) -> None:
        """Ask both stores and compare."""
        answers = zip(
            *(side.answers(limit, now, in_full=in_full) for side in self.sides), strict=True
        )
        for (name, left), (same_name, right) in answers:
            assert name == same_name
            assert left == right, f"{name}: {left} != {right}"
