"""The watch: one thread that looks for handlers that run too long and loops that do not answer.

Knows: when to look, and that it must cost nothing while nothing runs.
Does not know: what is done about what it finds.

`Watch.round` looks once and can be called by hand (tests do, with a virtual clock).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, Protocol

from embedq.workers.bell import Bell

_log = logging.getLogger("embedq.workers")

_TICK_S: Final = (0.02, 0.5)


class Watched(Protocol):
    """What the watch looks at."""

    @property
    def busy(self) -> bool:
        """Whether there may be anything to find."""
        ...

    def check(self, now: float) -> None:
        """Look, at `now` (monotonic seconds)."""
        ...


class Watch:
    """Looks at crews while they are busy."""

    def __init__(self, bell: Bell, monotonic: Callable[[], float]) -> None:
        self._bell = bell
        self._monotonic = monotonic
        self._members: list[Watched] = []
        self._tick = _TICK_S[1]
        self._ending = False
        self._thread: threading.Thread | None = None

    def add(self, member: Watched, timeout: float | None) -> None:
        """Look at one more; a tenth of its shortest timeout is how often."""
        self._members.append(member)
        if timeout is not None:
            self._tick = max(_TICK_S[0], min(self._tick, timeout / 10))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="embedq-watch", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._ending:
            self._bell.asleep = True
            # After it said so: who starts something now either is seen here or sees that.
            if not any(member.busy for member in self._members):
                self._bell.watch_sleep(None)
            self._bell.asleep = False
            self._bell.watch_sleep(self._tick)
            self.round()

    def round(self) -> None:
        """Look at everything once."""
        now = self._monotonic()
        for member in list(self._members):
            try:
                member.check(now)
            except Exception:  # noqa: BLE001 - logged; it must not hide the others
                _log.exception("the watch could not look at a consumer: %r", member)

    def stop(self) -> None:
        """End the thread."""
        self._ending = True
        self._bell.end_watch()
        if self._thread is not None:
            self._thread.join()
