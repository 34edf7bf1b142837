"""Readers from outside: what is held for them, for how long, and what they may ask of a host."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from embedq.broker import feeds
from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.broker.state import GroupState
from embedq.clock import VirtualClock
from embedq.errors import GroupNotFound, InvalidName, InvalidOption, MessagesGone, QueueNotFound
from embedq.events import Notice
from embedq.limits import LIMITS
from embedq.message import Draft
from embedq.policy import QueuePolicy
from embedq.storage.feed import Wanted

SMALL = dataclasses.replace(LIMITS, disk_watermark_bytes=0, ballast_bytes=0)
FOREVER = 1 << 62


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def open_desk(path: Path | str, clock: VirtualClock) -> Desk:
    return open_engine(path, durability="normal", clock=clock, limits=SMALL, upkeep=False)


@pytest.fixture(params=["memory", "file"])
def desk(request: pytest.FixtureRequest, clock: VirtualClock, tmp_path: Path) -> Iterator[Desk]:
    with open_desk(":memory:" if request.param == "memory" else tmp_path / "q.db", clock) as made:
        made.queue("orders")
        yield made


@pytest.fixture
def filed(clock: VirtualClock, tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path / "q.db", clock) as made:
        made.queue("orders")
        yield made


def put(desk: Desk, count: int) -> list[int]:
    return list(desk.put_many(desk.existing_queue("orders"), [b"body"] * count))


def position(desk: Desk, **options: Any) -> GroupState:
    desk.office.feed_register("orders", "spark", **options)
    return desk.existing_group(desk.existing_queue("orders"), "spark")


def wanted(desk: Desk, after: int = 0, **options: Any) -> Wanted:
    queue = desk.existing_queue("orders")
    return Wanted("messages", (queue.id,), after, FOREVER, ("seq", "body"), **options)


def heard(desk: Desk, name: str) -> list[Notice]:
    told: list[Notice] = []
    desk.events.on(name, told.append)
    return told


# ------------------------------------------------------------------------------ what is held


def test_what_consumers_have_settled_stays_until_the_reader_has_passed_it(desk: Desk) -> None:
    queue = desk.existing_queue("orders")
    group = desk.group(queue)
    spark = position(desk)
    seqs = put(desk, 4)
    desk.ack(*desk.claim(group, 3))
    assert (queue.stored, group.waiting, spark.waiting) == (4, 1, 4)
    desk.office.feed_commit("orders", "spark", seqs[1])
    assert (queue.stored, group.waiting, spark.waiting) == (2, 1, 2)
    desk.office.feed_commit("orders", "spark", seqs[0])  # an old one changes nothing
    desk.office.feed_commit("orders", "spark", seqs[3])
    assert (queue.stored, group.waiting, spark.waiting) == (1, 1, 0)
    desk.ack(*desk.claim(group))
    assert queue.stored == 0


def test_the_counts_of_a_position_are_exact_after_a_restart(
    clock: VirtualClock, tmp_path: Path
) -> None:
    for clean in (True, False):
        path = tmp_path / f"{clean}.db"
        desk = open_desk(path, clock)
        group = desk.group(desk.queue("orders"))
        position(desk, max_hold_s=60.0)
        seqs = put(desk, 5)
        desk.ack(*desk.claim(group, 4))
        desk.office.feed_commit("orders", "spark", seqs[1])
        if clean:
            desk.close()
        else:
            desk.writer.close()
            desk.store.close(clean=False)
        with open_desk(path, clock) as again:
            again.upkeep.count_when_due()
            again.upkeep.count()
            queue = again.existing_queue("orders")
            spark = again.existing_group(queue, "spark")
            assert (spark.floor, spark.hold_ms, spark.waiting) == (seqs[1], 60_000, 3)
            assert queue.stored == 3


def test_a_long_way_is_gone_in_parts_and_gaps_cost_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "STRETCH", 3)
    spark = position(desk)
    first = put(desk, 4)
    desk.put_many(desk.queue("other"), [b"x"] * 50)
    last = put(desk, 4)
    before = desk.writer.groups
    desk.office.feed_commit("orders", "spark", last[-1])
    assert desk.writer.groups - before <= 4
    assert (spark.floor, spark.waiting, spark.queue.stored) == (last[-1], 0, 0)
    assert first


def test_a_position_at_the_end_holds_only_what_comes(desk: Desk) -> None:
    put(desk, 2)
    group = desk.group(desk.existing_queue("orders"))
    spark = position(desk, start="end")
    put(desk, 1)
    assert spark.waiting == 1
    desk.ack(*desk.claim(group, 3))
    assert spark.queue.stored == 1


def test_a_retained_queue_keeps_what_was_read_for_its_time_and_what_was_not_for_longer(
    desk: Desk, clock: VirtualClock
) -> None:
    queue = desk.queue("orders", QueuePolicy(retain_ms=10_000))
    group = desk.group(queue)
    position(desk)
    seqs = put(desk, 3)
    desk.ack(*desk.claim(group, 3))
    clock.advance(20)
    desk.upkeep.round()
    assert queue.stored == 3
    desk.office.feed_commit("orders", "spark", seqs[1])
    desk.upkeep.round()
    assert queue.stored == 1


def test_a_retained_queue_that_only_readers_read_lets_go_by_age(
    desk: Desk, clock: VirtualClock
) -> None:
    queue = desk.queue("orders", QueuePolicy(retain_ms=10_000))
    spark = position(desk)
    put(desk, 2)
    clock.advance(5)
    seqs = put(desk, 2)
    desk.office.feed_commit("orders", "spark", seqs[0])
    clock.advance(6)
    desk.upkeep.round()
    assert (queue.stored, spark.waiting) == (2, 1)
    clock.advance(5)
    desk.upkeep.round()
    assert (queue.stored, spark.waiting) == (1, 1)  # one has not been read
    desk.office.feed_commit("orders", "spark", seqs[1])
    desk.upkeep.round()
    assert (queue.stored, spark.waiting) == (0, 0)


def test_messages_are_held_no_longer_than_was_said(desk: Desk, clock: VirtualClock) -> None:
    told = heard(desk, "let_go")
    spark = position(desk, max_hold_s=10.0)
    old = put(desk, 3)
    clock.advance(8)
    put(desk, 2)
    desk.upkeep.round()
    assert spark.waiting == 5
    clock.advance(3)
    desk.upkeep.round()
    assert (spark.floor, spark.waiting, spark.queue.stored) == (old[-1], 2, 2)
    assert desk.events.flush()
    assert [notice.fields for notice in told] == [
        {"queue": "orders", "group": "spark", "count": 3, "upto": old[-1]}
    ]
    position(desk, max_hold_s=None)  # the last call wins
    clock.advance(100)
    desk.upkeep.round()
    assert spark.waiting == 2


def test_a_message_that_is_too_late_for_consumers_is_still_there_for_the_reader(
    desk: Desk, clock: VirtualClock
) -> None:
    queue = desk.existing_queue("orders")
    group = desk.group(queue)
    spark = position(desk)
    (receipt,) = desk.put_drafts(queue, [Draft(b"x", expires_at_ms=desk.now_ms() + 5_000)])
    clock.advance(6)
    desk.upkeep.round()
    assert (queue.dead, group.waiting, spark.waiting, queue.stored) == (1, 0, 1, 1)
    desk.upkeep.round()
    assert queue.dead == 1
    desk.office.feed_commit("orders", "spark", receipt.seq)
    assert queue.stored == 0


def test_a_removed_position_holds_nothing_and_its_name_is_free(desk: Desk) -> None:
    queue = desk.existing_queue("orders")
    group = desk.group(queue)
    position(desk)
    put(desk, 2)
    desk.ack(*desk.claim(group, 2))
    assert queue.stored == 2
    desk.office.remove_group("orders", "spark")
    assert queue.stored == 0
    assert desk.group(queue, "spark").hold_ms is None


# --------------------------------------------------------------------- positions and consumers


def test_a_group_is_a_position_or_has_consumers_and_never_both(desk: Desk) -> None:
    queue = desk.existing_queue("orders")
    position(desk)
    with pytest.raises(InvalidOption, match="is the position of a reader"):
        desk.group(queue, "spark")
    desk.group(queue, "audit")
    with pytest.raises(InvalidOption, match="has consumers: no position"):
        desk.office.feed_register("orders", "audit")
    with pytest.raises(InvalidOption, match="who settle by themselves"):
        desk.office.feed_commit("orders", "audit", 0)


def test_the_first_consumers_begin_at_the_beginning_whoever_reads_already(desk: Desk) -> None:
    position(desk)
    seqs = put(desk, 3)
    group = desk.group(desk.existing_queue("orders"))
    assert [lease.seq for lease in desk.claim(group, 3)] == seqs


def test_wrong_names_and_places_are_told(desk: Desk) -> None:
    office = desk.office
    with pytest.raises(QueueNotFound):
        office.feed_register("nothing", "spark")
    with pytest.raises(InvalidName):
        office.feed_register("orders", "a\nb")
    with pytest.raises(InvalidOption, match="start='middle'"):
        office.feed_register("orders", "spark", "middle")
    with pytest.raises(GroupNotFound):
        office.feed_commit("orders", "spark", 0)


def test_a_position_cannot_be_moved_beyond_what_the_database_ever_gave_out(desk: Desk) -> None:
    position(desk)
    seqs = put(desk, 2)
    with pytest.raises(MessagesGone, match="it is older than what was read"):
        desk.office.feed_commit("orders", "spark", seqs[-1] + 1)
    assert put(desk, 1) == [seqs[-1] + 1]
    assert position(desk).waiting == 3


def test_purging_a_position_moves_it_to_the_end(desk: Desk) -> None:
    spark = position(desk)
    put(desk, 3)
    assert desk.office.purge("orders", "spark") == 3
    assert (spark.waiting, spark.queue.stored) == (0, 0)


# ------------------------------------------------------------------------------- what is read


def test_a_range_is_read_in_parts_until_its_end(filed: Desk) -> None:
    seqs = put(filed, 5)
    office = filed.office
    part = office.feed_part(wanted(filed, rows=3), [])
    assert (part.rows, part.reached) == (3, seqs[2])
    rest = office.feed_part(wanted(filed, after=part.reached), [])
    assert (rest.rows, rest.texts["body"]) == (2, b"bodybody")
    survey = office.feed_survey("messages")
    assert set(survey.queues.values()) == {"orders"}
    assert survey.extent.head == seqs[-1]
    queue = filed.existing_queue("orders").id
    assert office.feed_first_since("messages", [queue], 0) == seqs[0]
    assert office.feed_nth_after("messages", [queue], 0, 2) == seqs[1]


def test_what_was_let_go_is_missed_by_its_reader_and_by_no_other(filed: Desk) -> None:
    filed.group(filed.existing_queue("orders"))  # its messages stay: only the floor tells
    spark = position(filed)
    seqs = put(filed, 3)
    filed.office.feed_commit("orders", "spark", seqs[1])
    with pytest.raises(MessagesGone, match=f"up to {seqs[1]} were let go for group 'spark'"):
        filed.office.feed_part(wanted(filed, after=seqs[0]), [spark.id])
    assert filed.office.feed_part(wanted(filed, after=seqs[0]), []).rows == 2
    assert filed.office.feed_part(wanted(filed, after=seqs[1]), [spark.id]).rows == 1
    filed.office.remove_group("orders", "spark")
    with pytest.raises(MessagesGone, match="was removed"):
        filed.office.feed_part(wanted(filed, after=seqs[1]), [spark.id])


def test_one_answer_is_bounded_whatever_is_asked_for(
    filed: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "PART_ROWS", 2)
    put(filed, 5)
    assert filed.office.feed_part(wanted(filed, rows=1 << 40), []).rows == 2
    monkeypatch.setattr(feeds, "PART_ROWS", 100)
    monkeypatch.setattr(feeds, "PART_BYTES", 2_000)
    filed.put_many(filed.existing_queue("orders"), [b"x" * 900] * 9)
    part = filed.office.feed_part(wanted(filed, after=5, rows=100), [])
    assert 0 < part.rows < 9
    assert len(part.texts["body"]) < 2_000


def test_a_database_in_memory_has_no_feeds(clock: VirtualClock) -> None:
    with open_desk(":memory:", clock) as desk, pytest.raises(InvalidOption, match="in memory"):
        desk.office.feed_survey("messages")
