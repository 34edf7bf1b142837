"""Where the rows of the source come from: the database file itself, or its host.

Knows: how both answer the same questions, and when a file cannot be read here.
Does not know: options other than the two, offsets, Arrow, PySpark.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from embedq.errors import InvalidOption, NotAnEmbedqFile, StorageError
from embedq.spark.reading import Reading
from embedq.storage import feed, schema
from embedq.storage.connection import (
    DAMAGED,
    ERRORS,
    Connection,
    is_no_database,
    meaning,
    open_reader,
)
from embedq.storage.feed import Feed, Part, Survey, Wanted

if TYPE_CHECKING:
    from embedq.broker.office import Office

T = TypeVar("T")

#: Seconds that a reader waits while the file is being opened or recovered by its host.
_BUSY_S: Final = 30.0


class Place(Protocol):
    """What answers for a feed. One thread, and one process."""

    def survey(self, kind: Feed) -> Survey:
        """Return what there is: queues, groups, how far the feed goes."""

    def read(self, wanted: Wanted, groups: Sequence[int]) -> Part:
        """Return the next part of a range. Raises MessagesGone, see `feed.check_held`."""

    def first_since(self, kind: Feed, of: tuple[int, ...], since_ms: int) -> int | None:
        """Return the first position at a time or later."""

    def nth_after(self, kind: Feed, of: tuple[int, ...], after: int, rows: int) -> int | None:
        """Return the position `rows` rows further, None if there are not so many."""


class FilePlace:
    """The database file, read by SQLite in this process, beside the host or without one."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._connection: Connection | None = None

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()

    def _ask(self, question: Callable[[Connection], T]) -> T:
        """Answer from one short snapshot."""
        try:
            connection = self._connection or self._open()
            self._connection = connection
            connection.execute("BEGIN")
            try:
                return question(connection)
            finally:
                connection.execute("ROLLBACK")
        except (*ERRORS, *DAMAGED) as error:
            raise self._meaning(error) from error

    def _open(self) -> Connection:
        if not Path(self.path).is_file():
            raise InvalidOption(
                f"path={self.path!r} is no file on this machine",
                hint="correct the option `path`; where executors run on other machines leave it "
                "out and set `endpoint` to the tcp:// address of the host",
                argument="path",
            )
        connection = open_reader(self.path, busy_timeout_s=_BUSY_S)
        try:
            version = schema.version_of(connection, self.path)
        except BaseException:
            connection.close()
            raise
        if version == 0:
            connection.close()
            raise NotAnEmbedqFile(
                f"{self.path} is empty: it has not been opened as a store yet",
                hint="put a message into it first, or correct the option `path`",
            )
        return connection

    def _meaning(self, error: Exception) -> StorageError:
        if is_no_database(error):
            return NotAnEmbedqFile(
                f"{self.path} is not an SQLite database", hint="correct the option `path`"
            )
        return meaning(error, self.path)

    def survey(self, kind: Feed) -> Survey:
        """See Place."""
        return self._ask(lambda db: feed.survey(db, kind))

    def read(self, wanted: Wanted, groups: Sequence[int]) -> Part:
        """See Place."""

        def question(db: Connection) -> Part:
            feed.check_held(db, groups, wanted.after)
            return feed.read(db, wanted)

        return self._ask(question)

    def first_since(self, kind: Feed, of: tuple[int, ...], since_ms: int) -> int | None:
        """See Place."""
        return self._ask(lambda db: feed.first_since(db, kind, of, since_ms))

    def nth_after(self, kind: Feed, of: tuple[int, ...], after: int, rows: int) -> int | None:
        """See Place."""
        return self._ask(lambda db: feed.nth_after(db, kind, of, after, rows))


class HostPlace:
    """The host of the file, asked over ZeroMQ: from this machine, or by tcp:// from another."""

    def __init__(self, office: Office) -> None:
        self._office = office

    def survey(self, kind: Feed) -> Survey:
        """See Place."""
        return self._office.feed_survey(kind)

    def read(self, wanted: Wanted, groups: Sequence[int]) -> Part:
        """See Place."""
        return self._office.feed_part(wanted, list(groups))

    def first_since(self, kind: Feed, of: tuple[int, ...], since_ms: int) -> int | None:
        """See Place."""
        return self._office.feed_first_since(kind, list(of), since_ms)

    def nth_after(self, kind: Feed, of: tuple[int, ...], after: int, rows: int) -> int | None:
        """See Place."""
        return self._office.feed_nth_after(kind, list(of), after, rows)


@contextmanager
def open_place(reading: Reading) -> Iterator[Place]:
    """Open the file if there is a `path`, else the host at `endpoint`.

    Raises what reading a file or reaching a host raises, naming the option to change.
    """
    if reading.path is not None:
        with closing(FilePlace(reading.path)) as place:
            yield place
    else:
        with open_host(reading) as office:
            yield HostPlace(office)


@contextmanager
def open_host(reading: Reading) -> Iterator[Office]:
    """Connect to the host at `endpoint`, for what only a host can do: groups of queries."""
    from embedq.ipc.errands import open_office  # noqa: PLC0415  # a path alone needs no ZeroMQ

    endpoint = reading.endpoint
    if endpoint is None:
        raise InvalidOption(
            "only a host keeps messages for a group",
            hint="set the option `endpoint`",
            argument="endpoint",
        )
    with open_office(endpoint, reading.keys, name=f"spark-{os.getpid()}") as office:
        yield office
