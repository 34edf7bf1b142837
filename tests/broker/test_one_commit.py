"""Calls that meet in one commit leave what one after the other could have left."""

import itertools
import threading

import pytest

from embedq.broker import bounds
from embedq.broker.desk import Desk
from embedq.broker.endings import DONE, RELEASED, Rejected
from embedq.broker.host import open_engine
from embedq.broker.purge import purge_group, purge_queue
from embedq.broker.removal import remove_group
from embedq.errors import EmbedqError
from embedq.message import draft
from embedq.policy import QueuePolicy
from embedq.storage.writer import Task

NAMES = ("ack", "exchange", "by_id", "purge_group", "purge", "remove", "drop", "reject", "release")


class World:
    """A queue of two groups that is full, with one message leased by one of them."""

    def __init__(self, path) -> None:
        self.desk = open_engine(path, upkeep=False)
        policy = QueuePolicy(max_length=4, when_full="drop_oldest")
        self.queue = self.desk.queue("q", policy)
        self.group = self.desk.group(self.queue, "a")
        self.other = self.desk.group(self.queue, "b", "beginning")
        self.desk.put_many(self.queue, [b"1", b"2", b"3", b"4"])
        (self.lease,) = self.desk.claim(self.group)

    def ack(self) -> object:
        return self.desk.settle([(self.lease, DONE)])

    def reject(self) -> object:
        return self.desk.settle([(self.lease, Rejected())])

    def release(self) -> object:
        return self.desk.settle([(self.lease, RELEASED)])

    def exchange(self) -> object:
        return self.desk.exchange(self.group, [(self.lease, DONE)], 9)

    def by_id(self) -> None:
        self.desk.settle_by_id(self.group, self.lease.seq)

    def purge_group(self) -> object:
        return purge_group(self.desk, self.group)

    def purge(self) -> object:
        return purge_queue(self.desk, self.queue)

    def remove(self) -> None:
        remove_group(self.desk, self.group)

    def drop(self) -> object:
        return bounds.put(self.desk, self.queue, [draft(b"5"), draft(b"6")])


def together(desk: Desk, *calls) -> None:
    """Let calls wait for the writer until all of them do, then let it go on."""

    class Gate(Task):
        def prepare(self):
            return ()

        def apply(self):
            entered.set()
            opened.wait(20)

    entered, opened = threading.Event(), threading.Event()
    desk.writer.send(Gate())
    entered.wait(20)

    def run(call) -> None:
        try:
            call()
        except EmbedqError as error:
            errors.append(error)

    errors: list[EmbedqError] = []
    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for number, thread in enumerate(threads, 1):
        thread.start()
        pause = threading.Event()
        for _ in range(400):
            # purge and the removal look at the queue first, and wait for the lock there
            if desk.writer._tasks.qsize() >= number or not thread.is_alive():
                break
            pause.wait(0.001)
    opened.set()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert {type(error).__name__ for error in errors} <= {"UnknownMessage", "GroupNotFound"}


def wrong_counts(world: World) -> list[str]:
    """Compare the counts in memory with what the store has."""
    desk, queue = world.desk, world.queue
    rows = desk.store.range(queue.id, 0, 100)
    wrong = []
    if queue.stored != len(rows):
        wrong.append(f"stored {queue.stored}, there are {len(rows)}")
    if queue.dead != len(desk.store.dead(queue.id, 0, 100)):
        wrong.append(f"dead {queue.dead}")
    for group in queue.groups:
        open_ = sum(group.id in desk.store.unsettled(row.seq) for row in rows)
        if group.waiting + len(group.leases) != open_:
            wrong.append(f"{group.name}: {group.waiting} + {len(group.leases)}, not {open_}")
    if queue.taken:
        wrong.append(f"taken {queue.taken}")
    return wrong


@pytest.mark.parametrize("names", list(itertools.product(NAMES, NAMES)), ids="-".join)
def test_two_calls_in_one_commit_keep_the_counts_right(tmp_path, names) -> None:
    world = World(tmp_path / "q.db")
    with world.desk as desk:
        together(desk, *[getattr(world, name) for name in names])
        assert wrong_counts(world) == []
        for group in list(world.queue.groups):
            while leases := desk.claim(group, 2):
                desk.settle([(lease, DONE) for lease in leases])
                assert wrong_counts(world) == []


def test_the_comparison_would_notice_a_count_that_drifts(tmp_path) -> None:
    world = World(tmp_path / "q.db")
    with world.desk:
        assert wrong_counts(world) == []
        world.queue.stored += 1
        world.group.settled += 1
        assert len(wrong_counts(world)) == 2
