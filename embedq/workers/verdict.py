"""What the end of a handler means for its message: the pure part of running a delivery.

Knows: exceptions, Retry and Reject, the retry policy with its budgets, how errors are described.
Does not know: leases, threads, who ran the handler; nothing here has an effect.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from embedq.broker.endings import DONE, Ending, Failed, Rejected
from embedq.clock import parse_duration
from embedq.decisions import DeliveryOutcome, Reject, Retry
from embedq.errors import InvalidOption, InvalidPayload, shown
from embedq.lifecycle import Outcome, Reason
from embedq.limits import LIMITS
from embedq.message import ErrorInfo
from embedq.policy import RetryPolicy, Rng

#: Characters of a reason that are kept; the error beside it has the rest.
_DETAIL_CHARS: Final = 500
#: Who decided, as dead letters show it.
BY: Final = "consumer"


@dataclass(frozen=True, slots=True)
class Case:
    """The delivery that is being judged: which attempt of how many, and how old the message is.

    `max_attempts` 0 is endless; `age_s` is the time since the put, in seconds.
    """

    attempt: int
    max_attempts: int
    age_s: float


class Judge:
    """Applies one retry policy. `rng` draws the jitter."""

    def __init__(self, policy: RetryPolicy, rng: Rng | None = None) -> None:
        self.policy = policy
        self._rng = rng or random.SystemRandom()

    def returned(self, value: object, case: Case) -> Ending:
        """Judge what a handler returned: Retry and Reject decide, anything else is ignored."""
        if isinstance(value, DeliveryOutcome):
            return self._decided(value, case)
        if isinstance(value, type) and issubclass(value, DeliveryOutcome):
            return self._decided(value(), case)
        return DONE

    def raised(self, error: BaseException, case: Case) -> Ending:
        """Judge an exception that left a handler.

        SystemExit, KeyboardInterrupt and their kind are failures of the message like any other:
        a handler does not end the process it runs in.
        """
        decision = _decision_in(error)
        if decision is not None:
            return self._decided(decision, case)
        told = describe(error)
        gives_up = isinstance(error, Exception) and self.policy.gives_up(error)
        if gives_up:
            detail = f"{told.type} is not tried again: {told.message}"
            return Rejected(Reason.REJECTED, _cut(detail), told, BY)
        return self._again(told, case)

    def undecodable(self, error: InvalidPayload) -> Ending:
        """Judge a body that is not what the handler asks for: it never will be."""
        return Rejected(Reason.UNDECODABLE, _cut(error.message), describe(error), BY)

    def timed_out(self, seconds: float, case: Case) -> Ending:
        """Judge a handler that has run for longer than its timeout."""
        told = ErrorInfo.capped("Timeout", f"the handler ran for longer than {seconds:g} seconds")
        return replace(self._again(told, case), outcome=Outcome.TIMED_OUT)

    def _decided(self, decision: DeliveryOutcome, case: Case) -> Ending:
        told = _why(decision)
        if isinstance(decision, Reject):
            return Rejected(Reason.REJECTED, _cut(decision.reason), told, BY)
        delay = decision.delay if isinstance(decision, Retry) else None
        if delay is None:
            return self._again(told, case)
        try:
            seconds = check_delay(delay, "Retry(delay)")
        except InvalidOption as wrong:
            # The wish cannot be granted, the message must not suffer for it: the policy decides.
            return self._again(describe(wrong), case)
        return self._again(told, case, seconds)

    def _again(
        self, told: ErrorInfo | None, case: Case, delay_s: float | None = None
    ) -> Failed | Rejected:
        most = case.max_attempts
        if most and case.attempt >= most:
            detail = f"attempt {case.attempt} of {most} failed"
            return Rejected(Reason.MAX_ATTEMPTS, detail, told, BY)
        if self.policy.too_old(case.age_s):
            detail = (
                f"it failed {case.age_s:.0f} seconds after it was put, max_age is "
                f"{self.policy.max_age:g}"
            )
            return Rejected(Reason.AGE, detail, told, BY)
        if delay_s is None:
            delay_s = self.policy.delay(case.attempt, self._rng)
        return Failed(told, delay_s)


def _decision_in(error: BaseException) -> DeliveryOutcome | None:
    """Return the decision that was raised, also by tasks of a group if all of them decided."""
    if isinstance(error, DeliveryOutcome):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    found = [_decision_in(each) for each in error.exceptions]
    if None in found:
        return None
    return next((each for each in found if isinstance(each, Reject)), found[0])


def describe(error: BaseException) -> ErrorInfo:
    """Return a small ErrorInfo for any exception, whatever its own code does when asked."""
    try:
        return ErrorInfo.from_exception(error)
    except BaseException:  # noqa: BLE001 - its __str__ may raise even SystemExit
        return ErrorInfo.capped(type(error).__qualname__, "<its text cannot be made>")


def check_delay(delay: str | float | timedelta, what: str) -> float:
    """Return a delay in seconds. Raises InvalidOption, naming it as `what`."""
    seconds = parse_duration(delay, what)
    if seconds > LIMITS.delay_max_s:
        raise InvalidOption(
            f"{what}={shown(delay)} is more than {LIMITS.delay_max_s:g} seconds", argument=what
        )
    return seconds


def _why(decision: DeliveryOutcome) -> ErrorInfo | None:
    """Return what led to a decision: the exception it was raised from, or where it was raised."""
    cause = decision.__cause__ or decision.__context__
    if cause is not None:
        return describe(cause)
    return describe(decision) if decision.__traceback__ is not None else None


def _cut(text: object) -> str:
    try:
        whole = text if isinstance(text, str) else str(text)
    except BaseException:  # noqa: BLE001 - as in describe()
        whole = f"<a {type(text).__qualname__} without a text>"
    short = whole if len(whole) <= _DETAIL_CHARS else f"{whole[:_DETAIL_CHARS]}…"
    return short.encode("utf-8", "backslashreplace").decode()  # a lone surrogate is no text
