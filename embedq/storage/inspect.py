"""Check a database file completely and say what is wrong with it, in words.

Knows: what SQLite can check, what our tables promise each other, checksums, the log.
Does not know: how to repair anything, who owns the file.

`check` reads only. A file that nobody has open is read without leaving anything beside it. On a
live store it reads one snapshot for as long as it takes; `embedq.storage.verify` does the same
in small steps.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from embedq.errors import InvalidOption, NotAnEmbedqFile, StoreCorrupt
from embedq.ids import KEY_BYTES, SEQ_MAX
from embedq.lifecycle import Outcome
from embedq.policy import QueuePolicy
from embedq.storage import schema
from embedq.storage.frames import read_log
from embedq.storage.image import open_still
from embedq.storage.verify import SOUND_COLUMNS, is_sound

_MOST_LINES: Final = 100
_MOST_NAMED: Final = 5

_SALVAGE: Final = "stop the host and salvage the file into a new one, or restore a backup"
_BURIED: Final = "a host that reads the message makes it a dead letter; nothing else is affected"
_BUG: Final = "keep a copy of the file and report it; salvaging drops such rows"


#: Called with (what is checked now, parts that are done, parts in all).
Progress = Callable[[str, int, int], object]


class Severity(StrEnum):
    """How bad a finding is."""

    DAMAGE = "damage"  # something is lost or contradicts itself
    WARNING = "warning"  # the store works, but something is not as it should be
    NOTE = "note"  # good to know


class Finding(NamedTuple):
    """One thing that was found, and what to do about it."""

    severity: Severity
    what: str
    hint: str = ""


@dataclass(slots=True)
class CheckReport:
    """The result of a check: findings, the worst first, and what was looked at."""

    path: str
    findings: list[Finding] = field(default_factory=list)
    pages: int = 0
    messages: int = 0
    letters: int = 0

    @property
    def sound(self) -> bool:
        """Whether nothing is damaged."""
        return all(finding.severity is not Severity.DAMAGE for finding in self.findings)


def check(
    file: str | os.PathLike[str] | sqlite3.Connection, *, progress: Progress | None = None
) -> CheckReport:
    """Check a file, or the database of an open (read-only) connection, from end to end.

    Takes about a second for each 100 MB. A path is opened for reading, with its -wal file.
    `progress` gets (what is checked now, parts that are done, parts in all).

    Raises:
        InvalidOption: there is no such file.
        NotAnEmbedqFile: it is a sound database of somebody else.
        SchemaTooNew: a later embedq wrote it.
    """
    if isinstance(file, sqlite3.Connection):
        return _Check(file, _path_of(file)).run(progress)
    path = Path(file).absolute()
    if not path.is_file():
        raise InvalidOption(f"there is no file {path} to check", argument="path")
    log = path.with_name(f"{path.name}-wal")
    live = log.exists() and log.stat().st_size > 0
    with closing(_open_beside_log(path) if live else open_still(path)) as connection:
        found = _Check(connection, str(path))
        found.report.findings += _check_log(log) if live else []
        return found.run(progress)


def _open_beside_log(path: Path) -> sqlite3.Connection:
    address = f"file:{quote(os.fsencode(path))}?mode=ro"
    connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=5)
    connection.execute("PRAGMA query_only=1")
    return connection


def _path_of(connection: sqlite3.Connection) -> str:
    files = connection.execute("PRAGMA database_list").fetchall()
    return next((file for _, name, file in files if name == "main"), "") or "the database"


def _check_log(path: Path) -> list[Finding]:
    content = path.read_bytes()
    log = read_log(content)
    believed = 0 if log is None else log.believed
    findings = [
        Finding(
            Severity.NOTE,
            f"{path.name} holds {believed} pages that may not be in the database file yet",
            "a host is running, or the last one did not end cleanly: keep both files together",
        )
    ]
    # A host that writes at this moment makes any log look torn: then it does not stay the same.
    if log is not None and believed < log.committed and path.read_bytes() == content:
        findings.append(
            Finding(
                Severity.DAMAGE,
                f"{path.name} is damaged after frame {believed}: SQLite will forget the "
                f"{log.committed - believed} frames up to the last commit",
                f"opening the store would drop them; {_SALVAGE}",
            )
        )
    return findings


_OUTCOMES: Final = ", ".join(str(int(outcome)) for outcome in Outcome)

#: Statements that count rows which break a promise and name one of them.
_PROMISES: Final[tuple[tuple[Severity, str, str, str], ...]] = (
    (
        Severity.DAMAGE,
        "messages belong to no queue",
        "SELECT count(*), min(seq) FROM msg WHERE queue NOT IN (SELECT id FROM queue)",
        _SALVAGE,
    ),
    (
        Severity.DAMAGE,
        "deliveries belong to no message",
        "SELECT count(*), min(seq) FROM delivery WHERE seq NOT IN (SELECT seq FROM msg)",
        _SALVAGE,
    ),
    (
        Severity.WARNING,
        "deliveries belong to no group",
        "SELECT count(*), min(seq) FROM delivery WHERE grp NOT IN (SELECT id FROM consumer_group)",
        _BUG,
    ),
    (
        Severity.DAMAGE,
        "deliveries have an outcome that cannot be",
        (
            "SELECT count(*), min(seq) FROM delivery "
            # Attempt 0 without an outcome is none: it remembers a place at the tail.
            "WHERE (outcome IS NULL) <> (ended IS NULL) AND attempt > 0 "
            f"OR outcome NOT IN ({_OUTCOMES})"
        ),
        _SALVAGE,
    ),
    (
        Severity.WARNING,
        "messages have several open deliveries to one group",
        (
            "SELECT count(*), min(seq) FROM (SELECT seq FROM delivery WHERE ended IS NULL "
            "GROUP BY seq, grp HAVING count(*) > 1)"
        ),
        _BUG,
    ),
    (
        Severity.DAMAGE,
        "dead letters belong to no queue",
        "SELECT count(*), min(id) FROM dead WHERE queue NOT IN (SELECT id FROM queue)",
        _SALVAGE,
    ),
    (
        Severity.DAMAGE,
        "groups belong to no queue",
        "SELECT count(*), min(id) FROM consumer_group WHERE queue NOT IN (SELECT id FROM queue)",
        _SALVAGE,
    ),
    (
        Severity.WARNING,
        "dedup keys belong to no queue",
        "SELECT count(*), min(seq) FROM dedup WHERE queue NOT IN (SELECT id FROM queue)",
        _BUG,
    ),
    (
        Severity.DAMAGE,
        "messages have a priority that cannot be",
        "SELECT count(*), min(seq) FROM msg WHERE priority NOT BETWEEN 0 AND 9",
        _SALVAGE,
    ),
)

#: Where numbers of messages stand; none may be above the high-water mark.
_NUMBERS: Final = (
    ("messages", "seq", "msg", 1),
    ("dead letters", "seq", "dead", 1),
    ("deliveries", "seq", "delivery", 1),
    ("dedup keys", "seq", "dedup", 1),
    ("groups", "floor", "consumer_group", 0),
)


def _name(part: Callable[[], bool | None]) -> str:
    return part.__name__.removeprefix("_check_")


class _Check:
    """One check of one open database."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self.report = CheckReport(path)
        self._connection = connection
        self._meta: dict[str, object] = {}

    def run(self, progress: Progress | None = None) -> CheckReport:
        before = self._connection.text_factory
        # What is no UTF-8 is shown as far as it can be, instead of ending the check.
        self._connection.text_factory = lambda data: data.decode(errors="replace")
        try:
            if self._part(self._check_identity):
                parts = (
                    self._check_structure,
                    self._check_schema,
                    self._check_meta,
                    self._check_promises,
                    self._check_numbers,
                    self._check_settings,
                    self._check_bodies,
                    self._check_counts,
                )
                for done, part in enumerate(parts):
                    if progress is not None:
                        progress(_name(part), done, len(parts))
                    self._part(part)
        finally:
            self._connection.text_factory = before
        order = list(Severity)
        self.report.findings.sort(key=lambda finding: order.index(finding.severity))
        return self.report

    def _part(self, part: Callable[[], bool | None]) -> bool:
        try:
            return part() is not False
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            # The second: SQLite quotes a damaged name, and Python cannot make a text of it.
            text = f"the check of {_name(part)} came to an end: {error}"
            self._find(Severity.DAMAGE, text, _SALVAGE)
            return False

    def _find(self, severity: Severity, what: str, hint: str = "") -> None:
        self.report.findings.append(Finding(severity, what, hint))

    def _one(self, sql: str) -> tuple[object, ...]:
        row: tuple[object, ...] = self._connection.execute(sql).fetchone()
        return row

    def _check_identity(self) -> bool:
        names = {row[0] for row in self._connection.execute("SELECT name FROM sqlite_schema")}
        try:
            version = schema.version_of(self._connection, self.report.path)
        except NotAnEmbedqFile:
            if not names >= set(schema.FIRST_TABLES):
                raise
            self._find(Severity.DAMAGE, "the mark of an embedq file is damaged", _SALVAGE)
            return True
        if version == 0:
            self._find(Severity.NOTE, "the file is empty: it has not been opened as a store yet")
        return version > 0

    def _check_structure(self) -> None:
        self.report.pages = int(str(self._one("PRAGMA page_count")[0]))
        for (line,) in self._connection.execute(f"PRAGMA integrity_check({_MOST_LINES})"):
            if line != "ok":
                self._find(Severity.DAMAGE, f"SQLite finds: {line}", _SALVAGE)

    def _check_schema(self) -> None:
        version = int(str(self._one("PRAGMA user_version")[0]))
        listing = "SELECT type || ' ' || name, sql FROM sqlite_schema"
        there = dict(self._connection.execute(listing))
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
            schema.migrate(fresh, 0, schema.MIGRATIONS[:version] or schema.MIGRATIONS)
            wanted = dict(fresh.execute(listing))
        for name in sorted(wanted.keys() - there.keys()):
            self._find(Severity.DAMAGE, f"{name} is missing", _SALVAGE)
        for name in sorted(there.keys() - wanted.keys()):
            hint = "drop it: what others add to the file can make the store fail"
            self._find(Severity.WARNING, f"{name} is not one of embedq's", hint)
        for name in sorted(wanted.keys() & there.keys()):
            if wanted[name] != there[name]:
                self._find(Severity.WARNING, f"{name} is not as embedq makes it", _SALVAGE)

    def _check_meta(self) -> None:
        self._meta = dict(self._connection.execute("SELECT key, value FROM meta"))
        key = self._meta.get("store_key")
        if not isinstance(key, bytes) or len(key) != KEY_BYTES:
            hint = f"message ids given out before are lost; {_SALVAGE}"
            self._find(Severity.DAMAGE, "the store key is missing or damaged", hint)
        for name in ("epoch", "seq_reserved"):
            value = self._meta.get(name)
            if not isinstance(value, int) or not 0 < value <= SEQ_MAX:
                self._find(Severity.DAMAGE, f"{name} in table meta is {value!r}", _SALVAGE)

    def _check_promises(self) -> None:
        for severity, what, sql, hint in _PROMISES:
            count, first = self._one(sql)
            if count:
                self._find(severity, f"{count} {what} (the first is number {first})", hint)

    def _check_numbers(self) -> None:
        reserved = self._meta.get("seq_reserved")
        most = reserved if isinstance(reserved, int) else SEQ_MAX
        for what, column, table, least in _NUMBERS:
            count, first = self._one(
                f"SELECT count(*), min({column}) FROM {table} "
                f"WHERE {column} NOT BETWEEN {least} AND {most}"
            )
            if count:
                text = f"{count} {what} have numbers that were never given out, like {first}"
                self._find(Severity.DAMAGE, text, _SALVAGE)

    def _check_settings(self) -> None:
        for name, text, retained in self._connection.execute(
            "SELECT name, policy, retained FROM queue"
        ):
            try:
                policy = QueuePolicy.decode(text)
            except StoreCorrupt as error:
                self._find(Severity.DAMAGE, f"queue {name!r}: {error.message}", _SALVAGE)
                continue
            if retained != int(policy.retain_ms is not None):
                what = f"queue {name!r}: `retained` does not agree with its settings"
                self._find(Severity.WARNING, what, "declare the queue again")

    def _check_bodies(self) -> None:
        self.report.messages, damaged, _ = self._read_bodies("msg", "seq", "0")
        self._find_bodies("messages", damaged, _BURIED)
        self.report.letters, damaged, known = self._read_bodies("dead", "id", "reason = 'corrupt'")
        self._find_bodies("dead letters", damaged, "redrive them only after a look at the body")
        if known:
            text = f"{known} dead letters are there because their content is damaged"
            self._find(Severity.NOTE, text)

    def _read_bodies(self, table: str, key: str, known: str) -> tuple[int, list[int], int]:
        """Return the number of rows, the damaged ones, and how many were known as such."""
        count = buried = 0
        damaged: list[int] = []
        for number, expected, *content in self._connection.execute(
            f"SELECT {key}, {known}, {SOUND_COLUMNS} FROM {table} NOT INDEXED"
        ):
            count += 1
            if is_sound(*content):
                continue
            if expected:
                buried += 1
            else:
                damaged.append(number)
        return count, damaged, buried

    def _find_bodies(self, what: str, damaged: list[int], hint: str) -> None:
        if damaged:
            named = ", ".join(map(str, damaged[:_MOST_NAMED]))
            more = ", …" if len(damaged) > _MOST_NAMED else ""
            text = f"{len(damaged)} {what} do not have the content that was put ({named}{more})"
            self._find(Severity.DAMAGE, text, hint)

    def _check_counts(self) -> None:
        if not self._meta.get("clean"):
            return  # they are counted at the next opening
        for column, table in (("stored", "msg"), ("dead", "dead")):
            counted = f"(SELECT count(*) FROM {table} WHERE {table}.queue = queue.id)"
            for name, noted, count in self._connection.execute(
                f"SELECT name, {column}, {counted} FROM queue WHERE {column} <> {counted}"
            ):
                text = f"queue {name!r} is noted with {noted} rows in {table}, but has {count}"
                self._find(Severity.WARNING, text, "a crash and a restart count again")
