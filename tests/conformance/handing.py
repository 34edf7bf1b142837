"""The rule of the machine for puts that somebody waits for: message and delivery in one commit.

Knows: that a Start may name the put whose messages it delivers.
Does not know: any store.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from embedq.storage.ops import PutPlain, PutRows, Start
from embedq.storage.rows import Row
from tests.conformance.bench import Bench
from tests.conformance.draws import pick, picks, rows, some_bodies, some_picks
from tests.conformance.scenario import plain
from tests.conformance.sides import Side


class Handing(Bench):
    """The bench with that rule."""

    @rule(
        group=picks,
        bodies=some_bodies,
        drawn=st.lists(rows(), max_size=3),
        chosen=some_picks,
        session=picks,
    )
    def put_and_start(
        self, group: int, bodies: list[bytes], drawn: list[Row], chosen: list[int], session: int
    ) -> None:
        """Put messages whose deliveries begin in the same commit, as somebody waits for them."""
        number = pick(self.groups(), group)
        count = len(drawn or bodies)
        positions = sorted({position % count for position in chosen})
        first, self.counter = self.counter + 1, self.counter + count
        puts: dict[Side, PutPlain | PutRows] = {}

        def put(side: Side) -> PutPlain | PutRows:
            known = {row.id: row.queue for row in side.store.catalogue()[1]}
            queue = known[side.groups[number]]
            op = PutRows(queue, self.now, drawn) if drawn else plain(queue, *bodies, now=self.now)
            puts[side] = op
            return op

        def start(side: Side) -> Start:
            who = pick([None, *side.sessions], session)
            op = Start(side.groups[number], self.now, who, first, positions, [])
            op.put = puts[side]
            return op

        self.flush()
        self.room += 1
        self.submit(put, seqs=[])
        self.submit(start, seqs=[])
