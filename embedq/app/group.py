"""A consumer group of a queue, as an operator sees it.

Knows: its queue and its name.
Does not know: who consumes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from embedq.broker.office import Office, ending_of
from embedq.broker.purge import Progress
from embedq.broker.stats import GroupStats
from embedq.broker.twins import twin
from embedq.errors import InvalidOption, shown

if TYPE_CHECKING:
    from embedq.app.queue import Queue


class Group:
    """A consumer group. It need not exist yet: asking for its numbers creates nothing."""

    def __init__(self, queue: Queue[Any], name: str) -> None:
        self.queue = queue
        self.name = name

    @property
    def _office(self) -> Office:
        return self.queue.broker.desk.office

    def stats(self) -> GroupStats:
        """Return its numbers. Raises GroupNotFound, QueueNotFound."""
        return self._office.group_stats(self.queue.name, self.name)

    def purge(self, progress: Progress | None = None) -> int:
        """Settle everything it has not settled; other groups keep it. Returns how many."""
        return self._office.purge(self.queue.name, self.name, progress=progress)

    def remove(self) -> None:
        """Forget the group; messages that only it waited for leave. Its dead letters stay.

        Raises GroupNotFound. Consumers and claims of the group get GroupNotFound afterwards.
        """
        self._office.remove_group(self.queue.name, self.name)

    def settle_by_id(self, message_id: str, how: str = "ack", reason: str = "") -> None:
        """Settle a message by its id, whoever holds it: "ack", "nack", "reject" or "release".

        Raises UnknownMessage if the group has no such message left.
        """
        if not isinstance(reason, str):
            raise InvalidOption(f"reason={shown(reason)} is not a text", argument="reason")
        ending_of(how, reason)  # refuses what is wrong, here
        seq = self.queue.broker.desk.ids.decode(message_id)
        self._office.settle_by_id(self.queue.name, self.name, seq, how, reason)

    astats = twin(stats)
    apurge = twin(purge)
    aremove = twin(remove)
    asettle_by_id = twin(settle_by_id)

    def __repr__(self) -> str:
        return f"<Group {self.queue.name!r}/{self.name!r}>"
