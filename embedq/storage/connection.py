"""Open SQLite connections the one right way, and say what an SQLite error means.

Knows: pragmas and their reasons, which SQLite errors stop the store and which pass.
Does not know: tables, messages, who owns the file.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from typing import Literal
from urllib.parse import quote

from embedq.errors import (
    EmbedqError,
    NetworkFilesystem,
    NotAnEmbedqFile,
    StorageError,
    StoreBusy,
    StoreCorrupt,
    StoreFailed,
    StoreFull,
    UnsupportedPlatform,
)
from embedq.storage import descriptors

Durability = Literal["full", "normal"]
#: What questions are asked of, for rooms that do not know SQLite.
Connection = sqlite3.Connection

#: Upserts, partial indexes and NOT INDEXED exist from here on; RHEL 9 has 3.34.
OLDEST_SQLITE = (3, 34, 0)

_STATEMENTS_KEPT = 256

#: What a connection opens: the file, its log, its shared memory; and one more for SQLite.
_OPENED = 4

#: What a statement can raise. Where the schema is damaged, SQLite's words quote it, and Python
#: cannot read them.
ERRORS = (sqlite3.Error, UnicodeDecodeError)

#: What a question can raise besides: a stored value is not of the kind that was stored.
DAMAGED = (TypeError, ValueError, LookupError)


def open_writer(
    path: str,
    *,
    durability: Durability,
    page_size: int,
    busy_timeout_s: float,
    inspect: Callable[[sqlite3.Connection], object] | None = None,
) -> sqlite3.Connection:
    """Open the one writing connection; it is also the only one that checkpoints.

    `inspect` sees the connection before anything is written: what it raises leaves the file as it
    was.

    SQLite before 3.51.3 can damage a WAL when one connection writes while another checkpoints.
    The caller holds the owner lock, so there is no second party.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise UnsupportedPlatform(
            f"this Python comes with SQLite {sqlite3.sqlite_version}; embedq needs 3.34 or later"
        )
    try:
        connection = sqlite3.connect(
            path,
            timeout=busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_STATEMENTS_KEPT,
        )
    except sqlite3.DatabaseError as error:
        raise _opening_error(error, path) from error
    try:
        if inspect is not None:
            inspect(connection)
        _configure(connection, path, durability, page_size)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        connection.close()
        raise _opening_error(error, path) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _configure(
    connection: sqlite3.Connection, path: str, durability: Durability, page_size: int
) -> None:
    connection.text_factory = _text
    execute = connection.execute
    # Both only take effect on a file without tables, before its journal mode is set.
    execute(f"PRAGMA page_size={page_size}")
    execute("PRAGMA auto_vacuum=INCREMENTAL")
    mode = execute("PRAGMA journal_mode=WAL").fetchone()[0]
    if mode != "wal":
        # SQLite refuses WAL where it cannot share memory, as on network file systems.
        raise NetworkFilesystem(f"the file system of {path} does not support SQLite's WAL mode")
    execute(f"PRAGMA synchronous={'FULL' if durability == 'full' else 'NORMAL'}")
    # macOS: a plain fsync leaves the data in the drive's cache. No effect elsewhere.
    execute("PRAGMA fullfsync=1")
    # An error in an automatic checkpoint is reported to nobody; ours are explicit (D6).
    execute("PRAGMA wal_autocheckpoint=0")
    # Debian compiles it on: nearly twice the WAL for each ack.
    execute("PRAGMA secure_delete=0")
    execute("PRAGMA mmap_size=0")  # an I/O error in a mapped file is a signal, not an error
    execute("PRAGMA cache_size=-16384")
    execute("PRAGMA temp_store=MEMORY")
    execute("PRAGMA trusted_schema=0")
    execute("PRAGMA cell_size_check=1")


def _text(stored: bytes) -> str:
    """Read a text. One that is damaged must not be in the way of its row, and of all others."""
    return stored.decode("utf-8", "replace")


