"""Events of a client: its own, and the host's that somebody listens to."""

from __future__ import annotations

import pytest

from embedq.clock import SystemClock
from embedq.events import Notice
from embedq.ipc.hearing import RemoteEvents


@pytest.fixture
def asked() -> list[list[str]]:
    return []


@pytest.fixture
def events(asked: list[list[str]]):
    hub = RemoteEvents(SystemClock(), asked.append)
    yield hub
    hub.close()


def test_the_host_is_asked_for_what_somebody_listens_to(
    events: RemoteEvents, asked: list[list[str]]
) -> None:
    off = events.on("paused", print)
    events.on("dead", print)
    off()
    assert asked == [["paused"], ["dead", "paused"], ["dead"]]


def test_an_event_of_the_host_is_told_but_not_logged_or_counted_again(
    events: RemoteEvents, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Notice] = []
    events.on("dead", heard.append)
    events.hear(Notice("dead", 5.0, {"queue": "orders"}))
    events.flush()
    assert [(notice.name, notice.queue) for notice in heard] == [("dead", "orders")]
    assert (events.count("dead"), caplog.records) == (0, [])


def test_events_that_nobody_asked_for_or_knows_are_passed_over(events: RemoteEvents) -> None:
    heard: list[Notice] = []
    events.on("dead", heard.append)
    events.hear(Notice("paused", 5.0, {}))
    events.hear(Notice("of_a_later_release", 5.0, {}))
    events.flush()
    assert heard == []
