"""Sessions that have ended leave the file once no delivery names them any more.

Knows: when it is worth to look, and that a session which has just ended may still be named.
Does not know: how it is looked, what sessions are for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from embedq.broker import moves
from embedq.storage.departed import RemoveSessions

if TYPE_CHECKING:
    from embedq.broker.engine import Engine

#: Ended sessions for which all deliveries are read, and how many leave in one commit.
MANY: Final = 500


class Departed:
    """The ended sessions of one file."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._before: set[int] = set()  # what had ended the last time
        self._named: set[int] = set()  # what was named when all deliveries were read

    def sweep(self) -> None:
        """Remove what had ended the last time and is named by nothing, if it may be many.

        A claim that was on its way when its session ended is stored long before the next time.
        """
        engine = self._engine
        now = engine.store.closed_sessions()
        ended, self._before = now & self._before, now
        if len(ended - self._named) < MANY:
            return
        self._named = engine.store.named_sessions()
        gone = sorted(ended - self._named)
        for low in range(0, len(gone), MANY):
            engine.writer.run(moves.Change([RemoveSessions(gone[low : low + MANY])]))
        self._named &= ended
