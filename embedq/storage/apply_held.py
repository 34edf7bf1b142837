"""What positions change, in SQL, inside a transaction of the writer.

Knows: the statements about positions, which queues retain.
Does not know: every other operation (apply.py), transactions, who reads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from embedq.storage import statements as sql
from embedq.storage.held import Advance, Hold, Lapse, Unhold
from embedq.storage.ops import Op

if TYPE_CHECKING:
    from embedq.storage.apply import Catalogue

_ADVANCE = "UPDATE consumer_group SET floor=? WHERE id=?"
_LAPSE = (
    "DELETE FROM msg WHERE queue=?1 AND seq>?2 AND seq<=?3 AND put_at<?4 "
    "AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.seq=msg.seq) "
    f"AND EXISTS (SELECT 1 FROM consumer_group WHERE queue=?1) AND NOT {sql.UNSETTLED}"
)
_FIRST = (
    "SELECT seq FROM msg NOT INDEXED WHERE queue=?1 AND seq>?2 AND seq<=?3 ORDER BY seq LIMIT 1"
)
_FIRST_SINCE = _FIRST.replace("ORDER", "AND put_at>=?4 ORDER")


class HeldApplier:
    """Applies these operations through one connection. Used with the writer's lock held."""

    def __init__(self, connection: sqlite3.Connection, catalogue: Catalogue) -> None:
        self._execute = connection.execute
        self._catalogue = catalogue
        self.handlers: Mapping[type[Op], Callable[..., None]] = {
            Hold: self._hold,
            Unhold: self._unhold,
            Advance: self._advance,
            Lapse: self._lapse,
        }

    def _hold(self, op: Hold) -> None:
        row = op.declared.row
        if row is None:
            return
        self._execute(sql.META_SET, (f"{sql.HELD}{row.id}", op.hold_ms))
        known = self._catalogue.groups[row.id]
        known.hold_ms = op.hold_ms
        op.declared.row = replace(known)

    def _unhold(self, op: Unhold) -> None:
        self._execute(sql.META_DELETE, (f"{sql.HELD}{op.group}",))

    def _advance(self, op: Advance) -> None:
        op.passed = op.removed = 0
        group = self._catalogue.groups.get(op.group)
        if group is None or op.floor <= group.floor:
            return
        stretch = (group.floor, op.floor)
        (op.passed,) = self._execute(sql.TALLY_FLOOR, (*stretch, group.queue)).fetchone()
        self._execute(_ADVANCE, (op.floor, op.group))
        if self._catalogue.queues[group.queue].policy.retain_ms is None:
            op.removed = self._execute(sql.COLLECT_MESSAGES, (group.queue, *stretch)).rowcount
            if op.removed:
                self._execute(sql.COLLECT_DELIVERIES, stretch)
        group.floor = op.floor

    def _lapse(self, op: Lapse) -> None:
        values = (op.queue, op.after, op.upto, op.cutoff)
        op.removed = self._execute(_LAPSE, values).rowcount


def put_before(
    connection: sqlite3.Connection, queue: int, after: int, upto: int, time_ms: int
) -> int | None:
    """Answer `Store.put_before`."""
    first = connection.execute(_FIRST, (queue, after, upto)).fetchone()
    if first is None:
        return None
    young = connection.execute(_FIRST_SINCE, (queue, after, upto, time_ms)).fetchone()
    last: int = upto if young is None else young[0] - 1
    return last if first[0] <= last else None
