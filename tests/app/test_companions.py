"""What runs beside consumers starts and stops with them; what a command line changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from embedq import Broker, InvalidOption, UsageError


class Beside:
    def __init__(self, broker: Broker, *, fails: bool = False) -> None:
        self.story: list[str] = []
        self.broker = broker
        self.fails = fails

    def start(self) -> None:
        self.story.append(f"start {self.broker.running}")
        if self.fails:
            raise ValueError("no")

    def stop(self) -> None:
        self.broker.desk.office.stats()  # the file is still open
        self.story.append("stop")


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path / "q.db")


def test_it_starts_and_stops_with_the_consumers_each_time(broker):
    beside = Beside(broker)
    broker.accompany(beside)
    broker.queue("q").put("opening the file starts nothing")
    assert beside.story == []
    for _ in range(2):
        with broker:
            assert beside.story[-1] == "start True"
    assert beside.story == ["start True", "stop"] * 2


def test_one_that_comes_later_starts_at_once_and_is_stopped_too(broker):
    with broker:
        beside = Beside(broker)
        broker.accompany(beside)
        assert beside.story == ["start True"]
    assert beside.story[-1] == "stop"


def test_it_is_the_same_with_coroutines(broker):
    beside = Beside(broker)
    broker.accompany(beside)

    async def run() -> None:
        async with broker:
            assert beside.story == ["start True"]

    asyncio.run(run())
    assert beside.story == ["start True", "stop"]


def test_one_that_cannot_start_stops_the_rest(broker):
    first, second = Beside(broker), Beside(broker, fails=True)
    broker.accompany(first)
    broker.accompany(second)
    with pytest.raises(ValueError, match="no"):
        broker.start()
    assert not broker.running
    assert first.story == ["start True", "stop"]
    broker.stop()


def test_settings_can_be_overridden_until_the_file_is_open(broker, tmp_path):
    assert broker.settings.role == "auto"
    broker.override(role="host", path=tmp_path / "other.db")
    assert (broker.settings.role, broker.settings.path) == ("host", str(tmp_path / "other.db"))
    with pytest.raises(InvalidOption):
        broker.override(role="boss")
    with broker, pytest.raises(UsageError, match="open already"):
        broker.override(role="client")
    assert not (tmp_path / "q.db").exists()


def test_consumers_can_be_left_out_or_moved_into_processes(broker):
    for name in ("one", "two"):
        broker.queue(name).consumer(handle)
    broker.consumers.keep(["two"])
    broker.consumers.move_to_processes(3)
    (spec,) = broker.consumers
    assert (spec.queue, spec.in_process, spec.concurrency) == ("two", True, 3)
    broker.queue("three").consumer(lambda _: None)
    with pytest.raises(InvalidOption, match="lambda"):
        broker.consumers.move_to_processes(3)


def handle(_body: object) -> None:
    """Do nothing."""
