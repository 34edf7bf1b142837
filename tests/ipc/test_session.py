"""What a host knows of a client: leases, marks, numbers, and what is unsent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from embedq.broker.desk import Desk
from embedq.broker.leases import Lease, counter_before
from embedq.broker.numbered import Numbers
from embedq.ipc import frames, session as module
from embedq.ipc.marks import Marks, Progress, word_of
from embedq.ipc.session import Session
from embedq.storage.memory import MemoryStore

EPOCH = 7


@pytest.fixture
def leases() -> list[Lease]:
    """Four leases of one group, with counters 1 to 4."""
    desk = Desk(MemoryStore())
    queue = desk.queue("q")
    group = desk.group(queue)
    desk.put_many(queue, [b"x"] * 4)
    return desk.claim(group, 4)


def made(*, places: int = 4, marks: Path | None = None) -> Session:
    path = None if marks is None else str(marks)
    hello = frames.Hello([1], bytes(16), "client", 4711, marks=path)
    return Session(hello, Numbers(3), places)


def ending(lease: Lease) -> frames.WireEnding:
    return frames.WireEnding(lease.group.id, lease.seq, lease.counter)


def test_places_are_given_out_once_and_again_when_their_lease_has_ended(
    leases: list[Lease],
) -> None:
    session = made(places=2)
    assert [session.add(lease) for lease in leases[:3]] == [0, 1, -1]
    session.dropped([leases[0].counter, leases[2].counter, 4711])
    assert session.add(leases[3]) == 0
    assert session.add(leases[2]) == -1


def test_a_lease_is_taken_once_and_by_its_whole_token(leases: list[Lease]) -> None:
    session = made()
    first, second, third, other = leases
    for lease in (first, second, third):
        session.add(lease)
    wrong = frames.WireEnding(second.group.id + 1, second.seq, second.counter)
    told = [ending(first), ending(first), wrong, ending(other)]
    found, taken = session.take(told)
    assert [None if held is None else held.lease for held in found] == [first, None, None, None]
    assert taken == [first.counter]
    assert session.take([ending(first)]) == ([None], [])
    session.kept(taken)  # it failed
    (held,), taken = session.take([ending(first)])
    assert held is not None
    session.dropped(taken)
    assert session.take([ending(first)]) == ([None], [])


def test_leases_that_others_ended_are_lost_but_not_those_that_are_being_settled(
    leases: list[Lease],
) -> None:
    session = made()
    for lease in leases:
        session.add(lease)
    session.take([ending(leases[0])])
    del leases[0].group.leases[leases[0].seq]
    del leases[1].group.leases[leases[1].seq]
    assert session.lost() == [leases[1].counter]
    assert session.lost() == []


def test_marks_tell_how_far_deliveries_have_come(leases: list[Lease], tmp_path: Path) -> None:
    marks = Marks.create(tmp_path, bytes(16), 4)
    marks.renew(EPOCH)
    session = made(marks=marks.path)
    for lease in leases:
        session.add(lease)
    marks.start(0, leases[0].counter)
    marks.end(1, leases[1].counter, Progress.DONE)
    marks.start(2, 4711)  # of an earlier lease
    assert session.progress(EPOCH) == {
        leases[0].counter: Progress.STARTED,
        leases[1].counter: Progress.DONE,
    }
    marks.close()


@pytest.mark.parametrize(
    ("head", "counts"), [(EPOCH, True), (0, True), (EPOCH - 1, False), (EPOCH + 1, False)]
)
def test_marks_count_for_the_epoch_they_were_written_in(
    leases: list[Lease], tmp_path: Path, head: int, *, counts: bool
) -> None:
    marks = Marks.create(tmp_path, bytes(16), 4)
    session = made(marks=marks.path)
    session.add(leases[0])
    marks.renew(head, [(0, leases[0].counter)])
    assert list(session.progress(EPOCH)) == [leases[0].counter] * counts
    marks.close()


def test_a_lease_of_an_earlier_host_is_found_by_what_that_host_called_it(
    leases: list[Lease], tmp_path: Path
) -> None:
    marks = Marks.create(tmp_path, bytes(16), 4)
    marks.renew(EPOCH - 1, [(3, 71)])
    session = made(marks=marks.path)
    for number, lease in enumerate(leases[:2]):
        session.inherit(lease, EPOCH - 1, 71 + number)
    session.inherit(leases[2], EPOCH - 2, 71)
    assert session.progress(EPOCH) == {leases[0].counter: Progress.STARTED}
    marks.close()


def test_a_name_that_a_client_died_without_writing_down_may_be_of_what_has_started(
    leases: list[Lease], tmp_path: Path
) -> None:
    marks = Marks.create(tmp_path, bytes(16), 4)
    marks.renew(EPOCH - 2, [(3, 71)])
    session = made(marks=marks.path)
    session.inherit(leases[0], EPOCH - 1, 5)  # what the host in between called it
    assert session.progress(EPOCH) == {leases[0].counter: Progress.STARTED}
    marks.close()


def test_a_name_that_was_kept_tells_what_was_noted_before_a_host_gave_it_anew(
    leases: list[Lease], tmp_path: Path
) -> None:
    marks = Marks.create(tmp_path, bytes(16), 4)
    first = counter_before(EPOCH - 2) + 1
    marks.renew(EPOCH - 2, [(0, word_of(first, Progress.DONE)), (1, first + 1)])
    session = made(marks=marks.path)
    for number, lease in enumerate(leases[:3]):
        session.inherit(lease, EPOCH - 1, first + number)
    done, runs, _ = leases[:3]
    assert session.progress(EPOCH) == {
        done.counter: Progress.DONE,
        runs.counter: Progress.STARTED,
    }
    marks.close()


def test_where_nobody_can_tell_deliveries_have_started(
    leases: list[Lease], tmp_path: Path
) -> None:
    for session in (made(), made(marks=tmp_path / "gone.marks")):
        session.add(leases[0])
        assert list(session.progress(EPOCH)) == [leases[0].counter]
    marks = Marks.create(tmp_path, bytes(16), 4)
    session = made(places=1, marks=marks.path)
    for lease in leases[:3]:
        session.add(lease)  # the first has a place
    session.known_started.add(leases[0].counter)
    assert len(session.progress(EPOCH)) == 3
    marks.close()


def test_a_lease_given_anew_keeps_its_place_and_answers_to_both_names(
    leases: list[Lease],
) -> None:
    session = made()
    lease = leases[0]
    session.give_anew(lease, frames.Held(lease.group.id, lease.seq, 99, started=True, mark=2))
    assert session.leases[lease.counter].mark == 2
    old = frames.Token(lease.group.id, lease.seq, 99)
    new = frames.Token(lease.group.id, lease.seq, lease.counter)
    assert session.find(old) is session.find(new) is not None
    assert session.find(frames.Token(lease.group.id, lease.seq + 1, 99)) is None
    assert [session.add(each) for each in leases[1:]] == [0, 1, 3]


def test_answers_are_remembered_until_they_were_seen() -> None:
    session = made()
    for n in (5, 1, 3):
        session.remember(n, [n])
    session.seen(3)
    assert [session.remembered(n) for n in (1, 3, 5)] == [None, None, [5]]
    session.seen(1)
    assert session.remembered(5) == [5]
    for n in range(10, 3_000):
        session.remember(n, [])
    assert session.remembered(10) is None
    assert session.remembered(2_999) == []


def test_answers_go_in_messages_of_a_bounded_size() -> None:
    session = made()
    for n in range(5):
        session.queue(frames.Done(n), 600_000)
    session.queue(frames.Done(5), 5 << 20)
    session.queue(frames.Done(6))
    sizes = []
    while message := session.next_message():
        sizes.append(len(message))
    assert sizes == [1, 1, 1, 1, 1, 1, 1]
    assert session.unsent_bytes == 0
    for n in range(2_500):
        session.queue(frames.Done(n))
    assert [len(session.next_message()) for _ in range(4)] == [1_000, 1_000, 500, 0]


def test_room_comes_when_the_client_has_read() -> None:
    session = made()

    async def run() -> None:
        await session.room()
        session.queue(frames.Done(1), module.UNSENT_BYTES + 1)
        waits = asyncio.create_task(session.room())
        await asyncio.sleep(0)
        assert not waits.done()
        session.next_message()
        await waits
        session.queue(frames.Done(1), module.UNSENT_BYTES + 1)
        waits = asyncio.create_task(session.room())
        await asyncio.sleep(0)
        session.end()
        await waits

    asyncio.run(run())
    assert not session.is_alive()
