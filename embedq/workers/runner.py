"""Run a handler for its messages and say how each of them ends.

Knows: decoding, the call, what was returned or raised, what a timeout or a drain changes.
Does not know: threads and loops, how messages are claimed, when endings are committed.
"""

from __future__ import annotations

import os
from _thread import allocate_lock
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import AsyncGeneratorType, CoroutineType, GeneratorType, TracebackType
from typing import Any, Final, Literal

from embedq.broker.delivery import Delivery
from embedq.broker.endings import DONE, RELEASED, Ending, Failed, Rejected
from embedq.broker.leases import Lease
from embedq.broker.port import DeskPort, GroupPort
from embedq.broker.redaction import hider
from embedq.errors import (
    EmbedqError,
    ForkedBroker,
    GroupNotFound,
    InvalidPayload,
    StorageError,
    StoreClosed,
)
from embedq.lifecycle import Outcome
from embedq.payload import decode
from embedq.policy import RetryPolicy, Rng
from embedq.workers.batches import Batch
from embedq.workers.forked import end_child
from embedq.workers.harness import SPARK
from embedq.workers.spec import ConsumerSpec
from embedq.workers.verdict import Case, Judge, describe

Why = Literal["timeout", "drain"]
Pairs = list[tuple[Lease, Ending]]

_TEXT_CHARS: Final = 200
#: Seconds until a message is tried again that we failed to run.
_DEFECT_S: Final = 5.0


class Run:
    """One call of a handler, from the claim to the endings of its messages.

    Whoever wins `take` settles the messages: the slot when the handler ends, or whoever lost
    patience with it.
    """

    __slots__ = (
        "_once",
        "aside",
        "batch",
        "deadline",
        "deliveries",
        "leases",
        "notice_s",
        "on_cancel",
        "why",
    )

    def __init__(self, leases: Sequence[Lease], deadline: float | None = None) -> None:
        self.leases = leases
        #: When it has lasted too long (monotonic seconds).
        self.deadline = deadline
        #: Why it is to end early, once it is.
        self.why: Why | None = None
        #: Messages that ended without the handler.
        self.aside: Pairs = []
        self.batch: Batch[Any] | None = None
        self.deliveries: Sequence[Delivery[Any]] = ()
        #: How to make a coroutine end early; a thread only has its token.
        self.on_cancel: Callable[[], object] | None = None
        #: Seconds that it has to end once it was told to; None: as all have.
        self.notice_s: float | None = None
        self._once = allocate_lock()

    def take(self) -> bool:
        """Be the one who settles. True for the first caller only."""
        return self._once.acquire(blocking=False)

    @property
    def taken(self) -> bool:
        """Whether somebody settles it or has settled it."""
        return self._once.locked()

    def cancel(self, why: Why) -> None:
        """Ask the handler to end early, and remember why: it decides what its end means."""
        self.why = why
        for delivery in self.deliveries:
            delivery.cancelled.set(why)
        if self.on_cancel is not None:
            self.on_cancel()


