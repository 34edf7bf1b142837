"""What a store in memory holds, and the rules that both operations and questions rest on.

Knows: the tables as plain dicts, when a message is settled, waiting, delayed or to be retried.
Does not know: batches, epochs changing, errors; nothing here changes a table except `remove`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from embedq.lifecycle import FINAL, Outcome
from embedq.storage.rows import (
    DeadRow,
    DeliveryRow,
    GroupRow,
    QueueRow,
    Stored,
    Touched,
    Waiting,
)
from embedq.storage.staged import SinkRow, StageRow


class SessionRow(NamedTuple):
    """A worker or process, and what is kept for it while it has a token.

    `idle`: nothing was given to it since it was opened, in the epoch `epoch`.
    """

    name: str
    epoch: int
    opened: int
    token: bytes | None = None
    requests: bytes = b""
    idle: bool = False


@dataclass(slots=True)
class State:
    """All tables at one moment.

    Every value in a table is replaced, never changed, so that `copy` need not go deeper than the
    dicts. `messages` is in seq order because seqs only rise.
    """

    key: bytes
    epoch: int
    exact: bool = False  # nothing happened since the counts were saved
    commits: int = 0  # within the epoch
    last_seq: int = 0
    last_id: int = 0  # of queues, groups, sessions and dead letters alike: none is ever reused
    queues: dict[int, QueueRow] = field(default_factory=dict)
    groups: dict[int, GroupRow] = field(default_factory=dict)
    messages: dict[int, Stored] = field(default_factory=dict)
    deliveries: dict[int, tuple[DeliveryRow, ...]] = field(default_factory=dict)  # by seq
    dead: dict[int, DeadRow] = field(default_factory=dict)
    dedup: dict[tuple[int, str], tuple[int, int]] = field(default_factory=dict)  # seq, until
    sessions: dict[int, SessionRow] = field(default_factory=dict)
    stages: dict[tuple[str, str, int], tuple[StageRow, bytes]] = field(default_factory=dict)
    sinks: dict[tuple[int, str], SinkRow] = field(default_factory=dict)

    def copy(self) -> State:
        """Return a state of its own."""
        return replace(
            self,
            queues=dict(self.queues),
            groups=dict(self.groups),
            messages=dict(self.messages),
            deliveries=dict(self.deliveries),
            dead=dict(self.dead),
            dedup=dict(self.dedup),
            sessions=dict(self.sessions),
            stages=dict(self.stages),
            sinks=dict(self.sinks),
        )

    def new_id(self) -> int:
        """Return an id that nothing had before."""
        self.last_id += 1
        return self.last_id

    def session_name(self, id_: int) -> str:
        """Return the name of a session, "" for an unknown one."""
        row = self.sessions.get(id_)
        return "" if row is None else row.name

    def gives(self, session: int | None) -> None:
        """Note that something is given to a session."""
        row = self.sessions.get(session or 0)
        if row is not None and row.idle:
            self.sessions[session or 0] = row._replace(idle=False)

    # ------------------------------------------------------------------ queues and groups

    def is_retained(self, queue: int) -> bool:
        """Whether settled messages of the queue stay."""
        return self.queues[queue].policy.retain_ms is not None

    def groups_of(self, queue: int) -> list[GroupRow]:
        """Return the groups of a queue by id."""
        return [group for group in self.groups.values() if group.queue == queue]

    def closing_number(self, queue: int) -> int | None:
        """Return what a delivery of this queue gets when it is closed by the current commit."""
        return (self.epoch << 40) | self.commits if self.is_retained(queue) else None

    # ------------------------------------------------------------------------ deliveries

    def rows_of(self, group: int, seq: int) -> list[DeliveryRow]:
        """Return the deliveries of a message to a group, by attempt."""
        return [row for row in self.deliveries.get(seq, ()) if row.group == group]

    def latest(self, group: int, seq: int) -> DeliveryRow | None:
        """Return the delivery with the highest attempt."""
        rows = self.rows_of(group, seq)
        return rows[-1] if rows else None

    def open_row(self, group: int, seq: int) -> DeliveryRow | None:
        """Return the delivery that nobody has closed."""
        for row in reversed(self.rows_of(group, seq)):
            if row.ended is None:
                return row
        return None

    def set_rows(self, seq: int, rows: Iterable[DeliveryRow]) -> None:
        """Make `rows` all the deliveries of a message."""
        ordered = tuple(sorted(rows, key=lambda row: (row.group, row.attempt)))
        if ordered:
            self.deliveries[seq] = ordered
        else:
            self.deliveries.pop(seq, None)

    def put_row(self, new: DeliveryRow) -> None:
        """Add a delivery, in place of an earlier one of the same attempt."""
        same = (new.group, new.attempt)
        others = [r for r in self.deliveries.get(new.seq, ()) if (r.group, r.attempt) != same]
        self.set_rows(new.seq, [*others, new])

    # ------------------------------------------------------------------------ settlement

    def is_settled(self, group: GroupRow, seq: int) -> bool:
        """Whether the group is done with a message."""
        if seq <= group.floor:
            return True
        return any(is_final(row) for row in self.rows_of(group.id, seq))

    def unsettled(self, seq: int) -> list[int]:
        """Return the groups that a message still waits for."""
        message = self.messages.get(seq)
        if message is None:
            return []
        groups = self.groups_of(message.queue)
        return sorted(group.id for group in groups if not self.is_settled(group, seq))

    def is_awaited(self, seq: int) -> bool:
        """Whether consumers of a group wait for a message: not only a reader (held.py)."""
        return any(self.groups[group].hold_ms is None for group in self.unsettled(seq))

    def remove(self, seq: int) -> None:
        """Remove a message with everything known about its deliveries."""
        del self.messages[seq]
        self.deliveries.pop(seq, None)

    # --------------------------------------------------------------------------- waiting

    def waiting_messages(self, group: int, after: int = 0) -> list[Stored]:
        """Return what the group has not settled, in seq order."""
        row = self.groups[group]
        return [
            message
            for seq, message in self.messages.items()
            if seq > after and message.queue == row.queue and not self.is_settled(row, seq)
        ]

    def retry_time(self, group: int, message: Stored) -> int | None:
        """Return when a failed message without ordering key may be tried again, or its place."""
        latest = self.latest(group, message.seq)
        return latest.due if message.key is None and latest is not None else None

    def delayed_time(self, group: int, message: Stored) -> int | None:
        """Return when a message without ordering key becomes deliverable, unless it is a retry."""
        if message.key is not None or self.retry_time(group, message) is not None:
            return None
        return message.due

    def in_stream(self, group: int, message: Stored) -> bool:
        """Whether a waiting message belongs to what `load` answers."""
        if message.key is not None:
            return True
        return message.due is None and self.retry_time(group, message) is None

    def describe(self, group: int, message: Stored) -> Waiting:
        """Return what the ready index must know of a waiting message.

        Its own due time has passed once it was delivered: then only the retry's counts.
        """
        latest = self.latest(group, message.seq)
        due = message.due if latest is None else latest.due
        return Waiting(
            message.seq,
            message.priority,
            message.key,
            due,
            message.max_attempts,
            None if latest is None else _touched(latest),
        )


def _touched(row: DeliveryRow) -> Touched:
    return Touched(
        *(row.seq, row.attempt, row.crashes, row.epoch, row.counter),
        *(row.ended is None, row.due, row.outcome == Outcome.CRASHED),
    )


def is_final(row: DeliveryRow) -> bool:
    """Whether a delivery ended the message for its group."""
    return row.outcome is not None and row.outcome >= FINAL
