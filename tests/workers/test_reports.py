"""What a worker tells its application: it arrives, and nobody waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import msgspec
import pytest

from embedq.errors import InvalidOption
from embedq.workers.reports import BACKLOG, Note, Reports, WorkerEvents

Ends = tuple[Connection, Connection]


@pytest.fixture
def ends() -> Iterator[Ends]:
    theirs, ours = Pipe(duplex=False)
    yield theirs, ours
    theirs.close()
    ours.close()


def read(end: Connection) -> Note:
    assert end.poll(20)
    return msgspec.msgpack.decode(end.recv_bytes(), type=Note)


def test_an_event_is_passed_on_with_its_fields(ends: Ends) -> None:
    theirs, ours = ends
    reports = Reports(ours)
    events = WorkerEvents(reports)
    events.hide = lambda text: text.replace("secret", "[hidden]")
    error = ValueError("a secret")
    events.emit("handler_failed", queue="q", attempt=2, error=error)
    events.emit("acked", queue="q")  # only counted
    events.emit("paused", queue="q")
    first, second = read(theirs), read(theirs)
    fields = {"queue": "q", "attempt": 2, "error": "a [hidden]"}
    assert (first.what, first.text, first.fields) == ("event", "handler_failed", fields)
    assert second.text == "paused"
    reports.close(5)


def test_nobody_is_called_in_a_worker(ends: Ends) -> None:
    theirs, ours = ends
    reports = Reports(ours)
    events = WorkerEvents(reports)
    off = events.on("dead", lambda _: pytest.fail("it was called here"))
    events.emit("dead", queue="q")
    assert read(theirs).text == "dead"
    off()
    with pytest.raises(InvalidOption):
        events.on("ded", print)
    reports.close(5)


def test_an_application_that_does_not_read_delays_nobody(ends: Ends) -> None:
    _, ours = ends
    reports = Reports(ours)
    for _ in range(3 * BACKLOG):
        reports.tell(Note("event", "paused", fields={"queue": "q" * 500}))
    reports.close(0.1)
    assert reports.dropped > BACKLOG


def test_an_application_that_is_gone_ends_the_telling(ends: Ends) -> None:
    theirs, ours = ends
    theirs.close()
    reports = Reports(ours)
    reports.tell(Note("ready"))
    reports._thread.join(60)
    assert not reports._thread.is_alive()
    reports.tell(Note("ready"))  # harms nobody


def test_what_cannot_be_told_does_not_end_the_rest(ends: Ends) -> None:
    theirs, ours = ends
    reports = Reports(ours)
    reports.tell(Note("event", "paused", fields={"queue": "\ud800"}))
    reports.tell(Note("ready"))
    assert read(theirs).what == "ready"
    reports.close(5)
