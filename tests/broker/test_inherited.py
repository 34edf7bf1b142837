"""Deliveries of an earlier host: kept for sessions that may live on, whenever they are met."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from embedq import QueuePolicy
from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.broker.inherited import GiveAnew, Inheritance, Inherited, Shown
from embedq.broker.moves import Change
from embedq.broker.state import GroupState
from embedq.storage.ops import OpenSession

TOKEN = bytes(range(16))
Reopen = Callable[..., tuple[Desk, GroupState]]


@pytest.fixture
def reopen(tmp_path: Path) -> Iterator[Reopen]:
    last: list[Desk] = []

    def opened(*survivors: bytes) -> tuple[Desk, GroupState]:
        for desk in last:  # it dies without a word
            desk.writer.close()
            desk.store.close(clean=False)
        last.clear()
        desk = open_engine(tmp_path / "q.db", upkeep=False, survivors=survivors)
        last.append(desk)
        return desk, desk.group(desk.queue("q", QueuePolicy(max_attempts=9)))

    yield opened
    last[0].close()


def session_of(desk: Desk, token: bytes = TOKEN) -> int:
    op = OpenSession("client", desk.now_ms(), token)
    desk.writer.run(Change([op]))
    return op.id


def held_by_a_client(reopen: Reopen, count: int = 1) -> tuple[int, list[Shown]]:
    """Let a client of the first host hold messages; return its session, and what it can show."""
    desk, group = reopen()
    session = session_of(desk)
    desk.put_many(group.queue, [b"%d" % n for n in range(count + 1)])
    leases = desk.claim(group, count, session=session)
    return session, [Shown(group.id, lease.seq, lease.counter) for lease in leases]


def give_anew(desk: Desk, session: int, shown: list[Shown], epoch: int = 1) -> GiveAnew:
    heirs = desk.inheritance or Inheritance({})
    task = GiveAnew(desk, heirs, session, epoch, shown)
    desk.writer.run(task)
    return task


def test_what_a_survivor_holds_is_met_once_and_told(reopen: Reopen) -> None:
    session, shown = held_by_a_client(reopen, 2)
    desk, group = reopen(TOKEN)
    heard: list[Inherited] = []
    assert desk.inheritance is not None
    assert desk.inheritance.sessions == {session: TOKEN}
    assert desk.inheritance.listen(heard.append) == []
    (rest,) = desk.claim(group, 9)
    assert rest.seq == shown[-1].seq + 1
    assert [(each.session, each.epoch, each.counter) for each in heard] == [
        (session, 1, each.counter) for each in shown
    ]
    assert [each.lease.attempt for each in heard] == [1, 1]
    assert all(each.lease.is_held for each in heard)
    desk.ack(heard[0].lease)
    desk.release([heard[1].lease])
    (again,) = desk.claim(group, 9)
    assert (again.seq, again.attempt, again.is_suspect) == (shown[1].seq, 1, False)


def test_who_listens_late_hears_of_what_was_met_before(reopen: Reopen) -> None:
    _, shown = held_by_a_client(reopen)
    desk, group = reopen(TOKEN)
    desk.claim(group, 9)
    assert desk.inheritance is not None
    (met,) = desk.inheritance.listen(lambda _: None)
    assert met.counter == shown[0].counter


def test_a_session_that_nobody_named_is_not_waited_for(reopen: Reopen) -> None:
    _, shown = held_by_a_client(reopen)
    desk, group = reopen(bytes(16))
    leases = desk.claim(group, 9)
    assert [(each.seq, each.attempt, each.is_suspect) for each in leases] == [
        (shown[0].seq, 2, True),
        (shown[0].seq + 1, 1, False),
    ]


@pytest.mark.parametrize("met", [False, True])
def test_what_is_shown_counts_under_the_present_epoch(reopen: Reopen, *, met: bool) -> None:
    session, shown = held_by_a_client(reopen)
    desk, group = reopen(TOKEN)
    if met:
        desk.claim(group, 9)
    lease = give_anew(desk, session, shown).leases[0]
    row = desk.store.latest(group.id, lease.seq)
    assert row is not None
    assert (row.epoch, row.counter, row.attempt) == (2, lease.counter, 1)
    if not met:
        assert [each.seq for each in desk.claim(group, 9)] == [lease.seq + 1]
    desk.interrupted()  # who looks everything up again finds it, too
    assert lease.is_held
    desk.ack(lease)


def test_what_is_not_open_as_it_is_shown_gives_nothing(reopen: Reopen) -> None:
    session, (held,) = held_by_a_client(reopen)
    desk, _ = reopen(TOKEN)
    other = session_of(desk, bytes(16))
    for wrong in (
        (session, [held._replace(counter=held.counter + 1)], 1),
        (session, [held._replace(seq=held.seq + 1)], 1),
        (session, [held._replace(seq=4711)], 1),
        (session, [held._replace(group=4711)], 1),
        (session, [held], 2),
        (other, [held], 1),
    ):
        assert give_anew(desk, *wrong).leases == {}
    assert list(give_anew(desk, session, [held]).leases) == [0]
    assert give_anew(desk, session, [held]).leases == {}  # it has another counter now


def test_one_that_is_found_as_a_suspect_before_its_client_came_stays_one(reopen: Reopen) -> None:
    session, shown = held_by_a_client(reopen)
    desk, group = reopen()
    (suspect, *_) = desk.claim(group, 9)
    desk.release([suspect])
    assert give_anew(desk, session, shown).leases == {}
    (again,) = desk.claim(group, 9)
    assert (again.attempt, again.is_suspect) == (2, True)


def test_a_close_in_order_gives_back_what_nobody_took_up(reopen: Reopen, tmp_path: Path) -> None:
    _, shown = held_by_a_client(reopen)
    desk, group = reopen(TOKEN)
    desk.claim(group, 9)
    desk.close()
    with open_engine(tmp_path / "q.db", upkeep=False) as later:
        leases = later.claim(later.group(later.queue("q")), 9)
        assert [(each.seq, each.attempt) for each in leases] == [
            (shown[0].seq, 1),
            (shown[0].seq + 1, 1),
        ]
