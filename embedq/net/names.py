"""From names to queues and groups, without making the loop wait for the file or a host.

Knows: which names were found before; who waits for one that is being looked up, in order.
Does not know: what is then done with a queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from embedq.broker.port import DeskPort, GroupPort, QueuePort
from embedq.errors import EmbedqError
from embedq.net.failing import as_error
from embedq.net.making import Making

_Key = tuple[str, str | None, Making | None, bool]


class Names:
    """The queues and groups of a desk by name. Belongs to the loop's thread."""

    def __init__(self, desk: DeskPort, loop: asyncio.AbstractEventLoop) -> None:
        self._desk = desk
        self._loop = loop
        self._queues: dict[str, QueuePort] = {}
        self._groups: dict[tuple[str, str], GroupPort] = {}
        self._waiting: dict[_Key, list[Callable[[Any], object]]] = {}

    def queue(
        self,
        name: str,
        then: Callable[[QueuePort | EmbedqError], object],
        *,
        create: Making | None,
    ) -> None:
        """Find a queue; `then` is called at once if it is known. `create`: who makes it if not."""
        known = self._queues.get(name)
        if known is not None:
            then(known)
        else:
            self._ask((name, None, create, False), then)

    def known(self, queue: str) -> QueuePort | None:
        """Return a queue that was found before: then nobody waits for it."""
        return self._queues.get(queue)

    def group(
        self,
        queue: str,
        group: str,
        then: Callable[[GroupPort | EmbedqError], object],
        *,
        create: Making | None,
        make: bool = True,
    ) -> None:
        """Find a group of a queue in the same way. `create`: the queue; `make`: the group."""
        known = self._groups.get((queue, group))
        if known is not None:
            then(known)
        else:
            self._ask((queue, group, create, make), then)

    def forget(self, queue: str, group: str) -> None:
        """A group was removed."""
        self._groups.pop((queue, group), None)

    def _ask(self, key: _Key, then: Callable[[Any], object]) -> None:
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.append(then)
            return
        self._waiting[key] = [then]
        found = self._loop.run_in_executor(None, self._find, key)
        found.add_done_callback(lambda future: self._found(key, future))

    def _find(self, key: _Key) -> QueuePort | GroupPort:
        name, group, create, make = key
        desk = self._desk
        queue: QueuePort = create.declare(name, {}) if create else desk.existing_queue(name)
        if group is None:
            return queue
        find = desk.group if make else desk.existing_group
        found: GroupPort = find(queue, group)
        return found

    def _found(self, key: _Key, future: asyncio.Future[Any]) -> None:
        waiting = self._waiting.pop(key)
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or error is not None:
            answer: object = as_error(error)
        else:
            answer = future.result()
            name, group, _, _ = key
            if group is None:
                self._queues[name] = future.result()
            else:
                self._groups[name, group] = future.result()
        for then in waiting:
            then(answer)