class Runner:
    """Runs the handler of one consumer. Safe to use from any thread."""

    def __init__(
        self, desk: DeskPort, group: GroupPort, spec: ConsumerSpec, rng: Rng | None = None
    ) -> None:
        self.desk = desk
        self.group = group
        self.spec = spec
        self.judge = Judge(spec.retry or RetryPolicy(), rng)
        self._type = spec.body_type
        self._call = spec.signature.call
        self._harness = spec.harness
        self._wants_delivery = spec.signature.wants_delivery
        self._pid = os.getpid()

    # --------------------------------------------------------------------------- the call

    def run(self, run: Run) -> Pairs:
        """Call a `def` handler for one message and return how it ended."""
        arguments = self.open(run)
        if arguments is None:
            return run.aside
        if self._harness is not None:
            return self._harness.call(self, run, lambda: self._call(*arguments))
        try:
            value = self._call(*arguments)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its message's
            return self.raised(run, error)
        return self.returned(run, value)

    def awaitable(self, arguments: tuple[Any, Any]) -> Any:  # noqa: ANN401 - what it returns
        """Call an `async def` handler: what comes back is to be awaited."""
        return self._call(*arguments)

    def open(self, run: Run) -> tuple[Any, Any] | None:
        """Decode the messages of a run; None: there is nothing to call the handler with."""
        if self.spec.batch is not None:
            return self._open_batch(run)
        (lease,) = run.leases
        delivery = self._delivery(lease) if self._wants_delivery else None
        try:
            if delivery is None or self.spec.signature.takes is None:
                body = None if self.spec.signature.takes is None else self._decoded(lease)
            else:
                body = delivery.body
        except BaseException as error:  # noqa: BLE001 - validators are user code, too
            run.aside = [(lease, self._undecoded(lease, error))]
            return None
        if delivery is not None:
            run.deliveries = (delivery,)
        return body, delivery

    def _open_batch(self, run: Run) -> tuple[Any, None] | None:
        bodies = []
        kept = []
        for lease in run.leases:
            try:
                bodies.append(self._decoded(lease))
                kept.append(lease)
            except BaseException as error:  # noqa: BLE001 - as above
                run.aside.append((lease, self._undecoded(lease, error)))
        run.leases = kept
        if not kept:
            return None

        def deliveries() -> Sequence[Delivery[Any]]:
            run.deliveries = [self._delivery(lease) for lease in kept]
            if run.why is not None:
                run.cancel(run.why)
            return run.deliveries

        run.batch = Batch(bodies, deliveries)
        return (bodies if self.spec.signature.takes == "bodies" else run.batch), None

    def _decoded(self, lease: Lease) -> object:
        message = lease.message
        return decode(message.kind, message.body, self._type)

    def _delivery(self, lease: Lease) -> Delivery[Any]:
        delivery = Delivery[Any](self.desk, lease, self._type)
        delivery.retry = self.judge.policy
        return delivery

    # --------------------------------------------------------------------------- its end

    def returned(self, run: Run, value: object) -> Pairs:
        """Return the endings of a run whose handler returned."""
        if value is None and run.batch is None and not run.deliveries:
            self._check_fork()
            return [(run.leases[0], DONE)]
        if value is None:
            return self._pairs(run, lambda _: DONE)
        unfinished = _unfinished(value)
        if unfinished is not None:
            return self.raised(run, _not_run(self.spec, unfinished))
        return self._pairs(run, lambda lease: self.judge.returned(value, self.case(lease)))

    def raised(self, run: Run, error: BaseException) -> Pairs:
        """Return the endings of a run whose handler raised."""
        _forget_our_frames(error)
        self._check_fork(error)
        if run.why == "drain":
            return self._pairs(run, lambda _: RELEASED)
        told = describe(error)
        # Hidden before it is cut: half a secret matches no pattern.
        text = f"{told.type}: {hider(self.desk.redact)(told.message)[:_TEXT_CHARS]}"
        self._tell_about(run, "handler_failed", attempt=_attempt(run), error=text)
        pairs = self._pairs(run, lambda lease: self.judge.raised(error, self.case(lease)))
        return [(lease, _timed_out(ending)) for lease, ending in pairs] if run.why else pairs

    def given_up(self, run: Run, why: Why) -> Pairs:
        """Return the endings of a run that nobody waits for any more."""
        if why == "drain":
            return self._pairs(run, lambda _: RELEASED)
        seconds = self.spec.timeout or 0.0
        return self._pairs(run, lambda lease: self.judge.timed_out(seconds, self.case(lease)))

    def defective(self, leases: Sequence[Lease], error: BaseException) -> Pairs:
        """Return the endings of messages that a defect of ours kept from being handled."""
        self.gone_wrong(RuntimeError(f"running a handler failed: {error!r}"[:_TEXT_CHARS]))
        return [(lease, Failed(describe(error), _DEFECT_S)) for lease in leases]

    def look_at_leases(self, run: Run) -> None:
        """Tell a handler whose message is no longer its own: purged, cancelled, settled by id."""
        for delivery in run.deliveries:
            if not delivery.settled and not delivery.lease.is_held:
                delivery.cancelled.set("lease_lost")

    @property
    def is_watched(self) -> bool:
        """Whether a running handler has to be looked at now and then."""
        spec = self.spec
        return spec.timeout is not None or self._wants_delivery or spec.batch is not None

    def timed_out(self, run: Run) -> None:
        """Tell that a handler has run for too long."""
        timeout_s = self.spec.timeout
        self._tell_about(run, "handler_timeout", attempt=_attempt(run), timeout_s=timeout_s)

    def stuck(self, run: Run, thread: str) -> None:
        """Tell that a handler does not come back."""
        self._tell_about(run, "stuck_slot", thread=thread)

    def tell(self, event: str, **fields: object) -> None:
        """Tell something about this consumer."""
        spec = self.spec
        self.desk.events.emit(
            event, times=1, queue=spec.queue, group=spec.group, consumer=spec.name, **fields
        )

    def _tell_about(self, run: Run, event: str, **fields: object) -> None:
        for lease in run.leases[:1]:
            self.tell(event, id=self.desk.ids.encode(lease.seq), seq=lease.seq, **fields)

    def gone_wrong(self, error: Exception) -> bool:
        """Tell what keeps a consumer from settling or claiming. True: trying again is of no use.

        A store or a broker that has been closed is the end, and no trouble; a group that an
        operator has removed is the end, too.
        """
        if isinstance(error, StoreClosed | ForkedBroker):
            return True
        told = error.message if isinstance(error, EmbedqError) else describe(error).message
        text = told[:_TEXT_CHARS] or repr(error)[:_TEXT_CHARS]
        self.tell("consumer_error", error=f"{type(error).__name__}: {text}")
        if isinstance(error, GroupNotFound):
            return True
        return isinstance(error, StorageError) and not error.retryable

    def _pairs(self, run: Run, rest: Callable[[Lease], Ending]) -> Pairs:
        """Pair the messages with their endings, without those the handler has settled itself."""
        self._check_fork()
        leases = run.leases
        if run.batch is None:
            endings = [rest(lease) for lease in leases]
        else:
            cases = [self.case(lease) for lease in leases]
            endings = run.batch.endings(cases, self.judge, lambda index: rest(leases[index]))
        pairs = list(zip(leases, endings, strict=True))
        if run.deliveries:
            settled = {d.lease for d in run.deliveries if d.settled}
            pairs = [pair for pair in pairs if pair[0] not in settled]
        return [*run.aside, *pairs]

    def case(self, lease: Lease) -> Case:
        """Return what the judge must know about a delivery."""
        age_ms = self.desk.now_ms() - lease.message.put_at
        return Case(lease.attempt, lease.max_attempts, age_ms / 1000)

    def _undecoded(self, lease: Lease, error: BaseException) -> Ending:
        self._check_fork()
        if isinstance(error, InvalidPayload):
            return self.judge.undecodable(error)
        _forget_our_frames(error)
        return self.judge.raised(error, self.case(lease))

    # -------------------------------------------------------------------------- the rest

    def _check_fork(self, error: BaseException | None = None) -> None:
        """End a child that a handler made by fork and that came back from it."""
        if os.getpid() != self._pid:
            end_child(error)


