"""Things to do later, by the broker's clock.

Knows: what is due next. Does not know: why. With a virtual clock somebody says `look`.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable


class Timer:
    """Something to do later; `cancel` takes it back."""

    __slots__ = ("at", "call")

    def __init__(self, at: float, call: Callable[[], object] | None) -> None:
        self.at = at
        self.call = call

    def cancel(self) -> None:
        """Do not do it. Safe when it is done already."""
        self.call = None


class Timers:
    """The timers of one loop. Belongs to its thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, monotonic: Callable[[], float]) -> None:
        self._loop = loop
        self._monotonic = monotonic
        self._heap: list[tuple[float, int, Timer]] = []
        self._count = 0
        self._armed: tuple[float, asyncio.TimerHandle] | None = None

    def add(self, seconds: float, call: Callable[[], object]) -> Timer:
        """Call something after `seconds`."""
        timer = Timer(self._monotonic() + seconds, call)
        self._count += 1
        heapq.heappush(self._heap, (timer.at, self._count, timer))
        self._arm()
        return timer

    def look(self) -> None:
        """Do what is due."""
        now = self._monotonic()
        while self._heap and (self._heap[0][0] <= now or self._heap[0][2].call is None):
            call = heapq.heappop(self._heap)[2].call
            if call is not None:
                call()
        self._arm()

    def _arm(self) -> None:
        if not self._heap:
            return
        at = self._heap[0][0]
        if self._armed is not None:
            if self._armed[0] <= at:
                return
            self._armed[1].cancel()
        delay = max(0.0, at - self._monotonic())
        self._armed = (at, self._loop.call_later(delay, self._due))

    def _due(self) -> None:
        self._armed = None
        self.look()


def cancel_all(timers: set[Timer]) -> None:
    """Take all of them back, and forget them."""
    for timer in timers:
        timer.cancel()
    timers.clear()
