"""The network of a broker: one loop on one thread that serves all its listeners.

Knows: the loop, what all connections share (names, puts, dispatchers, timers).
Does not know: sockets and clients (site.py, connection.py), applications.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from embedq.broker.port import DeskPort, GroupPort
from embedq.errors import EmbedqError, ListenFailed
from embedq.net.access import Access
from embedq.net.channel import READ_MOST
from embedq.net.dispatch import Dispatcher
from embedq.net.doors import Doors
from embedq.net.failing import as_error
from embedq.net.limits import NET_LIMITS
from embedq.net.making import Making
from embedq.net.names import Names
from embedq.net.owner import Owner
from embedq.net.port import ANYBODY, Identity
from embedq.net.puts import Puts
from embedq.net.timers import Timers

_log = logging.getLogger("embedq.net")
T = TypeVar("T")
#: Seconds that what is under way may take once the last connection is closed.
_SETTLE_S: Final = 10.0
_LAST_TURNS: Final = 10


class _Nobody:
    """Who holds what was claimed for somebody who is gone, and whose access a closed one is."""

    def __init__(self, making: Making, identity: Identity | None) -> None:
        self.making = making
        self.identity = identity
        self.counts: Counter[tuple[str, str]] = Counter()

    limits = NET_LIMITS
    peer = "nobody"
    protocol = ""
    is_clogged = True

    def called_back(self, call: Callable[[], object]) -> None:
        """Nobody is called."""

    def answered(self, then: Callable[[Any], object], result: object) -> None:
        """Nobody is told."""

    def ops_changed(self) -> None:
        """Nothing depends on it."""


class Network:
    """The loop of the listeners of one desk. `run` is called from other threads.

    Raises ListenFailed when there can be none: a loop takes three descriptors.
    """

    def __init__(self, desk: DeskPort) -> None:
        self.desk = desk
        self.monotonic = desk.monotonic
        #: What all connections read into, one after the other.
        self.room = memoryview(bytearray(READ_MOST))
        self.doors = Doors(desk.monotonic)
        #: What sites of one protocol share, by its name.
        self.shared: dict[str, object] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._dispatchers: dict[GroupPort, Dispatcher] = {}
        self._next: list[Callable[[], object]] = []
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="embedq-net", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise ListenFailed(
                f"the listeners of {desk.path} cannot be served: {self._failure}",
                hint="let this process have more open files (`ulimit -n`), and start it again",
            ) from self._failure

    # -------------------------------------------------------------------- the thread

    def _run(self) -> None:
        try:
            # The loop first: there is a coroutine only when something will run it.
            with asyncio.Runner() as runner:
                runner.run(self._serve())
        except BaseException as error:
            if self._ready.is_set():
                raise
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.loop.set_exception_handler(self.doors.failed)
        self._ending = self.loop.create_future()
        self.names = Names(self.desk, self.loop)
        self.puts = Puts(self.desk, self.loop)
        self.timers = Timers(self.loop, self.monotonic)
        making = Making(self.desk, 0)
        self.nobody = Access(self, _Nobody(making, ANYBODY))
        #: Who has the accesses of those that are gone: it may do nothing.
        self.gone: Owner = _Nobody(making, None)
        self._ready.set()
        await self._ending

    def is_alive(self) -> bool:
        """Whether the loop's thread lives: then leases of its clients are renewed."""
        return self._thread.is_alive()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine on the loop and return what it returns. From any other thread.

        Raises TimeoutError after `timeout` seconds; the coroutine is cancelled then.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result(timeout)
        except TimeoutError:
            future.cancel()
            raise

    def post(self, call: Callable[[], object]) -> None:
        """Call something on the loop soon. From any thread."""
        self.loop.call_soon_threadsafe(call)

    async def _settled(self) -> None:
        """Wait until what clients have left behind is stored and settled."""
        while True:
            busy = [*self._tasks, *self.puts.tasks]
            if not busy:
                return
            await asyncio.wait(busy)
            await asyncio.sleep(0)

    async def _end(self) -> None:
        try:
            await asyncio.wait_for(self._settled(), _SETTLE_S)
        except TimeoutError:
            _log.warning("the listeners ended before all that clients had sent was settled")
        for task in [*self._tasks, *self.puts.tasks]:
            task.cancel()
        # Connections that were being accepted when the doors closed are refused and closed.
        for _ in range(_LAST_TURNS):
            await asyncio.sleep(0)
        if not self._ending.done():
            self._ending.set_result(None)

    def stop(self) -> None:
        """End the loop; its sites are drained already. Safe to call twice."""
        if self._thread.is_alive():
            with suppress(RuntimeError):  # it has ended meanwhile
                asyncio.run_coroutine_threadsafe(self._end(), self.loop)
            self._thread.join()

    # ------------------------------------------------------------------- on the loop

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as a task that is waited for at the end."""
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("a task of the listeners failed", exc_info=error)

    def soon(self, call: Callable[[], object]) -> None:
        """Call something in the next turn of the loop. All of a turn cost the loop one call."""
        if not self._next:
            self.loop.call_soon(self._do_next)
        self._next.append(call)

    def _do_next(self) -> None:
        calls, self._next = self._next, []
        for call in calls:
            try:
                call()
            except Exception as error:  # noqa: BLE001  # as the loop does: the others go on
                told = {"message": "a call of the listeners failed", "exception": error}
                self.loop.call_exception_handler(told)

    def dispatcher(self, group: GroupPort) -> Dispatcher:
        """Return who serves the clients of a group."""
        found = self._dispatchers.get(group)
        if found is None:
            found = self._dispatchers[group] = Dispatcher(self, group)
        return found

    def forget(self, dispatcher: Dispatcher) -> None:
        """A group was removed."""
        self._dispatchers.pop(dispatcher.group, None)
        self.names.forget(dispatcher.group.queue.name, dispatcher.group.name)

    def call(self, function: Callable[[], T], then: Callable[[T | EmbedqError], object]) -> None:
        """Call what blocks on another thread; `then` gets its result, or its error, here."""

        def done(future: asyncio.Future[T]) -> None:
            error = None if future.cancelled() else future.exception()
            if future.cancelled() or error is not None:
                then(as_error(error))
            else:
                then(future.result())

        self.loop.run_in_executor(None, function).add_done_callback(done)
