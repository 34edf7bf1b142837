"""Messages between a client and its host: puts, claims, settlements.

Knows: which request each call is, how a caller that gives up leaves nothing behind.
Does not know: sockets (link.py), queues and groups beyond their numbers, handlers.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from embedq.broker.endings import Ending
from embedq.broker.intake import check_batch, row_of, too_large
from embedq.broker.leases import Lease
from embedq.broker.port import Exchanged, Pairs
from embedq.broker.waiting import Waiter
from embedq.errors import StaleLease
from embedq.ids import MessageIds
from embedq.ipc import frames
from embedq.ipc.endings import to_wire
from embedq.ipc.frames import Answer, Exchange, Token
from embedq.ipc.handles import Holdings, RemoteGroup, RemoteQueue
from embedq.ipc.ledger import Asked, answer_of
from embedq.ipc.link import Link, Make
from embedq.ipc.returns import Returns
from embedq.limits import Limits
from embedq.message import Draft, Receipt

if TYPE_CHECKING:
    import asyncio

    from embedq.broker.awaiting import Bridge
    from embedq.broker.redaction import Redact


class Fetch:
    """Messages that are on their way while their consumer handles those before them.

    `pairs`: the deliveries that the same request settles.
    """

    __slots__ = ("_gate", "_take", "most", "pairs")

    def __init__(
        self, pairs: list[tuple[Lease, Ending]], most: int, take: Callable[[], Exchanged]
    ) -> None:
        self.pairs = pairs
        self.most = most
        self._take = take
        self._gate = allocate_lock()
        self._gate.acquire()

    def arrived(self, _asked: Asked) -> None:
        """Let `result` return. Called by the link."""
        self._gate.release()

    def result(self) -> list[Lease]:
        """Wait for the host's answer and return the new leases. Once. Raises as `exchange`."""
        self._gate.acquire()
        return self._take().leases


