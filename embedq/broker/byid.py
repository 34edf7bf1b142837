"""Settling by seq: the operation of a protocol that acks from anywhere, by id.

Knows: that a message may be leased by somebody else, or wait, or be gone.
Does not know: tokens (there are none here), who asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from embedq.broker import outsiders, redaction
from embedq.broker.endings import Done, Ending, Rejected, Settlement
from embedq.broker.intake import shortened
from embedq.broker.state import GroupState
from embedq.storage.ops import Ack, Again, Bury, Op, Start
from embedq.storage.writer import Task

if TYPE_CHECKING:
    from embedq.broker.engine import Engine


class ById(Task):
    """End a message for a group, wherever it is."""

    __slots__ = ("_ack", "_bury", "_ending", "_engine", "_group", "_seq", "_settlement", "missing")

    alone = True  # `prepare` asks the store where the message is

    def __init__(self, engine: Engine, group: GroupState, seq: int, ending: Ending) -> None:
        super().__init__(64)
        self._engine = engine
        self._group = group
        self._seq = seq
        self._ending = ending
        self._settlement: Settlement | None = None

    def prepare(self) -> Sequence[Op]:
        """See where the message is."""
        group, seq = self._group, self._seq
        self._settlement = None
        self._ack: Ack | None = None
        self._bury: Bury | None = None
        self.missing = False
        lease = group.leases.get(seq)
        if lease is not None:
            self._settlement = Settlement(self._engine, [(lease, self._ending)])
            return self._settlement.prepare()
        if group.id not in self._engine.store.unsettled(seq):
            self.missing = True
            return ()
        now = self._engine.now_ms()
        match self._ending:
            case Done():
                return self._ack_waiting(now)
            case Rejected(reason, detail, error, by, outcome):
                text = redaction.stored(error, self._engine.redact)
                hide = redaction.hider(self._engine.redact)
                words = shortened(hide(detail)), shortened(by)
                self._bury = Bury(group.id, seq, now, reason, *words, outcome, text)
                return (self._bury,)
            case _:
                return ()  # it waits already

    def _ack_waiting(self, now: int) -> Sequence[Op]:
        """Settling needs a delivery: one is opened and closed in the same commit."""
        engine, group, seq = self._engine, self._group, self._seq
        latest = engine.store.latest(group.id, seq)
        counter = engine.next_counter(1)
        fresh: list[int] = [seq]
        again: list[Again] = []
        if latest is not None:
            ended = engine.words_of(latest.epoch), outsiders.left_as(engine, latest)
            fresh, again = [], [Again(seq, latest.attempt + 1, latest.crashes, *ended)]
        self._ack = Ack(group.id, now, [seq])
        return (Start(group.id, now, None, counter, fresh, again), self._ack)

    def undo(self) -> None:
        """Nothing was committed."""
        if self._settlement is not None:
            self._settlement.undo()

    def apply(self) -> None:
        """Take it out of the ready index, and count."""
        engine, group, seq = self._engine, self._group, self._seq
        if self._settlement is not None:
            self._settlement.apply()
            return
        if self._ack is None and self._bury is None:
            return
        key = group.index.discard(seq)
        if self._bury is not None:
            engine.buried(group, self._bury, key)
        elif self._ack is not None:
            group.acked += 1
            group.count_settled(1, self._ack.removed)
            if key is not None:
                engine.key_settled(group, key, seq)
