"""Bring everything readable of a damaged database into a new one.

Knows: the order of the work, when SQLite can still read the file and when only we can.
Does not know: how rows are found in a wreck (wreck.py), which of them to believe (rescue.py).

The source and its log are only read, and all work is done on a copy: the evidence stays as it
is, for another try. The caller makes sure that no host has the source open (OwnerLock).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Final, NamedTuple

from embedq.clock import Clock, SystemClock, to_ms
from embedq.errors import InvalidOption, NotAnEmbedqFile, SchemaTooNew, StoreCorrupt
from embedq.storage import schema
from embedq.storage.connection import meaning
from embedq.storage.folders import sync_file, sync_folder
from embedq.storage.image import Image, make_image, open_still
from embedq.storage.pages import Pages
from embedq.storage.placement import PRIVATE, os_failure
from embedq.storage.records import BadText, Value
from embedq.storage.rescue import Rescue
from embedq.storage.wreck import NUMBERS, Range, Row, Shape, Wreck, gaps, roots_of, shapes_of

Progress = Callable[[str, int], object]

_EVERY: Final = 10_000

#: What it means that rows of a table are missing whose numbers say nothing.
_CONSEQUENCES: Final = {
    "delivery": "attempts may start again at 1, and settled messages may be delivered again",
    "dedup": "a repeated put may be stored twice",
    "session": "some deliveries name no worker",
    "stage": "a batch that tasks of Spark have staged must be written again",
    "sink": "a batch of Spark that is written again may be stored twice",
}


class Lost(NamedTuple):
    """Rows of a table, by number, that were there or had been settled: nobody can tell."""

    table: str
    first: int
    last: int


class Missing(NamedTuple):
    """Per table: numbers of rows that could not be read, and numbers between which none is."""

    holes: dict[str, list[Range]]
    spans: dict[str, list[Range]]


@dataclass(slots=True)
class Salvaged:
    """What was brought over.

    `counts`: rows by table in the new file. `damaged`: messages whose content or number is not
    to be trusted; they are dead letters with reason `corrupt`. `lost`: ranges of numbers on parts
    that could not be read. `dropped`: rows by table that had lost what they belonged to.
    `lost_frames`: damaged pages of the log; rows on them may be missing without being named.
    `notes`: what was made up. `whole`: the structure was sound, so that SQLite could read it.
    """

    path: Path
    whole: bool
    counts: dict[str, int] = field(default_factory=dict)
    lost: list[Lost] = field(default_factory=list)
    damaged: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    lost_frames: int = 0
    notes: list[str] = field(default_factory=list)


def salvage(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> Salvaged:
    """Write what is readable of the database `source` into the new database `target`.

    Messages whose content has its checksum are messages again, with their number, deliveries and
    groups. Others become dead letters with reason `corrupt`, their bodies as they were found.
    Rows are found even where root, interior pages, schema or header are destroyed. A message
    settled before can come back only where both the list of free pages and the map of pages are
    damaged, or the log is. `progress` gets what is being done and a number of rows. Needs the
    space of the source twice. On an error `target` is not created.

    Raises:
        InvalidOption: `source` is not there, or `target` is or cannot be.
        NotAnEmbedqFile, SchemaTooNew: `source` is sound, but not ours or of a later release.
        StoreCorrupt: nothing of ours is readable.
        StoreFull, StoreFailed: no space for the new file, or reading and writing failed.
    """
    old, new = Path(source).absolute(), Path(target).absolute()
    report = progress or (lambda _doing, _rows: None)
    now = to_ms((clock or SystemClock()).time())
    _check_paths(old, new)
    try:
        with ExitStack() as cleaning:
            copy = cleaning.enter_context(_fresh(new, ".image"))
            part = cleaning.enter_context(_fresh(new, ".part"))
            report("copying", 0)
            salvaged = _bring_over(make_image(old, copy), part, new, now, report)
            if not any(salvaged.counts[table] for table in ("queue", "msg", "dead")):
                _refuse_nothing(old, salvaged)
            report("syncing", 0)
            sync_file(part)
            _check_paths(old, new)
            part.replace(new)
            sync_folder(new.parent)
    except OSError as error:
        raise os_failure(new, f"salvage {old}", error) from error
    except sqlite3.Error as error:
        raise meaning(error, str(new)) from error
    return salvaged


def _check_paths(old: Path, new: Path) -> None:
    if not old.is_file():
        raise InvalidOption(f"there is no file {old} to salvage", argument="source")
    if new.exists() or new.is_symlink():
        raise InvalidOption(
            f"{new} exists; a salvage writes a new file", hint="name another", argument="target"
        )
    if not new.parent.is_dir():
        raise InvalidOption(
            f"the folder of {new} does not exist", hint="mkdir -p it first", argument="target"
        )


@contextmanager
def _fresh(new: Path, suffix: str) -> Iterator[Path]:
    """Create an empty private file beside the target; remove it unless it was renamed."""
    path = new.with_name(new.name + suffix)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))
    except FileExistsError as error:
        raise InvalidOption(
            f"{path} exists: another salvage is at work, or was killed",
            hint="remove it if no salvage is running",
            argument="target",
        ) from error
    try:
        path.chmod(PRIVATE)
        yield path
    finally:
        path.unlink(missing_ok=True)


def _bring_over(image: Image, part: Path, new: Path, now: int, report: Progress) -> Salvaged:
    tables = _tables_if_whole(image)
    version = _version_of(image, tables)
    with closing(sqlite3.connect(str(part), isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size={image.page_size}")
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        # Until it is renamed the file is worth nothing, so it need not survive anything.
        connection.execute("PRAGMA journal_mode=OFF")
        connection.execute("PRAGMA synchronous=OFF")
        schema.migrate(connection, 0, schema.MIGRATIONS[:version])
        shapes = shapes_of(connection)
        roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_schema"))
        connection.execute("BEGIN")
        rescue = Rescue(connection, shapes, now)
        salvaged = Salvaged(new, whole=tables >= set(schema.tables_of(version)))
        read = _read_whole if salvaged.whole else _read_wreck
        missing = read(image, shapes, roots, _counting(rescue, report))
        rescue.finish()
        connection.execute("COMMIT")
        schema.migrate(connection, version)
        connection.execute("PRAGMA journal_mode=WAL")
        report("checking", 0)
        _conclude(connection, rescue, missing, salvaged)
    salvaged.lost_frames = image.lost_frames
    return salvaged


def _counting(rescue: Rescue, report: Progress) -> Callable[[Row], None]:
    count = 0

    def add(row: Row) -> None:
        nonlocal count
        rescue.add(row)
        count += 1
        if count % _EVERY == 0:
            report("reading", count)

    return add


def _tables_if_whole(image: Image) -> set[str]:
    """Return the names of tables and indexes if SQLite finds nothing wrong, else nothing."""
    if not image.sound:
        return set()
    try:
        with closing(open_still(image.path)) as connection:
            connection.text_factory = _text  # damaged names come back in what SQLite says
            if connection.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
                return set()
            return {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        # The second: SQLite quotes a damaged name. Nothing is hidden: this is what the wreck is
        # for, and the result says that it was needed.
        return set()


def _version_of(image: Image, tables: set[str]) -> int:
    """Return the version of the schema; a whole file that is not ours is refused."""
    ours = tables >= set(schema.FIRST_TABLES)
    if tables and not ours and image.application != schema.APPLICATION_ID:
        raise NotAnEmbedqFile(
            "the file to salvage is a sound SQLite database, but not one of embedq's",
            hint="choose another file; nothing was written",
        )
    version = image.version or 0
    if 0 < version <= schema.VERSION:
        return version
    if version > schema.VERSION and ours and tables != _known_names():
        raise SchemaTooNew(
            f"the file to salvage has schema version {version}; this embedq knows versions up to "
            f"{schema.VERSION}",
            hint="salvage it with the embedq that wrote it, or a later one",
        )
    return schema.VERSION


def _known_names() -> set[str]:
    """Return the tables and indexes of our newest version; a file with just these is not newer."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema.migrate(connection, 0)
        return {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}