class Traffic:
    """The half of a RemoteDesk that moves messages."""

    ids: MessageIds
    limits: Limits
    monotonic: Callable[[], float]
    now_ms: Callable[[], int]
    listeners: int
    redact: Redact | None

    def __init__(self, link: Link) -> None:
        self._link = link
        self.holdings = Holdings()
        self._returns = Returns(link, self.holdings)
        self._waits: dict[Waiter, int] = {}
        self._waits_lock = allocate_lock()

    # ------------------------------------------------------------------------------- put

    def put(self, queue: RemoteQueue, body: bytes, kind: int = 0) -> int:
        """Store one message that has nothing but a body; return its seq once it is durable."""
        return self._seqs(self._stored(self._put(queue, [body], kind)), 1)[0]

    def put_many(self, queue: RemoteQueue, bodies: Sequence[bytes], kind: int = 0) -> range:
        """Store messages in one transaction, in this order; return their seqs."""
        if not bodies:
            return range(0)
        return self._seqs(self._stored(self._put(queue, list(bodies), kind)), len(bodies))

    async def aput(self, queue: RemoteQueue, body: bytes, kind: int = 0) -> int:
        """Do the same as `put`, from a coroutine."""
        return self._seqs(await self._astored(self._put(queue, [body], kind)), 1)[0]

    def put_drafts(
        self, queue: RemoteQueue, drafts: Sequence[Draft], timeout: float | None = None
    ) -> list[Receipt]:
        """Store messages of any kind in one transaction; wait up to `timeout` for room."""
        return self._receipts(self._stored(self._put_rows(queue, drafts, timeout)))

    async def aput_drafts(
        self, queue: RemoteQueue, drafts: Sequence[Draft], timeout: float | None = None
    ) -> list[Receipt]:
        """Do the same as `put_drafts`, from a coroutine."""
        return self._receipts(await self._astored(self._put_rows(queue, drafts, timeout)))

    def _put(self, queue: RemoteQueue, bodies: list[bytes], kind: int) -> Make:
        if len(bodies) == 1:
            if len(bodies[0]) > self.limits.body_bytes:
                raise too_large(queue, len(bodies[0]), self.limits)
        else:
            check_batch(queue, list(map(len, bodies)), self.limits)
        return lambda n, seen: frames.Put(n, queue.id, kind, bodies, seen)

    def _put_rows(
        self, queue: RemoteQueue, drafts: Sequence[Draft], timeout: float | None
    ) -> Make:
        check_batch(queue, [len(draft.body) for draft in drafts], self.limits)
        now = self.now_ms()
        rows = [row_of(draft, now) for draft in drafts]
        return lambda n, seen: frames.PutRows(n, queue.id, rows, _in_ms(timeout), seen)

    def _stored(self, make: Make) -> Answer:
        """Ask for a put. An interrupted one may be stored all the same, but does not wait on."""
        gate = allocate_lock()
        gate.acquire()
        box: list[Asked] = []
        try:
            asked = self._link.send(make, lambda _: gate.release(), note=box.append)
            gate.acquire()
        except BaseException:
            self._cancel(box)
            raise
        return answer_of(asked)

    async def _astored(self, make: Make) -> Answer:
        """Do the same as `_stored`, from a coroutine."""
        loop, to_loop = _bridge()
        future: asyncio.Future[None] = loop.create_future()
        box: list[Asked] = []
        try:
            asked = self._link.send(make, lambda _: to_loop.answer(future), note=box.append)
            await future
        except BaseException:
            self._cancel(box)
            raise
        return answer_of(asked)

    def _cancel(self, box: Sequence[Asked]) -> None:
        for asked in box:
            self._link.cancel(asked.n)

    @staticmethod
    def _seqs(answer: Answer, count: int) -> range:
        first = cast("frames.Stored_", answer).first
        return range(first, first + count)

    def _receipts(self, answer: Answer) -> list[Receipt]:
        told = cast("frames.Receipts", answer)
        known = set(told.known)
        return [Receipt(self.ids, seq, n in known) for n, seq in enumerate(told.seqs)]

    # -------------------------------------------------------------------- claim, settle

    def exchange(
        self,
        group: RemoteGroup,
        pairs: Pairs = (),
        most: int = 1,
        *,
        lease_s: float | None = None,
        timeout: float | None = 0.0,
        waiter: Waiter | None = None,
        keep: bool = False,
        ahead: bool = False,
    ) -> Exchanged:
        """Settle deliveries and claim the next ones in one request; see Desk.exchange.

        `keep`: the host renews the leases for as long as this process lives. `ahead`: nobody gets
        them yet; `started` will say when.
        """
        pairs = list(pairs)
        if waiter is not None and waiter.cancelled:
            most = 0
        make = self._exchange(group, pairs, most, lease_s, timeout, keep=keep)
        gate = allocate_lock()
        gate.acquire()
        box: list[Asked] = []
        try:
            asked = self._link.send(make, lambda _: gate.release(), note=box.append)
            if waiter is not None:
                self._enlist(waiter, asked.n)
            gate.acquire()
            return self._exchanged(group, pairs, asked, ahead=ahead)
        except BaseException:
            self._returns.give_up(box, pairs)
            raise
        finally:
            if waiter is not None:
                with self._waits_lock:
                    self._waits.pop(waiter, None)

    def fetch(self, group: RemoteGroup, pairs: Pairs, most: int) -> Fetch:
        """Begin what `exchange` does with `keep` and `ahead`, and claim only what is there.

        The caller goes on meanwhile, and must ask for the result.
        """
        pairs = list(pairs)
        box: list[Asked] = []
        fetch = Fetch(pairs, most, lambda: self._exchanged(group, pairs, box[0], ahead=True))
        make = self._exchange(group, pairs, most, None, 0.0, keep=True)
        self._link.let_out(self._link.send(make, fetch.arrived, note=box.append))
        return fetch

    async def aexchange(
        self,
        group: RemoteGroup,
        pairs: Pairs = (),
        most: int = 1,
        *,
        lease_s: float | None = None,
        timeout: float | None = 0.0,
        session: int | None = None,
        keep: bool = False,
    ) -> Exchanged:
        """Do the same as `exchange`, from a coroutine. Cancelling it loses nothing."""
        pairs = list(pairs)
        outside = session == self.listeners
        make = self._exchange(group, pairs, most, lease_s, timeout, keep=keep, outside=outside)
        loop, to_loop = _bridge()
        future: asyncio.Future[None] = loop.create_future()
        box: list[Asked] = []
        try:
            asked = self._link.send(make, lambda _: to_loop.answer(future), note=box.append)
            await future
            return self._exchanged(group, pairs, asked)
        except BaseException:
            self._returns.give_up(box, pairs)
            raise

    def wait_claim(
        self,
        group: RemoteGroup,
        most: int = 1,
        timeout: float | None = None,
        lease_s: float | None = None,
        *,
        waiter: Waiter | None = None,
    ) -> list[Lease]:
        """Lease up to `most` messages; wait for the first one for `timeout` seconds."""
        done = self.exchange(*(group, (), most), lease_s=lease_s, timeout=timeout, waiter=waiter)
        return done.leases

    async def await_claim(
        self,
        group: RemoteGroup,
        most: int = 1,
        timeout: float | None = None,
        lease_s: float | None = None,
    ) -> list[Lease]:
        """Do the same as `wait_claim`, from a coroutine."""
        done = await self.aexchange(group, (), most, lease_s=lease_s, timeout=timeout)
        return done.leases

    def settle(self, pairs: Pairs) -> list[Lease]:
        """Settle deliveries of any groups; return those that no longer counted."""
        pairs = list(pairs)
        if not pairs:
            return []
        gate = allocate_lock()
        gate.acquire()
        box: list[Asked] = []
        try:
            asked = self._link.send(
                self._settlement(pairs), lambda _: gate.release(), note=box.append
            )
            gate.acquire()
            return self._settled(pairs, cast("frames.Exchanged", answer_of(asked)))
        except BaseException:
            self._returns.give_up(box, pairs)
            raise

    async def asettle(self, pairs: Pairs) -> list[Lease]:
        """Do the same as `settle`, from a coroutine."""
        pairs = list(pairs)
        if not pairs:
            return []
        loop, to_loop = _bridge()
        future: asyncio.Future[None] = loop.create_future()
        box: list[Asked] = []
        try:
            asked = self._link.send(
                self._settlement(pairs), lambda _: to_loop.answer(future), note=box.append
            )
            await future
            return self._settled(pairs, cast("frames.Exchanged", answer_of(asked)))
        except BaseException:
            self._returns.give_up(box, pairs)
            raise

    def _settlement(self, pairs: Pairs) -> Make:
        endings = self._endings(pairs)
        return lambda n, seen: Exchange(n, endings, seen=seen)

    def _exchange(
        self,
        group: RemoteGroup,
        pairs: Pairs,
        most: int,
        lease_s: float | None,
        timeout: float | None,
        *,
        keep: bool,
        outside: bool = False,
    ) -> Make:
        endings = self._endings(pairs)
        terms = (group.id, most, _in_ms(timeout), _in_ms(lease_s), keep)
        return lambda n, seen: Exchange(n, endings, *terms, seen, outside)

    def _endings(self, pairs: Pairs) -> list[frames.WireEnding]:
        return [to_wire(lease, ending, self.redact) for lease, ending in pairs]

    def _exchanged(
        self, group: RemoteGroup, pairs: Pairs, asked: Asked, *, ahead: bool = False
    ) -> Exchanged:
        answer, request = cast("frames.Exchanged", answer_of(asked)), cast("Exchange", asked.frame)
        stale = self._settled(pairs, answer)
        now, outside = self.monotonic(), request.outside
        leases = self.holdings.add(group, answer.leases, now, outside=outside)
        if request.keep:
            self.holdings.kept_by_host(leases)
        if not ahead:
            self.started(*leases)
        return Exchanged(list(leases), stale)

    def _settled(self, pairs: Pairs, answer: frames.Exchanged) -> list[Lease]:
        leases = [lease for lease, _ in pairs]
        self.holdings.drop(leases)
        return [leases[position] for position in answer.stale]

    def started(self, *leases: Lease) -> None:
        """Note that handlers get these messages now."""
        raise NotImplementedError

    # -------------------------------------------------------------------------- waiting

    def _enlist(self, waiter: Waiter, n: int) -> None:
        with self._waits_lock:
            self._waits[waiter] = n
        if waiter.cancelled:  # meanwhile
            self._link.cancel(n)

    def cancel_wait(self, *waiters: Waiter) -> None:
        """Let waiters wait no more: their claims return at once, now and in future."""
        for waiter in waiters:
            waiter.cancelled = True
            with self._waits_lock:
                n = self._waits.get(waiter)
            if n is not None:
                self._link.cancel(n)

    # -------------------------------------------------------------------------- keeping

    def extend(self, lease: Lease, seconds: float) -> None:
        """Let a lease end `seconds` from now instead. Raises StaleLease."""
        if not lease.is_held:
            raise StaleLease(f"{lease!r} no longer counts")
        token = Token(lease.group.id, lease.seq, lease.counter)
        self._link.ask(lambda n, _: frames.Extend(n, token, round(seconds * 1000)))
        lease.deadline = self.monotonic() + seconds

    def keep(self, lease: Lease, alive: Callable[[], bool]) -> None:
        """Let the host renew a lease for as long as this process lives and `alive()` says so."""
        if self.holdings.keep(lease, alive):
            self._link.tell(frames.Keep(_token(lease), on=True))

    def unkeep(self, lease: Lease) -> None:
        """Renew a lease no more: it ends when its time is over."""
        if self.holdings.unkeep(lease):
            self.unkeep_at_host(lease)

    def unkeep_at_host(self, lease: Lease) -> None:
        """Tell the host that nobody needs a lease renewed."""
        self._link.tell(frames.Keep(_token(lease), on=False))


def _bridge() -> tuple[asyncio.AbstractEventLoop, Bridge]:
    from embedq.broker.awaiting import bridge  # noqa: PLC0415  # asyncio only where it is used

    return bridge()


def _token(lease: Lease) -> Token:
    return Token(lease.group.id, lease.seq, lease.counter)


def _in_ms(timeout: float | None) -> int | None:
    return None if timeout is None else max(0, round(timeout * 1000))
