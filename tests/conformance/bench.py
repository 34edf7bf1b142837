"""Where the machine's operations wait for each other, and what there is to try them on.

Knows: two stores as a pair, which operations may meet in one commit, the candidates of each.
Does not know: the rules (machine.py), any store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine

from embedq.storage.ops import Op
from embedq.storage.rows import DeliveryRow
from tests.conformance.scenario import Stores
from tests.conformance.sides import Pair, Side, Twin


class Bench(RuleBasedStateMachine):
    """Everything but the rules. Time passes with every operation."""

    def __init__(self, left: Stores, right: Stores) -> None:
        super().__init__()
        self.pair = Pair(left, right)
        self.now = 1_000
        self.steps = 0
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
        self.now += 10
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

    def of_another_queue(self, seq: int, group: int) -> bool:
        left = self.pair.left
        message = left.message(seq)
        if message is None:
            return False
        _, groups = left.store.catalogue()
        return all(g.queue != message.queue for g in groups if g.id == left.groups[group])
