"""The queues that the clients of one listener create: so many, and none more.

Knows: that a queue stays for ever, so that names that clients make up must come to an end.
Does not know: connections, rights, protocols.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

from embedq.broker.port import DeskPort, QueuePort
from embedq.errors import LimitExceeded, QueueNotFound

if TYPE_CHECKING:
    from embedq.broker.office import Office


class Making:
    """Creates queues of a desk. `most`: how many; None: no bound. Safe from any thread.

    Its calls block.
    """

    def __init__(self, desk: DeskPort, most: int | None) -> None:
        self._desk = desk
        self._most = most
        self._made: set[str] = set()
        self._lock = Lock()
        self.office = cast("Office", _Office(self))

    def declare(self, name: str, changes: Mapping[str, object]) -> QueuePort:
        """Create a queue, or change what is said about it. Raises LimitExceeded."""
        self.count(name)
        return cast("QueuePort", self._desk.declare(name, changes))

    def count(self, name: str) -> None:
        """Count a queue that is about to be created. Raises LimitExceeded.

        One that cannot be created after all is counted once.
        """
        if self._most is None:
            return
        try:
            self._desk.existing_queue(name)
        except QueueNotFound:
            with self._lock:
                if name not in self._made and len(self._made) >= self._most:
                    raise LimitExceeded(
                        f"queue {name!r} is not created: the clients of this listener have "
                        f"created created_queues={self._most} already",
                        hint="create it in the application or with `embedq serve --config`, or "
                        "raise created_queues in the limits of the listener",
                        limit="created_queues",
                    ) from None
                self._made.add(name)

    @property
    def whole_office(self) -> Office:
        """The office of the desk, which counts nothing."""
        return self._desk.office


class _Office:
    """An office by which clients' requests are done: what it creates counts."""

    def __init__(self, making: Making) -> None:
        self._making = making

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # of the desk's office
        return getattr(self._making.whole_office, name)

    def declare(self, queue: str, changes: dict[str, Any]) -> object:
        """See Office.declare."""
        self._making.count(queue)
        return self._making.whole_office.declare(queue, changes)
