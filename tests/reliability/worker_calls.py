"""The calls of a program to an engine, each noted before it is made and after it was answered.

Knows: the engine's API, how a call becomes events of a history, the counts the engine tells.
Does not know: which calls to make, where notes go, what must be true of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count

from embedq.broker.engine import Engine
from embedq.broker.leases import Lease
from embedq.broker.moves import Claim
from embedq.broker.state import GroupState, QueueState
from embedq.broker.waiting import Waiter
from embedq.errors import EmbedqError
from embedq.message import ErrorInfo, draft
from tests.reliability.invariants_events import (
    Answer,
    Call,
    Delivered,
    Event,
    Opened,
    Put,
    Refusal,
    body,
    digest,
    tag_of,
)
from tests.reliability.invariants_file import Held, counts

Note = Callable[[Event], object]

_ERROR = ErrorInfo("ValueError", "the test said so")


class Calls:
    """Makes calls for any number of threads. `first` is the lowest tag and call id it uses."""

    def __init__(self, engine: Engine, note: Note, first: int = 1) -> None:
        self.engine = engine
        self.note = note
        self._tags = count(first)
        self._ids = count(first)
        note(Opened(engine.store.epoch))

    def _make(self, call: Call, act: Callable[[], Answer]) -> Answer | None:
        """Note, call, note. None: the engine refused, and the refusal is noted."""
        self.note(call)
        try:
            answer = act()
        except EmbedqError as error:
            self.note(Refusal(call.id, error.code))
            return None
        except BaseException as error:
            self.note(Refusal(call.id, type(error).__name__))
            raise
        self.note(answer)
        return answer

    def _new(self, size: int, **more: object) -> Put:
        return Put(next(self._tags), size, **more)  # type: ignore[arg-type]

    # -------------------------------------------------------------------------- puts

    def put(self, queue: QueueState, size: int) -> Answer | None:
        """Put one plain message."""
        put = self._new(size)
        call = Call(next(self._ids), "put", queue.name, puts=(put,))

        def act() -> Answer:
            return Answer(call.id, (self.engine.put(queue, body(put.tag, size)),))

        return self._make(call, act)

    def put_many(self, queue: QueueState, number: int, size: int) -> Answer | None:
        """Put plain messages in one transaction."""
        puts = tuple(self._new(size) for _ in range(number))
        call = Call(next(self._ids), "put", queue.name, puts=puts)

        def act() -> Answer:
            seqs = self.engine.put_many(queue, [body(put.tag, size) for put in puts])
            return Answer(call.id, tuple(seqs))

        return self._make(call, act)

    def put_drafts(
        self, queue: QueueState, wanted: Sequence[tuple[Put, int, int]]
    ) -> Answer | None:
        """Put messages of any kind: each a pattern for its Put, a priority, a delay in ms."""
        now = self.engine.now_ms()
        puts = []
        drafts = []
        for pattern, priority, delay in wanted:
            put = Put(next(self._tags), *_rest(pattern))
            puts.append(put)
            drafts.append(
                draft(
                    body(put.tag, put.size),
                    headers={"of": str(put.tag)},
                    priority=priority,
                    available_at_ms=now + delay if delay else None,
                    dedup_key=put.dedup,
                    ordering_key=put.key,
                    max_attempts=put.max_attempts,
                )
            )
        call = Call(next(self._ids), "put", queue.name, puts=tuple(puts))

        def act() -> Answer:
            receipts = self.engine.put_drafts(queue, drafts)
            seqs = tuple(receipt.seq for receipt in receipts)
            copies = tuple(at for at, receipt in enumerate(receipts) if receipt.duplicate)
            return Answer(call.id, seqs, copies)

        return self._make(call, act)

    # ------------------------------------------------------------------------ deliveries

    def claim(self, group: GroupState, most: int) -> list[Lease]:
        """Claim; an empty list also when the engine refused."""
        leases: list[Lease] = []
        call = Call(next(self._ids), "claim", group.queue.name, group.name, most=most)

        def act() -> Answer:
            leases.extend(self.engine.claim(group, most))
            return Answer(call.id, deliveries=tuple(map(_delivered, leases)))

        self._make(call, act)
        return leases

    def put_to_waiting(self, group: GroupState, number: int, size: int) -> list[Lease]:
        """Put messages while a claim waits for them; return what the put has handed to it."""
        engine, waiter = self.engine, Waiter()
        task = Claim(engine, group, number, 30.0, None, waiter=waiter)
        call = Call(next(self._ids), "claim", group.queue.name, group.name, most=number)
        self.note(call)
        engine.writer.run(task)
        if self.put_many(group.queue, number, size) is None:
            self.note(Refusal(call.id, "store_failed"))  # as far as anybody knows
            return []
        leases = waiter.handed()
        assert len(leases) == number, "the put did not meet the claim"
        self.note(Answer(call.id, deliveries=tuple(map(_delivered, leases))))
        return leases

    def ack(self, leases: Sequence[Lease]) -> Answer | None:
        """Ack together."""
        return self._settle("ack", leases, lambda: self.engine.ack(*leases))

    def release(self, leases: Sequence[Lease]) -> Answer | None:
        """Release together."""
        return self._settle("release", leases, lambda: self.engine.release(leases))

    def fail(self, lease: Lease, delay_s: float = 0.0) -> Answer | None:
        """Fail one attempt."""
        return self._settle(
            "fail", [lease], lambda: self.engine.fail(lease, _ERROR, delay_s=delay_s)
        )

    def reject(self, lease: Lease) -> Answer | None:
        """Dead-letter a message."""
        return self._settle("reject", [lease], lambda: self.engine.reject(lease, "no use"))

    def _settle(
        self, name: str, leases: Sequence[Lease], act: Callable[[], object]
    ) -> Answer | None:
        group = leases[0].group
        seqs = tuple(lease.seq for lease in leases)
        call = Call(next(self._ids), name, group.queue.name, group.name, seqs)

        def acted() -> Answer:
            act()
            return Answer(call.id)

        return self._make(call, acted)

    def cancel(self, queue: QueueState, seqs: Sequence[int]) -> Answer | None:
        """Cancel waiting messages."""
        call = Call(next(self._ids), "cancel", queue.name, seqs=tuple(seqs))
        return self._make(call, lambda: Answer(call.id, tuple(self.engine.cancel(queue, *seqs))))

    def drain(self, group: GroupState, most: int = 20) -> int:
        """Claim and ack until nothing is ready; return how many there were."""
        found = 0
        while leases := self.claim(group, most):
            found += len(leases)
            self.ack(leases)
        return found


def _rest(put: Put) -> tuple[int, str | None, str | None, int | None]:
    return (put.size, put.dedup, put.key, put.max_attempts)


def _delivered(lease: Lease) -> Delivered:
    found = lease.message.body
    return Delivered(lease.seq, lease.attempt, lease.counter, tag_of(found), digest(found))


def count_problems(engine: Engine, held: Held) -> Iterator[str]:
    """Compare what an engine counts with what the file holds (I1)."""
    for name, found in counts(held).items():
        queue = engine.queues[name]
        told = (queue.stored, queue.dead, {group.name: group.settled for group in queue.groups})
        if told != tuple(found):
            yield f"queue {name}: the engine counts {told}, the file holds {tuple(found)}"
        for group in queue.groups:
            waiting = found.stored - found.settled[group.name] - len(group.leases)
            if group.waiting != waiting:
                yield f"group {name}/{group.name}: {group.waiting} wait, not {waiting}"
