"""The broker of an application: queues, consumers and the host of one database file.

Knows: what is declared before the file is opened, when consumers start, drain and stop.
Does not know: how a file is opened (openable.py), how messages are stored, delivered or run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from embedq.app import settings as setting
from embedq.app.listening import Listenable
from embedq.app.options import QueueOptions, policy_changes
from embedq.app.queue import Queue
from embedq.broker.redaction import Redact
from embedq.broker.stats import BrokerStats
from embedq.broker.twins import twin
from embedq.clock import Clock
from embedq.errors import UsageError
from embedq.events import Listener
from embedq.limits import LIMITS, Limits
from embedq.names import check_queue_name
from embedq.policy import Duration, RetryPolicy
from embedq.workers.spec import Companion, Consumers, ConsumerSpec

if TYPE_CHECKING:
    import asyncio

    from embedq.workers.crews import ConsumerRunner
    from embedq.workers.drain import Report
    from embedq.workers.signals import Signals

T = TypeVar("T")


class Broker(Listenable):
    """A durable message queue on a database file. Creating one is cheap: it opens nothing.

    The first call that needs the file makes this process its host. Consumers run between `start`
    and `stop`: inside `with broker:`, `async with broker:`, `broker.run()` or the ASGI lifespan.

    Settings come from the argument, else EMBEDQ_PATH, EMBEDQ_DURABILITY, EMBEDQ_ROLE,
    EMBEDQ_GRACE, EMBEDQ_REDACT, EMBEDQ_SIDECAR, EMBEDQ_ENDPOINT, EMBEDQ_KEYS, else [tool.embedq]
    in the nearest pyproject.toml. `path` ":memory:" keeps nothing; "tcp://host:port" is a host on
    another machine. `grace`: how long handlers may take to finish when the broker stops. `redact`:
    regular expressions, or a function from str to str, that hide secrets in texts of errors before
    they are stored and told, and in what dead letters show. `sidecar`: the host is a process of
    its own, started where there is none: what this one does slows nobody down. `endpoint`:
    "tcp://address:port", where the host serves other machines, too. `keys`: the folder of the keys
    for that, or a client's secret key in it (docs/security.md).
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        durability: setting.Durability | None = None,
        role: setting.Role | None = None,
        grace: Duration | None = None,
        redact: Redact | Sequence[str] | None = None,
        sidecar: bool | None = None,
        endpoint: str | None = None,
        keys: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        given: dict[str, object] = {
            "path": path,
            "durability": durability,
            "role": role,
            "grace": grace,
        }
        given |= {"redact": redact, "sidecar": sidecar, "endpoint": endpoint, "keys": keys}
        super().__init__(given, clock, limits)
        #: What is registered here: the consumers, and what runs beside them.
        self.consumers = Consumers(lambda: self.settings.redact)
        self._runner: ConsumerRunner | None = None
        self._signals: Signals | None = None

    @overload
    def queue(
        self,
        name: str,
        type: type[T],
        *,
        retry: RetryPolicy | None = None,
        **options: Unpack[QueueOptions],
    ) -> Queue[T]: ...
    @overload
    def queue(
        self,
        name: str,
        type: object = None,
        *,
        retry: RetryPolicy | None = None,
        **options: Unpack[QueueOptions],
    ) -> Queue[Any]: ...
    def queue(
        self,
        name: str,
        type: object = None,
        *,
        retry: RetryPolicy | None = None,
        **options: Unpack[QueueOptions],
    ) -> Queue[Any]:
        """Declare a queue; it is created when the file is opened, or now if it is open.

        `type`: what bodies are decoded to. `retry`: the policy of failures. Options: max_attempts
        (None: endless), max_crashes, lease, retain (how long settled messages are kept),
        dedup_window, max_length with when_full ("block", "reject" or "drop_oldest"). What is said
        is stored with the queue and replaces what was stored (an event tells); what is not said
        stays as it is.

        Raises InvalidName, InvalidOption.
        """
        check_queue_name(name)
        changes = policy_changes(retry, options)
        queue: Queue[Any] = Queue(self, name, type, retry)
        with self._lock:
            self._declared.setdefault(name, {}).update(changes)
            backing = self._backing
            if backing is not None:
                self._states[name] = backing.desk.declare(name, changes)
        return queue

    def add_consumer(self, spec: ConsumerSpec) -> None:
        """Register a consumer; it starts at once if the others run. See Queue.consumer.

        The same function again (a reloaded module, a notebook's cell) takes the former's place.
        """
        with self._lock:
            former = self.consumers.add(spec)
            runner = self._runner
        if runner is not None:
            runner.add(spec, former)

    def accompany(self, companion: Companion) -> None:
        """Let something start and stop with the consumers: at once if they run."""
        with self._lock:
            self.consumers.companions.append(companion)
            runner = self._runner
        if runner is not None:
            runner.accompany(companion)

    @overload
    def on(self, event: str, /, *, queue: str | None = None) -> Callable[[Listener], Listener]: ...
    @overload
    def on(
        self, event: str, listener: Listener, /, *, queue: str | None = None
    ) -> Callable[[], None]: ...
    def on(
        self, event: str, listener: Listener | None = None, /, *, queue: str | None = None
    ) -> Callable[[Listener], Listener] | Callable[[], None]:
        """Call `listener(notice)` after each event of that name ("*": all; docs/events.md).

        It runs on a thread of the broker's; what it raises is logged. Returns a function that
        ends it; without a listener a decorator. Raises InvalidOption for an unknown event.
        """
        if listener is None:
            return self._hearing.decorator(event, queue)
        return self._hearing.add(event, listener, queue)

    # ---------------------------------------------------------------------------- running

    @property
    def running(self) -> bool:
        """Whether consumers run."""
        return self._runner is not None

    def start(self) -> None:
        """Open the file and start the consumers, in the background.

        Raises UsageError if they run already, StoreInUse and why else the file cannot open.
        """
        self._start(None)

    def _start(self, loop: asyncio.AbstractEventLoop | None) -> ConsumerRunner:
        from embedq.workers.crews import ConsumerRunner  # noqa: PLC0415  # loads asyncio

        self._origin.check(self._backing)
        with self._lock:
            if self._runner is not None:
                raise UsageError(f"{self!r} runs already", hint="start it once, in one place")
            backing = self._open(again=True)
            runner = self._runner = ConsumerRunner(
                backing.desk, self.consumers, loop=loop, employer=backing
            )
        try:
            runner.start()
        except BaseException:
            self._runner = None
            runner.stop()
            raise
        return runner

    def stop(self, grace: Duration | None = None) -> Report | None:
        """Drain the consumers and close the file. Returns what came of it; None: none ran.

        `grace`: how long handlers may take to finish (default: the broker's), and clients of
        listeners (default: 5 s, unless the broker has been given a grace). While `run` runs,
        this makes it end, from any thread; it then returns at once, with None.

        Raises UsageError in a handler and on the loop of the handlers, which it would wait for; so
        does a signal handler in the midst of a call of its thread. With `run` it never does.
        """
        backing, signals = self._backing, self._signals  # another thread may be at its end, too
        self._origin.check(backing)
        if signals is not None:
            signals.stop()
            return None
        if backing is not None:
            backing.check_caller()
        runner, seconds = self._runner, self.settings.grace_or(grace)
        self._clients_have(grace)
        if runner is not None:
            runner.check_caller(blocks=True)
        try:
            return None if runner is None else runner.drain(seconds)
        finally:
            self._runner = None
            self._close()

    def run(self, grace: Duration | None = None) -> Report:
        """Run the consumers until SIGTERM or SIGINT (or `stop`), then drain and close.

        The first signal drains, a second one ends the grace. Handlers that the application has
        set for these signals are called, too. Outside the main thread no signal is handled. It
        also ends when the store has stopped, and raises why: StoreFailed, StoreCorrupt.
        """
        from embedq.workers.signals import Signals, drain_at_signal  # noqa: PLC0415

        seconds = self.settings.grace_or(grace)
        self._clients_have(grace)
        with Signals() as signals:
            runner = self._start(None)
            self._signals = signals
            try:
                with self.backing.ending_on_failure(signals.stop):
                    return drain_at_signal(self._leaving(runner), signals, seconds)
            finally:
                self._signals = None
                self._runner = None
                self._close()

    def __enter__(self) -> Self:
        """Start; see `start`."""
        self._start(None)
        return self

    def __exit__(self, *_: object) -> None:
        """Drain and close. In a child made by fork the broker is the parent's, and left alone."""
        if not self._origin.is_foreign:
            self.stop()

    async def __aenter__(self) -> Self:
        """Start; handlers that are coroutines run on this loop."""
        import asyncio  # noqa: PLC0415  # loaded already, by those who use coroutines

        loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._open, again=True)
        self._start(loop)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Drain and close; being cancelled meanwhile ends the grace."""
        await self._aleave()

    async def _aleave(self, before: Callable[[ConsumerRunner], object] | None = None) -> None:
        """Drain and close, having told `before` what is to be drained."""
        import asyncio  # noqa: PLC0415  # loaded already, by those who use coroutines

        runner = self._runner
        if self._origin.is_foreign:
            return
        try:
            if runner is not None:
                if before is not None:
                    before(runner)
                await runner.adrain(self.settings.grace)
        finally:
            self._runner = None
            await asyncio.to_thread(self._close)

    @property
    def lifespan(self) -> Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]:
        """What ASGI frameworks take as `lifespan=`: the broker runs while the application does."""
        from embedq.app.lifespan import lifespan_of  # noqa: PLC0415

        return lifespan_of(self, self._aleave)

    @property
    def queues(self) -> tuple[Queue[Any], ...]:
        """All queues of the file, declared here or not."""
        return tuple(self.queue(name) for name in self.desk.office.queues())

    def stats(self) -> BrokerStats:
        """Return the numbers of the host and all its queues."""
        runner = self._runner
        running, stuck = (runner.running, runner.stuck) if runner else (0, 0)
        return self.desk.office.stats(running=running, stuck=stuck)

    astats = twin(stats)

    async def astop(self, grace: Duration | None = None) -> Report | None:
        """Do the same as `stop`, from a coroutine."""
        runner = self._runner
        if runner is not None and self._signals is None:
            runner.check_caller(blocks=False)
        return await self._astop(grace)

    _astop = twin(stop)

    def __repr__(self) -> str:
        return f"Broker({self._given['path']!r})" if "path" in self._given else "Broker()"
