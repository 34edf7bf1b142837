"""Dead letters to look at: filtered, in pages, one by one.

Knows: filters, which parts of a letter may be unreadable, what is hidden when shown.
Does not know: how letters are moved (deadletters.py), whether a host or an onlooker reads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeVar

import msgspec

from embedq.broker.redaction import Redact, hider, redacted
from embedq.clock import parse_duration
from embedq.errors import InvalidOption, UnknownMessage, shown
from embedq.ids import MessageIds
from embedq.lifecycle import Reason
from embedq.message import AttemptRecord, DeadLetter
from embedq.names import check_group_name
from embedq.storage.rows import DeadRow

_PAGE: Final = 200

T = TypeVar("T")
Rows = list[DeadRow]
Since = str | float | timedelta | datetime
_log = logging.getLogger("embedq")
_decode_attempts = msgspec.msgpack.Decoder(list[AttemptRecord]).decode
_decode_headers = msgspec.msgpack.Decoder(dict[str, str]).decode


class Named(Protocol):
    """A group, or a queue."""

    @property
    def id(self) -> int:
        """Its number in the store."""
        ...

    @property
    def name(self) -> str:
        """Its name."""
        ...


class Rack(Named, Protocol):
    """A queue whose letters are looked at."""

    @property
    def groups(self) -> Sequence[Named]:
        """Its groups."""
        ...


class Letterbox(Protocol):
    """Where letters lie: a store, or an onlooker."""

    def dead(self, queue: int, after: int, limit: int) -> Rows:
        """Return dead letters of a queue in the order of dying, with id > after."""
        ...

    def dead_letter(self, seq: int, group: int) -> DeadRow | None:
        """Return one dead letter."""
        ...


class Letters:
    """The dead letters of one queue, to look at. Filters: all that are given must fit.

    `reason`: one of lifecycle.Reason. `since`: not before a datetime, or at most so long ago
    ("2h", seconds). `group`: a group's name. `error`: part of the type or text of the last error.
    """

    def __init__(
        self,
        rack: Rack,
        box: Letterbox,
        ids: MessageIds,
        now_ms: Callable[[], int],
        redact: Callable[[], Redact | None] = lambda: None,
    ) -> None:
        self._rack = rack
        self._box = box
        self._ids = ids
        self._now_ms = now_ms
        self._redact = redact

    def list(
        self,
        *,
        reason: str | None = None,
        since: Since | None = None,
        group: str | None = None,
        error: str | None = None,
        limit: int = 100,
        after: int = 0,
    ) -> list[DeadLetter]:
        """Return letters in the order of dying; `after` is the `number` of the last one seen."""
        check_limit(limit)
        check_number(after)
        found: list[DeadLetter] = []
        for row in self._matching(self._filter(reason, since, group, error), after):
            found.append(self._shown(row))
            if len(found) == limit:
                break
        return found

    def show(self, message_id: str, group: str | None = None) -> DeadLetter:
        """Return one letter, of any group unless named. Raises UnknownMessage."""
        if group is not None:
            check_group_name(group)
        return self._shown(self._by_id(message_id, group)[0])

    def _filter(
        self, reason: str | None, since: Since | None, group: str | None, error: str | None
    ) -> Filter:
        return Filter(self._rack, self._now_ms(), reason, since, group, error)

    def _matching(self, wanted: Filter, after: int = 0) -> Iterator[DeadRow]:
        while rows := self._box.dead(self._rack.id, after, _PAGE):
            yield from filter(wanted.fits, rows)
            after = rows[-1].id

    def _by_id(self, message_id: str, group: str | None) -> Rows:
        seq = self._ids.decode(message_id)
        rows = [
            row
            for known in list(self._rack.groups)
            if group in {None, known.name}
            and (row := self._box.dead_letter(seq, known.id)) is not None
        ]
        if not rows:
            raise UnknownMessage(
                f"queue {self._rack.name!r} has no dead letter {message_id}",
                hint="it was redriven or purged, or is in another queue or group",
            )
        return rows

    # --------------------------------------------------------------------------- showing

    def _shown(self, row: DeadRow) -> DeadLetter:
        redact = self._redact()
        hide = hider(redact)
        names = {group.id: group.name for group in self._rack.groups}
        none: dict[str, str] = {}
        headers = None if row.headers is None else _readable(row.headers, _decode_headers, none)
        return DeadLetter(
            self._ids,
            row.seq,
            queue=self._rack.name,
            group=names.get(row.group, f"(removed group {row.group})"),
            reason=row.reason,
            detail=hide(row.detail),
            died_ms=row.died,
            put_at_ms=row.put_at,
            moved_by=row.moved_by,
            body=row.body,
            kind=row.kind,
            headers=None if headers is None else {n: hide(v) for n, v in headers.items()},
            priority=row.priority,
            ordering_key=row.key,
            attempts=tuple(
                msgspec.structs.replace(record, error=redacted(record.error, redact))
                for record in attempts_of(row)
            ),
            number=row.id,
        )


class Filter:
    """What letters must be like."""

    def __init__(
        self,
        rack: Rack,
        now_ms: int,
        reason: str | None,
        since: Since | None,
        group: str | None,
        error: str | None,
    ) -> None:
        if reason is not None and str(reason) not in list(Reason):
            raise InvalidOption(
                f"reason={shown(reason)} is no reason of dead letters",
                hint=f"reasons are {', '.join(Reason)}",
                argument="reason",
            )
        if error is not None and not isinstance(error, str):
            raise InvalidOption(
                f"error={shown(error)} is not a text",
                hint="give a part of the type or the text of the last error",
                argument="error",
            )
        if group is not None:
            check_group_name(group)
        self.group = group
        self._reason = reason
        #: Letters that died then or later.
        self.since_ms = None if since is None else _moment(since, now_ms)
        self._groups = None
        if group is not None:
            self._groups = {known.id for known in rack.groups if known.name == group}
        self._error = error

    def fits(self, row: DeadRow) -> bool:
        """Whether a letter is wanted."""
        return (
            (self._reason is None or row.reason == self._reason)
            and (self.since_ms is None or row.died >= self.since_ms)
            and (self._groups is None or row.group in self._groups)
            and (self._error is None or _last_error_has(row, self._error))
        )


def attempts_of(row: DeadRow) -> list[AttemptRecord]:
    """Return the attempts kept with a letter; none if what was kept cannot be read."""
    return [] if row.attempts is None else _readable(row.attempts, _decode_attempts, [])


def _readable(data: bytes, decode: Callable[[bytes], T], otherwise: T) -> T:
    try:
        return decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        # A damaged part must not hide the letter it belongs to.
        _log.warning("part of a dead letter cannot be read: %s", error)
        return otherwise


def _last_error_has(row: DeadRow, text: str) -> bool:
    attempts = attempts_of(row)
    error = attempts[-1].error if attempts else None
    return error is not None and (text in error.type or text in error.message)


def _moment(since: Since, now_ms: int) -> int:
    if isinstance(since, datetime):
        if since.tzinfo is None:
            raise InvalidOption(
                f"since={since.isoformat()} has no time zone",
                hint='use datetime.now(UTC), or how long ago: "2h"',
                argument="since",
            )
        return round(since.timestamp() * 1000)
    return now_ms - round(parse_duration(since, "since") * 1000)


def check_limit(limit: int) -> None:
    """Raise InvalidOption unless `limit` is 1 or more."""
    if type(limit) is not int or limit < 1:
        raise InvalidOption(
            f"limit={shown(limit)} is not a whole number of 1 or more",
            hint="ask again with after= for more",
            argument="limit",
        )


def check_number(after: int) -> None:
    """Raise InvalidOption unless `after` is the number of a letter, or 0."""
    if type(after) is not int or not 0 <= after < 1 << 63:
        raise InvalidOption(
            f"after={shown(after)} is not the number of a letter",
            hint="give letter.number of the last one seen, or 0",
            argument="after",
        )
