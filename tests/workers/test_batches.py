"""A batch: each message has its own outcome, the rest follows the handler's end."""

import pytest

from embedq.broker.endings import DONE, Ending, Failed, Rejected
from embedq.decisions import Reject, Retry
from embedq.errors import InvalidOption
from embedq.lifecycle import Reason
from embedq.policy import RetryPolicy
from embedq.workers.batches import Batch
from embedq.workers.verdict import Case, Judge

JUDGE = Judge(RetryPolicy(jitter="none"))


def ends(batch: Batch, end: object = None, *, raised: bool = False) -> list[object]:
    case = Case(1, 5, 0.0)

    def rest(_: int) -> Ending:
        if raised:
            assert isinstance(end, BaseException)
            return JUDGE.raised(end, case)
        return JUDGE.returned(end, case)

    return list(batch.endings([case] * len(batch), JUDGE, rest))


def test_a_batch_is_a_sequence_of_bodies():
    batch = Batch(["a", "b", "c"])
    assert (len(batch), batch[1], batch[-1], list(batch[1:])) == (3, "b", "c", ["b", "c"])
    assert list(batch) == ["a", "b", "c"]
    assert "b" in batch


def test_what_nothing_was_said_about_is_done_when_the_handler_returns():
    batch = Batch([1, 2, 3, 4])
    batch.retry(1, "5s")
    batch.reject(2, "broken")
    first, second, third, fourth = ends(batch)
    assert first is fourth is DONE
    assert isinstance(second, Failed)
    assert second.delay_s == 5.0
    assert isinstance(third, Rejected)
    assert (third.reason, third.detail) == (Reason.REJECTED, "broken")


def test_what_was_finished_before_an_exception_stays_finished():
    batch = Batch([1, 2, 3])
    batch.ack(0, 2)
    found = ends(batch, ValueError("x"), raised=True)
    assert found[0] is found[2] is DONE
    assert isinstance(found[1], Failed)


def test_a_failure_of_one_message_is_judged_like_an_exception():
    batch = Batch([1, 2])
    batch.fail(0, ValueError("this one"))
    found = ends(batch)
    assert isinstance(found[0], Failed)
    assert found[0].error is not None
    assert found[0].error.message == "this one"
    assert found[1] is DONE


def test_retry_and_reject_for_the_whole_batch_leave_alone_what_was_said():
    batch = Batch([1, 2])
    batch.ack(0)
    assert isinstance(ends(batch, Retry(3))[1], Failed)
    found = ends(batch, Reject("all"), raised=True)
    assert found[0] is DONE
    assert isinstance(found[1], Rejected)


@pytest.mark.parametrize("index", [-1, 2, True, "0"])
def test_an_index_outside_says_so(index: object):
    with pytest.raises(IndexError, match="no message"):
        Batch([1, 2]).ack(index)  # type: ignore[arg-type]


def ask(batch: Batch, verb: str, value: object) -> None:
    getattr(batch, verb)(0, value)


@pytest.mark.parametrize(
    ("verb", "value", "said"),
    [
        ("fail", "why", "error='why' is not an exception"),
        ("fail", ValueError, "error=.*ValueError.* is not an exception"),
        ("retry", "soon", "delay='soon'"),
        ("retry", -1, "delay=-1"),
        ("retry", "4000d", "delay='4000d' is more than"),
        ("reject", None, "reason=None is not a text"),
        ("reject", ValueError("no"), "reason=.* is not a text"),
    ],
)
def test_a_wrong_argument_is_named_where_it_is_given(verb: str, value: object, said: str):
    batch = Batch([1])
    with pytest.raises(InvalidOption, match=said) as caught:
        ask(batch, verb, value)
    assert caught.value.hint
    assert ends(batch) == [DONE]


def test_a_batch_made_by_hand_has_no_deliveries():
    with pytest.raises(InvalidOption, match="deliveries"):
        _ = Batch([1]).deliveries
