"""Retry policies and queue settings.

Knows: the delays, the bounds of every setting, the stored form.
Does not know: who applies them.
"""

import dataclasses
import json
import pickle
import random
from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from embedq.errors import InvalidOption, StoreCorrupt
from embedq.policy import QueuePolicy, RetryPolicy


class Fixed:
    """Jitter that always draws the same number."""

    def __init__(self, value):
        self.value = value

    def random(self):
        return self.value


HIGHEST = Fixed(1.0)


def test_the_defaults_are_those_of_the_contract():
    policy = RetryPolicy()
    assert (policy.max_attempts, policy.base, policy.cap) == (5, 1.0, 600.0)
    assert (policy.factor, policy.jitter, policy.max_age) == (2.0, "full", None)
    assert (policy.retry_on, policy.give_up_on) == ((), ())


def test_every_spelling_of_a_duration_is_the_same_policy():
    assert RetryPolicy(base="2s", cap=timedelta(minutes=1), max_age="1d") == RetryPolicy(
        base=2, cap=60.0, max_age=86_400
    )


def test_delays_grow_up_to_the_cap():
    policy = RetryPolicy(base="1s", cap="10s", jitter="none")
    assert [policy.delay(n, HIGHEST) for n in range(1, 7)] == [1, 2, 4, 8, 10, 10]


def test_full_jitter_draws_from_zero_and_equal_jitter_from_the_upper_half():
    full, equal = RetryPolicy(base=4), RetryPolicy(base=4, jitter="equal")
    assert [full.delay(1, Fixed(x)) for x in (0, 0.5, 1)] == [0, 2, 4]
    assert [equal.delay(1, Fixed(x)) for x in (0, 0.5, 1)] == [2, 3, 4]


def test_endless_retries_never_overflow():
    policy = RetryPolicy(None, base=1, cap="1h", factor=100, jitter="none")
    assert policy.delay(10**6, HIGHEST) == 3600
    assert RetryPolicy(None, base=0, factor=100).delay(10**6, HIGHEST) == 0


@given(
    st.integers(1, 10**5),
    st.floats(0, 100),
    st.floats(1, 100),
    st.sampled_from(["full", "equal", "none"]),
    st.integers(),
)
def test_a_delay_is_between_zero_and_the_cap(attempt, base, factor, jitter, seed):
    policy = RetryPolicy(base=base, cap=100, factor=factor, jitter=jitter)
    assert 0 <= policy.delay(attempt, random.Random(seed)) <= 100


@pytest.mark.parametrize("attempt", [0, -1])
def test_the_first_attempt_is_number_one(attempt):
    with pytest.raises(InvalidOption, match="attempt"):
        RetryPolicy().delay(attempt, HIGHEST)


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 256}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        pytest.param({"max_attempts": 10**10_000}, "max_attempts", id="10000 digits"),
        ({"base": "soon"}, "base"),
        ({"base": "11m"}, "base"),
        ({"cap": "366d"}, "cap"),
        ({"cap": -1}, "cap"),
        ({"factor": 0.5}, "factor"),
        ({"factor": float("nan")}, "factor"),
        ({"factor": 101}, "factor"),
        ({"factor": "2"}, "factor"),
        ({"jitter": "some"}, "jitter"),
        ({"jitter": "x" * 1000}, "jitter"),
        ({"max_age": "never"}, "max_age"),
        ({"retry_on": ["ValueError"]}, "retry_on"),
        ({"retry_on": KeyboardInterrupt}, "retry_on"),
        ({"give_up_on": (ValueError, 5)}, "give_up_on"),
        ({"retry_on": FileNotFoundError, "give_up_on": OSError}, "retry_on"),
    ],
)
def test_a_bad_argument_is_named(options, argument):
    with pytest.raises(InvalidOption, match=f"^{argument}=") as caught:
        RetryPolicy(**options)
    assert len(str(caught.value)) < 250


