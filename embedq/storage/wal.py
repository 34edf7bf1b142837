"""Keep the write-ahead log short: when to checkpoint, and what stands in the way.

Knows: how many pages commits have written, what a checkpoint answered.
Does not know: operations, transactions, who is waiting.

Checkpoints run on the writing connection between commits (docs/decisions/0004). The log file is
never cut while the host lives: blocks that exist already take a sync 1.5 times faster than new
ones, so a log that is rewound and overwritten is the fastest log.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from typing import Final

from embedq.clock import Clock
from embedq.limits import Limits

_BURST: Final = 10
_BURST_PAGES_S: Final = 8_000  # pages a second
_BULK: Final = 3
_BULK_COMMIT: Final = 16  # pages
_FULL: Final = 2


def pages_each(connection: sqlite3.Connection, limits: Limits) -> int:
    """Return after how many pages to checkpoint.

    NORMAL syncs the log in the checkpoint, too, so each one is kept small.
    """
    is_full = connection.execute("PRAGMA synchronous").fetchone()[0] >= _FULL
    return limits.checkpoint_pages if is_full else limits.checkpoint_pages // 4


@dataclass(slots=True)
class WalHealth:
    """What is known of the log: `pages` in it and `blocked` checkpoints in a row.

    `oversize`: a reader has kept it from being rewound until it passed its limit; `readers` are
    the pids of other processes that read the database then.
    """

    pages: int = 0
    blocked: int = 0
    checkpoints: int = 0
    oversize: bool = False
    readers: list[int] = field(default_factory=list)


class WriteAheadLog:
    """Decides about checkpoints. Used with the writer's lock held.

    A steady load is checkpointed every `pages_each` pages, so that nobody waits long for one
    checkpoint. Who puts in bulk does not feel the wait, and gains 10 to 40 % where it comes less
    often: a burst of more than _BURST_PAGES_S goes on to _BURST times as many, and large commits
    to _BULK times as many, however slow the disk.
    """

    __slots__ = (
        *("_clock", "_connection", "_since", "commits", "health"),
        *("next", "pages_each", "written"),
    )

    def __init__(self, connection: sqlite3.Connection, pages_each: int, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self.pages_each = pages_each
        #: Pages written since the last checkpoint: an estimate, added up by the store.
        self.written = 0
        self.commits = 0  # in how many commits
        self.next = pages_each  # how many are worth a look
        self._since = clock.monotonic()
        self.health = WalHealth()

    def is_due(self, *, roomy: bool = True) -> bool:
        """Whether it is time for a checkpoint. Not `roomy`: the disk has no room for long logs."""
        if self.written < self.next:
            return False
        now = self._clock.monotonic()
        burst = self.pages_each > _BURST_PAGES_S * (now - self._since)
        bulk = self.written >= _BULK_COMMIT * self.commits
        most = _BURST if burst else _BULK if bulk else 1
        self._since = now
        if roomy and self.written < most * self.pages_each:
            self.next = self.written + self.pages_each
            return False
        return True

    def checkpoint(self) -> bool:
        """Copy what is in the log into the database; return whether all of it went.

        Never waits for readers (PASSIVE). After a complete one the next commit starts the log
        from its beginning. Raises sqlite3.Error: the caller must stop the store, as nobody knows
        then what the database file holds.
        """
        busy, pages, copied = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        complete = not busy and pages == copied
        health = self.health
        health.pages = pages
        health.checkpoints += 1
        health.blocked = 0 if complete else health.blocked + 1
        self.written = self.commits = 0
        # A reader holds the log: trying again at once would copy the same pages again.
        self.next = self.pages_each << min(health.blocked, 6)
        self._since = self._clock.monotonic()
        return complete
