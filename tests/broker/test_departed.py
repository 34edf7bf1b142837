"""Sessions that have ended leave when nothing names them, and when it is worth to look."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from embedq.broker import departed
from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.broker.moves import Change
from embedq.clock import VirtualClock
from embedq.policy import QueuePolicy
from embedq.storage.ops import CloseSession, OpenSession

FEW = 4
MINUTE_S = 61


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["memory", "file"])
def desk(request, clock, tmp_path, monkeypatch) -> Iterator[Desk]:
    monkeypatch.setattr(departed, "MANY", FEW)
    path = ":memory:" if request.param == "memory" else tmp_path / "q.db"
    with open_engine(path, durability="normal", clock=clock, upkeep=False) as opened:
        yield opened


def visit(desk: Desk, queue: str) -> int:
    """Let a client come, take a message, and go."""
    opened = OpenSession("client", desk.now_ms(), token=None)
    desk.writer.run(Change([opened]))
    state = desk.queue(queue)
    desk.put(state, b"x")
    desk.ack(*desk.claim(desk.group(state), session=opened.id))
    desk.writer.run(Change([CloseSession(opened.id)]))
    return opened.id


def rounds(desk: Desk, clock: VirtualClock, count: int) -> None:
    for _ in range(count):
        clock.advance(MINUTE_S)
        desk.upkeep.round()


def test_ended_sessions_leave_when_they_are_many_and_had_ended_the_last_time(desk, clock):
    visits = [visit(desk, "orders") for _ in range(FEW - 1)]
    rounds(desk, clock, 3)
    assert set(desk.store.session_names(visits)) == set(visits)  # a few may stay
    visits += [visit(desk, "orders") for _ in range(2 * FEW)]
    rounds(desk, clock, 1)
    assert set(desk.store.session_names(visits)) == set(visits)  # a claim may be on its way
    rounds(desk, clock, 1)
    assert desk.store.session_names([*visits, desk.session]) == {
        desk.session: desk.store.session_names([desk.session])[desk.session]
    }


def test_a_session_that_the_history_names_stays_as_long_as_that_does(desk, clock, monkeypatch):
    desk.queue("orders", QueuePolicy(retain_ms=600_000))
    visits = [visit(desk, "orders") for _ in range(2 * FEW)]
    rounds(desk, clock, 3)
    assert set(desk.store.session_names(visits)) == set(visits)
    with monkeypatch.context() as patched:
        patched.setattr(desk.store, "named_sessions", set)  # if it is asked again, they leave
        rounds(desk, clock, 3)
    assert set(desk.store.session_names(visits)) == set(visits)
    clock.advance(700)
    others = [visit(desk, "mail") for _ in range(FEW)]
    rounds(desk, clock, 2)
    assert desk.store.session_names([*visits, *others]) == {}