def test_exceptions_decide_what_is_tried_again():
    policy = RetryPolicy(retry_on=(OSError, KeyError), give_up_on=FileNotFoundError)
    assert not policy.gives_up(ConnectionError())
    assert policy.gives_up(FileNotFoundError())
    assert policy.gives_up(ValueError())
    assert not RetryPolicy().gives_up(ValueError())
    assert RetryPolicy(give_up_on=(ValueError,)).gives_up(UnicodeError())


def test_age_ends_a_message_only_with_max_age():
    assert not RetryPolicy().too_old(1e12)
    assert RetryPolicy(max_age="1h").too_old(3601)
    assert not RetryPolicy(max_age="1h").too_old(3600)


def test_endless_is_stored_as_zero():
    assert RetryPolicy(None).stored_max_attempts == 0
    assert RetryPolicy(7).stored_max_attempts == 7


def test_a_policy_is_frozen_and_can_be_copied():
    policy = RetryPolicy(7, base=2, retry_on=OSError)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(policy, "base", 3)  # noqa: B010 - the type checker knows it, too
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert dataclasses.replace(policy, base=3) == RetryPolicy(7, base=3, retry_on=OSError)
    assert len({policy, RetryPolicy(7, base=2, retry_on=OSError)}) == 1


# --- queue settings ------------------------------------------------------------------------------


def test_the_defaults_of_a_queue_are_those_of_the_contract():
    assert json.loads(QueuePolicy().encode()) == {
        "max_attempts": 5,
        "max_crashes": 3,
        "retain_ms": None,
        "lease_ms": 30_000,
        "dedup_window_ms": 600_000,
        "max_length": None,
        "when_full": "block",
    }


policies = st.builds(
    QueuePolicy,
    max_attempts=st.integers(0, 255),
    max_crashes=st.integers(0, 255),
    retain_ms=st.none() | st.integers(0, 10**12),
    lease_ms=st.integers(100, 43_200_000),
    dedup_window_ms=st.integers(0, 10**10),
    max_length=st.none() | st.integers(1, 10**12),
    when_full=st.sampled_from(["block", "reject", "drop_oldest"]),
)


@given(policies)
def test_settings_survive_storage(policy):
    assert QueuePolicy.decode(policy.encode()) == policy
    assert QueuePolicy.decode(policy.encode().decode()) == policy


def test_settings_of_a_newer_release_are_left_out_and_missing_ones_get_their_default():
    stored = '{"max_attempts": 9, "colour": {"deep": [1]}}'
    assert QueuePolicy.decode(stored) == QueuePolicy(max_attempts=9)


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff\xfe",
        b'{"max_attempts": "many"}',
        b'{"max_attempts": 1.5}',
        b'{"lease_ms": 1}',
        b'{"when_full": "panic"}',
        b"[" * 100_000,
        b'{"x": ' + b"[" * 100_000,
    ],
)
def test_damaged_settings_are_corruption(stored):
    with pytest.raises(StoreCorrupt, match="settings of a queue"):
        QueuePolicy.decode(stored)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_attempts", -1),
        ("max_attempts", 256),
        ("max_attempts", None),
        ("max_crashes", -1),
        ("retain_ms", -1),
        ("retain_ms", 1.5),
        ("lease_ms", 99),
        ("lease_ms", 43_200_001),
        ("dedup_window_ms", -1),
        ("max_length", 0),
        ("max_length", True),
        ("when_full", "panic"),
        ("when_full", 5),
        ("when_full", []),
    ],
)
def test_a_bad_setting_is_named(name, value):
    with pytest.raises(InvalidOption, match=f"^{name}="):
        QueuePolicy(**{name: value})
    with pytest.raises(InvalidOption, match=f"^{name}="):
        QueuePolicy().changed(**{name: value})


def test_a_change_is_a_new_policy():
    policy = QueuePolicy()
    assert policy.changed(max_length=7).max_length == 7
    assert policy.max_length is None
    with pytest.raises(InvalidOption, match="no setting 'maxlength'"):
        policy.changed(maxlength=7)
