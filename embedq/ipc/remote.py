"""The desk of a client: what embedq.broker.desk.Desk does, asked of a host in another process.

Knows: which request each call is, what this process holds, how waiting is given up.
Does not know: sockets (link.py), who becomes the host, handlers.

Every method is safe to call from any thread; those for coroutines never block the loop.
"""

from __future__ import annotations

import os
import socket
from _thread import allocate_lock
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, cast

import msgspec

from embedq.broker.endings import DONE, Released
from embedq.broker.leases import Lease
from embedq.clock import Clock, SystemClock
from embedq.errors import GroupNotFound, StoreBusy
from embedq.events import Notice
from embedq.ids import MessageIds
from embedq.ipc import frames
from embedq.ipc.calls import WORKER_DIED, WorkerDeath
from embedq.ipc.handles import RemoteGroup, RemoteLease, RemoteQueue
from embedq.ipc.hearing import RemoteEvents
from embedq.ipc.keys import ClientKeys
from embedq.ipc.ledger import Asked
from embedq.ipc.link import TICK_S, Link, Make
from embedq.ipc.marks import Marks, Progress
from embedq.ipc.place import Found, find_host, folder_of, make_folder
from embedq.ipc.tending import NEEDED
from embedq.ipc.traffic import Traffic
from embedq.ipc.verbs import OnProgress, encoded, remote
from embedq.limits import LIMITS, Limits
from embedq.storage import descriptors

if TYPE_CHECKING:
    from embedq.broker.office import Office
    from embedq.broker.port import Pairs
    from embedq.broker.redaction import Redact

#: Seconds between two ticks of a process in which nobody has a message.
_IDLE_TICK_S: Final = 5.0


