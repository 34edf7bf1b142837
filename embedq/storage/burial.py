"""What is kept of a message that dies: itself, why, and every attempt that was made.

Knows: the columns of a dead letter and how attempts are encoded with it.
Does not know: what else a burial changes.
"""

from __future__ import annotations

import sqlite3

import msgspec

from embedq.lifecycle import Outcome
from embedq.limits import LIMITS
from embedq.message import AttemptRecord, ErrorInfo
from embedq.storage import reads
from embedq.storage.ops import Bury
from embedq.storage.rows import DeliveryRow, Stored


def dead_values(
    connection: sqlite3.Connection, op: Bury, message: Stored, rows: list[DeliveryRow]
) -> tuple[object, ...]:
    """Return the values of statements.BURY; `rows` are the deliveries to the group."""
    return (
        message.seq,
        op.group,
        message.queue,
        op.ended,
        op.reason,
        op.detail,
        op.moved_by,
        _attempts(connection, op, [row for row in rows if row.attempt][-LIMITS.attempts_kept :]),
        message.put_at,
        message.kind,
        message.crc,
        message.priority,
        message.key,
        message.max_attempts,
        message.headers,
        message.body,
    )


def _attempts(connection: sqlite3.Connection, op: Bury, rows: list[DeliveryRow]) -> bytes:
    sessions = {row.session for row in rows if row.session is not None}
    names = reads.session_names(connection, sessions)
    records = []
    for row in rows:
        ended, outcome, error = row.ended, row.outcome, row.error
        if ended is None:  # the attempt that was the last one
            ended, outcome, error = op.ended, op.outcome, op.error
        records.append(
            AttemptRecord(
                row.attempt,
                row.started,
                ended,
                names.get(row.session or 0, ""),
                None if outcome is None else Outcome(outcome),
                None if error is None else ErrorInfo.decode(error),
            )
        )
    return msgspec.msgpack.encode(records)
