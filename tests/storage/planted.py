"""A store in a file whose statements fail as planted.

Knows: how SQLite's errors look, and how to let a statement of the store fail.
Does not know: what a store must do then.
"""

from __future__ import annotations

import dataclasses
import sqlite3
from pathlib import Path
from typing import Any

from embedq.clock import VirtualClock
from embedq.limits import LIMITS
from embedq.storage.port import Store
from embedq.storage.sqlite import SqliteStore, open_store
from tests.conformance.scenario import plain

SMALL = dataclasses.replace(
    LIMITS, disk_watermark_bytes=0, ballast_bytes=4096, busy_timeout_s=0, checkpoint_pages=50
)


def opened(path: Path, **more: Any) -> SqliteStore:
    return open_store(path, durability="normal", clock=VirtualClock(), limits=SMALL, **more)


def put(store: Store, count: int = 1) -> int:
    """Put into the first queue; return the first seq."""
    op = plain(1, *[b"body"] * count)
    store.put(op)
    return op.first


def seqs(store: SqliteStore) -> list[int]:
    return [found.seq for found in store.range(1, 0, 1 << 40)]


def meta(store: SqliteStore, key: str) -> Any:
    return store.connection.execute("SELECT value FROM meta WHERE key=?", (key,)).fetchone()[0]


def error_of(code: int, kind: type[sqlite3.Error] = sqlite3.OperationalError) -> sqlite3.Error:
    error = kind("planted")
    error.sqlite_errorcode = code
    error.sqlite_errorname = "PLANTED"
    return error


def fail_at(
    store: SqliteStore, statement: str, error: BaseException, *, times: int = 1
) -> list[str]:
    """Let statements of that beginning fail; return the list of those that did."""
    failed: list[str] = []
    execute: Any = store.connection.execute

    def failing(text: str, *values: Any) -> sqlite3.Cursor:
        if text.startswith(statement) and len(failed) < times:
            failed.append(text)
            raise error
        cursor: sqlite3.Cursor = execute(text, *values)
        return cursor

    store._execute = failing
    return failed
