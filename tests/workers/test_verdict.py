"""What a handler's end means, without running one."""

import pytest

from embedq.broker.endings import DONE, Failed, Rejected
from embedq.decisions import Reject, Retry
from embedq.errors import InvalidPayload
from embedq.lifecycle import Outcome, Reason
from embedq.limits import LIMITS
from embedq.policy import RetryPolicy
from embedq.workers.verdict import Case, Judge, describe

FIRST = Case(attempt=1, max_attempts=5, age_s=0.0)
LAST = Case(attempt=5, max_attempts=5, age_s=0.0)
ENDLESS = Case(attempt=1000, max_attempts=0, age_s=1e9)


class Half:
    def random(self) -> float:
        return 0.5


def judge(**policy) -> Judge:
    return Judge(RetryPolicy(**policy), Half())


class Mute(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


@pytest.mark.parametrize("value", [None, 0, "text", b"", object(), ValueError("x"), [Retry()]])
def test_any_other_value_that_is_returned_means_done(value: object):
    assert judge().returned(value, FIRST) is DONE


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1), KeyboardInterrupt(), Mute()])
def test_anything_raised_is_a_failure_of_the_message(error: BaseException):
    verdict = judge().raised(error, FIRST)
    assert isinstance(verdict, Failed)
    assert verdict.delay_s == 0.5
    assert verdict.error is not None
    assert type(error).__name__ in verdict.error.type


def test_the_last_attempt_is_the_last():
    verdict = judge().raised(ValueError("x"), LAST)
    assert isinstance(verdict, Rejected)
    assert verdict.reason is Reason.MAX_ATTEMPTS
    assert isinstance(judge().raised(ValueError("x"), ENDLESS), Failed)


def test_delays_grow_with_the_attempts():
    attempts = [Case(n, 0, 0.0) for n in range(1, 13)]
    found = [judge().raised(ValueError(), case) for case in attempts]
    delays = [verdict.delay_s for verdict in found if isinstance(verdict, Failed)]
    assert delays == [0.5 * min(600, 2**n) for n in range(12)]


def test_a_failure_past_max_age_is_the_last():
    old = Case(attempt=2, max_attempts=5, age_s=61.0)
    verdict = judge(max_age="1m").raised(ValueError("x"), old)
    assert isinstance(verdict, Rejected)
    assert verdict.reason is Reason.AGE
    assert "61 seconds" in verdict.detail


def test_what_is_given_up_on_is_dead_at_once_with_its_error():
    verdict = judge(give_up_on=KeyError).raised(KeyError("k"), FIRST)
    assert isinstance(verdict, Rejected)
    assert (verdict.reason, verdict.error and verdict.error.type) == (Reason.REJECTED, "KeyError")
    other = judge(retry_on=OSError).raised(KeyError("k"), FIRST)
    assert isinstance(other, Rejected)
    assert isinstance(judge(retry_on=OSError).raised(TimeoutError(), FIRST), Failed)


def test_retry_sets_the_delay_raised_or_returned():
    for verdict in (judge().raised(Retry("7s"), FIRST), judge().returned(Retry(7), FIRST)):
        assert isinstance(verdict, Failed)
        assert verdict.delay_s == 7.0
    for verdict in (judge().raised(Retry(), FIRST), judge().returned(Retry, FIRST)):
        assert isinstance(verdict, Failed)
        assert verdict.delay_s == 0.5


def test_retry_does_not_go_beyond_the_attempts_or_the_age():
    assert isinstance(judge().raised(Retry(1), LAST), Rejected)
    assert isinstance(judge(max_age=1).raised(Retry(1), Case(1, 5, 2.0)), Rejected)


@pytest.mark.parametrize("delay", ["soon", -1, float("nan"), 1e12, object()])
def test_a_retry_with_a_senseless_delay_falls_back_to_the_policy(delay: object):
    verdict = judge().raised(Retry(delay), FIRST)  # type: ignore[arg-type]
    assert isinstance(verdict, Failed)
    assert verdict.delay_s == 0.5
    assert verdict.error is not None
    assert "delay" in verdict.error.message


def test_reject_is_dead_with_its_reason_and_its_cause():
    rejection = Reject("no such article")
    rejection.__cause__ = KeyError("sku")
    verdict = judge().raised(rejection, FIRST)
    assert isinstance(verdict, Rejected)
    assert (verdict.reason, verdict.detail) == (Reason.REJECTED, "no such article")
    assert verdict.error is not None
    assert verdict.error.type == "KeyError"
    returned = judge().returned(Reject("plainly"), FIRST)
    assert isinstance(returned, Rejected)
    assert returned.error is None


@pytest.mark.parametrize("reason", [None, 3, Mute(), "x" * 50_000_000, "\ud800"])
def test_any_reason_becomes_a_short_text(reason: object):
    verdict = judge().raised(Reject(reason), FIRST)  # type: ignore[arg-type]
    assert isinstance(verdict, Rejected)
    assert len(verdict.detail.encode()) <= 510


def test_an_exception_of_50_megabytes_is_described_in_a_few():
    told = describe(ValueError("x" * 50_000_000))
    assert len(told.encode()) <= LIMITS.error_bytes


def test_an_undecodable_body_is_dead_at_once():
    verdict = judge().undecodable(InvalidPayload("the body of 3 bytes is not Order"))
    assert isinstance(verdict, Rejected)
    assert (verdict.reason, verdict.detail) == (
        Reason.UNDECODABLE,
        "the body of 3 bytes is not Order",
    )


def test_a_timeout_is_an_attempt_that_says_so():
    verdict = judge().timed_out(2.0, FIRST)
    assert isinstance(verdict, Failed)
    assert (verdict.outcome, verdict.error and verdict.error.type) == (
        Outcome.TIMED_OUT,
        "Timeout",
    )
    last = judge().timed_out(2.0, LAST)
    assert isinstance(last, Rejected)
    assert last.outcome is Outcome.TIMED_OUT


def test_a_thousand_failures_together_are_spread():
    drawn = Judge(RetryPolicy(base="10s"))
    delays = []
    for _ in range(1000):
        verdict = drawn.raised(ValueError(), FIRST)
        assert isinstance(verdict, Failed)
        delays.append(verdict.delay_s)
    tenths = [sum(1 for d in delays if n <= d < n + 1) for n in range(10)]
    assert sum(tenths) == 1000
    assert min(tenths) > 40


def test_a_decision_of_the_tasks_of_a_group_is_one():
    group = ExceptionGroup("tasks", [Retry(3), ExceptionGroup("inner", [Reject("no")])])
    verdict = judge().raised(group, FIRST)
    assert isinstance(verdict, Rejected)
    assert verdict.detail == "no"
    again = judge().raised(ExceptionGroup("tasks", [Retry(3)]), FIRST)
    assert isinstance(again, Failed)
    assert again.delay_s == 3.0
    mixed = judge().raised(ExceptionGroup("tasks", [Reject("no"), ValueError()]), FIRST)
    assert isinstance(mixed, Failed)
    assert mixed.error is not None
    assert mixed.error.type == "ExceptionGroup"
