"""What stands behind an open broker: the host of its file in this process, or a link to it.

Knows: who becomes the host, that a host serves other processes, in which order both end.
Does not know: queues, consumers, how a file or a connection is opened.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, Self

from embedq.app.settings import MEMORY, Settings
from embedq.app.succession import Host, Succession
from embedq.clock import Clock, SystemClock
from embedq.errors import EmbedqError, InvalidOption, StoreClosed, StoreInUse
from embedq.ipc.address import is_address
from embedq.limits import Limits
from embedq.storage.placement import os_failure
from embedq.workers.here import HERE, check_opening, is_worker

if TYPE_CHECKING:
    from embedq.broker.desk import Desk
    from embedq.broker.leases import Lease
    from embedq.broker.port import DeskPort
    from embedq.ipc.abroad import Listening
    from embedq.ipc.calls import WorkerDeath
    from embedq.ipc.keys import ClientKeys
    from embedq.ipc.remote import RemoteDesk
    from embedq.ipc.server import Server

_log = logging.getLogger("embedq")

#: Seconds that a process waits for a host that is just starting, or just ending.
PATIENCE_S: Final = 5.0
_PAUSE_S: Final = 0.05


class Backing(Protocol):
    """An open broker's desk, and what goes with it."""

    @property
    def desk(self) -> DeskPort:
        """The desk."""
        ...

    @property
    def path(self) -> str:
        """Where the database is."""
        ...

    @property
    def token(self) -> bytes:
        """The session of this process: who watches over worker processes."""
        ...

    def report_death(self, death: WorkerDeath) -> None:
        """Tell the host how a worker of this process ended."""
        ...

    def serve(self) -> None:
        """Let other processes connect, in a moment; events of that need listeners before."""
        ...

    def wait_until_served(self) -> None:
        """Return once other processes can connect to the host, or never will."""
        ...

    def check_caller(self) -> None:
        """Raise UsageError in a signal handler that `close` would have to wait for."""
        ...

    def ending_on_failure(self, stop: Callable[[], object]) -> AbstractContextManager[None]:
        """Call `stop` when nothing can be stored here any more; leaving raises why."""
        ...

    def close(self) -> None:
        """Give back what is held, and end."""
        ...


def open_backing(settings: Settings, clock: Clock | None, limits: Limits) -> Backing:
    """Become the host of the file, or connect to the process that is.

    The folder is made if it is missing. A host serves others from `serve` on. Raises StoreInUse
    for a host that serves nobody, NoHost, and why the file cannot be opened.
    """
    if settings.path == MEMORY:
        from embedq.broker.host import open_engine  # noqa: PLC0415  # as in _host

        return Hosted(open_engine(MEMORY, clock=clock, limits=limits), None)
    if is_worker():
        return _of_worker(settings, limits)
    if is_address(settings.path):
        return _abroad(settings, clock, limits)
    _make_folder(Path(settings.path))
    if settings.sidecar:
        from embedq.app.beside import open_beside  # noqa: PLC0415  # only who wants one needs it

        return open_beside(settings, clock, limits)
    if settings.role == "client":
        return Connected.to(settings.path, limits, PATIENCE_S, clock=clock)
    return _host_or_link(settings, clock, limits)


def _host_or_link(settings: Settings, clock: Clock | None, limits: Limits) -> Backing:
    pause = threading.Event()
    for attempt in range(round(PATIENCE_S / _PAUSE_S)):
        try:
            return _host(settings, clock, limits)
        except StoreInUse as error:
            if settings.role == "host":
                raise
            link = _link(settings, clock, limits)
            if link is not None:
                return link
            in_use = error
        pause.wait(_PAUSE_S * min(attempt, 4))
    raise in_use


def _host(settings: Settings, clock: Clock | None, limits: Limits) -> Hosted:
    from embedq.broker.host import open_engine  # noqa: PLC0415  # no client and no worker needs it
    from embedq.ipc.place import sessions_left  # noqa: PLC0415  # as below
    from embedq.ipc.server import Server  # noqa: PLC0415  # it loads asyncio
    from embedq.ipc.verbs import served  # noqa: PLC0415

    listening = listening_at(settings.endpoint, settings.keys)
    desk = open_engine(
        settings.path,
        durability=settings.durability,
        clock=clock,
        limits=limits,
        survivors=sessions_left(settings.path),
    )
    verbs = served(desk.office)
    return Hosted(desk, Server(desk, settings.path, verbs=verbs, listening=listening))


def listening_at(endpoint: str | None, keys: str | None) -> Listening | None:
    """Return where other machines are served. Raises what is wrong with the keys."""
    if endpoint is None or keys is None:
        return None
    from embedq.ipc.abroad import Listening  # noqa: PLC0415  # it loads ZeroMQ
    from embedq.ipc.keys import host_keys  # noqa: PLC0415  # only who has keys needs it

    return Listening(endpoint, host_keys(keys))


def _abroad(settings: Settings, clock: Clock | None, limits: Limits) -> Connected:
    """Connect to a host on another machine. Raises NoHost, KeyRefused, and what is wrong here."""
    from embedq.ipc.keys import client_keys  # noqa: PLC0415  # only who has keys needs it

    keys = client_keys(settings.keys or "")
    return Connected.to(settings.path, limits, PATIENCE_S, clock=clock, keys=keys)


