"""A consumer group of a queue, as an operator sees it.

Knows: its queue and its name.
Does not know: who consumes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from embedq.broker.endings import DONE, RELEASED, Ending, Failed, Rejected
from embedq.broker.purge import Progress, purge_group
from embedq.broker.removal import remove_group
from embedq.broker.stats import GroupStats, of_group
from embedq.broker.twins import twin
from embedq.errors import InvalidOption, shown

if TYPE_CHECKING:
    from embedq.app.queue import Queue
    from embedq.broker.state import GroupState


class Group:
    """A consumer group. It need not exist yet: asking for its numbers creates nothing."""

    def __init__(self, queue: Queue[Any], name: str) -> None:
        self.queue = queue
        self.name = name

    def _state(self) -> GroupState:
        desk = self.queue.broker.desk
        return desk.existing_group(desk.existing_queue(self.queue.name), self.name)

    def stats(self) -> GroupStats:
        """Return its numbers. Raises GroupNotFound, QueueNotFound."""
        return of_group(self.queue.broker.desk, self._state())

    def purge(self, progress: Progress | None = None) -> int:
        """Settle everything it has not settled; other groups keep it. Returns how many."""
        return purge_group(self.queue.broker.desk, self._state(), progress)

    def remove(self) -> None:
        """Forget the group; messages that only it waited for leave. Its dead letters stay.

        Raises GroupNotFound. Consumers and claims of the group get GroupNotFound afterwards.
        """
        remove_group(self.queue.broker.desk, self._state())

    def settle_by_id(self, message_id: str, how: str = "ack", reason: str = "") -> None:
        """Settle a message by its id, whoever holds it: "ack", "nack", "reject" or "release".

        Raises UnknownMessage if the group has no such message left.
        """
        endings: dict[str, Ending] = {
            "ack": DONE,
            "nack": Failed(),
            "reject": Rejected(detail=reason, by="settle_by_id"),
            "release": RELEASED,
        }
        if not isinstance(reason, str):
            raise InvalidOption(f"reason={shown(reason)} is not a text", argument="reason")
        ending = endings.get(str(how))
        if ending is None:
            raise InvalidOption(
                f"how={shown(how)} is no way to settle",
                hint=f"it is one of {', '.join(endings)}",
                argument="how",
            )
        desk = self.queue.broker.desk
        desk.settle_by_id(self._state(), desk.seq_of(message_id), ending)

    astats = twin(stats)
    apurge = twin(purge)
    aremove = twin(remove)
    asettle_by_id = twin(settle_by_id)

    def __repr__(self) -> str:
        return f"<Group {self.queue.name!r}/{self.name!r}>"
