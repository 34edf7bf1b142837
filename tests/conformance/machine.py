"""A machine that does the same random things to two stores and compares all their answers.

Knows: what a broker may ask a store to do, in any order that makes sense to a broker.
Does not know: any store. Operations that meet in one commit concern different messages.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from embedq.lifecycle import Outcome, Reason
from embedq.policy import QueuePolicy
from embedq.storage.ops import (
    Ack,
    Again,
    Bury,
    Cancel,
    Collect,
    DeclareGroup,
    DeclareQueue,
    Fail,
    Forget,
    OpenSession,
    Pause,
    PurgeDead,
    PutRows,
    Redrive,
    Release,
    RemoveGroup,
    Retire,
    Save,
    Start,
)
from embedq.storage.rows import Row
from tests.conformance.atomicity import Interrupt, Planted
from tests.conformance.draws import (
    GONE,
    GROUPS,
    QUEUES,
    errors,
    pick,
    pick_some,
    picks,
    rows,
    some_bodies,
    some_picks,
)
from tests.conformance.scenario import EVERYTHING, plain
from tests.conformance.sides import Side
from tests.conformance.tail_rules import TailRules


class StoresAgree(TailRules):
    """The rules. A subclass says which two stores."""

    @rule(room=st.integers(1, 4), limit=st.integers(1, 5))
    def let_operations_meet(self, room: int, limit: int) -> None:
        self.room, self.limit = room, limit

    @rule(error=st.sampled_from([Planted, Interrupt]))
    def fail_a_commit(self, error: type[BaseException]) -> None:
        twins, self.pending, self.busy = self.pending, [], set()
        self.pair.fail(twins, error)

    @invariant()
    def the_answers_are_the_same(self) -> None:
        if not self.pending:
            self.steps += 1
            self.pair.compare(self.limit, self.now, in_full=self.steps % 5 == 0)

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

    @rule(queue=picks, paused=st.booleans(), name=st.sampled_from(["worker-1", "worker-2"]))
    def pause_and_open_a_session(self, queue: int, name: str, *, paused: bool) -> None:
        number = pick(self.queues(), queue)
        self.submit(lambda side: Pause(side.queues[number], paused))
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
        self.pair.compare(self.limit, self.now, in_full=True)

    # ------------------------------------------------------------------------- puts

    @rule(queue=picks, bodies=some_bodies)
    def put_alone(self, queue: int, bodies: list[bytes]) -> None:
        self.flush()
        number = pick(self.queues(), queue)
        twin = self.pair.twin(
            lambda side: plain(side.queues[number], *bodies, now=self.now),
            lambda _, op: op.first,
        )
        self.pair.put_alone(twin)

    @rule(queue=picks, bodies=some_bodies)
    def put_plain(self, queue: int, bodies: list[bytes]) -> None:
        number = pick(self.queues(), queue)
        self.submit(
            lambda side: plain(side.queues[number], *bodies, now=self.now),
            lambda _, op: op.first,
            [],
        )

    @rule(queue=picks, drawn=st.lists(rows(), min_size=1, max_size=3))
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
        self.start_some(pick(self.groups(), group), chosen, session)

    def start_some(self, number: int, chosen: list[int], session: int) -> list[int]:
        """Start deliveries of messages that wait, or whose delivery is still open."""
        known = {delivery.seq: delivery for delivery in self.rows_of(number)}
        seqs = self.unsettled(number)
        if not seqs:
            return []
        seqs = pick_some(seqs, chosen)
        fresh = [seq for seq in seqs if seq not in known]
        again = []
        for seq in seqs:
            if seq in known:
                latest = known[seq]
                is_open = latest.ended is None
                same = is_open and session % 3 == 0
                end = Outcome.TIMED_OUT if session % 5 == 0 else Outcome.CRASHED
                crashes = latest.crashes + (is_open and end is Outcome.CRASHED)
                again.append(Again(seq, latest.attempt + (not same), crashes, None, end))
        first, self.counter = self.counter + 1, self.counter + len(seqs)

        def make(side: Side) -> Start:
            who = pick([None, *side.sessions], session)
            op = Start(side.groups[number], self.now, who, first, fresh, again)
            op.reads = session % 2 == 0
            return op

        def outcome(side: Side, op: Start) -> object:
            read = sorted(op.messages or [])
            assert not read or read == sorted(side.store.messages([m.seq for m in read]))
            return None

        self.submit(make, outcome, seqs)
        return seqs

    @rule(
        group=picks,
        chosen=some_picks,
        ending=st.sampled_from(["ack", "fail", "fail", "release"]),
        session=picks,
    )
    def work(self, group: int, chosen: list[int], ending: str, session: int) -> None:
        """Start deliveries and end them, as a consumer does most of the time."""
        number = pick(self.groups(), group)
        seqs = self.start_some(number, chosen, session)
        self.flush()
        rows_ = [delivery for delivery in self.open_rows(number) if delivery.seq in seqs]
        if ending == "ack" and seqs:
            self.submit(
                lambda side: Ack(side.groups[number], self.now, seqs),
                lambda _, op: op.removed,
                seqs,
            )
        elif ending == "release":
            given_back = [(delivery.seq, delivery.attempt) for delivery in rows_]
            self.submit(lambda side: Release(side.groups[number], given_back), seqs=seqs)
        elif ending == "fail":
            for delivery in rows_:
                self.fail_one(number, delivery.seq, delivery.attempt, due=self.now + session)

    def fail_one(
        self,
        number: int,
        seq: int,
        attempt: int,
        *,
        due: int,
        outcome: Outcome = Outcome.FAILED,
        error: bytes | None = None,
    ) -> None:
        self.submit(
            lambda side: Fail(side.groups[number], seq, attempt, self.now, outcome, due, error),
            seqs=[seq],
        )

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
            due = self.now + 10 * delay + 5
            self.fail_one(number, latest.seq, attempt, due=due, outcome=outcome, error=error)

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
