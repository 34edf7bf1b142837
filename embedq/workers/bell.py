"""Who is told when consumers change: the drain that waits for them, the watch that looks on.

Knows: that something has changed, and whether the watch sleeps.
Does not know: what has changed.
"""

from __future__ import annotations

import threading


class Bell:
    """Rung when a slot ends. Safe to use from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._rung = 0
        self._waiting = 0
        self._watch = threading.Event()
        #: The watch sleeps until somebody starts something it has to look at.
        self.asleep = False

    def ring(self) -> None:
        """Wake whoever waits for a change."""
        with self._changed:
            self._rung += 1
            self._changed.notify_all()

    def ring_if_waited_for(self) -> None:
        """Do the same, for callers that come by with every message."""
        if self._waiting:
            self.ring()

    @property
    def rung(self) -> int:
        """How often it was rung: read it before looking, then wait for more."""
        return self._rung

    def wait(self, seen: int, timeout: float | None) -> bool:
        """Wait until it was rung more than `seen` times; False: `timeout` seconds are over."""
        with self._changed:
            self._waiting += 1
            try:
                return self._changed.wait_for(lambda: self._rung != seen, timeout)
            finally:
                self._waiting -= 1

    def wake_watch(self) -> None:
        """Let the watch look, should it sleep. Costs next to nothing if it does not."""
        if self.asleep:
            self.asleep = False
            self._watch.set()

    def watch_sleep(self, timeout: float | None) -> None:
        """Sleep, as the watch, until woken or for `timeout` seconds."""
        self._watch.wait(timeout)
        self._watch.clear()

    def end_watch(self) -> None:
        """Wake the watch for the last time."""
        self._watch.set()
