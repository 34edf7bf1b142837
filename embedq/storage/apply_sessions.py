"""What the operations about sessions change, in SQL, inside a transaction of the writer.

Knows: the statements about sessions and their deliveries.
Does not know: every other operation (apply.py), transactions, who may come back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping

from embedq.storage import statements as sql
from embedq.storage.departed import RemoveSessions
from embedq.storage.ops import (
    SESSION_KEPT_MS,
    CloseSession,
    Op,
    OpenSession,
    Reissue,
    Remember,
)


class SessionApplier:
    """Applies these operations through one connection. Used with the writer's lock held."""

    def __init__(self, connection: sqlite3.Connection, epoch: int) -> None:
        self._execute = connection.execute
        self._epoch = epoch
        self._last = 0  # the highest id given: an id that was removed is not given again
        #: Sessions of this epoch to which nothing was ever given: no delivery names them.
        self._idle: set[int | None] = set()
        #: Call it with the session to which something is given.
        self.gives: Callable[[int | None], object] = self._idle.discard
        self.handlers: Mapping[type[Op], Callable[..., None]] = {
            OpenSession: self._open,
            Remember: self._remember,
            CloseSession: self._close,
            Reissue: self._reissue,
            RemoveSessions: self._remove_ended,
        }

    def _open(self, op: OpenSession) -> None:
        op.requests = b""
        if op.token is not None:
            self._execute(sql.SESSION_FORGET, (self._epoch - 1, op.opened - SESSION_KEPT_MS))
            found = self._execute(sql.SESSION_FIND, (op.token,)).fetchone()
            if found is not None:
                op.id, op.requests = found[0], found[1] or b""
                self._execute(sql.SESSION_AGAIN, (op.name, self._epoch, op.opened, op.id))
                return
        row = (self._last, op.name, self._epoch, op.opened, op.token)
        op.id = self._last = self._execute(sql.SESSION_ADD, row).lastrowid or 0
        self._idle.add(op.id)

    def _remember(self, op: Remember) -> None:
        self._execute(sql.SESSION_REMEMBER, (op.encode(), op.session))

    def _close(self, op: CloseSession) -> None:
        remove = op.session in self._idle
        self._idle.discard(op.session)
        self._execute(sql.SESSION_REMOVE if remove else sql.SESSION_CLOSE, (op.session,))

    def _remove_ended(self, op: RemoveSessions) -> None:
        rows = [(id_, self._epoch) for id_ in op.sessions]
        op.removed = sum(self._execute(sql.SESSION_REMOVE_ENDED, row).rowcount for row in rows)

    def _reissue(self, op: Reissue) -> None:
        for seq, group, attempt, counter in op.deliveries:
            self._execute(sql.REISSUE, (self._epoch, counter, seq, group, attempt))
