"""Sessions that have ended: which of them deliveries still name, and how the others are removed.

Knows: by what an ended session is known, the statements about it.
Does not know: how sessions begin and end (apply_sessions.py), when somebody asks.

A session stays with its name for as long as a delivery names it. No index says which do, so that
no claim pays for it: all deliveries are read, now and then, beside the writer.
"""

from __future__ import annotations

import sqlite3

import msgspec

from embedq.storage import statements as sql
from embedq.storage.ops import Op


class RemoveSessions(Op, msgspec.Struct):
    """Remove ended sessions that nothing names. Out: `removed`; one that has not ended stays."""

    sessions: list[int]
    removed: int = 0


def closed(connection: sqlite3.Connection, epoch: int) -> set[int]:
    """Return the sessions with which nobody can come back: closed ones, and earlier hosts."""
    return {id_ for (id_,) in connection.execute(sql.SESSIONS_CLOSED, (epoch,))}


def named(connection: sqlite3.Connection) -> set[int]:
    """Return the sessions that deliveries name."""
    return {id_ for (id_,) in connection.execute(sql.SESSIONS_NAMED)}
