"""Many messages for one call of a handler, each with an outcome of its own.

Knows: the bodies in order, what the handler has said about each, what the end says about the rest.
Does not know: leases, how a batch is collected, threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from embedq.broker.endings import DONE, Ending
from embedq.decisions import Reject, Retry
from embedq.errors import InvalidOption, shown
from embedq.workers.verdict import Case, Judge, check_delay

if TYPE_CHECKING:
    from embedq.broker.delivery import Delivery

T_co = TypeVar("T_co", covariant=True)

_ACKED = "acked"
Mark = str | BaseException | None


class Batch(Sequence[T_co], Generic[T_co]):
    """The bodies of several messages, as a sequence; the message at each index has its outcome.

    Whatever the handler says nothing about follows its end: done when it returns, failed when it
    raises. What was said before an exception stands, so that finished work is not repeated.
    """

    __slots__ = ("_bodies", "_deliveries", "_made", "_marks")

    def __init__(
        self,
        bodies: Sequence[T_co],
        deliveries: Callable[[], Sequence[Delivery[T_co]]] | None = None,
    ) -> None:
        """Hold `bodies`; tests can make a batch of their own from them alone."""
        self._bodies = bodies
        self._deliveries = deliveries
        self._made: Sequence[Delivery[T_co]] | None = None
        self._marks: list[Mark] = [None] * len(bodies)

    def __len__(self) -> int:
        return len(self._bodies)

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T_co]: ...
    def __getitem__(self, index: int | slice) -> T_co | Sequence[T_co]:
        """Return one body, or several."""
        return self._bodies[index]

    def __iter__(self) -> Iterator[T_co]:
        return iter(self._bodies)

    def __repr__(self) -> str:
        open_ = self._marks.count(None)
        return f"<Batch of {len(self)}, {open_} without an outcome yet>"

    @property
    def deliveries(self) -> Sequence[Delivery[T_co]]:
        """The delivery of each message, for ids, headers, attempts and `cancelled`.

        Raises InvalidOption for a batch that was made without deliveries.
        """
        if self._made is None:
            if self._deliveries is None:
                raise InvalidOption(
                    "this batch was made from bodies alone and has no deliveries",
                    hint="only batches that a consumer gets have them",
                )
            self._made = self._deliveries()
        return self._made

    def ack(self, *indexes: int) -> None:
        """Say that these are done, even if the handler fails later. IndexError outside."""
        for index in indexes:
            self._mark(index, _ACKED)

    def retry(self, index: int, delay: str | float | timedelta | None = None) -> None:
        """Say that this one failed: again after `delay`, None leaves it to the retry policy."""
        if delay is not None:
            check_delay(delay, "delay")
        self._mark(index, Retry(delay))

    def fail(self, index: int, error: BaseException) -> None:
        """Say that this one failed with `error`: the retry policy decides, as if it was raised."""
        if not isinstance(error, BaseException):
            raise InvalidOption(
                f"error={shown(error)} is not an exception",
                hint="give an exception that was raised or made; batch.reject() takes a text",
                argument="error",
            )
        self._mark(index, error)

    def reject(self, index: int, reason: str = "") -> None:
        """Say that this one is to be dead-lettered now, for this reason."""
        if not isinstance(reason, str):
            raise InvalidOption(
                f"reason={shown(reason)} is not a text",
                hint="for an exception use batch.fail()",
                argument="reason",
            )
        self._mark(index, Reject(reason))

    def _mark(self, index: int, mark: Mark) -> None:
        if type(index) is not int or not 0 <= index < len(self._marks):
            raise IndexError(f"this batch has no message {shown(index)}: {len(self)} in all")
        self._marks[index] = mark

    def endings(
        self, cases: Sequence[Case], judge: Judge, rest: Callable[[int], Ending]
    ) -> list[Ending]:
        """Return the ending of each message; `rest(index)` for those nothing was said about."""
        found: list[Ending] = []
        for index, (mark, case) in enumerate(zip(self._marks, cases, strict=True)):
            if mark is None:
                found.append(rest(index))
            elif isinstance(mark, str):
                found.append(DONE)
            else:
                found.append(judge.raised(mark, case))
        return found
