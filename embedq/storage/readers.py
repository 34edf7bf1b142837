"""A few read-only connections, lent to one question at a time.

Knows: that a snapshot must be short, and that a connection serves one thread at a time.
Does not know: what is asked.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from embedq.storage.connection import open_reader
from embedq.storage.fork import immortalise

T = TypeVar("T")

_KEPT = 4


class Readers:
    """Read-only connections to one database file; safe to use from any thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        # deque: append and pop are atomic, so no lock is needed (and none can stay locked).
        self._idle: deque[sqlite3.Connection] = deque()
        self._closed = False

    def run(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """Return what `question` answers from one snapshot; the snapshot ends with it."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = open_reader(self._path)
        try:
            connection.execute("BEGIN")
            answer = question(connection)
            connection.execute("COMMIT")
        except BaseException:
            # Also for an exception from outside: a snapshot left open would pin the log.
            connection.close()
            raise
        if self._closed or len(self._idle) >= _KEPT:
            connection.close()
        else:
            self._idle.append(connection)
        return answer

    def snapshot(self) -> sqlite3.Connection:
        """Return a connection of the caller's own that sees this moment until it is closed."""
        connection = open_reader(self._path)
        try:
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM meta").fetchone()  # BEGIN alone fixes nothing
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Close what is idle now, and the others as they come back."""
        self._closed = True
        self.drop_idle()

    def drop_idle(self) -> None:
        """Close the connections that nobody uses; new ones are opened when needed."""
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def forked_in_child(self) -> None:
        """Leave the parent's connections alone for ever."""
        for connection in self._idle:
            immortalise(connection)
        self._idle = deque()
        self._closed = True
