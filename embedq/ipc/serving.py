"""What a host does about each request of a client.

Knows: the desk, what is answered, what a repeated request means.
Does not know: sockets, connections, how a session begins and ends (sessions.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from embedq.broker import numbered
from embedq.broker.awaiting import LoopWaiter, bridge
from embedq.broker.desk import Desk
from embedq.broker.endings import RELEASED, Ending
from embedq.broker.leases import Lease
from embedq.broker.state import GroupState, QueueState
from embedq.errors import EmbedqError, GroupNotFound, InvalidOption, QueueNotFound, StaleLease
from embedq.ipc import frames
from embedq.ipc.calls import Calls, Report, Verb
from embedq.ipc.checks import check_put, check_row
from embedq.ipc.endings import from_wire
from embedq.ipc.failures import failed
from embedq.ipc.session import Session
from embedq.storage.answered import Answer

_log = logging.getLogger("embedq.ipc")

#: Requests of one session that may be open at once.
_OPEN_MOST: Final = 4_096
#: Messages in one claim where some bodies are so large that they count by themselves.
_MOST_LARGE: Final = 4
#: What executors say in a program that ends without having stopped its broker: Python's main
#: thread is over, and a loop that still runs in another one can start no threads any more. They go
#: on with "interpreter shutdown", or, once a thread of theirs has seen that end, with "shutdown".
_PROGRAM_ENDS: Final = "cannot schedule new futures after "
#: Bytes of a message beside body and headers, on the wire.
_ENVELOPE: Final = 128


class Serving:
    """Answers the requests of all sessions, on the loop of its server."""

    def __init__(
        self,
        desk: Desk,
        verbs: Mapping[str, Verb],
        report: Report,
        flush: Callable[[Session], object],
        leave: Callable[[Session], Coroutine[Any, Any, None]],
    ) -> None:
        self._desk = desk
        self._flush = flush
        self._leave = leave
        self._loop, self._bridge = bridge()
        self._puts: numbered.NumberedPuts | None = None
        self._putting: list[tuple[Session, int]] = []
        self._queues: dict[int, QueueState] = {}
        self._groups: dict[int, GroupState] = {}
        self._calls = Calls(desk, verbs, report, self.answer)
        self._acts: dict[type[frames.Request], Callable[[Session, Any], object]] = {
            frames.Put: self._put,
            frames.PutRows: self._start(self._put_rows),
            frames.Exchange: self._start(self._exchange),
            frames.Extend: self._start(self._extend),
            frames.Call: self._start(self._calls.call),
            frames.Bye: self._start(self._bye),
            frames.Cancel: self._cancel,
            frames.Keep: self._keep,
            frames.Listen: self._calls.listen,
        }

    def handle(self, session: Session, request: frames.Request) -> None:
        """Do what a client asks; the answer follows now or later."""
        self._acts[type(request)](session, request)

    def close(self) -> None:
        """Let no call begin any more."""
        self._calls.close()

    def answer(self, session: Session, answer: frames.Answer, size: int = 64) -> None:
        """Send an answer with whatever else this turn of the loop has for the session."""
        if session.address is not None:
            session.queue(answer, size)
            self._flush(session)

    def _start(
        self, act: Callable[[Session, Any], Coroutine[Any, Any, None]]
    ) -> Callable[[Session, Any], None]:
        """Return what begins a request that takes a while, once for each number."""

        def begin(session: Session, request: Any) -> None:  # noqa: ANN401  # any with a number
            n = request.n
            if session.is_open(n):
                return  # repeated after a reconnect: the answer will come
            if len(session.tasks) >= _OPEN_MOST:
                refusal = InvalidOption(f"more than {_OPEN_MOST} requests are open")
                self.answer(session, failed(n, refusal))
                return
            if getattr(request, "wait_ms", 0) != 0:
                session.waiters[n] = LoopWaiter()  # now: a Cancel may come right behind
            task = self._loop.create_task(self._guarded(session, n, act, request))
            session.tasks[n] = task

        return begin

    async def _guarded(
        self,
        session: Session,
        n: int,
        act: Callable[[Session, Any], Coroutine[Any, Any, None]],
        request: Any,  # noqa: ANN401  # any with a number
    ) -> None:
        """Do a request; whatever it raises is the answer, and ends nothing else."""
        try:
            await act(session, request)
        except asyncio.CancelledError:
            if not session.ended:
                raise
        except EmbedqError as error:
            self.answer(session, failed(n, error))
        except Exception as error:  # noqa: BLE001  # told to the client, and logged
            if _PROGRAM_ENDS in str(error):
                _log.info("a request of session %s is left to the next host", session.name)
                return  # without an answer the client asks that one
            _log.exception("a request of session %s failed", session.name)
            self.answer(session, failed(n, error))
        finally:
            session.tasks.pop(n, None)
            session.waiters.pop(n, None)

    def queue(self, number: int) -> QueueState:
        """Return a queue by its number. Raises QueueNotFound."""
        found = self._queues.get(number)
        if found is None:
            self._queues = {queue.id: queue for queue in list(self._desk.queues.values())}
            found = self._queues.get(number)
            if found is None:
                raise QueueNotFound(f"there is no queue number {number}")
        return found

    def group(self, number: int) -> GroupState:
        """Return a group by its number. Raises GroupNotFound."""
        found = self._groups.get(number)
        if found is None or found not in found.queue.groups:
            self._groups = {group.id: group for group in self._desk.groups()}
            found = self._groups.get(number)
            if found is None:
                raise GroupNotFound(f"there is no group number {number}: it was removed")
        return found

    # ------------------------------------------------------------------------------- puts

    def _put(self, session: Session, request: frames.Put) -> None:
        n = request.n
        session.seen(request.seen)
        known = session.numbers.known.get(n)
        if known is not None:
            self.answer(session, _stored(n, known))
            return
        if session.is_open(n):
            return
        puts = self._puts
        if puts is None:
            puts = self._puts = numbered.NumberedPuts(self._desk)
            self._loop.call_soon(self._send_puts)
        try:
            queue = self.queue(request.queue)
            check_put(request)
            if queue.policy.max_length is not None:
                rows = [numbered.plain_row(request.kind, body) for body in request.bodies]
                as_rows = frames.PutRows(n, request.queue, rows, None, request.seen)
                self._start(self._put_bounded)(session, as_rows)
                return
            puts.add(session.numbers, n, queue, request.kind, request.bodies)
        except EmbedqError as error:
            self.answer(session, failed(n, error))
            return
        session.putting.add(n)
        self._putting.append((session, n))
        limits = self._desk.limits
        if puts.count >= limits.batch_messages or puts.size >= limits.group_max_bytes:
            self._send_puts()

    def _send_puts(self) -> None:
        """Commit what this turn of the loop has brought."""
        puts, putting = self._puts, self._putting
        self._puts, self._putting = None, []
        if puts is None or not putting:
            return
        committed: asyncio.Future[None] = self._loop.create_future()
        committed.add_done_callback(lambda _: self._put_done(puts, putting, puts.error))
        try:
            self._desk.writer.send(puts, lambda: self._bridge.answer(committed))
        except EmbedqError as refusal:
            self._put_done(puts, putting, refusal)

    def _put_done(
        self,
        puts: numbered.NumberedPuts,
        putting: Sequence[tuple[Session, int]],
        error: BaseException | None,
    ) -> None:
        for session, n in putting:
            session.putting.discard(n)
        if error is not None:
            for session, n in putting:
                self.answer(session, failed(n, error))
            return
        for (session, n), first in zip(putting, puts.firsts(), strict=True):
            self.answer(session, frames.Stored_(n, first))

    async def _put_bounded(self, session: Session, request: frames.PutRows) -> None:
        """Plain messages for a queue of bounded length: they wait for room as long as it takes."""
        seqs, _ = await self._store_rows(session, request)
        self.answer(session, frames.Stored_(request.n, seqs[0] if seqs else 0))

    async def _put_rows(self, session: Session, request: frames.PutRows) -> None:
        session.seen(request.seen)
        known = session.numbers.known.get(request.n)
        if known is not None:
            self.answer(session, _receipts(request.n, known))
            return
        for row in request.rows:
            check_row(row, self._desk.limits)
        seqs, again = await self._store_rows(session, request)
        self.answer(session, frames.Receipts(request.n, seqs, again), 64 + 9 * len(seqs))

    async def _store_rows(
        self, session: Session, request: frames.PutRows
    ) -> tuple[list[int], list[int]]:
        return await numbered.aput_rows(
            self._desk,
            self.queue(request.queue),
            request.rows,
            numbers=session.numbers,
            n=request.n,
            timeout=None if request.wait_ms is None else request.wait_ms / 1000,
            waiter=session.waiters.get(request.n),
        )

    # --------------------------------------------------------------------- claim and settle

    async def _exchange(self, session: Session, request: frames.Exchange) -> None:
        n = request.n
        session.seen(request.seen)
        earlier = session.remembered(n)
        found, taken = session.take(() if earlier is not None else request.endings)
        stale: list[int] = list(earlier) if isinstance(earlier, list) else []
        leases: list[Lease] = []
        try:
            pairs = self._pairs(request.endings, found, stale)
            if request.most > 0 and session.is_full:
                await self._settled(pairs, stale)
                pairs = []
                await session.room()
            if request.most > 0:
                leases = await self._claimed(session, request, pairs, stale)
            else:
                await self._settled(pairs, stale)
        except BaseException:
            session.kept(taken)
            raise
        session.dropped(taken)
        session.remember(n, stale)
        told, size = await self._hand_over(session, leases, request)
        while leases and not told and session.address is not None:
            # It does not read what it has asked for: that went to others.
            await session.room()
            leases = await self._claimed(session, request, (), stale)
            told, size = await self._hand_over(session, leases, request)
        self.answer(session, frames.Exchanged(n, told, sorted(stale)), size)

    @staticmethod
    def _pairs(
        endings: Sequence[frames.WireEnding], found: Sequence[Any], stale: list[int]
    ) -> list[tuple[int, Lease, Ending]]:
        pairs = []
        for position, held in enumerate(found):
            if held is None:
                stale.append(position)
            else:
                pairs.append((position, held.lease, from_wire(endings[position])))
        return pairs

    async def _settled(self, pairs: Sequence[tuple[int, Lease, Ending]], stale: list[int]) -> None:
        gone = await self._desk.asettle([(lease, ending) for _, lease, ending in pairs])
        stale += [position for position, lease, _ in pairs if lease in gone]

    async def _claimed(
        self,
        session: Session,
        request: frames.Exchange,
        pairs: Sequence[tuple[int, Lease, Ending]],
        stale: list[int],
    ) -> list[Lease]:
        desk, group = self._desk, self.group(request.group)
        most = min(request.most, desk.limits.batch_messages)
        if group.queue.large:
            most = min(most, _MOST_LARGE)
        done = await desk.aexchange(
            group,
            [(lease, ending) for _, lease, ending in pairs],
            most,
            lease_s=None if request.lease_ms is None else request.lease_ms / 1000,
            timeout=None if request.wait_ms is None else request.wait_ms / 1000,
            session=session.id,
            waiter=session.waiters.get(request.n),
        )
        if done.stale:
            stale += [position for position, lease, _ in pairs if lease in done.stale]
        return done.leases

    async def _hand_over(
        self, session: Session, leases: list[Lease], request: frames.Exchange
    ) -> tuple[list[frames.WireLease], int]:
        """Make what is sent of new leases; those that do not fit, or find nobody, go back."""
        told: list[frames.WireLease] = []
        size = 64
        back: list[Lease] = []
        desk, alive = self._desk, session.is_alive
        now, most = desk.monotonic(), desk.limits.batch_bytes
        reads = session.address is not None and not session.is_full
        ends_at, left = 0.0, 0
        for lease in leases:
            message = lease.message
            size += len(message.body) + len(message.headers or b"") + _ENVELOPE
            if not reads or (told and size > most):
                back.append(lease)
                continue
            if request.keep:
                desk.keep(lease, alive)
            if lease.deadline != ends_at:  # those of one claim end together
                ends_at = lease.deadline
                left = max(0, round((ends_at - now) * 1000))
            bound, suspect = lease.max_attempts, lease.is_suspect
            mark = session.add(lease, outside=request.outside)
            told.append(
                frames.WireLease(lease.counter, lease.attempt, mark, left, bound, suspect, message)
            )
        if back:
            await self._desk.asettle([(lease, RELEASED) for lease in back])
        return told, size

    # ---------------------------------------------------------------------- small requests

    def _cancel(self, session: Session, request: frames.Cancel) -> None:
        waiter = session.waiters.get(request.n)
        if waiter is not None:
            self._desk.cancel_wait(waiter)

    def _held(self, session: Session, token: frames.Token) -> Lease:
        held = session.find(token)
        if held is None:
            raise StaleLease(f"the lease of message {token.seq} no longer counts")
        return held.lease

    async def _extend(self, session: Session, request: frames.Extend) -> None:
        lease = self._held(session, request.token)
        seconds = max(0, request.ms) / 1000
        # Not here: it waits for the broker's lock, under which others sync.
        await self._loop.run_in_executor(None, self._desk.extend, lease, seconds)
        self.answer(session, frames.Done(request.n))

    def _keep(self, session: Session, request: frames.Keep) -> None:
        try:
            lease = self._held(session, request.token)
        except StaleLease:
            return  # it has no answer: Lost tells
        if request.on:
            self._desk.keep(lease, session.is_alive)
        else:
            self._desk.unkeep(lease)

    async def _bye(self, session: Session, request: frames.Bye) -> None:
        session.tasks.pop(request.n, None)  # the end of the session must not cancel this
        await self._leave(session)
        session.queue(frames.Done(request.n))
        self._flush(session)


def _stored(n: int, known: Answer) -> frames.Stored_:
    """Return the answer to a put that was done before."""
    first = known[0]
    return frames.Stored_(n, first if isinstance(first, int) else next(iter(first), 0))


def _receipts(n: int, known: Answer) -> frames.Receipts:
    """Return the answer to a put of rows that was done before."""
    first, second = known
    if isinstance(first, int) or isinstance(second, int):
        raise InvalidOption(f"request {n} was another one before")
    return frames.Receipts(n, first, second)