class RemoteDesk(Traffic):
    """The desk of a host, from another process. `open` connects, `close` leaves in order.

    `path`: the database, or with `keys` the address of a host on another machine. `find`: where
    the host is (default: what the lock file of the database says). `session`: 16 bytes that name
    this one. `boss`: the session of the process that watches over this one.
    `patience_s`: how long calls wait for a host before they fail with NoHost; None: for ever.
    `on_missing` is called again and again while there is no host; it must not wait.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        keys: ClientKeys | None = None,
        find: Callable[[], Found | None] | None = None,
        name: str = "",
        session: bytes | None = None,
        boss: bytes | None = None,
        patience_s: float | None = 5.0,
        on_missing: Callable[[], object] = lambda: None,
        clock: Clock | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        # A text, as Desk.path; an address stays as it is.
        self.path = os.path.abspath(path) if keys is None else os.fspath(path)  # noqa: PTH100
        self.keys = keys
        self.clock = clock or SystemClock()
        self.monotonic = self.clock.monotonic
        self.limits = limits
        self.queues: dict[str, RemoteQueue] = {}
        self.redact: Redact | None = None
        self.token = session or os.urandom(16)
        self.session = 0
        self.listeners = 0
        where = "" if keys is None else f"@{socket.gethostname()}"
        self._where = find or self._host
        self._name = name or f"client-{os.getpid()}{where}"
        self._boss = boss
        self._epoch = 0
        self._ahead_ms = 0
        self._marks: Marks | None = None
        #: Held while leases get new names, and while what became of one is noted under its name.
        self._naming = allocate_lock()
        super().__init__(
            Link(
                self._find,
                self._hello,
                patience_s=patience_s,
                max_bytes=limits.batch_bytes + frames.OVERHEAD,
                clock=self.clock,
                on_welcome=self._welcomed,
                on_told=self._told,
                on_tick=self._let_go,
                on_missing=on_missing,
            )
        )
        self.events = RemoteEvents(self.clock, self._listen)
        self.office: Office = remote(self._ask)

    def open(self, timeout: float | None = None) -> None:
        """Connect. Raises NoHost, or why the host refused; InsecurePermissions, StoreFailed.

        A host on another machine cannot read marks: for it all that was handed over has started.
        """
        if self.keys is None:
            self._marks = Marks.create(make_folder(folder_of(self.path)), self.token)
        try:
            self._check_descriptors()
            welcome = self._link.start(timeout)
        except BaseException:
            self.close()
            raise
        self.ids = MessageIds(welcome.key)

    def _find(self) -> Found | None:
        self._check_descriptors()
        return self._where()

    def _check_descriptors(self) -> None:
        """Raise StoreBusy where libzmq could not open what it needs: it would end the process."""
        if not descriptors.are_free(NEEDED):
            raise StoreBusy(
                f"{self.path}: fewer than {NEEDED} file descriptors are free, as a connection to "
                "the host needs",
                hint=descriptors.HINT,
            )

    def _host(self) -> Found | None:
        return find_host(self.path) if self.keys is None else Found(None, 0, self.path, self.keys)

    # ---------------------------------------------------------------------- the session

    def _hello(self) -> frames.Hello:
        return frames.Hello(
            versions=list(frames.VERSIONS),
            session=self.token,
            name=self._name,
            pid=os.getpid(),
            epoch=self._epoch,
            held=self.holdings.held(),
            marks=None if self._marks is None else str(self._marks.path),
            boss=self._boss,
        )

    def _welcomed(self, welcome: frames.Welcome) -> None:
        with self._naming:
            self.holdings.reissued(welcome.tokens)
            if self._marks is not None:
                self._marks.renew(welcome.epoch, self.holdings.marked())
        self.session = welcome.session
        if self._epoch not in {0, welcome.epoch}:
            self._bound_again()
        self._epoch = welcome.epoch
        self._ahead_ms = welcome.now_ms - int(self.clock.time() * 1000)
        if self.events.names:
            self._link.tell(frames.Listen(self.events.names))

    def _bound_again(self) -> None:
        """Tell a new host what the last one was told and did not store."""
        for queue in self.queues.values():
            for group in queue.groups:
                if group.most is not None:
                    args = encoded("bound_attempts", queue.name, group.name, group.most)
                    self._link.send(_call("bound_attempts", args), _nothing)

    def _told(self, answer: frames.Answer) -> None:
        if isinstance(answer, frames.Told):
            self.events.hear(Notice(answer.name, answer.at, answer.fields))
        elif isinstance(answer, frames.Lost):
            self.holdings.lost(answer.counters)

    def _listen(self, names: list[str]) -> None:
        if not self._link.ended:
            self._link.tell(frames.Listen(names))

    def _let_go(self) -> float:
        """See who holds leases and is gone; return in how many seconds again."""
        self._returns.again()
        for lease in self.holdings.abandoned():
            self.unkeep_at_host(lease)
        return TICK_S if self.holdings.in_work else _IDLE_TICK_S

    def _ask(
        self,
        verb: str,
        args: bytes,
        repeat: bool,  # noqa: FBT001
        progress: OnProgress | None,
    ) -> bytes:
        answer = self._link.ask(_call(verb, args), repeat=repeat, progress=progress)
        return bytes(cast("frames.Result", answer).value)

    def started(self, *leases: Lease) -> None:
        """Note that handlers get these messages now: what was not started costs nothing (P5)."""
        marks = self._marks
        for lease in leases:
            if isinstance(lease, RemoteLease) and marks is not None:
                with self._naming:
                    lease.progress = Progress.OUTSIDE if lease.outside else Progress.STARTED
                    marks.start(lease.mark, lease.counter, outside=lease.outside)

    def ended(self, pairs: Pairs) -> None:
        """Note how handlers have ended, before that is sent: a kill in between loses nothing."""
        marks = self._marks
        for lease, ending in pairs:
            if not isinstance(lease, RemoteLease) or marks is None:
                continue
            with self._naming:
                mine = marks.is_of(lease.mark, lease.counter)
                if isinstance(ending, Released):
                    lease.progress = None
                    if mine:
                        marks.clear(lease.mark)
                    continue
                progress = Progress.DONE if ending is DONE else Progress.FAILED
                lease.progress = progress
                if mine:
                    marks.end(lease.mark, lease.counter, progress)

    def now_ms(self) -> int:
        """Return the host's wall clock in milliseconds."""
        return int(self.clock.time() * 1000) + self._ahead_ms

    @property
    def host_pid(self) -> int | None:
        """The process that is the host now; None while there is none."""
        welcome = self._link.welcome
        return None if welcome is None else welcome.pid

    @property
    def version(self) -> int:
        """The version of the wire that is spoken with the host; 0 while there is none."""
        welcome = self._link.welcome
        return 0 if welcome is None else welcome.version

    # --------------------------------------------------------------- queues and groups

    def declare(self, name: str, changes: Mapping[str, object]) -> RemoteQueue:
        """Create a queue, or change what is said about it."""
        info = self.office.declare(name, dict(changes))
        known = self.queues.get(name)
        if known is None:
            known = self.queues[name] = RemoteQueue(info)
        else:
            known.update(info)
        return known

    def existing_queue(self, name: str) -> RemoteQueue:
        """Return a queue that exists, as it is now. Raises QueueNotFound."""
        info = self.office.info(name)
        known = self.queues.setdefault(name, RemoteQueue(info))
        known.update(info)
        return known

    def group(self, queue: RemoteQueue, name: str = "default", start: str = "auto") -> RemoteGroup:
        """Return a group, creating it if need be."""
        return queue.add_group(self.office.group(queue.name, name, start))

    def existing_group(self, queue: RemoteQueue, name: str) -> RemoteGroup:
        """Return a group that exists. Raises GroupNotFound."""
        queue.update(self.office.info(queue.name))
        for known in queue.groups:
            if known.name == name:
                return known
        raise GroupNotFound(f"queue {queue.name!r} has no group {name!r}")

    def report_death(self, death: WorkerDeath) -> None:
        """Tell the host how a worker of this process ended. Nobody waits for that."""
        self._link.send(_call(WORKER_DIED, msgspec.msgpack.encode(death)), _nothing)

    def bound_attempts(self, group: RemoteGroup, most: int) -> None:
        """Bound the attempts of messages of a group that do not say; 0 is endless."""
        group.most = most
        self.office.bound_attempts(group.queue.name, group.name, most)

    # ------------------------------------------------------------------------------ end

    def announce(self) -> None:
        """Tell that this process is connected."""
        self.events.emit("connected", path=self.path, host=self.host_pid, epoch=self._epoch)

    def record_crashes(self) -> None:
        """Do nothing: the host sees how its clients end."""

    def close(self) -> None:
        """Leave: what this process holds is given back. Safe to call twice.

        Without a host to tell that to, the marks stay: the next one learns from them what is done.
        """
        untold = self.host_pid is None and bool(self.holdings)
        self._link.close()
        self.events.close()
        if self._marks is not None:
            self._marks.close(remove=not untold)


def _call(verb: str, args: bytes) -> Make:
    return lambda n, _: frames.Call(n, verb, msgspec.Raw(args))


def _nothing(_asked: Asked) -> None:
    """Nobody waits for the answer."""