def open_reader(path: str, *, busy_timeout_s: float = 1.0) -> sqlite3.Connection:
    """Open a connection that can only read; usable by one thread at a time."""
    connection = sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?mode=ro",
        uri=True,
        timeout=busy_timeout_s,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=64,
    )
    connection.text_factory = _text
    try:
        connection.execute("PRAGMA query_only=1")
        connection.execute("PRAGMA mmap_size=0")
        connection.execute("PRAGMA trusted_schema=0")
    except BaseException:
        connection.close()
        raise
    return connection


def _opening_error(error: sqlite3.DatabaseError | UnicodeDecodeError, path: str) -> EmbedqError:
    if isinstance(error, UnicodeDecodeError):
        return meaning(error, path)
    if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_NOTADB:
        return NotAnEmbedqFile(
            f"{path} is not an SQLite database, or its first page is damaged",
            hint="choose another path; if it was embedq's, salvage it into a new file",
        )
    return meaning(error, path)


#: What each primary result code means for the store: the class to raise, and what is said.
_MEANINGS: dict[int, tuple[type[StorageError], str]] = {
    sqlite3.SQLITE_FULL: (StoreFull, "the disk is full"),
    sqlite3.SQLITE_BUSY: (StoreBusy, "another program holds the write lock"),
    sqlite3.SQLITE_LOCKED: (StoreBusy, "another program holds the write lock"),
    sqlite3.SQLITE_NOMEM: (StoreBusy, "SQLite got no memory"),
    sqlite3.SQLITE_INTERRUPT: (StoreBusy, "the operation was interrupted"),
    # After a failed write or sync nobody knows what the disk holds: the store stops (D6).
    sqlite3.SQLITE_IOERR: (StoreFailed, "reading or writing the file failed"),
    sqlite3.SQLITE_CANTOPEN: (StoreFailed, "the file or its WAL cannot be opened"),
    sqlite3.SQLITE_READONLY: (StoreFailed, "the file cannot be written"),
    sqlite3.SQLITE_PERM: (StoreFailed, "access to the file was denied"),
    sqlite3.SQLITE_PROTOCOL: (StoreFailed, "SQLite's locking protocol failed"),
    sqlite3.SQLITE_CORRUPT: (StoreCorrupt, "the database is damaged"),
    sqlite3.SQLITE_NOTADB: (StoreCorrupt, "the database is damaged"),
    sqlite3.SQLITE_SCHEMA: (StoreFailed, "somebody changed the tables"),
}


#: Extended result codes that say more than their primary one.
_EXTENDED: dict[int, tuple[type[StorageError], str]] = {
    # Not a bad disk: the shared memory beside the log could not grow.
    sqlite3.SQLITE_IOERR_SHMSIZE: (StoreFull, "the disk is full"),
}


def meaning(error: Exception, path: str) -> StorageError:
    """Translate one of ERRORS or DAMAGED; StoreFailed and StoreCorrupt must stop the store."""
    if isinstance(error, DAMAGED):
        return StoreCorrupt(f"{path}: the tables, or what is in them, are damaged ({error})")
    code = getattr(error, "sqlite_errorcode", None)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    known = None if code is None else _EXTENDED.get(code) or _MEANINGS.get(code & 0xFF)
    if known is None:
        return StorageError(
            f"{path}: SQLite refused the operation: {error} ({name})",
            hint="check the file; if it is sound, this is a defect of embedq: please report it",
        )
    kind, what = known
    hint = None
    if code == sqlite3.SQLITE_CANTOPEN and not descriptors.are_free(_OPENED):
        # Nothing is wrong with the file: with a descriptor the same call succeeds.
        kind, what, hint = StoreBusy, "no file descriptor is free", descriptors.HINT
    if code == sqlite3.SQLITE_READONLY_DIRECTORY:
        hint = f"let the user of this process write the folder {os.path.dirname(path)}"  # noqa: PTH120
    return kind(f"{path}: {what} ({name}: {error})", hint=hint)


def is_no_database(error: Exception) -> bool:
    """Whether SQLite says that a file is none of its own."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_NOTADB
