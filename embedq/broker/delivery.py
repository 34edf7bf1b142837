"""A delivery: one handing-over of a message, as handlers and pulling programs hold it.

Knows: how a body is decoded, that a delivery is settled once, what leaving a block means.
Does not know: who runs a handler, when a lease is renewed, how endings are stored.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Generic, Self, TypeVar, cast

import msgspec

from embedq.broker.answers import delay_seconds, described, lease_seconds, rejected
from embedq.broker.endings import DONE, RELEASED, Ending, Failed, Rejected
from embedq.broker.leases import Lease
from embedq.broker.port import DeskPort
from embedq.decisions import DeliveryOutcome, Reject, Retry
from embedq.errors import StaleLease
from embedq.lifecycle import Reason
from embedq.payload import content_type, decode
from embedq.policy import Duration, RetryPolicy

T = TypeVar("T")
_RNG: Final = random.SystemRandom()
_UNREAD: Final = object()
_decode_headers = msgspec.msgpack.Decoder(dict[str, str]).decode


class CancelToken:
    """Tells a handler to stop: false until somebody gives a reason. Safe between threads."""

    __slots__ = ("_event", "reason")

    def __init__(self) -> None:
        #: Why: "timeout", "drain", "lease_lost", "request" (Spark jobs only), or None.
        self.reason: str | None = None
        self._event: threading.Event | None = None

    def __bool__(self) -> bool:
        """Whether the handler ought to stop."""
        return self.reason is not None

    def set(self, reason: str) -> None:
        """Ask for the end; the first reason stays."""
        if self.reason is None:
            self.reason = reason
        event = self._event
        if event is not None:
            event.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep for `timeout` seconds or until the handler ought to stop; return whether so."""
        if self._event is None:
            self._event = threading.Event()
        return self.reason is not None or self._event.wait(timeout)

    def __repr__(self) -> str:
        """Show the reason."""
        return f"CancelToken({self.reason!r})"


