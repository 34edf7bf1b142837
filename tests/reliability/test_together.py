"""Calls about the same message that meet in one group commit: exactly one of them counts."""

import itertools

import msgspec
import pytest

from embedq.broker.changes import Expire, SaveCounts
from embedq.broker.host import open_engine
from embedq.broker.moves import Change
from embedq.broker.settling import Timeouts
from embedq.clock import VirtualClock
from embedq.errors import StaleLease
from embedq.message import draft
from embedq.policy import QueuePolicy
from embedq.storage.task import Task, parts
from tests.reliability.invariants import Checker
from tests.reliability.invariants_events import Elapsed, Event, body
from tests.reliability.invariants_file import read
from tests.reliability.killing import memory_folder
from tests.reliability.worker_calls import Calls, count_problems
from tests.reliability.worker_crowd import together

pytestmark = pytest.mark.reliability

QUEUES = {
    "sole": (QueuePolicy(), ["default"]),
    "pair": (QueuePolicy(max_attempts=1), ["default", "other"]),
    "kept": (QueuePolicy(retain_ms=3_600_000), ["default"]),
}


class World:
    """One queue with a leased message, one that waits, and calls about both."""

    def __init__(self, path, kind):
        self.path = path
        self.clock = VirtualClock()
        self.engine = open_engine(path, clock=self.clock, upkeep=False)
        self.history: list[Event] = []
        self.calls = Calls(self.engine, self.history.append)
        policy, groups = QUEUES[kind]
        self.queue = self.engine.queue(kind, policy)
        self.group, *self.others = [self.engine.group(self.queue, name) for name in groups]
        self.calls.put_many(self.queue, 2, 10)
        (self.lease,) = self.calls.claim(self.group, 1)
        self.waiting = self.lease.seq + 1
        self.kept_ms = 3_600_000

    def ack(self):
        return self.calls.ack([self.lease])

    def fail(self):
        return self.calls.fail(self.lease)

    def reject(self):
        return self.calls.reject(self.lease)

    def release(self):
        return self.calls.release([self.lease])

    def claim(self):
        return self.calls.claim(self.group, 5)

    def cancel(self):
        return self.calls.cancel(self.queue, [self.lease.seq, self.waiting])

    def new_group(self):
        return self.engine.group(self.queue, "new")

    def retain(self):
        # In seconds that differ: a policy like the known one would commit nothing.
        self.kept_ms += 1000
        policy = msgspec.structs.replace(self.queue.policy, retain_ms=self.kept_ms)
        return self.engine.queue(self.queue.name, policy)

    def time_out(self):
        self.history.append(Elapsed())
        self.clock.advance(3600)
        self.engine.writer.run(Timeouts(self.engine, self.group, [self.lease]))

    def problems(self):
        checker = Checker({"pair": 1})
        for event in self.history:
            checker.feed(event)
        held = read(self.path)
        return [*checker.problems(held), *count_problems(self.engine, held)]

    def close(self):
        self.engine.close()


@pytest.fixture(params=QUEUES)
def world(tmp_path, request):
    with memory_folder(tmp_path) as folder:
        world = World(folder / "q.db", request.param)
        yield world
        world.close()


SETTLEMENTS = ("ack", "fail", "reject", "release")
CALLS = (*SETTLEMENTS, "claim", "cancel", "new_group", "retain", "time_out")
PAIRS = list(itertools.permutations(SETTLEMENTS, 2))


@pytest.mark.parametrize("names", list(itertools.product(CALLS, CALLS)), ids="-".join)
def test_two_calls_in_one_commit_leave_what_one_after_the_other_could(world, names):
    first, second = (getattr(world, name) for name in names)
    results = together(world.engine, first, second)
    assert [error for error in results if isinstance(error, BaseException)] == []
    assert world.problems() == []
    while world.calls.drain(world.group):
        assert world.problems() == []
    assert world.problems() == []


@pytest.mark.parametrize("names", PAIRS, ids="-".join)
def test_of_two_settlements_of_a_lease_the_first_counts(world, names):
    engine, lease = world.engine, world.lease
    calls = {
        "ack": lambda: engine.ack(lease),
        "fail": lambda: engine.fail(lease),
        "reject": lambda: engine.reject(lease),
        "release": lambda: engine.release([lease]),
    }
    first, second = together(engine, *(calls[name] for name in names))
    assert first is None
    assert isinstance(second, StaleLease)


@pytest.mark.parametrize("expire_first", [True, False])
def test_a_message_that_expires_while_it_is_claimed_is_dead_once(tmp_path, expire_first):
    clock = VirtualClock()
    with open_engine(tmp_path / "q.db", clock=clock, upkeep=False) as engine:
        queue = engine.queue("orders")
        group = engine.group(queue)
        engine.claim(group)  # so that what comes is ready in memory
        soon = engine.now_ms() + 1000
        engine.put_drafts(queue, [draft(body(1, 5), expires_at_ms=soon)])
        clock.advance(10)
        expire = Expire(engine, [(queue, 1)])
        calls = [lambda: engine.claim(group, 1), lambda: engine.writer.run(expire)]
        results = together(engine, *(reversed(calls) if expire_first else calls))
        assert results[expire_first] == []
        assert (queue.stored, queue.dead, group.waiting) == (0, 1, 0)
        assert list(count_problems(engine, read(tmp_path / "q.db"))) == []


@pytest.mark.parametrize("end", ["fail", "release"])
def test_a_floor_that_is_saved_beside_a_settlement_leaves_nothing_behind(world, end):
    engine, path = world.engine, world.path
    save = SaveCounts(engine, exact=False)
    together(engine, getattr(world, end), lambda: engine.writer.run(save))
    engine.store.close(clean=False)
    with open_engine(path, clock=world.clock, upkeep=False) as after:
        queue = after.queue(world.queue.name)
        delivered = after.claim(after.group(queue, world.group.name), 5)
        assert [lease.seq for lease in delivered] == sorted(
            [world.waiting] if (end, queue.name) == ("fail", "pair") else [1, world.waiting]
        )


def test_a_task_that_stays_alone_splits_a_group(tmp_path):
    class Alone(Change):
        alone = True

    class Social(Change):
        alone = False

    tasks: list[Task] = [
        kind([]) for kind in (Social, Social, Alone, Social, Alone, Alone, Social, Social)
    ]
    assert [len(part) for part in parts(tasks)] == [2, 1, 1, 1, 1, 2]
