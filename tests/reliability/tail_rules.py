"""The rule of the machine for messages that go back to the tail.

Knows: that the engine takes one seq for each place, in order.
Does not know: what else the machine does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from embedq.broker.endings import RELEASED_TO_TAIL, Ending, Failed

if TYPE_CHECKING:
    from embedq.broker.desk import Desk
    from embedq.broker.leases import Lease
    from tests.reliability.model import Queue

picks = st.lists(st.integers(0, 30), min_size=1, max_size=5)


class TailRules(RuleBasedStateMachine):
    """The base of the machine."""

    engine: Desk
    model: dict[str, Queue]
    leases: list[Any]

    @property
    def now(self) -> int:
        raise NotImplementedError

    def settle(self, numbers: list[int], *, held: bool) -> tuple[list[Lease], list[Any], bool]:
        raise NotImplementedError

    @precondition(lambda self: self.leases)
    @rule(numbers=picks, held=st.booleans(), counts=st.booleans())
    def to_tail(self, numbers: list[int], *, held: bool, counts: bool) -> None:
        leases, good, fresh = self.settle(numbers, held=held)
        ending: Ending = Failed(tail=True) if counts else RELEASED_TO_TAIL
        for lease, queue, side, _ in good:  # each in its own commit: the order is that of calls
            before = self.engine.store.last_seq
            assert self.engine.settle([(lease, ending)]) == []
            moved = self.model[queue].to_tail(side, lease.seq, self.now, before + 1, counts=counts)
            assert self.engine.store.last_seq == before + moved
        stale = self.engine.settle([(lease, ending) for lease in leases])
        assert set(stale) == set(leases)
        assert fresh or leases
