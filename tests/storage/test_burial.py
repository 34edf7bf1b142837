"""A dead letter keeps the message as it was and the newest attempts as they ended."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest

from embedq.lifecycle import Outcome, Reason
from embedq.limits import LIMITS
from embedq.message import AttemptRecord, ErrorInfo
from embedq.storage import schema
from embedq.storage.burial import dead_values
from embedq.storage.ops import Bury
from embedq.storage.rows import DeadRow, DeliveryRow, Stored

MESSAGE = Stored(7, 3, 100, 2, 99, 4, 200, 300, "key", 5, b"headers", b"body")
ERROR = ErrorInfo("ValueError", "no", "line 1")


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema.migrate(connection, 0)
        connection.execute("INSERT INTO session(id,name,epoch,opened) VALUES (4,'worker-4',1,1)")
        yield connection


def delivery(attempt: int, **columns: Any) -> DeliveryRow:
    first = DeliveryRow(
        seq=7,
        group=1,
        attempt=attempt,
        epoch=1,
        counter=attempt,
        crashes=0,
        session=4,
        started=10 * attempt,
        ended=10 * attempt + 5,
        outcome=int(Outcome.FAILED),
        due=None,
        closed=None,
        error=None,
    )
    return first._replace(**columns)


def bury(**more: object) -> Bury:
    op = Bury(1, 7, 900, Reason.MAX_ATTEMPTS, "the last one failed", "host")
    for name, value in more.items():
        setattr(op, name, value)
    return op


def buried(database: sqlite3.Connection, op: Bury, *rows: DeliveryRow) -> DeadRow:
    return DeadRow._make((1, *dead_values(database, op, MESSAGE, list(rows))))


def attempts(letter: DeadRow) -> list[AttemptRecord]:
    assert letter.attempts is not None
    return msgspec.msgpack.decode(letter.attempts, type=list[AttemptRecord])


def test_the_message_is_kept_as_it_was(database: sqlite3.Connection) -> None:
    letter = buried(database, bury())
    for column in ("seq", "queue", "put_at", "kind", "crc", "priority", "key", "max_attempts"):
        assert getattr(letter, column) == getattr(MESSAGE, column), column
    assert (letter.headers, letter.body, letter.group) == (b"headers", b"body", 1)
    assert (letter.died, letter.reason, letter.detail) == (900, "max_attempts", bury().detail)
    assert letter.moved_by == "host"


def test_a_message_that_was_never_delivered_has_no_attempts(database: sqlite3.Connection) -> None:
    assert attempts(buried(database, bury())) == []


def test_attempts_are_kept_with_their_workers_outcomes_and_errors(
    database: sqlite3.Connection,
) -> None:
    letter = buried(
        database,
        bury(),
        delivery(1, error=ERROR.encode()),
        delivery(2, outcome=int(Outcome.CRASHED), session=None),
        delivery(3, outcome=int(Outcome.TIMED_OUT), session=99),
    )
    assert attempts(letter) == [
        AttemptRecord(1, 10, 15, "worker-4", Outcome.FAILED, ERROR),
        AttemptRecord(2, 20, 25, "", Outcome.CRASHED),
        AttemptRecord(3, 30, 35, "", Outcome.TIMED_OUT),
    ]


def test_the_open_attempt_ends_as_the_burial_says(database: sqlite3.Connection) -> None:
    op = bury(outcome=Outcome.TIMED_OUT, error=ERROR.encode())
    running = delivery(2, ended=None, outcome=None)
    letter = buried(database, op, delivery(1), running)
    assert attempts(letter)[1] == AttemptRecord(2, 20, 900, "worker-4", Outcome.TIMED_OUT, ERROR)
    assert attempts(letter)[0].ended_ms == 15


def test_an_error_that_is_damaged_does_not_hide_the_letter(database: sqlite3.Connection) -> None:
    (attempt,) = attempts(buried(database, bury(), delivery(1, error=b"\xc1")))
    assert attempt.error is not None
    assert attempt.error.type == "unreadable"


def test_of_many_attempts_the_newest_are_kept(database: sqlite3.Connection) -> None:
    count = LIMITS.attempts_kept + 20
    letter = buried(database, bury(), *[delivery(number) for number in range(1, count + 1)])
    kept = [record.attempt for record in attempts(letter)]
    assert kept == list(range(21, count + 1))
