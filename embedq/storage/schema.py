"""The tables of a database file, their versions and the way from one version to the next.

Knows: DDL, `application_id`, `user_version`, migrations: scripts, or steps through sqlite-utils.
Does not know: transactions of the running store, messages, the life cycle.

Recipe for a change of the format: docs/storage.md, section "Changing the format".
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING

from embedq.errors import NotAnEmbedqFile, SchemaTooNew

if TYPE_CHECKING:
    import sqlite_utils

#: "embq" in ASCII, so that `file(1)` and we can tell our databases from others.
APPLICATION_ID = 0x656D6271

_VERSION_1 = """
CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value                        -- store key (BLOB), epoch, seq high-water mark, clean flag
) WITHOUT ROWID;

CREATE TABLE queue (
  id       INTEGER PRIMARY KEY,
  name     TEXT NOT NULL UNIQUE,
  policy   TEXT NOT NULL,      -- JSON, see embedq.policy.QueuePolicy
  retained INTEGER NOT NULL,   -- 1: settled messages stay until their retention is over
  paused   INTEGER NOT NULL DEFAULT 0,
  stored   INTEGER NOT NULL DEFAULT 0,   -- rows in msg; exact after a clean close only
  dead     INTEGER NOT NULL DEFAULT 0,   -- rows in dead; likewise
  last     INTEGER                       -- highest seq ever put here; NULL: not known
);

CREATE TABLE consumer_group (
  id      INTEGER PRIMARY KEY AUTOINCREMENT,
  queue   INTEGER NOT NULL,
  name    TEXT NOT NULL,
  floor   INTEGER NOT NULL,    -- messages up to this seq are settled for the group
  settled INTEGER NOT NULL DEFAULT 0,    -- rows in msg that the group has settled
  UNIQUE (queue, name)
);

-- One row for each message, inserted once, never updated, deleted once. The rowid is the seq.
CREATE TABLE msg (
  seq          INTEGER PRIMARY KEY,
  queue        INTEGER NOT NULL,
  put_at       INTEGER NOT NULL,           -- ms, wall clock
  kind         INTEGER NOT NULL,           -- content kind of the body
  crc          INTEGER NOT NULL,           -- CRC-32 of headers, then body
  priority     INTEGER NOT NULL DEFAULT 0,
  due          INTEGER,                    -- ms: not deliverable before
  expires      INTEGER,                    -- ms: not deliverable from then on
  okey         TEXT,                       -- ordering key
  max_attempts INTEGER,                    -- NULL: the queue's; 0: endless
  headers      BLOB,                       -- MessagePack map
  body         BLOB NOT NULL
);
CREATE INDEX msg_priority ON msg (queue, priority, seq) WHERE priority <> 0;
CREATE INDEX msg_due      ON msg (queue, due, seq)      WHERE due IS NOT NULL;
CREATE INDEX msg_expires  ON msg (expires)              WHERE expires IS NOT NULL;
CREATE INDEX msg_key      ON msg (queue, okey, seq)     WHERE okey IS NOT NULL;

-- One row for each delivery of a message to a group, open while `ended` is NULL.
-- Attempt 0: settled without a delivery (expired, cancelled in one group).
CREATE TABLE delivery (
  seq     INTEGER NOT NULL,
  grp     INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  epoch   INTEGER NOT NULL,
  counter INTEGER NOT NULL,                -- fencing token within the epoch
  crashes INTEGER NOT NULL DEFAULT 0,      -- workers and hosts that died with this message
  session INTEGER,
  started INTEGER NOT NULL,                -- ms
  ended   INTEGER,                         -- ms
  outcome INTEGER,                         -- embedq.lifecycle.Outcome; from 10 on final
  due     INTEGER,                         -- ms: the retry may start
  closed  INTEGER,                         -- order of closing; only where history is kept
  error   BLOB,                            -- MessagePack, see embedq.message.ErrorInfo
  PRIMARY KEY (seq, grp, attempt)
) WITHOUT ROWID;
CREATE INDEX delivery_due    ON delivery (grp, due, seq) WHERE due IS NOT NULL;
CREATE INDEX delivery_closed ON delivery (grp, closed)   WHERE closed IS NOT NULL;

CREATE TABLE dead (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,   -- order of dying
  seq          INTEGER NOT NULL,
  grp          INTEGER NOT NULL,
  queue        INTEGER NOT NULL,
  died         INTEGER NOT NULL,           -- ms
  reason       TEXT NOT NULL,              -- code, see embedq.lifecycle.Reason
  detail       TEXT NOT NULL,
  moved_by     TEXT NOT NULL,
  attempts     BLOB,                       -- MessagePack list of AttemptRecord
  put_at       INTEGER NOT NULL,
  kind         INTEGER NOT NULL,
  crc          INTEGER NOT NULL,
  priority     INTEGER NOT NULL,
  okey         TEXT,
  max_attempts INTEGER,
  headers      BLOB,
  body         BLOB NOT NULL,
  UNIQUE (seq, grp)
);
CREATE INDEX dead_queue ON dead (queue, id);

