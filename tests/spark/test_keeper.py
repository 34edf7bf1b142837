"""The keeper's patience with jobs that broke off, on a clock that each look at them moves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from embedq.clock import VirtualClock
from embedq.spark.keeper import END_S, Keeper, Progress


class BrokenJob:
    """A job that was cancelled, whose tasks end with the look of this number."""

    def __init__(self, clock: VirtualClock, last: float) -> None:
        self.clock = clock
        self.last = last
        self.looks: list[float] = []
        self.labels = SimpleNamespace(tag="tag")
        conf = SimpleNamespace(get=lambda *_: "0")
        self.context = SimpleNamespace(cancelJobsWithTag=lambda _: None, getConf=lambda: conf)

    def has_broken_off(self) -> bool:
        return True

    def look(self) -> Progress:
        self.looks.append(self.clock.monotonic())
        self.clock.advance(0.1)
        return Progress(active=int(len(self.looks) < self.last))


def settled(last: float) -> BrokenJob:
    clock = VirtualClock()
    job: Any = BrokenJob(clock, last)
    Keeper(clock).settle_down(job)
    return job


@pytest.mark.parametrize("last", [1, 4, 7])
def test_tasks_that_are_over_get_a_moment_for_their_workers_to_end(last):
    job = settled(last)
    over = job.looks[last - 1]
    assert 0.1 < job.looks[-1] - over < 0.4


def test_nothing_is_waited_for_longer_than_the_bound(monkeypatch):
    monkeypatch.setattr("embedq.spark.keeper._AGAIN_S", 0.002)
    job = settled(float("inf"))
    assert job.looks[-1] - job.looks[0] == pytest.approx(END_S, abs=0.2)
