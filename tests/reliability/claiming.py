"""Check a claim's answer against the naive model, and let the model claim the same.

Knows: what a claim promises about order, and where an engine with little memory has a choice.
Does not know: the engine; it is told what was claimed, and asks whether a message was buried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.reliability.model import Group, Queue


@dataclass
class ClaimCheck:
    """One claim for `most` messages that answered with the seqs `got`, in this order.

    `special_max`: how many messages of a group an engine holds that are more than a number to
    it. Of more than those it takes what it has, in an order of its own.
    """

    model: Queue
    side: Group
    got: list[int]
    most: int
    is_buried: Callable[[int], bool]
    special_max: int

    def run(self, now: int, deadline: float) -> None:
        """Start in the model exactly what the engine started; AssertionError if it differs.

        What is buried on the way uses up a place, so finding something may take several laps.
        """
        delivered: list[int] = []
        while not self.model.paused and not delivered:
            taken = self._taken(now)
            if not taken:
                break
            delivered = [seq for seq in taken if self.model.start(self.side, seq, now, deadline)]
        assert self.got == delivered, f"claimed {self.got} instead of {delivered}"

    def _taken(self, now: int) -> list[int]:
        """Return what the engine took in this lap."""
        ready = [message.seq for message in self.model.ready(self.side, now)]
        loose = self.side.holes
        if self.model.special(self.side) >= self.special_max:
            loose = True
            ready.sort(key=self._place)
        out = [standing for standing in self.side.standings.values() if standing.token is not None]
        if any(standing.alone for standing in out):
            return []
        suspects = self.model.suspects(self.side, now)
        last = [seq for seq in suspects if self.model.has_last_chance(self.side, seq)]
        if last and out and not self.got:
            return []  # it waits for the others to end
        buried = any(seq not in self.got and self._was_taken(seq) for seq in suspects)
        if self.got and self.got[0] in last and not buried:
            assert not out, f"{self.got[0]} has one chance left, and is not alone"
            return self.got[:1]
        first = self._suspect_tried(suspects, ready[: self.most])
        if suspects and not first:
            assert loose or len(ready) >= self.most, f"one of {suspects} should come first"
        taken = [*first, *ready][: self.most]
        for number, seq in enumerate(taken):
            if not self._was_taken(seq):
                assert loose, f"claimed {self.got}, not {seq}, the next of {taken}"
                return taken[:number]
        return taken

    def _suspect_tried(self, suspects: list[int], ready: list[int]) -> list[int]:
        """Return the suspect of this lap, if the engine has come across one.

        A lap in which something is delivered is the last one: what was buried went before.
        """
        buried = [seq for seq in suspects if seq not in self.got and self._was_taken(seq)]
        if buried:
            return buried[:1]
        full_without = len(ready) == self.most and not set(ready) & set(self.got)
        if full_without and self._was_taken(ready[-1]):
            return []
        return [seq for seq in suspects if seq in self.got][:1]

    def _place(self, seq: int) -> int:
        """Sort what was buried first, then what was claimed in its order, then the rest."""
        if seq in self.got:
            return self.got.index(seq)
        return -1 if self._was_taken(seq) else len(self.got)

    def _was_taken(self, seq: int) -> bool:
        return seq in self.got or self.is_buried(seq)
