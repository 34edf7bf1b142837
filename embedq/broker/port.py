"""The desk port: what applications and workers ask of a desk, in this process or in another.

Knows: the calls, and what a queue and a group show to those who handle messages.
Does not know: who answers: the host's Desk, or the RemoteDesk of a client.

Queues and groups are handles: whoever gets one from a desk gives it back to that desk and reads
what these protocols name, nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from embedq.broker.endings import Ending
from embedq.broker.leases import Lease
from embedq.broker.waiting import Waiter
from embedq.events import Events
from embedq.ids import MessageIds
from embedq.limits import Limits
from embedq.message import Draft, Receipt
from embedq.policy import QueuePolicy

if TYPE_CHECKING:
    from embedq.broker.office import Office

Pairs = Iterable[tuple[Lease, Ending]]


class Exchanged(NamedTuple):
    """What an exchange got, and which of the leases it was to settle no longer counted."""

    leases: list[Lease]
    stale: list[Lease]


class QueuePort(Protocol):
    """A queue."""

    @property
    def id(self) -> int:
        """Its number in the store."""
        ...

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def policy(self) -> QueuePolicy:
        """Its settings, as they are known here."""
        ...

    @property
    def paused(self) -> bool:
        """Whether nothing is delivered from it, as far as is known here."""
        ...

    @property
    def groups(self) -> Sequence[GroupPort]:
        """The groups that are known here."""
        ...


class GroupPort(Protocol):
    """A consumer group. `most`: attempts of a message that does not say, set by its consumer."""

    most: int | None

    @property
    def id(self) -> int:
        """Its number in the store."""
        ...

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def queue(self) -> QueuePort:
        """Its queue."""
        ...


class DeskPort(Protocol):
    """A desk. Every method is safe to call from any thread; those for coroutines never block."""

    redact: Callable[[str], str] | None
    monotonic: Callable[[], float]

    @property
    def listeners(self) -> int:
        """The session of deliveries to clients of listeners; 0 where the host is another process.

        Claims name it; a host elsewhere is told by a word in the request.
        """
        ...

    @property
    def ids(self) -> MessageIds:
        """Makes message ids of seqs, and the other way round."""
        ...

    @property
    def limits(self) -> Limits:
        """The bounds that hold."""
        ...

    @property
    def events(self) -> Events:
        """The hub of events."""
        ...

    @property
    def path(self) -> str:
        """Where the database is."""
        ...

    @property
    def office(self) -> Office:
        """Everything but the handling of messages."""
        ...

    def now_ms(self) -> int:
        """Return the host's wall clock in milliseconds."""
        ...

    def declare(self, name: str, changes: Mapping[str, object]) -> Any:
        """Create a queue, or change what is said about it."""
        ...

    def existing_queue(self, name: str) -> Any:
        """Return a queue that exists. Raises QueueNotFound."""
        ...

    def group(self, queue: Any, name: str = ..., start: str = ...) -> Any:
        """Return a group, creating it if need be."""
        ...

    def existing_group(self, queue: Any, name: str) -> Any:
        """Return a group that exists. Raises GroupNotFound."""
        ...

    def bound_attempts(self, group: Any, most: int) -> None:
        """Bound the attempts of messages of a group that do not say; 0 is endless."""
        ...

    def put(self, queue: Any, body: bytes, kind: int = ...) -> int:
        """Store a plain message; return its seq once it is durable."""
        ...

    def put_many(self, queue: Any, bodies: Sequence[bytes], kind: int = ...) -> range:
        """Store plain messages in one transaction."""
        ...

    def put_drafts(
        self, queue: Any, drafts: Sequence[Draft], timeout: float | None = ...
    ) -> list[Receipt]:
        """Store messages of any kind; wait up to `timeout` seconds for room."""
        ...

    def aput(self, queue: Any, body: bytes, kind: int = ...) -> Awaitable[int]:
        """Do the same as `put`, from a coroutine."""
        ...

    async def aput_drafts(
        self, queue: Any, drafts: Sequence[Draft], timeout: float | None = ...
    ) -> list[Receipt]:
        """Do the same as `put_drafts`, from a coroutine."""
        ...

    def wait_claim(self, group: Any, most: int = ..., timeout: float | None = ...) -> list[Lease]:
        """Lease up to `most` messages; wait for the first one."""
        ...

    async def await_claim(
        self, group: Any, most: int = ..., timeout: float | None = ...
    ) -> list[Lease]:
        """Do the same as `wait_claim`, from a coroutine."""
        ...

    def exchange(
        self,
        group: Any,
        pairs: Iterable[tuple[Lease, Ending]] = ...,
        most: int = ...,
        *,
        timeout: float | None = ...,
        waiter: Waiter | None = ...,
        keep: bool = ...,
    ) -> Exchanged:
        """Settle deliveries and claim the next ones together."""
        ...

    async def aexchange(
        self,
        group: Any,
        pairs: Iterable[tuple[Lease, Ending]] = ...,
        most: int = ...,
        *,
        timeout: float | None = ...,
        session: int | None = ...,
        keep: bool = ...,
    ) -> Exchanged:
        """Do the same as `exchange`, from a coroutine."""
        ...

    def settle(self, pairs: Iterable[tuple[Lease, Ending]]) -> list[Lease]:
        """Settle deliveries; return those that no longer counted."""
        ...

    async def asettle(self, pairs: Iterable[tuple[Lease, Ending]]) -> list[Lease]:
        """Do the same as `settle`, from a coroutine."""
        ...

    def extend(self, lease: Lease, seconds: float) -> None:
        """Let a lease end `seconds` from now. Raises StaleLease."""
        ...

    def keep(self, lease: Lease, alive: Callable[[], bool]) -> None:
        """Renew a lease for as long as `alive()` says so."""
        ...

    def unkeep(self, lease: Lease) -> None:
        """Renew a lease no more."""
        ...

    def cancel_wait(self, *waiters: Waiter) -> None:
        """Let waiters wait no more."""
        ...

    def record_crashes(self) -> None:
        """Let a crash of this process be written down, where that is of use."""
        ...

    def announce(self) -> None:
        """Tell that the desk is open."""
        ...

    def close(self) -> None:
        """Give back what is held and end. Safe to call twice."""
        ...