def _link(settings: Settings, clock: Clock | None, limits: Limits) -> Backing | None:
    """Connect to the host, if it can be seen; this process takes over when it is gone."""
    from embedq.ipc.place import find_host  # noqa: PLC0415  # only who connects needs it

    if find_host(settings.path) is None:
        return None
    try:
        return Connected.to(
            settings.path,
            limits,
            1.0,
            clock=clock,
            open_host=lambda: _successor(settings, clock, limits),
        )
    except EmbedqError as error:
        if error.retryable:
            return None
        raise


def _successor(settings: Settings, clock: Clock | None, limits: Limits) -> Hosted:
    """Become the next host; returns once the clients of the last one can find it."""
    host = _host(settings, clock, limits)
    host.serve()
    host.wait_until_served()
    return host


def _make_folder(path: Path) -> None:
    folder = path.parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InvalidOption(
            f"database path {str(path)!r}: {folder} is not a folder, nor can it become one",
            hint="correct the path",
            argument="path",
        ) from error
    except OSError as error:
        raise os_failure(path, "make its folder", error) from error


def _of_worker(settings: Settings, limits: Limits) -> Backing:
    """Let the handlers of a worker process use its connection, or make others."""
    check_opening()
    desk = HERE.desk
    if desk is not None and os.path.realpath(settings.path) == os.path.realpath(desk.path):
        return Connected(desk, shared=True)
    if is_address(settings.path):
        return _abroad(settings, None, limits)
    return Connected.to(settings.path, limits, PATIENCE_S)


class Hosted:
    """This process is the host."""

    def __init__(self, desk: Desk, server: Server | None) -> None:
        self.desk = desk
        self.path = desk.path
        self.token = os.urandom(16)
        self._server = server
        self._starting: threading.Thread | None = None

    def serve(self) -> None:
        """Bind the socket. It takes 50 ms, most of it to load ZeroMQ, for which nobody waits."""
        if self._server is not None:
            name = "embedq-ipc-start"
            self._starting = threading.Thread(target=self._start, name=name, daemon=True)
            self._starting.start()

    def _start(self) -> None:
        assert self._server is not None  # noqa: S101 - see serve
        try:
            self._server.start()
        except EmbedqError as error:
            # The application itself works all the same.
            self.desk.events.emit("not_served", path=self.path, detail=error.message)
        except Exception:  # noqa: BLE001 - as above
            _log.exception("%s cannot be served to other processes", self.path)

    def wait_until_served(self) -> None:
        """Return once other processes can connect."""
        if self._starting is not None:
            self._starting.join()

    def report_death(self, death: WorkerDeath) -> None:
        """Take in how a worker ended."""
        if self._server is not None:
            self._server.report(death)

    def check_caller(self) -> None:
        """Raise UsageError in a signal handler that has interrupted a commit of its thread."""
        self.desk.writer.check_caller()

    @contextmanager
    def ending_on_failure(self, stop: Callable[[], object]) -> Iterator[None]:
        """Call `stop` when the store has stopped; leaving raises why."""
        off = self.desk.events.on("store_failed", lambda _: stop())
        try:
            if self.desk.store.stopped is not None:
                stop()  # that was told before anybody listened
            yield
        finally:
            off()
        failure = self.desk.store.stopped
        if failure is not None and not isinstance(failure, StoreClosed):
            raise failure

    def close(self) -> None:
        """Serve nobody any more, then close the file. What others have in work stays theirs."""
        self.wait_until_served()
        keep: frozenset[Lease] = frozenset()
        try:
            if self._server is not None:
                self._server.stop()
                keep = self._server.outlived
        finally:
            self.desk.close(keep=keep)


class Connected:
    """Another process is the host. `shared`: the connection belongs to this worker process."""

    def __init__(
        self, desk: RemoteDesk, succession: Succession | None = None, *, shared: bool = False
    ) -> None:
        self.desk = desk
        self.path = desk.path
        self.token = desk.token
        self._succession = succession
        self._shared = shared

    @classmethod
    def to(
        cls,
        path: str,
        limits: Limits,
        timeout: float,
        *,
        clock: Clock | None = None,
        keys: ClientKeys | None = None,
        open_host: Callable[[], Host] | None = None,
        host: Host | None = None,
    ) -> Self:
        """Connect. `open_host`: how this process takes over once the host is gone; None: never.

        `host`: what it has opened for that already, to be closed in the end.
        Raises NoHost, and why the host refused.
        """
        from embedq.ipc.remote import RemoteDesk  # noqa: PLC0415  # it loads asyncio

        if open_host is None:
            desk = RemoteDesk(path, keys=keys, clock=clock, limits=limits)
            desk.open(timeout)
            return cls(desk)

        def cannot(error: Exception) -> None:
            desk.events.emit("not_hosted", path=path, detail=str(error))

        succession = Succession(open_host, SystemClock().monotonic, cannot, host)
        desk = RemoteDesk(path, clock=clock, limits=limits, on_missing=succession.missing)
        try:
            desk.open(timeout)
        except BaseException:
            succession.close()
            raise
        return cls(desk, succession)

    def report_death(self, death: WorkerDeath) -> None:
        """Tell the host how a worker of this process ended."""
        self.desk.report_death(death)

    def serve(self) -> None:
        """Do nothing: the host serves."""

    def wait_until_served(self) -> None:
        """Return at once: this process is connected."""

    def check_caller(self) -> None:
        """Return at once: nothing is held here for longer than it takes to queue a request."""

    @contextmanager
    def ending_on_failure(self, stop: Callable[[], object]) -> Iterator[None]:  # noqa: ARG002
        """Do nothing: when a host fails, another process takes its place."""
        yield

    def close(self) -> None:
        """Leave, then close what this process has become the host of."""
        if not self._shared:
            self.desk.close()
        if self._succession is not None:
            self._succession.close()
