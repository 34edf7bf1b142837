"""The queues and groups of a host: created when first named, kept for ever.

Knows: their names, where a new group starts, that a policy given replaces the stored one.
Does not know: messages, leases, when something is durable.
"""

from __future__ import annotations

from collections.abc import Iterable

from embedq.broker import changes, moves
from embedq.broker.redaction import Redact, hider
from embedq.broker.state import GroupState, QueueState
from embedq.errors import GroupNotFound, InvalidOption, QueueNotFound, shown
from embedq.events import Events
from embedq.limits import Limits
from embedq.names import check_group_name, check_queue_name
from embedq.policy import QueuePolicy
from embedq.storage.ops import Pause
from embedq.storage.port import Store
from embedq.storage.rows import QueueRow
from embedq.storage.writer import Writer


class Registry:
    """The queues and groups half of the engine."""

    store: Store
    writer: Writer
    limits: Limits

    def __init__(self) -> None:
        self.queues: dict[str, QueueState] = {}
        self.events = Events()
        self._redact: Redact | None = None

    @property
    def redact(self) -> Redact | None:
        """Hides secrets in texts of errors before they are stored or told, and when shown."""
        return self._redact

    @redact.setter
    def redact(self, redact: Redact | None) -> None:
        self._redact = redact
        self.events.hide = None if redact is None else hider(redact)

    def _read_catalogue(self) -> None:
        queues, groups = self.store.catalogue()
        by_id: dict[int, QueueState] = {}
        for row in queues:
            if not self.store.clean:
                # What was saved may be older than the last put: nothing may be overlooked.
                row.last = max(row.last, self.store.last_seq)
            by_id[row.id] = self.queues[row.name] = QueueState(row)
        for group in groups:
            queue = by_id[group.queue]
            queue.groups.append(GroupState(group, queue, self.store, self.limits.head_max))

    def groups(self) -> Iterable[GroupState]:
        """Go through the groups of all queues."""
        for queue in list(self.queues.values()):  # one more may be declared meanwhile
            yield from list(queue.groups)

    # --------------------------------------------------------------------- queues and groups

    def queue(self, name: str, policy: QueuePolicy | None = None) -> QueueState:
        """Return a queue, creating it if need be; a policy given replaces the stored one.

        Raises InvalidName, or what the store raises.
        """
        known = self.queues.get(name)
        if known is not None and (policy is None or policy == known.policy):
            return known
        check_queue_name(name)
        self.writer.run(changes.NewQueue(self, name, policy))
        return self.queues[name]

    def declared(self, row: QueueRow) -> None:
        """A queue was created, or its settings were changed. The lock is held."""
        state = self.queues.get(row.name)
        if state is None:
            self.queues[row.name] = QueueState(row)
            self.events.emit("queue_declared", queue=row.name)
            return
        changed = _changes(state.policy, row.policy)
        if row.policy.retain_ms is None and state.policy.retain_ms is not None:
            state.untidy = True
        state.policy = row.policy
        if changed:
            self.events.emit("settings_changed", queue=row.name, changes=changed)
        state.space.wake_all()  # there may be more room than before

    def existing_queue(self, name: str) -> QueueState:
        """Return a queue that exists. Raises QueueNotFound."""
        try:
            return self.queues[name]
        except KeyError:
            raise QueueNotFound(f"there is no queue {name!r}") from None

    def group(self, queue: QueueState, name: str = "default", start: str = "auto") -> GroupState:
        """Return a consumer group, creating it if need be.

        `start` says where a new one begins: "beginning", "end", or "auto": the first group of
        consumers at the beginning, later ones at the end. Raises InvalidOption for a position
        of a reader (feeds.py).
        """
        for known in queue.groups:
            if known.name == name:
                return _for_consumers(known)
        check_group_name(name)
        check_start(start)
        self.writer.run(changes.NewGroup(self, queue, name, start))
        return _for_consumers(self.existing_group(queue, name))

    def existing_group(self, queue: QueueState, name: str) -> GroupState:
        """Return a group that exists. Raises GroupNotFound."""
        for known in queue.groups:
            if known.name == name:
                return known
        raise GroupNotFound(f"queue {queue.name!r} has no group {name!r}")

    def pause(self, queue: QueueState, *, paused: bool = True) -> None:
        """Stop handing out messages of a queue, or go on; survives restarts."""

        def then() -> None:
            queue.paused = paused
            for group in queue.groups:
                group.waiters.wake_all()
            self.events.emit("paused" if paused else "resumed", queue=queue.name)

        self.writer.run(moves.Change([Pause(queue.id, paused)], then))


def _for_consumers(group: GroupState) -> GroupState:
    """Raise InvalidOption for a group that is the position of a reader (feeds.py)."""
    if group.hold_ms is None:
        return group
    raise InvalidOption(
        f"group {group.name!r} of queue {group.queue.name!r} is the position of a reader",
        hint="consume as another group; group.remove() ends it once nothing reads with it",
        argument="group",
    )


def check_start(start: object) -> None:
    """Raise InvalidOption unless `start` says where a group may begin."""
    if start not in ("auto", "beginning", "end"):
        raise InvalidOption(
            f"start={shown(start)} is no place where a group can begin",
            hint='write start="beginning", "end" or "auto"',
            argument="start",
        )


def _changes(old: QueuePolicy, new: QueuePolicy) -> str:
    """Say which settings differ: "max_attempts 5 -> 9, retain_ms None -> 1000"."""
    return ", ".join(
        f"{name} {getattr(old, name)} -> {getattr(new, name)}"
        for name in QueuePolicy.__struct_fields__
        if getattr(old, name) != getattr(new, name)
    )