def released(pairs: Pairs) -> int:
    """Count the messages that are given back."""
    return sum(ending is RELEASED for _, ending in pairs)


def _attempt(run: Run) -> int:
    return run.leases[0].attempt if run.leases else 0


def _unfinished(value: object) -> str | None:
    """Say what a handler returned if its work is still to be done: it would be lost silently."""
    if isinstance(value, CoroutineType):
        value.close()  # else Python warns later, far from here
        return "a coroutine"
    if isinstance(value, GeneratorType | AsyncGeneratorType):
        return "a generator"
    return "something to await" if hasattr(type(value), "__await__") else None


def _not_run(spec: ConsumerSpec, what: str) -> TypeError:
    if what == "a generator":
        return TypeError(
            f"the handler {spec.name!r} returned a generator, and none of its code has run: "
            "call it in a loop, or remove the yield"
        )
    return TypeError(
        f"the handler {spec.name!r} returned {what}, which nobody awaits: await it, and declare "
        "the handler (and what is wrapped around it) with async def"
    )


def _timed_out(ending: Ending) -> Ending:
    if isinstance(ending, Failed | Rejected):
        return replace(ending, outcome=Outcome.TIMED_OUT)
    return ending


def _forget_our_frames(error: BaseException) -> None:
    """Let the traceback start in the handler: people look for their own code in it."""
    frames: TracebackType | None = error.__traceback__
    while frames is not None and _is_ours(frames):
        frames = frames.tb_next
    if frames is not None:
        error.__traceback__ = frames


def _is_ours(frames: TracebackType) -> bool:
    module = str(frames.tb_frame.f_globals.get("__name__", ""))
    return module.startswith(("embedq.workers.", SPARK))