class Delivery(Generic[T]):
    """One handing-over of a message: what it holds, and how it is settled, once.

    In a `with` (or `async with`) block leaving acks, raising nacks, raising Retry or Reject does
    what they say; the lease is renewed meanwhile. A program that is being ended
    (KeyboardInterrupt, SystemExit, a cancelled coroutine) gives the message back, which costs no
    attempt.
    """

    __slots__ = ("_body", "_desk", "_type", "cancelled", "ending", "lease", "progress", "retry")

    def __init__(
        self,
        desk: DeskPort,
        lease: Lease,
        type: object = None,
        *,
        retry: RetryPolicy | None = None,
        cancel: CancelToken | None = None,
    ) -> None:
        self._desk = desk
        self._type = type
        self._body: object = _UNREAD
        self.lease = lease
        self.retry = retry
        #: Turns true when a handler ought to stop; see CancelToken.
        self.cancelled = cancel or CancelToken()
        #: How it was settled, None while it is not.
        self.ending: Ending | None = None
        #: Tasks of its Spark jobs that are done, and all that are known; None without such jobs.
        self.progress: tuple[int, int] | None = None

    # --------------------------------------------------------------------------- content

    @property
    def id(self) -> str:
        """The message id, the same in every delivery and group."""
        return self._desk.ids.encode(self.lease.seq)

    @property
    def seq(self) -> int:
        """The message's number in the store, rising in put order."""
        return self.lease.seq

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return self.lease.group.queue.name

    @property
    def group(self) -> str:
        """The name of the consumer group."""
        return self.lease.group.name

    @property
    def raw(self) -> bytes:
        """The body as it is stored."""
        return self.lease.message.body

    @property
    def body(self) -> T:
        """The body as an object of the queue's type, decoded when first asked for.

        Raises InvalidPayload if it is none.
        """
        if self._body is _UNREAD:
            message = self.lease.message
            self._body = decode(message.kind, message.body, self._type)
        return cast("T", self._body)

    @property
    def kind(self) -> int:
        """The number of the content type, see embedq.payload."""
        return self.lease.message.kind

    @property
    def content_type(self) -> str:
        """The content type as MIME writes it."""
        return content_type(self.kind)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; empty if there are none."""
        headers = self.lease.message.headers
        return {} if headers is None else _decode_headers(headers)

    @property
    def priority(self) -> int:
        """0 to 9, higher first."""
        return self.lease.message.priority

    @property
    def ordering_key(self) -> str | None:
        """Messages with the same key are delivered one after another."""
        return self.lease.message.key

    @property
    def attempt(self) -> int:
        """Which attempt this is, the first is 1."""
        return self.lease.attempt

    @property
    def max_attempts(self) -> int | None:
        """How many attempts there may be; None is endless."""
        return self.lease.max_attempts or None

    @property
    def redelivered(self) -> bool:
        """Whether the message was delivered to the group before."""
        return self.lease.attempt > 1

    @property
    def put_at(self) -> datetime:
        """When the message was put (UTC)."""
        return datetime.fromtimestamp(self.put_at_ms / 1000, UTC)

    @property
    def put_at_ms(self) -> int:
        """When the message was put, in milliseconds since 1970."""
        return self.lease.message.put_at

    @property
    def age_s(self) -> float:
        """Seconds since the put, by the host's clock; never negative."""
        return max(0, self._desk.now_ms() - self.put_at_ms) / 1000

    @property
    def lease_deadline(self) -> float:
        """When the lease ends unless renewed, in seconds of the monotonic clock."""
        return self.lease.deadline

    @property
    def settled(self) -> bool:
        """Whether it has been acked, nacked, rejected or released through this object."""
        return self.ending is not None

    # -------------------------------------------------------------------------- settling

    def ack(self) -> None:
        """The message is done. Raises StaleLease if the lease no longer counts."""
        self._settle(DONE)

    def nack(
        self, delay: Duration | None = None, error: BaseException | str | None = None
    ) -> None:
        """The attempt failed: again after `delay` (None: as the retry policy says), or dead."""
        self._settle(self._failed(delay, error))

    def reject(self, reason: str = "", error: BaseException | str | None = None) -> None:
        """Make it a dead letter now, whatever attempts are left."""
        self._settle(rejected(reason, error))

    def release(self) -> None:
        """Give the message back as if it had not been delivered; costs no attempt."""
        self._settle(RELEASED)

    def extend(self, duration: Duration) -> None:
        """Let the lease end `duration` from now. Raises StaleLease."""
        seconds = lease_seconds(duration)
        self._check_open()
        try:
            self._desk.extend(self.lease, seconds)
        except StaleLease as error:
            raise self._stale() from error

    async def aack(self) -> None:
        """Do the same as `ack`, from a coroutine."""
        await self._asettle(DONE)

    async def anack(
        self, delay: Duration | None = None, error: BaseException | str | None = None
    ) -> None:
        """Do the same as `nack`, from a coroutine."""
        await self._asettle(self._failed(delay, error))

    async def areject(self, reason: str = "", error: BaseException | str | None = None) -> None:
        """Do the same as `reject`, from a coroutine."""
        await self._asettle(rejected(reason, error))

    async def arelease(self) -> None:
        """Do the same as `release`, from a coroutine."""
        await self._asettle(RELEASED)

    async def aextend(self, duration: Duration) -> None:
        """Do the same as `extend`, from a coroutine."""
        import asyncio  # noqa: PLC0415  # loaded already, by those who use coroutines

        seconds = lease_seconds(duration)
        self._check_open()
        try:
            await asyncio.to_thread(self._desk.extend, self.lease, seconds)
        except StaleLease as error:
            raise self._stale() from error

    def _settle(self, ending: Ending) -> None:
        self._check_open()
        self._settled(ending, self._desk.settle([(self.lease, ending)]))

    async def _asettle(self, ending: Ending) -> None:
        self._check_open()
        self._settled(ending, await self._desk.asettle([(self.lease, ending)]))

    def _check_open(self) -> None:
        if self.ending is not None:
            raise StaleLease(
                f"message {self.id} of queue {self.queue!r} is settled already "
                f"({type(self.ending).__name__.lower()})",
                hint="settle a delivery once; in a with block the block does it",
            )

    def _settled(self, ending: Ending, stale: list[Lease]) -> None:
        if stale:
            raise self._stale()
        self.ending = ending

    def _stale(self) -> StaleLease:
        return StaleLease(
            f"attempt {self.attempt} of message {self.id} in queue {self.queue!r} no longer counts"
        )

    def _failed(self, delay: Duration | None, error: BaseException | str | None) -> Ending:
        told = described(error)
        policy = self.retry
        if delay is not None:
            return Failed(told, delay_seconds(delay))
        if policy is None:
            return Failed(told)
        if isinstance(error, Exception) and policy.gives_up(error):
            return Rejected(detail=f"{type(error).__name__} is not tried again", error=told)
        if policy.too_old(self.age_s):
            detail = f"it failed {self.age_s:.0f} seconds after it was put"
            return Rejected(Reason.AGE, detail, told)
        return Failed(told, policy.delay(self.attempt, _RNG))

    # ---------------------------------------------------------------------------- blocks

    def _left(self, error: BaseException | None) -> Ending:
        """Return what leaving a block with `error` means."""
        match error:
            case None:
                return DONE
            case Retry():
                return self._failed(error.delay, error.__cause__ or error.__context__)
            case Reject():
                return rejected(error.reason, error.__cause__ or error.__context__)
            case Exception():
                return self._failed(None, error)
            case _:
                return RELEASED

    def __enter__(self) -> Self:
        """Return the delivery; its lease is renewed while this thread lives."""
        self._desk.keep(self.lease, threading.current_thread().is_alive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        """Settle what is not settled. Raises StaleLease if that comes too late for an ack."""
        self._desk.unkeep(self.lease)
        if self.ending is None:
            try:
                self._settle(self._left(error))
            except StaleLease:
                if error is None:
                    raise
        return isinstance(error, DeliveryOutcome)

    async def __aenter__(self) -> Self:
        """Return the delivery; its lease is renewed while the loop is open."""
        import asyncio  # noqa: PLC0415  # loaded already, by those who use coroutines

        loop = asyncio.get_running_loop()
        self._desk.keep(self.lease, lambda: not loop.is_closed())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        """Settle what is not settled, as the `with` block does."""
        self._desk.unkeep(self.lease)
        if self.ending is None:
            try:
                await self._asettle(self._left(error))
            except StaleLease:
                if error is None:
                    raise
        return isinstance(error, DeliveryOutcome)

    def __repr__(self) -> str:
        """Show what identifies it."""
        return f"<Delivery of {self.id} from {self.queue!r}, attempt {self.attempt}>"
