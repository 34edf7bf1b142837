"""From what a program says about deliveries to their endings, one by one or many at once.

Knows: the checks of what is said, that deliveries of one call are settled in one commit.
Does not know: how endings are stored, who runs a handler.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from embedq.broker.endings import DONE, RELEASED, Ending, Rejected
from embedq.broker.leases import Lease
from embedq.clock import parse_duration
from embedq.errors import InvalidOption, shown
from embedq.lifecycle import Reason
from embedq.limits import LIMITS
from embedq.message import ErrorInfo
from embedq.policy import Duration

if TYPE_CHECKING:
    from embedq.broker.delivery import Delivery
    from embedq.broker.port import DeskPort

T = TypeVar("T")
_HOW: Final = ("ack", "nack", "reject", "release")


class Several(Generic[T]):
    """Deliveries of a queue that one call settles in the same way; checked when it is made.

    `pairs` is what to settle; `done` then says which of them no longer counted. Those that were
    settled before are among these, and are not settled again.
    """

    def __init__(
        self,
        desk: DeskPort,
        queue: str,
        deliveries: Iterable[Delivery[T]],
        how: str,
        delay: Duration | None,
        reason: str,
    ) -> None:
        if str(how) not in _HOW:
            raise InvalidOption(
                f"how={shown(how)} is no way to settle",
                hint=f"it is one of {', '.join(_HOW)}",
                argument="how",
            )
        rejection = rejected(reason, None)  # refuses a reason that is none, whatever is said
        if delay is not None:
            delay_seconds(delay)
        same: dict[str, Ending] = {"ack": DONE, "release": RELEASED, "reject": rejection}
        self._deliveries: list[Delivery[T]] = _checked(desk, queue, deliveries)
        self._endings: dict[Lease, Ending] = {}
        for delivery in self._deliveries:
            if delivery.ending is None:
                ending = same.get(how) or delivery._failed(delay, None)  # noqa: SLF001  # a nack
                self._endings[delivery.lease] = ending
        self.pairs: Sequence[tuple[Lease, Ending]] = list(self._endings.items())

    def done(self, stale: Sequence[Lease]) -> list[Delivery[T]]:
        """Note what was settled; return the deliveries that no longer counted."""
        missed = set(stale)
        left: list[Delivery[T]] = []
        for delivery in self._deliveries:
            ending = self._endings.get(delivery.lease)
            if ending is None or delivery.lease in missed or delivery.ending is not None:
                left.append(delivery)
            else:
                delivery.ending = ending
        return left


def _checked(desk: DeskPort, queue: str, deliveries: Any) -> list[Any]:  # noqa: ANN401  # whatever was passed
    from embedq.broker.delivery import Delivery  # noqa: PLC0415  # it uses what is here

    try:
        found = list(deliveries)
    except TypeError:
        raise InvalidOption(
            f"deliveries= takes several of queue {queue!r}, not {shown(deliveries)}",
            hint="pass what get_many returned, or [delivery]",
            argument="deliveries",
        ) from None
    for delivery in found:
        if isinstance(delivery, Delivery):
            # A lease means nothing to another broker: it would settle another message.
            same = delivery._desk is desk  # noqa: SLF001  # nobody else needs to ask
            what = f"of queue {delivery.queue!r}" if same else "of another broker"
        else:
            same, what = False, "none"
        if not same or delivery.queue != queue:
            raise InvalidOption(
                f"deliveries= takes deliveries of queue {queue!r}; {shown(delivery)} is {what}",
                hint="pass what get_many of this queue returned",
                argument="deliveries",
            )
    return list(dict.fromkeys(found))


def described(error: BaseException | str | None) -> ErrorInfo | None:
    """Return what is stored of an error. Raises InvalidOption for what is none."""
    if error is None:
        return None
    if isinstance(error, str):
        return ErrorInfo.capped("nack", error)
    if not isinstance(error, BaseException):
        raise InvalidOption(
            f"error={shown(error)} is neither an exception nor a text",
            hint="pass what was caught, or a sentence",
            argument="error",
        )
    return ErrorInfo.from_exception(error)


def rejected(reason: str, error: BaseException | str | None) -> Rejected:
    """Return the ending of a rejection. Raises InvalidOption for a reason that is no text."""
    if not isinstance(reason, str):
        raise InvalidOption(
            f"reason={shown(reason)} is not a text",
            hint="the exception goes into error=",
            argument="reason",
        )
    return Rejected(Reason.REJECTED, reason, described(error), "consumer")


def delay_seconds(delay: Duration) -> float:
    """Return a delay in seconds. Raises InvalidOption."""
    seconds = parse_duration(delay, "delay")
    if seconds > LIMITS.delay_max_s:
        raise InvalidOption(
            f"delay={seconds:g} seconds is more than {LIMITS.delay_max_s:g}", argument="delay"
        )
    return seconds


def lease_seconds(duration: Duration) -> float:
    """Return the length of a lease in seconds. Raises InvalidOption."""
    seconds = parse_duration(duration, "duration")
    if not LIMITS.lease_min_s <= seconds <= LIMITS.lease_max_s:
        raise InvalidOption(
            f"a lease of {seconds:g} seconds is not between {LIMITS.lease_min_s:g} and "
            f"{LIMITS.lease_max_s:g}",
            argument="duration",
        )
    return seconds