CREATE TABLE dedup (
  queue   INTEGER NOT NULL,
  key     TEXT NOT NULL,
  seq     INTEGER NOT NULL,
  expires INTEGER NOT NULL,                -- ms
  PRIMARY KEY (queue, key)
) WITHOUT ROWID;
CREATE INDEX dedup_expires ON dedup (expires);

CREATE TABLE session (
  id      INTEGER PRIMARY KEY,
  name    TEXT NOT NULL,                   -- shown as the worker of a delivery
  epoch   INTEGER NOT NULL,
  opened  INTEGER NOT NULL,                -- ms
  token   BLOB,                            -- by which a client takes it up again
  requests BLOB                            -- MessagePack, see embedq.storage.answered
);
CREATE UNIQUE INDEX session_token ON session (token) WHERE token IS NOT NULL;
"""


_VERSION_2 = """
-- Messages that the tasks of a sink have written and nobody has published yet, in chunks.
CREATE TABLE stage (
  id     INTEGER PRIMARY KEY,
  queue  INTEGER NOT NULL,
  sink   TEXT NOT NULL,
  token  TEXT NOT NULL,                    -- of one attempt of one task
  number INTEGER NOT NULL,                 -- of the chunk, from 0
  messages INTEGER NOT NULL,               -- how many are in it
  size   INTEGER NOT NULL,                 -- bytes of the chunk
  at     INTEGER NOT NULL,                 -- ms
  crc    INTEGER NOT NULL,                 -- CRC-32 of the chunk
  chunk  BLOB NOT NULL                     -- MessagePack, see embedq.storage.staged
);
CREATE INDEX stage_sink ON stage (sink, token, number, queue, messages, size, at);

-- The newest batch that a sink has published: the same one again adds nothing.
CREATE TABLE sink (
  queue   INTEGER NOT NULL,
  name    TEXT NOT NULL,
  batch   INTEGER NOT NULL,
  messages INTEGER NOT NULL,               -- how many were in the batch
  at      INTEGER NOT NULL,                -- ms
  expires INTEGER NOT NULL,                -- ms
  PRIMARY KEY (queue, name)
) WITHOUT ROWID;
"""


class Script:
    """A step that is nothing but statements: it needs no library, which a new file would load.

    sqlite-utils takes 0.2 s to import, and 1.2 s with pandas beside it, which it imports as well.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def run(self, connection: sqlite3.Connection) -> None:
        """Execute it inside the transaction that has begun."""
        # Statement by statement: `executescript` would commit the migration's own transaction.
        statement = ""
        for line in self._text.splitlines(keepends=True):
            statement += line
            if sqlite3.complete_statement(statement):
                connection.execute(statement)
                statement = ""


#: A script, or what rebuilds tables with the means of sqlite-utils.
Migration = Script | Callable[["sqlite_utils.Database"], None]

#: Step n brings a file from version n to version n + 1. Never edit one that has been released.
MIGRATIONS: tuple[Migration, ...] = (Script(_VERSION_1), Script(_VERSION_2))

#: What this code reads and writes.
VERSION = len(MIGRATIONS)

#: The tables of version 1, by which a file of ours is known.
FIRST_TABLES = ("meta", "queue", "consumer_group", "msg", "delivery", "dead", "dedup", "session")

TABLES = (*FIRST_TABLES, "stage", "sink")


def tables_of(version: int) -> tuple[str, ...]:
    """Return the tables of a version of the schema."""
    return FIRST_TABLES if version == 1 else TABLES


def version_of(connection: sqlite3.Connection, path: str) -> int:
    """Read the schema version of an open database; 0 means a new, empty file.

    Raises:
        NotAnEmbedqFile: the file holds somebody else's tables.
        SchemaTooNew: a later embedq wrote it.
    """
    application: int = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if application == 0 and version == 0:
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if tables == 0:
            return 0
    if application != APPLICATION_ID:
        message = f"{path} is an SQLite database, but not one of embedq's"
        raise NotAnEmbedqFile(message, hint="choose another path; nothing was changed")
    if version > VERSION:
        message = (
            f"{path} has schema version {version}; this embedq reads versions up to {VERSION}"
        )
        raise SchemaTooNew(message, hint="install the embedq that wrote it, or a later one")
    return version


def migrate(
    connection: sqlite3.Connection,
    version: int,
    migrations: tuple[Migration, ...] = MIGRATIONS,
) -> None:
    """Bring an open database from `version` to the newest one, each step in one transaction.

    A kill between steps leaves the older, whole version: the next opening goes on from there.
    """
    for number in range(version, len(migrations)):
        step = migrations[number]
        connection.execute("BEGIN IMMEDIATE")
        try:
            if isinstance(step, Script):
                step.run(connection)
            else:
                _through_library(connection, step)
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={number + 1}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _through_library(
    connection: sqlite3.Connection, step: Callable[[sqlite_utils.Database], None]
) -> None:
    import sqlite_utils  # noqa: PLC0415  # only files that such a step is for pay for it

    step(sqlite_utils.Database(connection))
