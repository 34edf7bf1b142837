"""What is given back for somebody who has left: nobody waits for it, and it must happen.

Knows: which of these did not get into the file for now, and that they are sent again.
Does not know: why somebody left, what is given back, when it is tried again (upkeep.py).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from embedq.errors import EmbedqError
from embedq.storage.writer import Task

if TYPE_CHECKING:
    from embedq.broker.engine import Engine


class Returns:
    """Releases that nobody waits for. Safe to use from any thread.

    Without one its message would stay away for as long as the lease, and use an attempt.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._again: deque[Task] = deque()

    def send(self, task: Task) -> None:
        """Commit a release soon; if the disk is full or the file busy, once that is over."""
        self._engine.writer.send(task, lambda: self._sent(task))

    def _sent(self, task: Task) -> None:
        if isinstance(task.error, EmbedqError) and task.error.retryable:
            self._again.append(task)

    def again(self) -> None:
        """Commit what could not be. Raises why that still fails: it is tried again next time."""
        while self._again:
            task = self._again.popleft()
            task.error = None
            try:
                self._engine.writer.run(task)
            finally:
                self._sent(task)
