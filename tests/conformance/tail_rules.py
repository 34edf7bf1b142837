"""The rule of the machine for messages that are given back at the tail.

Knows: what a broker may say of a delivery that is open, or was.
Does not know: any store.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from embedq.lifecycle import Outcome
from embedq.storage.tail import ToTail
from tests.conformance.draws import errors, pick, picks
from tests.conformance.handing import Handing
from tests.conformance.sides import Side


class TailRules(Handing):
    """The bench with that rule."""

    @rule(
        group=picks,
        chosen=picks,
        outcome=st.sampled_from([None, None, Outcome.FAILED, Outcome.TIMED_OUT]),
        priority=st.integers(0, 2),
        error=errors,
        wrong=st.integers(0, 5),
    )
    def to_tail(
        self,
        group: int,
        chosen: int,
        outcome: Outcome | None,
        priority: int,
        error: bytes | None,
        wrong: int,
    ) -> None:
        number = pick(self.groups(), group)
        known = self.open_rows(number) or self.rows_of(number)
        if not known:
            return
        latest = pick(known, chosen)
        attempt = latest.attempt + (wrong == 0)

        def make(side: Side) -> ToTail:
            where = (side.groups[number], latest.seq, attempt, priority, self.now)
            return ToTail(*where, outcome, error if outcome else None)

        self.flush()  # a seq is taken: puts of the same commit are stored in another order
        self.submit(make, lambda _, op: op.due, [latest.seq])
        self.flush()
