"""Limits.

Knows: that they are frozen, documented and fit together.
Does not know: where they are enforced.
"""

import dataclasses

import pytest

from embedq.limits import LIMITS, Limits


def test_limits_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(LIMITS, "body_bytes", 1)  # noqa: B010 - the type checker knows it, too


def test_other_limits_are_another_value():
    small = dataclasses.replace(LIMITS, body_bytes=10)
    assert (small.body_bytes, LIMITS.body_bytes) == (10, 16 * 1024 * 1024)
    assert Limits() == LIMITS


def test_the_limits_fit_together():
    assert LIMITS.header_bytes <= LIMITS.headers_bytes
    assert LIMITS.body_bytes <= LIMITS.batch_bytes < LIMITS.wal_limit_bytes
    assert LIMITS.lease_min_s < LIMITS.lease_default_s < LIMITS.lease_max_s
    assert LIMITS.load_chunk <= LIMITS.head_max
    assert LIMITS.ballast_bytes < LIMITS.disk_watermark_bytes
    assert LIMITS.max_crashes < LIMITS.attempts_max
