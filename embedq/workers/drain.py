"""Drain: claim nothing more, let handlers finish, give the rest back, all within a grace.

Knows: the order of the steps and how long each may take.
Does not know: how a crew does its step, signals, the store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from embedq.workers.bell import Bell

#: Seconds that handlers get to notice that they were cancelled, once the grace is over.
NOTICE_S: Final = 0.5
#: Seconds that what was given up gets to be settled by its crew, before it is done from here.
SETTLE_S: Final = 2.0
#: Seconds between two looks whether all have ended, should nobody tell.
_LOOK_S: Final = 0.5


class Crew(Protocol):
    """What can be drained."""

    @property
    def finished(self) -> int:
        """How many messages have come to their own end."""
        ...

    @property
    def released(self) -> int:
        """How many were given back."""
        ...

    @property
    def stuck(self) -> int:
        """How many handlers run on although nobody waits for them."""
        ...

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more."""
        ...

    @property
    def running(self) -> int:
        """How many messages are in handlers."""
        ...

    @property
    def notice_s(self) -> float:
        """Seconds that its handlers need to end once they are told to; 0: as all have."""
        ...

    def close(self) -> None:
        """Claim nothing more."""
        ...

    def cancel(self) -> None:
        """Ask what still runs to end early."""
        ...

    def abandon(self) -> None:
        """Give back what still runs."""
        ...

    def give_back(self) -> None:
        """Settle what the crew itself does not."""
        ...


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a drain: messages whose handlers ended in time, messages given back.

    `stuck`: handlers that still run although nobody waits for them. They end with the process.
    """

    finished: int
    released: int
    stuck: int
    seconds: float

    @property
    def is_clean(self) -> bool:
        """Whether everything that had been started came to its own end."""
        return not self.released and not self.stuck


class Drain:
    """One drain of several crews. `hurry` may be called from any thread."""

    def __init__(self, crews: Sequence[Crew], bell: Bell, monotonic: Callable[[], float]) -> None:
        self._crews = crews
        self._bell = bell
        self._monotonic = monotonic
        self._hurried = False
        # Before anybody hears of the drain: a handler that waits for that may end at once.
        self._finished = sum(crew.finished for crew in crews)
        self._released = sum(crew.released for crew in crews)

    def hurry(self) -> None:
        """End the grace now."""
        self._hurried = True
        self._bell.ring()

    def run(self, grace_s: float) -> Report:
        """Drain; returns at most `grace_s` and a few seconds later."""
        crews = self._crews
        started = self._monotonic()
        for crew in crews:
            crew.close()
        if not self._wait(grace_s, hurried=False):
            for crew in crews:
                crew.cancel()
            notice_s = max([NOTICE_S, *(crew.notice_s for crew in crews)])
            if not self._wait(notice_s, hurried=True):
                for crew in crews:
                    crew.abandon()
                self._wait(SETTLE_S, hurried=True)
        for crew in crews:
            if not crew.ended:
                crew.give_back()
        return Report(
            finished=sum(crew.finished for crew in crews) - self._finished,
            released=sum(crew.released for crew in crews) - self._released,
            stuck=sum(crew.stuck for crew in crews),
            seconds=self._monotonic() - started,
        )

    def _wait(self, seconds: float, *, hurried: bool) -> bool:
        """Wait for all crews to end. False: the time is over, or somebody is in a hurry."""
        until = self._monotonic() + seconds
        while True:
            seen = self._bell.rung
            if all(crew.ended for crew in self._crews):
                return True
            left = until - self._monotonic()
            if left <= 0 or (self._hurried and not hurried):
                return False
            # Not all of it: a signal that comes right before the main thread falls asleep wakes
            # nobody, and Python would hear of it at the end of the grace.
            self._bell.wait(seen, min(left, _LOOK_S))
