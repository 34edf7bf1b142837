"""The benchmark's row of cancellations: a request that is held back misses its goal."""

from __future__ import annotations


def test_a_request_that_is_held_back_for_longer_than_the_goal_misses_it(spark, tmp_path):
    from bench_spark_cancel import GOAL_S, Cancels, cancel_value

    (seconds,) = Cancels(spark, tmp_path, planted_s=GOAL_S).seconds(1, warm=0)
    assert cancel_value([seconds]).reached is False
