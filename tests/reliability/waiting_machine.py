"""The engine machine with consumers who wait: what a put hands them is what they would claim.

Knows: that a waiter is woken or handed messages, in turn, and takes them or leaves.
Does not know: how the engine decides which of the two it does.

The threads of those who wait are not there: after each step the machine does what they would do.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from embedq.broker import direct
from embedq.broker.endings import DONE
from embedq.broker.leases import Lease
from embedq.broker.moves import Claim
from embedq.broker.waiting import Waiter
from embedq.limits import LIMITS
from tests.reliability.engine_machine import LEASE_S, EngineMachine, groups, most, picks, queues

_LAPS = 1000


@dataclass(eq=False)
class Waiting:
    """Somebody who waits for up to `most` messages."""

    queue: str
    group: str
    most: int
    state: Any
    waiter: Waiter


class WaitingMachine(EngineMachine):
    """Almost nothing fits into memory."""

    #: Turns of the writing thread, of 5 ms, after which what is given back is given back.
    laps = _LAPS

    def open(self) -> None:
        super().open()
        self.waiting: list[Waiting] = []
        #: The next one who is woken or handed something leaves instead.
        self.impatient = False

    @rule(queue=queues, group=groups, most=most)
    def wait_for_messages(self, queue: str, group: str, most: int) -> None:
        if not self.claims(queue, group, most):
            self.enlist(Waiting(queue, group, most, self.group(queue, group), Waiter()))

    @rule(most=most)
    def wait_by_default(self, most: int) -> None:
        self.wait_for_messages("plain", "default", most)

    def claims(self, queue: str, group: str, most: int) -> bool:
        known = len(self.leases)
        self.claim(queue, group, most, LEASE_S)
        return len(self.leases) > known

    def enlist(self, one: Waiting) -> None:
        """Let somebody wait whose claim has just found nothing."""
        engine = self.engine
        task = Claim(engine, one.state, one.most, LEASE_S, engine.session, waiter=one.waiter)
        engine.writer.run(task)
        assert task.waits
        self.waiting.append(one)

    @precondition(lambda self: self.leases)
    @rule(numbers=picks, held=st.booleans(), most=most)
    def exchange(self, numbers: list[int], *, held: bool, most: int) -> None:
        """Acknowledge and claim in one commit. What an ending makes ready comes after that."""
        entries = [
            entry
            for entry in self.chosen(numbers, held=held)
            if entry[0].key is None and not entry[0].is_suspect
        ]
        if not entries:
            return
        good = [entry for entry in dict.fromkeys(entries) if self.counts(*entry)]
        group, queue = entries[0][0].group, entries[0][1]
        pairs = [(entry[0], DONE) for entry in entries]
        found = self.engine.exchange(group, pairs, most, lease_s=LEASE_S)
        assert {*found.stale} == {entry[0] for entry in entries} - {entry[0] for entry in good}
        for lease, name, side, _ in good:
            self.model[name].settle(side, lease.seq, self.now)
        self.check_claim(queue, group.name, found.leases, most, LEASE_S)

    @rule()
    def be_impatient(self) -> None:
        self.impatient = bool(self.waiting)

    @rule(number=st.integers(0, 9))
    def give_up(self, number: int) -> None:
        if self.waiting:
            one = self.waiting.pop(number % len(self.waiting))
            direct.leave(self.engine, one.state.waiters, one.waiter)

    # ------------------------------------------------------------------- what threads would do

    def serve(self, filled: str | None = None) -> None:
        """Let everybody go on who was woken or handed something."""
        self.serve_all()
        if filled is None or self.model[filled].paused:
            return
        for _ in range(len(self.waiting)):
            self.engine.upkeep.wake_due()  # what became ready as time went by
            self.serve_all()
        for one in self.waiting:
            if one.queue == filled:
                self.check_nothing_is_ready(one)

    def serve_all(self) -> None:
        for _ in range(_LAPS):
            one = self.next_to_go()
            if one is None:
                return
            self.serve_one(one)
        raise AssertionError("they wake each other for ever")

    def next_to_go(self) -> Waiting | None:
        """Return who was handed something first, else somebody who was woken."""
        handed = [one for one in self.waiting if one.waiter.handed()]
        if handed:
            return min(handed, key=lambda one: one.waiter.handed()[0].counter)
        asleep = [waiter for one in self.waiting for waiter in one.state.waiters._queue]
        return next((one for one in self.waiting if one.waiter not in asleep), None)

    def serve_one(self, one: Waiting) -> None:
        self.waiting.remove(one)
        got = one.waiter.handed()
        if got:
            self.check_claim(one.queue, one.group, got, one.most, LEASE_S)
        # What others hold in hand was theirs before anything is given back: they go first.
        if self.impatient and not any(other.waiter.handed() for other in self.waiting):
            self.impatient = False
            self.leave(one, got)
        elif not got and not self.claims(one.queue, one.group, one.most):
            self.enlist(one)

    def leave(self, one: Waiting, got: list[Lease]) -> None:
        """Give back, without an attempt, what was handed over; pass a wake on."""
        direct.leave(self.engine, one.state.waiters, one.waiter)
        pause = threading.Event()
        for _ in range(self.laps):
            if not any(lease.is_held for lease in got):
                break
            pause.wait(0.005)  # the writing thread does it
        with self.engine.writer.lock:  # and has done it
            pass
        for lease in got:
            assert not lease.is_held, "nobody has it"
            self.model[one.queue].release(self.model[one.queue].groups[one.group], lease.seq)

    def check_nothing_is_ready(self, one: Waiting) -> None:
        model = self.model[one.queue]
        side = model.groups[one.group]
        if not any(
            standing.suspect or standing.suspect_out for standing in side.standings.values()
        ):
            ready = [message.seq for message in model.ready(side, self.now)]
            assert ready == [], f"{ready} are ready, and {one} waits"


class Roomy(WaitingMachine):
    """Everything fits into memory: what is loaded is loaded at once."""

    load_chunk = LIMITS.load_chunk
    head_max = LIMITS.head_max
