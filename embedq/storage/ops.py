"""The operations a store commits: what each must change, and what it answers.

Knows: the exact effect of every operation, in words.
Does not know: SQL, how operations are grouped, when a message may move.

A batch of operations happens wholly or not at all; tests/conformance holds every store to it.
All times are integer milliseconds of wall clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from embedq.lifecycle import Outcome, Reason
from embedq.policy import QueuePolicy
from embedq.storage import answered
from embedq.storage.answered import Answer
from embedq.storage.rows import GroupRow, QueueRow, Row, Stored

#: Milliseconds after which the token of a session of an earlier host is forgotten: a week.
SESSION_KEPT_MS: Final = 7 * 24 * 3600 * 1000


class Op:
    """An operation. Fields under "out" are set by `commit` and mean something afterwards only.

    Those that are no more than their fields are structs, not dataclasses: to make such a class
    takes a tenth of the time, and each process that starts makes them all.
    """

    __slots__ = ()


class PutPlain(Op):
    """Store messages that have nothing but body and kind, in this order.

    `items` is flat: crc, body, crc, body, … Out: `first`, the seq of the first one; the others
    follow without a gap.
    """

    __slots__ = ("count", "first", "items", "kind", "put_at", "queue")

    def __init__(
        self, queue: int, put_at: int, kind: int, items: list[int | bytes], count: int
    ) -> None:
        self.queue = queue
        self.put_at = put_at
        self.kind = kind
        self.items = items
        self.count = count
        self.first = 0


class PutRows(Op):
    """Store messages of any kind, in this order; one with a living dedup key is not stored again.

    Out: `seqs`, one for each row (of the earlier message for a duplicate), and `stored`, the
    positions of those that were stored.
    """

    __slots__ = ("put_at", "queue", "rows", "seqs", "stored")

    def __init__(self, queue: int, put_at: int, rows: Sequence[Row]) -> None:
        self.queue = queue
        self.put_at = put_at
        self.rows = rows
        self.seqs: list[int] = []
        self.stored: list[int] = []


class Again(NamedTuple):
    """A further delivery of a message that has been delivered before.

    `words`, `outcome`: how the earlier delivery has ended, should that still be open.
    """

    seq: int
    attempt: int
    crashes: int
    words: bytes | None = None
    outcome: Outcome = Outcome.CRASHED


class Start(Op):
    """Open deliveries: `fresh` ones with attempt 1, `again` with theirs.

    The first one (fresh first) gets counter `counter`, the next `counter` + 1 and so on. The
    caller starts only messages that are there and not settled. An earlier delivery of an `again`
    message that is still open is closed with `outcome` and `words`, and if it crashed with one
    more in its `crashes`; its retry time is cleared. Starting an attempt anew replaces its row.

    With `reads` a store may answer with the messages themselves, out: `messages`, those that are
    there; None: ask for them with `Store.messages`.

    With `put`, an operation before this one in the same batch, `fresh` holds positions in it
    instead of seqs: these deliveries begin with their messages. A position that was not stored,
    being a duplicate, opens no delivery and takes no counter.
    """

    __slots__ = (
        "again",
        "counter",
        "fresh",
        "group",
        "messages",
        "put",
        "reads",
        "session",
        "started",
    )

    def __init__(  # one argument for each column of the row
        self,
        group: int,
        started: int,
        session: int | None,
        counter: int,
        fresh: list[int],
        again: list[Again],
    ) -> None:
        self.group = group
        self.started = started
        self.session = session
        self.counter = counter
        self.fresh = fresh
        self.again = again
        self.reads = False
        self.put: PutPlain | PutRows | None = None
        self.messages: list[Stored] | None = None

    def fresh_seqs(self) -> list[int]:
        """Return the seqs of `fresh`. For stores, once they have done `put`."""
        put = self.put
        if put is None:
            return self.fresh
        if isinstance(put, PutPlain):
            return [put.first + position for position in self.fresh]
        stored = set(put.stored)
        return [put.seqs[position] for position in self.fresh if position in stored]


class Ack(Op):
    """Settle messages whose delivery is open; those that are gone already do not matter.

    A message leaves when every group has settled it and its queue does not retain.
    Out: `removed`, how many left.
    """

    __slots__ = ("ended", "group", "removed", "seqs")

    def __init__(self, group: int, ended: int, seqs: list[int]) -> None:
        self.group = group
        self.ended = ended
        self.seqs = seqs
        self.removed = 0


class Fail(Op, msgspec.Struct):
    """Close an open delivery without settling: the message may be tried again from `due` on.

    With outcome CRASHED it has one more in its `crashes`. Changes nothing if this attempt is not
    open.
    """

    group: int
    seq: int
    attempt: int
    ended: int
    outcome: Outcome
    due: int
    error: bytes | None = None


class Release(Op, msgspec.Struct):
    """Give open deliveries back as if they had never started: (seq, attempt) each.

    The retry time of an attempt before it has been cleared by its start: the message is ready at
    its old place. `ToTail`, which moves it behind the others, is in tail.py.
    """

    group: int
    deliveries: list[tuple[int, int]]


class Bury(Op, msgspec.Struct):
    """Move a message to the group's dead letters, with its newest attempts, and settle it.

    An open delivery counts as the last attempt, with `outcome` and `error`; messages without one
    can be buried too. If the message stays for others, the group's settlement is the delivery's
    row with outcome DEAD, or a row with attempt 0.
    Out: `dead_id`, None if the message is gone or settled; `removed`, 1 if it left `msg`.
    """

    group: int
    seq: int
    ended: int
    reason: Reason
    detail: str = ""
    moved_by: str = ""
    outcome: Outcome = Outcome.FAILED
    error: bytes | None = None
    dead_id: int | None = None
    removed: int = 0


class Cancel(Op, msgspec.Struct):
    """Remove messages for every group, whatever their state.

    Out: `removed`, the seqs that were there.
    """

    queue: int
    seqs: list[int]
    removed: list[int] = msgspec.field(default_factory=list)


class Redrive(Op, msgspec.Struct):
    """Put dead letters again as new messages (header `redriven-from`) and remove them.

    `origins` gives the id text of each letter, for the header. Out: `seqs` of the new messages
    in the order of `dead_ids`, None where there is no such letter.
    """

    queue: int
    dead_ids: list[int]
    origins: list[str]
    put_at: int
    seqs: list[int | None] = msgspec.field(default_factory=list)


class PurgeDead(Op, msgspec.Struct):
    """Remove dead letters. Out: `removed`, how many there were."""

    queue: int
    dead_ids: list[int]
    removed: int = 0


class DeclareQueue(Op, msgspec.Struct):
    """Create a queue, or change the settings of an existing one. Out: `row`."""

    name: str
    policy: QueuePolicy
    row: QueueRow | None = None


class DeclareGroup(Op, msgspec.Struct):
    """Create a group unless it exists. Messages up to `floor` are not for it. Out: `row`."""

    queue: int
    name: str
    floor: int
    row: GroupRow | None = None


class RemoveGroup(Op, msgspec.Struct):
    """Forget a group and its deliveries. Its dead letters stay, and its id is not used again.

    `Collect` then removes what only it waited for.
    """

    group: int


class Pause(Op, msgspec.Struct):
    """Remember that a queue is paused, or no longer."""

    queue: int
    paused: bool


class OpenSession(Op, msgspec.Struct):
    """Register a worker or process. Out: `id`, what deliveries refer to.

    With a `token` that is known it is the same session again, whoever is the host now: out:
    `requests`, what `Remember` kept of it. Tokens of long ago are forgotten on the way.
    """

    name: str
    opened: int
    token: bytes | None = None
    id: int = 0
    requests: bytes = b""


class Remember(Op):
    """Keep with a session what its puts were answered: `known` ones, and puts of this commit.

    `plain`: (number, put, position of the first message, count); `rows`: (number, put). These
    stand before it in the batch. Replaces what was kept. Changes nothing without a token.
    """

    __slots__ = ("known", "plain", "rows", "session")

    def __init__(
        self,
        session: int,
        known: Mapping[int, Answer],
        plain: Sequence[tuple[int, PutPlain, int, int]] = (),
        rows: Sequence[tuple[int, PutRows]] = (),
    ) -> None:
        self.session = session
        self.known = known
        self.plain = plain
        self.rows = rows

    def encode(self) -> bytes:
        """Return what is kept, now that the puts have their seqs."""
        fresh: list[tuple[int, Answer]] = [
            (n, answered.of_plain(put, at, count)) for n, put, at, count in self.plain
        ]
        fresh += [(n, answered.of_rows(put)) for n, put in self.rows]
        return answered.merged(self.known, fresh)


class CloseSession(Op, msgspec.Struct):
    """Forget a session, but for its name if it has shown up as a worker: that is displayed."""

    session: int


class Reissue(Op, msgspec.Struct):
    """Let open deliveries of an earlier epoch count as given out now, under new counters.

    `deliveries`: (seq, group, attempt, counter) each. One that is not open is left as it is.
    """

    deliveries: list[tuple[int, int, int, int]]


def is_forgotten(epoch: int, opened: int, current: int, now: int) -> bool:
    """Whether the token of a session counts no more: nobody can come back with it."""
    return epoch < current - 1 and opened < now - SESSION_KEPT_MS


class Collect(Op, msgspec.Struct):
    """Remove messages in (after, upto] that every group has settled (queues without retention).

    Does nothing for a queue without groups. Out: `removed`.
    """

    queue: int
    after: int
    upto: int
    removed: int = 0


class Retire(Op, msgspec.Struct):
    """Remove retained messages whose closing in `group` lies after `after`, before `cutoff`.

    `cutoff` is a time: the first closing that ended then or later stops it. Looks at `limit`
    deliveries in closing order, and at all that one commit closed or at none of them; a message
    stays that another group still waits for, or has settled at `cutoff` or later (its closing
    there comes again). Out: `removed` messages, `reached`: the closing number looked at last
    (None: nothing more to do).
    """

    group: int
    cutoff: int
    after: int
    limit: int
    removed: int = 0
    reached: int | None = None


class Forget(Op, msgspec.Struct):
    """Remove dedup keys that ended at `now` or before, at most `limit`. Out: `removed`."""

    now: int
    limit: int
    removed: int = 0


class Save(Op, msgspec.Struct):
    """Store counts, floors and upper bounds, so that the next opening need not look for them.

    `queues`: (id, stored, dead, last). `groups`: (id, floor, settled). Floors only rise.
    `exact` marks the counts as trustworthy until the next operation. In a queue that does not
    retain, deliveries of the group up to its new floor are no longer needed and leave.
    """

    queues: list[tuple[int, int, int, int]]
    groups: list[tuple[int, int, int]]
    exact: bool
