"""A queue, as applications use it: put, get, look, operate; with a twin for coroutines each.

Knows: the type of its bodies, its retry policy, the broker it belongs to.
Does not know: how anything is stored or delivered.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, overload

from embedq.app.feeding import Feeding
from embedq.app.group import Group
from embedq.app.letters import DeadLetters
from embedq.app.options import (
    ConsumerOptions,
    Encoder,
    PutOptions,
    check_after,
    check_flag,
    check_known,
    check_most,
    make_drafts,
    wait_s,
)
from embedq.app.stored import message_of
from embedq.app.watching import Watching
from embedq.broker.answers import Several
from embedq.broker.delivery import Delivery
from embedq.broker.endings import DONE
from embedq.broker.leases import Lease
from embedq.broker.purge import Progress
from embedq.broker.registry import check_start
from embedq.broker.stats import QueueStats
from embedq.broker.twins import twin
from embedq.errors import Empty
from embedq.message import Draft, Message, Receipt
from embedq.names import check_group_name
from embedq.policy import Duration, QueuePolicy, RetryPolicy
from embedq.workers.spec import make_spec

if TYPE_CHECKING:
    from embedq.app.broker import Broker
    from embedq.broker.office import Office
    from embedq.broker.port import DeskPort, GroupPort, QueuePort

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


class Queue(Watching, Feeding, Generic[T]):
    """A queue of a broker. Made by `broker.queue(name, type)`; creating one opens nothing.

    The first use that needs the file opens it. Calls block until they are done, those that begin
    with `a` are for coroutines and never block the loop.
    """

    def __init__(
        self, broker: Broker, name: str, type: object = None, retry: RetryPolicy | None = None
    ) -> None:
        self.broker = broker
        self.name = name
        self.type = type
        self.retry = retry
        self._encode = Encoder(name, type)

    def _state(self) -> tuple[DeskPort, QueuePort]:
        return self.broker.state_of(self.name)

    async def _astate(self) -> tuple[DeskPort, QueuePort]:
        return await self.broker.astate_of(self.name)

    # ------------------------------------------------------------------------------- put

    def put(
        self, body: T, *, timeout: Duration | None = None, **options: Unpack[PutOptions]
    ) -> Receipt:
        """Store a message; the receipt comes when it is as durable as promised.

        `delay` or `at`: when it may be delivered. `ttl`: after this it is dead as expired.
        `priority`: 0 to 9, higher first. `dedup_key`: a second put with it within the queue's
        dedup_window is the same message. `ordering_key`: one after another. `max_attempts`: of
        this message, None is endless. `headers`: str to str. `timeout`: how long to wait for room
        in a full queue.

        Raises InvalidPayload, InvalidOption, LimitExceeded, QueueFull, StoreFull.
        """
        if options or timeout is not None:
            return self.put_many([body], timeout=timeout, **options)[0]
        desk, state = self._state()
        kind, data = self._encode(body)
        return Receipt(desk.ids, desk.put(state, data, kind))

    def put_many(
        self,
        bodies: Iterable[T],
        *,
        timeout: Duration | None = None,
        **options: Unpack[PutOptions],
    ) -> list[Receipt]:
        """Store messages in one transaction, in this order; the options of `put` are for each.

        A `dedup_key` is refused for more than one: all but the first would be duplicates of it.
        Raises LimitExceeded for more than batch_messages or batch_bytes, and what `put` raises.
        """
        desk, state = self._state()
        drafts = self._drafts(desk, state, bodies, options)
        seconds = wait_s(timeout)
        if not drafts:
            return []
        kind = drafts[0].kind
        if not options and timeout is None and all(draft.kind == kind for draft in drafts):
            seqs = desk.put_many(state, [draft.body for draft in drafts], kind)
            return [Receipt(desk.ids, seq) for seq in seqs]
        return desk.put_drafts(state, drafts, seconds)

    def _drafts(
        self, desk: DeskPort, state: QueuePort, bodies: Iterable[T], options: PutOptions
    ) -> list[Draft]:
        window = state.policy.dedup_window_ms
        return make_drafts(self._encode, bodies, options, desk.limits, desk.now_ms(), window)

    async def aput(
        self, body: T, *, timeout: Duration | None = None, **options: Unpack[PutOptions]
    ) -> Receipt:
        """Do the same as `put`, from a coroutine."""
        if options or timeout is not None:
            return (await self.aput_many([body], timeout=timeout, **options))[0]
        desk, state = self.broker.opened(self.name) or await self._astate()
        kind, data = self._encode(body)
        return Receipt(desk.ids, await desk.aput(state, data, kind))

    async def aput_many(
        self,
        bodies: Iterable[T],
        *,
        timeout: Duration | None = None,
        **options: Unpack[PutOptions],
    ) -> list[Receipt]:
        """Do the same as `put_many`, from a coroutine."""
        desk, state = await self._astate()
        drafts = self._drafts(desk, state, bodies, options)
        seconds = wait_s(timeout)
        return await desk.aput_drafts(state, drafts, seconds) if drafts else []

    # ------------------------------------------------------------------------------- get

    def get(
        self,
        timeout: Duration | None = None,
        *,
        group: str = "default",
        auto_ack: bool = False,
    ) -> Delivery[T]:
        """Take the next message; wait up to `timeout` (None: for ever, 0: not at all).

        Settle the delivery, or use it as a context: leaving acks, raising nacks. With `auto_ack`
        it is settled already. Raises Empty when nothing came in time.
        """
        found = self.get_many(1, timeout, group=group, auto_ack=auto_ack)
        if not found:
            raise self._empty(group, timeout)
        return found[0]

    def get_many(
        self,
        most: int,
        timeout: Duration | None = 0,
        *,
        group: str = "default",
        auto_ack: bool = False,
    ) -> list[Delivery[T]]:
        """Take up to `most` messages; wait up to `timeout` for the first. Maybe none come."""
        check_flag(auto_ack, "auto_ack")
        seconds = wait_s(timeout)
        desk, state = self._state()
        check_most(most, desk.limits)
        members = self._group(desk, state, group)
        leases = desk.wait_claim(members, most, seconds)
        if auto_ack:
            desk.settle([(lease, DONE) for lease in leases])
        return self._deliveries(desk, leases, auto_ack=auto_ack)

    async def aget(
        self,
        timeout: Duration | None = None,
        *,
        group: str = "default",
        auto_ack: bool = False,
    ) -> Delivery[T]:
        """Do the same as `get`, from a coroutine."""
        found = await self.aget_many(1, timeout, group=group, auto_ack=auto_ack)
        if not found:
            raise self._empty(group, timeout)
        return found[0]

    async def aget_many(
        self,
        most: int,
        timeout: Duration | None = 0,
        *,
        group: str = "default",
        auto_ack: bool = False,
    ) -> list[Delivery[T]]:
        """Do the same as `get_many`, from a coroutine."""
        check_flag(auto_ack, "auto_ack")
        seconds = wait_s(timeout)
        desk, state = await self._astate()
        check_most(most, desk.limits)
        members = await self._agroup(desk, state, group)
        leases = await desk.await_claim(members, most, seconds)
        if auto_ack:
            await desk.asettle([(lease, DONE) for lease in leases])
        return self._deliveries(desk, leases, auto_ack=auto_ack)

    def settle(
        self,
        deliveries: Iterable[Delivery[T]],
        how: str = "ack",
        *,
        delay: Duration | None = None,
        reason: str = "",
    ) -> list[Delivery[T]]:
        """Settle deliveries in one commit: "ack", "nack", "reject" or "release" all of them.

        Returns those that no longer counted (their lease was over, or they were settled before):
        nothing was changed for them. `delay` is for "nack", `reason` for "reject".
        """
        desk, _ = self._state()
        several = Several(desk, self.name, deliveries, how, delay, reason)
        return several.done(desk.settle(several.pairs))

    async def asettle(
        self,
        deliveries: Iterable[Delivery[T]],
        how: str = "ack",
        *,
        delay: Duration | None = None,
        reason: str = "",
    ) -> list[Delivery[T]]:
        """Do the same as `settle`, from a coroutine."""
        desk, _ = await self._astate()
        several = Several(desk, self.name, deliveries, how, delay, reason)
        return several.done(await desk.asettle(several.pairs))

    async def __aiter__(self) -> AsyncIterator[Delivery[T]]:
        """Go through messages as they come, for ever: `async for delivery in queue`."""
        while True:
            yield await self.aget()

    def _deliveries(
        self, desk: DeskPort, leases: Sequence[Lease], *, auto_ack: bool
    ) -> list[Delivery[T]]:
        made: list[Delivery[T]] = [
            Delivery(desk, lease, self.type, retry=self.retry) for lease in leases
        ]
        if auto_ack:
            for delivery in made:
                delivery.ending = DONE
        return made

    def _group(self, desk: DeskPort, state: QueuePort, name: str) -> GroupPort:
        found: GroupPort | None = next((g for g in state.groups if g.name == name), None)
        return desk.group(state, name) if found is None else found

    async def _agroup(self, desk: DeskPort, state: QueuePort, name: str) -> GroupPort:
        for known in state.groups:
            if known.name == name:
                return known
        import asyncio  # noqa: PLC0415  # loaded already, by those who use coroutines

        return await asyncio.to_thread(desk.group, state, name)

    def _empty(self, group: str, timeout: Duration | None) -> Empty:
        found = self.broker.opened(self.name)
        paused = found is not None and found[1].paused
        return Empty(
            f"queue {self.name!r}, group {group!r}: no message became ready within "
            f"{wait_s(timeout):g} s",
            hint="the queue is paused: call queue.resume()" if paused else None,
            queue=self.name,
            group=group,
        )

    # ------------------------------------------------------------------------- consumers

    @overload
    def consumer(self, function: Callable[P, R], /) -> Callable[P, R]: ...
    @overload
    def consumer(
        self, /, **options: Unpack[ConsumerOptions]
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
    def consumer(
        self, function: Callable[..., Any] | None = None, /, **options: Unpack[ConsumerOptions]
    ) -> Callable[..., Any]:
        """Let a function handle the messages of a group: a decorator, with or without options.

        The function stays what it was: calling it runs it. A `def` runs on `concurrency` threads,
        an `async def` in as many tasks on an event loop. It is called with the body, decoded to
        its annotation; a parameter annotated Delivery (or named delivery) gets the delivery.
        `timeout`: the longest run. `batch`: call it with a Batch of up to so many, collected for
        at most `linger`. `retry`: instead of the queue's policy. `compete`: share the group with
        another function. `spark`: a function that returns the Spark session for its jobs.

        Raises InvalidOption, UnsupportedOption, DuplicateConsumer.
        """

        def register(handler: Callable[..., Any]) -> Callable[..., Any]:
            options.setdefault("retry", self.retry)
            spec = make_spec(handler, queue=self.name, type=self.type, **options)
            self.broker.add_consumer(spec)
            return handler

        check_known("consumer", options, ConsumerOptions)
        return register if function is None else register(function)

    # ------------------------------------------------------------------ looking, operating

    def _now(self) -> tuple[DeskPort, QueuePort]:
        """Return the desk and the queue as it is now, with all its groups."""
        desk, _ = self._state()
        return desk, desk.existing_queue(self.name)

    @property
    def dead(self) -> DeadLetters:
        """The dead letters: `list`, `show`, `redrive`, `purge`."""
        return DeadLetters(*self._now())

    @property
    def groups(self) -> tuple[Group, ...]:
        """The consumer groups there are."""
        return tuple(Group(self, known.name) for known in list(self._now()[1].groups))

    def group(self, name: str = "default", *, start: str | None = None) -> Group:
        """Return a group; with `start` ("beginning", "end" or "auto") it is created if need be."""
        check_group_name(name)
        if start is not None:
            check_start(start)
            desk, state = self._state()
            desk.group(state, name, start)
        return Group(self, name)

    @property
    def policy(self) -> QueuePolicy:
        """The settings as they are stored."""
        return self._now()[1].policy

    @property
    def paused(self) -> bool:
        """Whether nothing is delivered from the queue."""
        return self._now()[1].paused

    @property
    def _office(self) -> Office:
        return self._state()[0].office

    def pause(self) -> None:
        """Deliver nothing until `resume`, also after a restart. What runs goes on."""
        self._office.pause(self.name, paused=True)

    def resume(self) -> None:
        """Deliver again."""
        self._office.pause(self.name, paused=False)

    def purge(self, progress: Progress | None = None) -> int:
        """Remove every message there is now, also what is being delivered; return how many.

        Dead letters stay: `queue.dead.purge()`. `progress` gets (done, in all) now and then.
        """
        return self._office.purge(self.name, progress=progress)

    def cancel(self, *ids: str) -> list[str]:
        """Withdraw messages that wait; return the ids of those that were there and not leased."""
        decode = self._state()[0].ids.decode
        seqs = {decode(each): each for each in ids}
        return [seqs[seq] for seq in self._office.cancel(self.name, list(seqs))]

    def peek(self, most: int = 10, after: int = 0) -> list[Message]:
        """Return messages in put order without touching them; `after`: the last seq seen."""
        desk, _ = self._state()
        check_most(most, desk.limits)
        check_after(after)
        rows = desk.office.peek(self.name, most, after)
        return [message_of(desk.ids, self.name, row) for row in rows]

    def stats(self) -> QueueStats:
        """Return the numbers of the queue and its groups."""
        return self._office.queue_stats(self.name)

    agroup = twin(group)
    apause = twin(pause)
    aresume = twin(resume)
    apurge = twin(purge)
    acancel = twin(cancel)
    apeek = twin(peek)
    astats = twin(stats)

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} of {self.broker!r}>"
