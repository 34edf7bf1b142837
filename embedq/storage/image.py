"""Make one plain file of a damaged database and its log, without touching either.

Knows: where the header of a file keeps what, how a log is laid over a database, page sizes.
Does not know: tables and rows, what is done with the image.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import quote

from embedq.storage.frames import Log, read_log
from embedq.storage.pages import MAGIC, PAGE_SIZES, Pages

_LARGEST: Final = 65536
_SAMPLE: Final = 2_000
_CLEARLY: Final = 1.1


@dataclass(slots=True)
class Image:
    """A copy of the database with its log applied.

    `sound`: header and log are whole, so that SQLite sees in the image what it would see in the
    original. `strays`: pages of a damaged log that could not be placed. `application` and
    `version` are None where the header cannot be read.
    """

    path: Path
    page_size: int
    sound: bool
    application: int | None
    version: int | None
    lost_frames: int = 0
    strays: list[bytes] = field(default_factory=list, repr=False)


def make_image(source: Path, target: Path) -> Image:
    """Copy `source` to the empty file `target`, and lay its -wal file over the copy.

    Raises OSError.
    """
    shutil.copyfile(source, target)
    beside = source.with_name(f"{source.name}-wal")
    log_bytes = beside.read_bytes() if beside.exists() else b""
    with target.open("r+b") as file:
        header = file.read(100)
        whole = header.startswith(MAGIC)
        size = _page_size(header) if whole else 0
        log = read_log(log_bytes, size)
        size = size or (log.page_size if log is not None else 0) or guess_page_size(target)
        if log is not None and log.page_size != size:
            log = None
        if log is not None:
            _lay_over(file, log, log_bytes, size)
            file.seek(0)
            header = file.read(100)
            whole = header.startswith(MAGIC)
    broken_log = log is not None and (log.believed < log.committed or bool(log.strays))
    return Image(
        target,
        size,
        sound=whole and not broken_log,
        application=struct.unpack_from(">I", header, 68)[0] if whole else None,
        version=struct.unpack_from(">I", header, 60)[0] if whole else None,
        lost_frames=log.damaged if log is not None else 0,
        strays=[log_bytes[at : at + size] for at in log.strays] if log is not None else [],
    )


def open_still(path: Path) -> sqlite3.Connection:
    """Open a file that nobody changes: without locks, and without leaving files beside it."""
    return sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?mode=ro&immutable=1", uri=True, isolation_level=None
    )


def _page_size(header: bytes) -> int:
    size: int = struct.unpack_from(">H", header, 16)[0]
    size = _LARGEST if size == 1 else size
    return size if size in PAGE_SIZES else 0


def _lay_over(file: BinaryIO, log: Log, log_bytes: bytes, size: int) -> None:
    for page, at in log.pages.items():
        file.seek((page - 1) * size)
        file.write(log_bytes[at : at + size])
    if log.database_pages:
        file.truncate(log.database_pages * size)


def guess_page_size(path: Path) -> int:
    """Return the page size at whose multiples most b-tree pages begin; smaller ones first."""
    best, most = 4096, 0.0
    with path.open("rb") as file:
        data = file.read(_SAMPLE * 8192)
    for size in PAGE_SIZES:
        pages = Pages(data, size)
        numbers = range(2, min(pages.count, _SAMPLE) + 1)
        begun = sum(_begins(pages, number) for number in numbers)
        share = begun / max(len(numbers), 1)
        if share > most * _CLEARLY:
            best, most = size, share
    return best


def _begins(pages: Pages, number: int) -> bool:
    cells, bad = pages.cells(number)
    return bool(cells) and not bad
