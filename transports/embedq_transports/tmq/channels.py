"""A channel: its queues by content type, and its members in the order in which they joined.

Knows: who is in it, what it was told to be.
Does not know: which channels there are (hub.py), who may change it (orders.py).
"""

from __future__ import annotations

from embedq_transports.tmq.commands import QueueOptions
from embedq_transports.tmq.handout import Member
from embedq_transports.tmq.queues import Queue


class Channel:
    """A channel. `target`: its name as it stands in frames. `is_declared`: it stays when empty."""

    def __init__(self, name: str, target: bytes) -> None:
        self.name = name
        self.target = target
        self.options = QueueOptions()
        self.is_declared = False
        self.queues: dict[int, Queue] = {}
        self.members: dict[Member, None] = {}

    @property
    def is_there(self) -> bool:
        """Whether there is any reason for it."""
        return self.is_declared or bool(self.queues) or bool(self.members)

    def join(self, member: Member) -> bool:
        """Add a member; a second time changes nothing. False: it is full."""
        most = self.options.client_limit
        if member in self.members:
            return True
        if most and len(self.members) >= most:
            return False
        self.members[member] = None
        member.joined[self] = None
        self._members_changed()
        return True

    def leave(self, member: Member) -> bool:
        """Remove a member; False: it was none."""
        if member not in self.members:
            return False
        del self.members[member]
        member.joined.pop(self, None)
        self._members_changed()
        return True

    def close(self) -> None:
        """Hand nothing out any more."""
        for queue in self.queues.values():
            queue.close()

    def look(self) -> None:
        """A member may take more: hand out what has waited for that."""
        for queue in self.queues.values():
            queue.look()

    def _members_changed(self) -> None:
        for queue in list(self.queues.values()):
            queue.joined_or_left()
