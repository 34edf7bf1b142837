"""Queues and groups are created when they are first named, and what they are told is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from embedq.broker.changes import NewGroup, NewQueue
from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.clock import VirtualClock
from embedq.errors import GroupNotFound, InvalidName, InvalidOption, QueueNotFound, StoreBusy
from embedq.policy import QueuePolicy

FEW = QueuePolicy(max_attempts=2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "q.db"


@pytest.fixture(params=["memory", "file"])
def desk(request, path: Path) -> Iterator[Desk]:
    where = ":memory:" if request.param == "memory" else path
    with open_engine(where, clock=VirtualClock(), upkeep=False) as opened:
        yield opened


def commits(desk: Desk) -> int:
    return desk.writer.groups


# -------------------------------------------------------------------------------- queues


def test_naming_a_queue_again_commits_nothing(desk: Desk) -> None:
    queue = desk.queue("orders")
    before = commits(desk)
    assert desk.queue("orders") is queue
    assert desk.queue("orders", QueuePolicy()) is queue
    assert desk.existing_queue("orders") is queue
    assert commits(desk) == before


def test_the_last_policy_that_is_given_wins_and_is_kept(path: Path) -> None:
    with open_engine(path, upkeep=False) as desk:
        queue = desk.queue("orders", FEW)
        assert desk.queue("orders", QueuePolicy(retain_ms=5)) is queue
        assert desk.queue("orders").policy == QueuePolicy(retain_ms=5)
    with open_engine(path, upkeep=False) as desk:
        assert desk.queue("orders").policy == QueuePolicy(retain_ms=5)


def test_a_change_of_settings_is_told_with_what_has_changed(desk: Desk) -> None:
    told: list[str] = []
    desk.events.on("*", lambda notice: told.append(notice.text))
    desk.queue("orders", FEW)
    desk.queue("orders", FEW.changed(retain_ms=1000, max_attempts=9))
    assert desk.events.flush()
    created, changed = told
    assert created == "queue 'orders' was created"
    assert changed.startswith("queue 'orders': an explicit declaration changed ")
    assert changed.endswith("max_attempts 2 -> 9, retain_ms None -> 1000")


def test_who_gives_no_policy_does_not_undo_that_of_the_one_who_was_quicker(desk: Desk) -> None:
    """Both find the queue missing; the one without a policy comes second."""
    second = NewQueue(desk, "orders", None)
    desk.queue("orders", FEW)
    before = commits(desk)
    desk.writer.run(second)
    assert desk.queue("orders").policy == FEW
    assert commits(desk) == before + 1  # an empty one
    assert desk.store.catalogue()[0][0].policy == FEW


def test_of_two_policies_given_at_once_the_later_one_wins(desk: Desk) -> None:
    second = NewQueue(desk, "orders", QueuePolicy(max_attempts=7))
    queue = desk.queue("orders", FEW)
    desk.writer.run(second)
    assert queue.policy.max_attempts == 7
    assert desk.existing_queue("orders") is queue


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 256])
def test_a_bad_name_creates_nothing(desk: Desk, name: str) -> None:
    with pytest.raises(InvalidName):
        desk.queue(name)
    queue = desk.queue("orders")
    with pytest.raises(InvalidName):
        desk.group(queue, name)
    assert list(desk.queues) == ["orders"]
    assert queue.groups == []


def test_a_queue_that_could_not_be_stored_does_not_exist(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(_batch: object) -> None:
        raise StoreBusy("somebody has the file")

    with monkeypatch.context() as patched:
        patched.setattr(desk.store, "commit", busy)
        with pytest.raises(StoreBusy):
            desk.queue("orders")
    assert desk.queues == {}
    assert desk.queue("orders").id > 0


def test_what_does_not_exist_is_named_with_what_to_do(desk: Desk) -> None:
    with pytest.raises(QueueNotFound, match="no queue 'lost'") as caught:
        desk.existing_queue("lost")
    assert "declare it" in str(caught.value)
    queue = desk.queue("orders")
    with pytest.raises(GroupNotFound, match="queue 'orders' has no group 'audit'"):
        desk.existing_group(queue, "audit")


# -------------------------------------------------------------------------------- groups


def claimed(desk: Desk, queue, name: str, start: str) -> list[int]:
    return [lease.seq for lease in desk.claim(desk.group(queue, name, start), 10)]


@pytest.mark.parametrize(
    ("start", "first", "later"),
    [("auto", [1, 2], []), ("beginning", [1, 2], [1, 2]), ("end", [], [])],
)
def test_a_group_starts_where_it_is_told_to(
    desk: Desk, start: str, first: list[int], later: list[int]
) -> None:
    queue = desk.queue("orders")
    desk.put_many(queue, [b"body"] * 2)
    assert claimed(desk, queue, "first", start) == first
    assert claimed(desk, queue, "second", start) == later
    (third,) = desk.put_many(queue, [b"body"])
    assert claimed(desk, queue, "first", start) == [third]
    assert claimed(desk, queue, "second", start) == [third]


def test_a_group_that_starts_at_the_end_has_settled_what_was_there(path: Path) -> None:
    with open_engine(path, upkeep=False) as desk:
        queue = desk.queue("orders")
        desk.put_many(queue, [b"body"] * 3)
        group = desk.group(queue, "late", "end")
        assert (group.settled, group.waiting, group.floor) == (3, 0, 3)
    with open_engine(path, upkeep=False) as desk:
        group = desk.group(desk.queue("orders"), "late")
        assert (group.settled, group.waiting, group.floor) == (3, 0, 3)


def test_the_end_is_where_the_queue_ends_when_the_group_is_stored(desk: Desk) -> None:
    queue = desk.queue("orders")
    task = NewGroup(desk, queue, "late", "end")
    desk.put_many(queue, [b"body"] * 2)  # after the call, before its commit
    desk.writer.run(task)
    assert desk.claim(desk.existing_group(queue, "late"), 9) == []


def test_a_group_that_two_name_at_once_is_one(desk: Desk) -> None:
    queue = desk.queue("orders")
    second = NewGroup(desk, queue, "default", "auto")
    group = desk.group(queue)
    desk.writer.run(second)
    assert queue.groups == [group]


def test_naming_a_group_again_changes_nothing_whatever_start_it_names(desk: Desk) -> None:
    queue = desk.queue("orders")
    group = desk.group(queue, "audit", "beginning")
    before = commits(desk)
    assert desk.group(queue, "audit", "end") is group
    assert commits(desk) == before


def test_an_unknown_start_is_refused(desk: Desk) -> None:
    queue = desk.queue("orders")
    with pytest.raises(InvalidOption, match=r"start='middle'[^$]*\"beginning\", \"end\" or"):
        desk.group(queue, start="middle")
    assert queue.groups == []


def test_groups_can_be_gone_through_while_queues_are_declared(desk: Desk) -> None:
    for name in ("a", "b"):
        desk.group(desk.queue(name))
    seen = []
    for group in desk.groups():
        seen.append((group.queue.name, group.name))
        desk.group(desk.queue(f"{group.queue.name}, too"))
        if len(group.queue.groups) == 1:
            desk.group(group.queue, "another")
    assert seen == [("a", "default"), ("b", "default")]


# --------------------------------------------------------------------------------- pause


def test_a_paused_queue_hands_out_nothing_and_takes_everything_else(path: Path) -> None:
    with open_engine(path, upkeep=False) as desk:
        queue = desk.queue("orders")
        group = desk.group(queue)
        desk.put_many(queue, [b"body"] * 2)
        (lease,) = desk.claim(group)
        desk.pause(queue)
        desk.put(queue, b"body")
        assert desk.claim(group, 9) == []
        desk.ack(lease)
    with open_engine(path, upkeep=False) as desk:
        queue = desk.queue("orders")
        group = desk.group(queue)
        assert queue.paused
        assert desk.claim(group, 9) == []
        desk.pause(queue, paused=False)
        assert [lease.seq for lease in desk.claim(group, 9)] == [2, 3]
    with open_engine(path, upkeep=False) as desk:
        assert not desk.queue("orders").paused


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        ([("late", "end")], [("late", 3)]),
        ([("late", "auto")], []),
        ([("late", "beginning"), ("later", "end")], []),
        ([("late", "end"), ("later", "end")], [("late", 3)]),
    ],
)
def test_messages_that_no_group_will_get_are_told(
    desk: Desk, groups: list[tuple[str, str]], told: list[tuple[str, int]]
) -> None:
    heard: list[tuple[object, object]] = []
    desk.events.on("stranded", lambda n: heard.append((n.fields["group"], n.fields["count"])))
    queue = desk.queue("orders")
    desk.put_many(queue, [b"1", b"2", b"3"])
    for name, start in groups:
        desk.group(queue, name, start)
        desk.put(queue, b"for this one")
    desk.events.flush()
    assert heard == told


def test_a_first_group_at_the_end_of_an_empty_queue_strands_nothing(desk: Desk) -> None:
    desk.put(desk.queue("other"), b"x")
    desk.group(desk.queue("orders"), "late", "end")
    assert desk.events.count("stranded") == 0


def test_a_group_from_the_beginning_gets_what_was_stranded(desk: Desk) -> None:
    queue = desk.queue("orders")
    desk.put_many(queue, [b"1", b"2"])
    desk.group(queue, "late", "end")
    assert [
        lease.message.body for lease in desk.claim(desk.group(queue, "all", "beginning"), 9)
    ] == [
        b"1",
        b"2",
    ]