def _read_whole(
    image: Image, shapes: dict[str, Shape], roots: dict[str, int], add: Callable[[Row], None]
) -> Missing:
    """Let SQLite read the tables: the structure is sound, at most contents are not."""
    del roots
    missing = Missing({}, {})
    with closing(open_still(image.path)) as connection:
        connection.text_factory = _text
        for table, shape in shapes.items():
            for values in connection.execute(f"SELECT * FROM {table}"):
                fitted = shape.fit(list(values))
                if fitted is not None:
                    add(Row(table, fitted))
                elif shape.numbered:
                    missing.holes.setdefault(table, []).append(Range(values[0], values[0]))
        for values in connection.execute(f"SELECT name, seq FROM {NUMBERS}"):
            add(Row(NUMBERS, values))
    return missing


def _text(data: bytes) -> Value:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return BadText(data)


def _read_wreck(
    image: Image, shapes: dict[str, Shape], roots: dict[str, int], add: Callable[[Row], None]
) -> Missing:
    """Read the pages ourselves. Our tables have the same roots in every file of a version."""
    if not image.path.stat().st_size:
        return Missing({}, {})
    with image.path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        pages = Pages(data, image.page_size)
        try:
            mixed = image.lost_frames > 0
            wreck = Wreck(pages, roots | roots_of(pages), shapes, mixed=mixed)
            for row in wreck.rows():
                add(row)
            for row in wreck.stray_rows(image.strays):
                add(row)
        finally:
            pages.close()
    return Missing(wreck.holes, wreck.spans)


def _conclude(
    connection: sqlite3.Connection, rescue: Rescue, missing: Missing, salvaged: Salvaged
) -> None:
    found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if found != "ok":
        raise StoreCorrupt(f"{salvaged.path}: the new file is damaged as well: {found}")
    for table in schema.TABLES:
        count = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        salvaged.counts[table] = count
    salvaged.lost += [Lost("msg", seq, seq) for seq in rescue.left_out()]
    salvaged.damaged = rescue.damaged
    salvaged.dropped = rescue.dropped
    salvaged.notes = rescue.notes
    salvaged.notes += [
        f"a part of table {table} could not be read: {_CONSEQUENCES[table]}"
        for table in schema.TABLES
        if table in missing.holes and table in _CONSEQUENCES
    ]
    for table, end in (("msg", rescue.last_seq), ("dead", rescue.last_letter)):
        lost = gaps(missing.holes.get(table, ()), missing.spans.get(table, ()), end)
        salvaged.lost += [Lost(table, first or 1, last or end) for first, last in lost]


def _refuse_nothing(old: Path, salvaged: Salvaged) -> None:
    if not salvaged.whole:
        raise StoreCorrupt(
            f"nothing of embedq's could be read in {old}",
            hint="restore a backup; if there is none, keep the file and its -wal",
        )
