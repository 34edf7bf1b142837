"""A machine that does the same random things to two stores and compares all their answers.

Knows: what a broker may ask a store to do, in any order that makes sense to a broker.
Does not know: any store. Operations that meet in one commit concern different messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from embedq.lifecycle import Outcome, Reason
from embedq.message import ErrorInfo
from embedq.policy import QueuePolicy
from embedq.storage.port import (
    Ack,
    Again,
    Bury,
    Cancel,
    Collect,
    DeclareGroup,
    DeclareQueue,
    DeliveryRow,
    Fail,
    Forget,
    Op,
    OpenSession,
    Pause,
    PurgeDead,
    PutRows,
    Redrive,
    Release,
    RemoveGroup,
    Retire,
    Row,
    Save,
    Start,
)
from tests.conformance.atomicity import Explosive, Planted
from tests.conformance.scenario import EVERYTHING, Stores, plain, row
from tests.conformance.sides import KEYS, PRIORITIES, Pair, Side, Twin

T = TypeVar("T")

GONE = 1 << 30  # a seq and an id that nothing ever gets
QUEUES = ("orders", "mail")
GROUPS = ("default", "audit", "late")

picks = st.integers(0, 30)  # which of the candidates, modulo their number
some_picks = st.lists(picks, min_size=1, max_size=5)
errors = st.sampled_from([None, ErrorInfo("ValueError", "no").encode()])


def pick(candidates: list[T], number: int) -> T:
    return candidates[number % len(candidates)]


def pick_some(candidates: list[T], numbers: list[int]) -> list[T]:
    return list(dict.fromkeys(pick(candidates, number) for number in numbers))


@st.composite
def rows(draw: st.DrawFn) -> Row:
    """Draw a message that uses any of the options. Times end in 5, so that none equals `now`."""
    time = st.none() | st.integers(0, 30).map(lambda n: 1_005 + 10 * n)
    dedup_key = draw(st.sampled_from([None, None, None, "d", "e"]))
    return row(
        draw(st.binary(max_size=4)),
        kind=draw(st.integers(0, 2)),
        priority=draw(st.sampled_from([0, *PRIORITIES])),
        due=draw(time),
        expires=draw(time),
        key=draw(st.sampled_from([None, None, None, *KEYS])),
        max_attempts=draw(st.sampled_from([None, 0, 3])),
        headers=draw(st.sampled_from([None, b"\x81\xa1a\xa1b"])),
        dedup_key=dedup_key,
        dedup_until=0 if dedup_key is None else 1_005 + 10 * draw(st.integers(0, 30)),
    )


class StoresAgree(RuleBasedStateMachine):
    """The rules. A subclass or a factory says which two stores."""

    def __init__(self, left: Stores, right: Stores) -> None:
        super().__init__()
        self.pair = Pair(left, right)
        self.now = 1_000
        self.counter = 0
        self.limit = 3
        self.room = 0  # how many more operations join the pending ones
        self.pending: list[Twin] = []
        self.busy: set[int] = set()  # seqs that the pending operations concern

    # ------------------------------------------------------------------ committing

    def submit(
        self,
        make: Callable[[Side], Op],
        outcome: Callable[[Side, Any], object] = lambda _side, _op: None,
        seqs: list[int] | None = None,
    ) -> None:
        """Commit an operation, or let it wait for others. Without `seqs` it goes alone."""
        if seqs is None or self.busy.intersection(seqs):
            self.flush()
        self.pending.append(self.pair.twin(make, outcome))
        self.busy.update(seqs or ())
        if seqs is None or self.room == 0:
            self.flush()
        else:
            self.room -= 1

    def flush(self) -> None:
        twins, self.pending, self.busy = self.pending, [], set()
        if twins:
            self.pair.commit(twins)

    @rule(room=st.integers(1, 4), limit=st.integers(1, 5))
    def let_operations_meet(self, room: int, limit: int) -> None:
        self.room, self.limit = room, limit

    @rule(step=st.integers(1, 8))
    def wait(self, step: int) -> None:
        self.now += 10 * step

    @rule()
    def fail_a_commit(self) -> None:
        twins, self.pending, self.busy = self.pending, [], set()
        self.pair.fail(twins, PutRows(GONE, self.now, Explosive()), Planted)

    @invariant()
    def the_answers_are_the_same(self) -> None:
        if not self.pending:
            self.pair.compare(self.limit, self.now)

    def teardown(self) -> None:
        self.flush()
        for side in self.pair.sides:
            side.store.close(clean=False)

    # ------------------------------------------------------------------ candidates

    def queues(self) -> list[int]:
        return list(range(len(self.pair.left.queues)))

    def groups(self) -> list[int]:
        return self.pair.left.live_groups()

    def rows_of(self, group: int) -> list[DeliveryRow]:
        """Return the latest delivery of each message that was delivered to a group."""
        left = self.pair.left
        found = {}
        for seq in left.all_seqs():
            for delivery in left.store.deliveries(seq):
                if delivery.group == left.groups[group] and seq not in self.busy:
                    found[seq] = delivery
        return list(found.values())

    def open_rows(self, group: int) -> list[DeliveryRow]:
        return [delivery for delivery in self.rows_of(group) if delivery.ended is None]

    def unsettled(self, group: int) -> list[int]:
        left = self.pair.left
        id_ = left.groups[group]
        seqs = [seq for seq in left.all_seqs() if seq not in self.busy]
        return [seq for seq in seqs if id_ in left.store.unsettled(seq)]

    # ------------------------------------------------------------- queues and groups

    @initialize()
    def begin(self) -> None:
        self.declare_queue(0, None)
        self.declare_group(0, 0, 0)
        self.put_plain(0, [b"first", b"second", b"third"])

    @rule(name=st.integers(0, len(QUEUES) - 1), retain_ms=st.sampled_from([None, None, 50]))
    def declare_queue(self, name: int, retain_ms: int | None) -> None:
        def outcome(side: Side, op: DeclareQueue) -> object:
            assert op.row is not None
            if op.row.id not in side.queues:
                side.queues.append(op.row.id)
            return side.queue_number(op.row.id), op.row.name, op.row.policy, op.row.paused

        policy = QueuePolicy(retain_ms=retain_ms)
        self.submit(lambda _: DeclareQueue(QUEUES[name], policy), outcome)

    @rule(queue=picks, name=st.integers(0, len(GROUPS) - 1), floor=st.integers(0, 3))
    def declare_group(self, queue: int, name: int, floor: int) -> None:
        def outcome(side: Side, op: DeclareGroup) -> object:
            assert op.row is not None
            if op.row.id not in side.groups:
                side.groups.append(op.row.id)
            assert side.group_number(op.row.id) not in side.removed
            return side.group_number(op.row.id), op.row.name, op.row.floor, op.row.settled

        self.flush()
        number = pick(self.queues(), queue)
        last = self.pair.left.store.last_seq
        where = {0: 0, 1: last, 2: last // 2, 3: last - 1 if last else 0}[floor]
        self.submit(lambda side: DeclareGroup(side.queues[number], GROUPS[name], where), outcome)

    @precondition(lambda self: len(self.groups()) > 1)
    @rule(group=picks)
    def remove_group(self, group: int) -> None:
        number = pick(self.groups(), group)
        self.submit(lambda side: RemoveGroup(side.groups[number]))
        for side in self.pair.sides:
            side.removed.add(number)

    @rule(queue=picks, paused=st.booleans())
    def pause(self, queue: int, *, paused: bool) -> None:
        number = pick(self.queues(), queue)
        self.submit(lambda side: Pause(side.queues[number], paused))

    @rule(name=st.sampled_from(["worker-1", "worker-2"]))
    def open_session(self, name: str) -> None:
        self.submit(
            lambda _: OpenSession(name, self.now), lambda side, op: side.sessions.append(op.id)
        )

    @rule(queue=picks, upto=picks, after=picks)
    def collect(self, queue: int, upto: int, after: int) -> None:
        number = pick(self.queues(), queue)
        seqs = [0, EVERYTHING, *self.pair.left.all_seqs()]
        first, last = sorted((pick(seqs, after), pick(seqs, upto)))
        self.submit(
            lambda side: Collect(side.queues[number], first, last), lambda _, op: op.removed
        )

    @rule(group=picks, floor=picks, exact=st.booleans())
    def save(self, group: int, floor: int, *, exact: bool) -> None:
        self.flush()
        number, seqs = pick(self.groups(), group), [0, *self.pair.left.all_seqs()]
        self.save_counts(number, pick(seqs, floor), exact=exact)

    def save_counts(self, number: int, floor: int, *, exact: bool) -> None:
        def make(side: Side) -> Save:
            counts = side.store.begin_tally()()
            last = side.store.last_seq
            return Save(
                [
                    (id_, counts.stored.get(id_, 0), counts.dead.get(id_, 0), last)
                    for id_ in side.queues
                ],
                [(side.groups[number], floor, counts.settled.get(side.groups[number], 0))],
                exact,
            )

        self.submit(make)

    @rule(group=picks, limit=st.integers(1, 4), age=st.integers(0, 8))
    def retire(self, group: int, limit: int, age: int) -> None:
        self.flush()
        number, cutoff, before = pick(self.groups(), group), self.now - 10 * age + 5, {}
        for side in self.pair.sides:
            found = [d for seq in side.all_seqs() for d in side.store.deliveries(seq)]
            before[side] = [d.closed for d in found if d.group == side.groups[number]]

        def outcome(side: Side, op: Retire) -> object:
            if op.reached is None:
                return op.removed, None
            return op.removed, sum(closed <= op.reached for closed in before[side] if closed)

        self.submit(lambda side: Retire(side.groups[number], cutoff, 0, limit), outcome)

    @rule(clean=st.booleans())
    def reopen(self, *, clean: bool) -> None:
        self.flush()
        if clean:
            self.save_counts(pick(self.groups(), 0), 0, exact=True)
        self.pair.reopen(clean=clean)

    # ------------------------------------------------------------------------- puts

    @rule(queue=picks, bodies=st.lists(st.binary(max_size=3), min_size=1, max_size=6))
    def put_plain(self, queue: int, bodies: list[bytes]) -> None:
        number = pick(self.queues(), queue)
        self.submit(
            lambda side: plain(side.queues[number], *bodies, now=self.now),
            lambda _, op: op.first,
            [],
        )

    @rule(queue=picks, drawn=st.lists(rows(), min_size=1, max_size=4))
    def put_rows(self, queue: int, drawn: list[Row]) -> None:
        number = pick(self.queues(), queue)
        self.submit(
            lambda side: PutRows(side.queues[number], self.now, drawn),
            lambda _, op: (op.seqs, op.stored),
            [],
        )

    @rule(limit=st.integers(1, 3))
    def forget(self, limit: int) -> None:
        self.submit(lambda _: Forget(self.now, limit), lambda _, op: op.removed, [])

    # ------------------------------------------------------------------- deliveries

    @rule(group=picks, chosen=some_picks, session=picks)
    def start(self, group: int, chosen: list[int], session: int) -> None:
        number = pick(self.groups(), group)
        known = {delivery.seq: delivery for delivery in self.rows_of(number)}
        seqs = self.unsettled(number)
        if not seqs:
            return
        seqs = pick_some(seqs, chosen)
        fresh = [seq for seq in seqs if seq not in known]
        again = []
        for seq in seqs:
            if seq in known:
                latest = known[seq]
                is_open = latest.ended is None
                same = is_open and session % 3 == 0
                again.append(Again(seq, latest.attempt + (not same), latest.crashes + is_open))
        first, self.counter = self.counter + 1, self.counter + len(seqs)

        def make(side: Side) -> Start:
            who = pick([None, *side.sessions], session)
            return Start(side.groups[number], self.now, who, first, fresh, again)

        self.submit(make, seqs=seqs)

    @rule(group=picks, chosen=some_picks, gone=st.booleans())
    def ack(self, group: int, chosen: list[int], *, gone: bool) -> None:
        number = pick(self.groups(), group)
        seqs = [delivery.seq for delivery in self.open_rows(number)]
        seqs = pick_some(seqs, chosen) if seqs else []
        if gone or not seqs:
            seqs.append(GONE)
        self.submit(
            lambda side: Ack(side.groups[number], self.now, seqs),
            lambda _, op: op.removed,
            [*seqs, GONE],
        )

    @rule(
        group=picks,
        chosen=picks,
        outcome=st.sampled_from([Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CRASHED]),
        delay=st.integers(0, 9),
        error=errors,
        wrong=st.integers(0, 5),
    )
    def fail(
        self,
        group: int,
        chosen: int,
        outcome: Outcome,
        delay: int,
        error: bytes | None,
        wrong: int,
    ) -> None:
        number = pick(self.groups(), group)
        known = self.open_rows(number) or self.rows_of(number)
        if known:
            latest = pick(known, chosen)
            attempt = latest.attempt + (wrong == 0)
            end = (self.now, outcome, self.now + 10 * delay + 5, error)
            self.submit(
                lambda side: Fail(side.groups[number], latest.seq, attempt, *end),
                seqs=[latest.seq],
            )

    @rule(group=picks, chosen=some_picks, wrong=st.integers(0, 5))
    def release(self, group: int, chosen: list[int], wrong: int) -> None:
        number = pick(self.groups(), group)
        known = self.open_rows(number) or self.rows_of(number)
        if known:
            some = [(d.seq, d.attempt - (wrong == 0)) for d in pick_some(known, chosen)]
            self.submit(
                lambda side: Release(side.groups[number], some), seqs=[seq for seq, _ in some]
            )

    # ----------------------------------------------------------------- dead letters

    @rule(group=picks, chosen=picks, reason=st.sampled_from(list(Reason)), error=errors)
    def bury(self, group: int, chosen: int, reason: Reason, error: bytes | None) -> None:
        number = pick(self.groups(), group)
        left = self.pair.left
        candidates = self.unsettled(number) or [GONE]
        candidates += [seq for seq in left.all_seqs() if seq not in self.busy][::5]
        seq = pick(candidates, chosen)
        if self.of_another_queue(seq, number):
            return
        self.submit(
            lambda side: Bury(
                side.groups[number], seq, self.now, reason, "detail", "test", error=error
            ),
            lambda _, op: (op.dead_id is None, op.removed),
            [seq],
        )

    def of_another_queue(self, seq: int, group: int) -> bool:
        left = self.pair.left
        message = left.message(seq)
        if message is None:
            return False
        _, groups = left.store.catalogue()
        return all(g.queue != message.queue for g in groups if g.id == left.groups[group])

    @rule(queue=picks, chosen=some_picks)
    def cancel(self, queue: int, chosen: list[int]) -> None:
        number = pick(self.queues(), queue)
        seqs = [seq for seq in self.pair.left.all_seqs() if seq not in self.busy]
        seqs = pick_some([*seqs, GONE], chosen)
        self.submit(
            lambda side: Cancel(side.queues[number], seqs), lambda _, op: sorted(op.removed), seqs
        )

    @precondition(lambda self: self.pair.left.letter_ids())
    @rule(queue=picks, chosen=some_picks)
    def redrive(self, queue: int, chosen: list[int]) -> None:
        self.flush()
        number = pick(self.queues(), queue)
        letters = pick_some(list(self.pair.left.letter_ids()), chosen)

        def make(side: Side) -> Redrive:
            ids = side.letter_ids()
            dead = [*(ids[letter] for letter in letters), GONE]
            origins = [f"id-{seq}" for seq, _ in letters]
            return Redrive(side.queues[number], dead, [*origins, "gone"], self.now)

        self.submit(make, lambda _, op: op.seqs)

    @precondition(lambda self: self.pair.left.letter_ids())
    @rule(queue=picks, chosen=some_picks)
    def purge_dead(self, queue: int, chosen: list[int]) -> None:
        self.flush()
        number = pick(self.queues(), queue)
        letters = pick_some(list(self.pair.left.letter_ids()), chosen)

        def make(side: Side) -> PurgeDead:
            ids = side.letter_ids()
            return PurgeDead(side.queues[number], [*(ids[letter] for letter in letters), GONE])

        self.submit(make, lambda _, op: op.removed)
