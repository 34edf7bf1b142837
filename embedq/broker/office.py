"""The office of a host: everything but the handling of messages, asked with plain values.

Knows: how names become queues and groups, which of its calls are safe to repeat.
Does not know: who asks, in this process or in another, and how that came here.

Arguments and results are names, numbers and records that can travel, so that a client of the host
asks the same questions as the host's own application (embedq.ipc.verbs).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from embedq.broker import staging
from embedq.broker.changes import NewExpiry
from embedq.broker.deadletters import DeadLetters
from embedq.broker.endings import DONE, RELEASED, Ending, Failed, Rejected
from embedq.broker.feeds import FeedOffice
from embedq.broker.purge import Progress, purge_group, purge_queue
from embedq.broker.removal import remove_group
from embedq.broker.state import GroupState, QueueState
from embedq.broker.stats import (
    BrokerStats,
    GroupStats,
    QueueStats,
    of_broker,
    of_group,
    of_queue,
)
from embedq.errors import InvalidOption, shown
from embedq.policy import QueuePolicy
from embedq.storage.rows import DeadRow, Stored
from embedq.storage.staged import Part

if TYPE_CHECKING:
    from embedq.broker.desk import Desk

F = TypeVar("F", bound=Callable[..., Any])
#: Who has rejected a message by its id where nobody is named.
BY_ID: Final = "settle_by_id"


class GroupInfo(msgspec.Struct, frozen=True):
    """A consumer group, by name and number."""

    id: int
    name: str


class QueueInfo(msgspec.Struct, frozen=True):
    """A queue: its number, its stored settings, whether it is paused, its groups."""

    id: int
    name: str
    policy: QueuePolicy
    paused: bool
    groups: tuple[GroupInfo, ...]


class Which(msgspec.Struct, frozen=True):
    """Which dead letters: those of `ids`, or all that fit, at most `limit`.

    `since_ms`: died then or later.
    """

    ids: tuple[str, ...] = ()
    reason: str | None = None
    since_ms: int | None = None
    group: str | None = None
    error: str | None = None
    limit: int | None = None

    def filters(self) -> dict[str, Any]:
        """Return the filters as DeadLetters takes them."""
        since = self.since_ms
        return {
            "reason": self.reason,
            "since": None if since is None else datetime.fromtimestamp(since / 1000, UTC),
            "group": self.group,
            "error": self.error,
            "limit": self.limit,
        }


def once(method: F) -> F:
    """Mark a call that must not be repeated when its answer was lost with the host."""
    method.__dict__["once"] = True
    return method


class Office(FeedOffice):
    """What a host answers by name. Raises QueueNotFound and GroupNotFound for wrong names."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def _queue(self, name: str) -> QueueState:
        return self._desk.existing_queue(name)

    def _group(self, queue: str, name: str) -> GroupState:
        return self._desk.existing_group(self._queue(queue), name)

    # ------------------------------------------------------------------ queues and groups

    def declare(self, queue: str, changes: dict[str, Any]) -> QueueInfo:
        """Create a queue, or change those of its settings that are named (QueuePolicy)."""
        return _info(self._desk.declare(queue, changes))

    def info(self, queue: str) -> QueueInfo:
        """Return a queue that exists."""
        return _info(self._queue(queue))

    def queues(self) -> list[str]:
        """Return the names of all queues."""
        return list(self._desk.queues)

    def group(self, queue: str, name: str, start: str = "auto") -> GroupInfo:
        """Return a group, creating it if need be; see Registry.group."""
        found = self._desk.group(self._queue(queue), name, start)
        return GroupInfo(found.id, found.name)

    def bound_attempts(self, queue: str, group: str, most: int) -> None:
        """Bound the attempts of messages of a group that do not say; 0 is endless."""
        self._desk.bound_attempts(self._group(queue, group), most)

    def pause(self, queue: str, *, paused: bool) -> None:
        """Stop handing out messages, or go on."""
        self._desk.pause(self._queue(queue), paused=paused)

    def remove_group(self, queue: str, group: str) -> None:
        """Forget a group; messages that only it waited for leave."""
        remove_group(self._desk, self._group(queue, group))

    # ---------------------------------------------------------------------------- messages

    def purge(self, queue: str, group: str | None = None, progress: Progress | None = None) -> int:
        """Remove all messages of a queue, or settle all for one group; return how many."""
        if group is None:
            return purge_queue(self._desk, self._queue(queue), progress)
        return purge_group(self._desk, self._group(queue, group), progress)

    @once
    def cancel(self, queue: str, seqs: list[int]) -> list[int]:
        """Withdraw messages that wait; return those that were there and not leased."""
        return self._desk.cancel(self._queue(queue), *seqs)

    def peek(self, queue: str, most: int, after: int) -> list[Stored]:
        """Return messages in seq order without touching them."""
        return self._desk.peek(self._queue(queue), most, after)

    @once
    def settle_by_id(
        self, queue: str, group: str, seq: int, how: str, reason: str = "", by: str = BY_ID
    ) -> None:
        """Settle a message whoever holds it: "ack", "nack", "reject" or "release".

        `by`: who rejects it, for the dead letter.
        """
        self._desk.settle_by_id(self._group(queue, group), seq, ending_of(how, reason, by))

    def set_expiry(self, queue: str, seq: int, expires_at_ms: int | None) -> bool:
        """Change when a message expires, None is never; return whether it was there."""
        task = NewExpiry(self._queue(queue), seq, expires_at_ms)
        self._desk.writer.run(task)
        return task.found

    # ------------------------------------------------------------------------------- stats

    def queue_stats(self, queue: str) -> QueueStats:
        """Return the numbers of a queue."""
        return of_queue(self._desk, self._queue(queue))

    def group_stats(self, queue: str, group: str) -> GroupStats:
        """Return the numbers of a group."""
        return of_group(self._desk, self._group(queue, group))

    def stats(self, running: int = 0, stuck: int = 0) -> BrokerStats:
        """Return the numbers of the host; the caller knows what runs in its process."""
        return of_broker(self._desk, running=running, stuck=stuck)

    # ------------------------------------------------------------------------ dead letters

    def dead_count(self, queue: str) -> int:
        """Return how many dead letters a queue has."""
        return self._queue(queue).dead

    def dead_rows(self, queue: int, after: int, limit: int) -> list[DeadRow]:
        """Return dead letters in the order of dying, with id > after. By the queue's number."""
        return self._desk.store.dead(queue, after, limit)

    def dead_letter(self, seq: int, group: int) -> DeadRow | None:
        """Return one dead letter, by the number of its group."""
        return self._desk.store.dead_letter(seq, group)

    @once
    def redrive(
        self, queue: str, which: Which, by: str, progress: Progress | None = None
    ) -> list[int]:
        """Put dead letters again as new messages; return their seqs. See DeadLetters."""
        letters = DeadLetters(self._desk, self._queue(queue))
        moved = letters.redrive(*which.ids, **which.filters(), by=by, progress=progress)
        return [receipt.seq for receipt in moved]

    @once
    def purge_dead(self, queue: str, which: Which, progress: Progress | None = None) -> int:
        """Remove dead letters; return how many. See DeadLetters."""
        letters = DeadLetters(self._desk, self._queue(queue))
        return letters.purge(*which.ids, **which.filters(), progress=progress)

    # ------------------------------------------------------------- batches of Spark: staging

    def stage_put(self, queue: str, sink: str, token: str, number: int, chunk: bytes) -> None:
        """Keep a chunk of messages (chunks.py) until its batch is published; see staging."""
        staging.stage_put(self._desk, self._queue(queue), sink, token, number, chunk)

    def stage_publish(
        self, queue: str, sink: str, batch: int, parts: list[Part], older: str = "error"
    ) -> staging.Published:
        """Put what the tasks of a batch have staged, once; see staging."""
        return staging.stage_publish(self._desk, self._queue(queue), sink, batch, parts, older)

    def put_through(self, queue: str, token: str, number: int, chunk: bytes) -> staging.Published:
        """Put a chunk of messages at once, once for each token and number; see staging."""
        return staging.put_through(self._desk, self._queue(queue), token, number, chunk)

    def newest_batch(self, queue: str, sink: str) -> int | None:
        """Return the number of the newest batch that a sink has published, None: there is none."""
        return staging.newest_batch(self._desk, self._queue(queue), sink)

    def stage_abort(self, sink: str, tokens: list[str] | None = None) -> int:
        """Remove what a sink has staged, or some of its tasks; return how many chunks."""
        return staging.stage_abort(self._desk, sink, tokens)


def ending_of(how: object, reason: str = "", by: str = BY_ID) -> Ending:
    """Return how a message is settled by its id. Raises InvalidOption."""
    endings: dict[object, Ending] = {
        "ack": DONE,
        "nack": Failed(),
        "reject": Rejected(detail=reason, by=by),
        "release": RELEASED,
    }
    ending = endings.get(how) if isinstance(how, str) else None
    if ending is None:
        raise InvalidOption(
            f"how={shown(how)} is no way to settle",
            hint=f"it is one of {', '.join(map(str, endings))}",
            argument="how",
        )
    return ending


def _info(queue: QueueState) -> QueueInfo:
    groups = tuple(GroupInfo(group.id, group.name) for group in list(queue.groups))
    return QueueInfo(queue.id, queue.name, queue.policy, queue.paused, groups)
