"""Counting from outside agrees with the host's own counts, whatever has happened."""

import random
from dataclasses import replace

import pytest

from embedq.broker.host import open_engine
from embedq.clock import VirtualClock
from embedq.limits import LIMITS
from embedq.message import draft
from embedq.policy import QueuePolicy
from embedq.storage import census
from embedq.storage.census import take
from embedq.storage.onlooker import Onlooker


def differences(desk, path, clock):
    """List where the census differs from what the engine knows."""
    counted = take(Onlooker(path, clock), alive=True)
    found = []
    for queue in counted.queues:
        state = desk.queues[queue.name]
        pairs = {
            "stored": (queue.stored, state.stored),
            "dead": (queue.dead, state.dead),
        }
        for group, known in zip(queue.groups, state.groups, strict=True):
            pairs[f"waiting {group.name}"] = (group.waiting, known.waiting)
            pairs[f"leased {group.name}"] = (group.leased, len(known.leases))
        found += [f"{queue.name} {what}: {a} {b}" for what, (a, b) in pairs.items() if a != b]
    return found, counted


def work(desk, rng, clock):
    """Do one random thing."""
    queue = desk.queue(rng.choice(["a", "b"]))
    if rng.random() < 0.4 or not queue.groups:
        due = desk.now_ms() + 5000 if rng.random() < 0.3 else None
        desk.put_drafts(queue, [draft(b"x", available_at_ms=due)] * rng.randint(1, 5))
    elif rng.random() < 0.1:
        clock.advance(6)
    else:
        group = rng.choice(queue.groups)
        for lease in desk.claim(group, rng.randint(1, 3)):
            end(desk, lease, rng.randrange(5))


def end(desk, lease, how):
    if how == 0:
        desk.ack(lease)
    elif how == 1:
        desk.reject(lease)
    elif how == 2:
        desk.fail(lease, delay_s=3)
    elif how == 3:
        desk.release([lease])


@pytest.mark.parametrize("span", [7, census.SPAN])
@pytest.mark.parametrize("seed", range(3))
def test_the_census_agrees_with_the_engine(tmp_path, monkeypatch, seed, span):
    monkeypatch.setattr(census, "SPAN", span)
    rng, clock, path = random.Random(seed), VirtualClock(), tmp_path / "q.db"
    limits = replace(LIMITS, ballast_bytes=0)
    with open_engine(path, upkeep=False, clock=clock, limits=limits) as desk:
        desk.group(desk.queue("a"))
        retained = desk.queue("b", QueuePolicy(retain_ms=10**9, max_attempts=3))
        for name in ("x", "y"):
            desk.group(retained, name, start="beginning")
        for _ in range(60):
            work(desk, rng, clock)
        found, counted = differences(desk, path, clock)
        assert found == []
        assert counted.exact  # nothing was written meanwhile
        stored = {queue.name: queue.stored for queue in counted.queues}
    closed = take(Onlooker(path, clock), alive=False)
    assert closed.noted
    assert {queue.name: queue.stored for queue in closed.queues} == stored
    assert all(group.leased == 0 for queue in closed.queues for group in queue.groups)


def test_the_comparison_notices_a_wrong_number(tmp_path):
    clock, path = VirtualClock(), tmp_path / "q.db"
    with open_engine(path, upkeep=False, clock=clock) as desk:
        queue = desk.queue("a")
        desk.group(queue)
        desk.put(queue, b"x")
        queue.stored += 1
        assert differences(desk, path, clock)[0] == ["a stored: 1 2", "a waiting default: 1 2"]
        queue.stored -= 1


def test_counts_of_several_steps_are_not_called_exact_when_the_host_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(census, "SPAN", 3)
    path = tmp_path / "q.db"
    with open_engine(path, upkeep=False) as desk:
        queue = desk.queue("a")
        desk.put_many(queue, [b"x"] * 10)
        onlooker = Onlooker(path)
        read = onlooker.read

        def busy(question):
            desk.put(queue, b"meanwhile")
            return read(question)

        monkeypatch.setattr(onlooker, "read", busy)
        counted = take(onlooker, alive=True)
    assert not counted.exact
    assert counted.queues[0].stored >= 10


def test_ages_are_those_of_the_oldest_message_a_group_is_not_done_with(tmp_path, monkeypatch):
    monkeypatch.setattr(census, "SPAN", 3)
    clock, path = VirtualClock(), tmp_path / "q.db"
    with open_engine(path, upkeep=False, clock=clock) as desk:
        queue, other = desk.queue("a"), desk.queue("b")
        groups = [desk.group(queue, name, start="beginning") for name in ("x", "y")]
        first = desk.now_ms()
        desk.put(queue, b"1")
        desk.put_many(other, [b"between"] * 20)
        clock.advance(10)
        desk.put(queue, b"2")
        desk.ack(*desk.claim(groups[0], 1))
        (a, b) = take(Onlooker(path, clock), alive=True).queues
    assert [group.oldest_at for group in a.groups] == [first + 10_000, first]
    assert a.oldest_at == first
    assert b.oldest_at == first


def test_delayed_and_retried_messages_are_counted_until_they_are_due(tmp_path):
    clock, path = VirtualClock(), tmp_path / "q.db"
    with open_engine(path, upkeep=False, clock=clock) as desk:
        queue = desk.queue("a")
        group = desk.group(queue)
        desk.put(queue, b"retried")
        desk.fail(desk.claim(group)[0], delay_s=5)
        desk.put_drafts(queue, [draft(b"delayed", available_at_ms=desk.now_ms() + 9000)])

        def delayed():
            return take(Onlooker(path, clock), alive=True).queues[0].groups[0].delayed

        counts = [delayed()]
        for _ in range(2):
            clock.advance(6)
            counts.append(delayed())
    assert counts == [2, 1, 0]


@pytest.mark.parametrize("retain", [None, 10**9])
def test_messages_for_nobody_are_counted_and_nothing_else_is(tmp_path, retain):
    path = tmp_path / "q.db"

    def stranded(alive):
        return [queue.stranded for queue in take(Onlooker(path), alive=alive).queues]

    with open_engine(path, upkeep=False) as desk:
        queue, other = desk.queue("q", QueuePolicy(retain_ms=retain)), desk.queue("other")
        desk.put_many(queue, [b"lost"] * 5)
        desk.group(other)
        assert stranded(alive=True) == [0, 0]
        group = desk.group(queue, "late", start="end")
        desk.put_many(queue, [b"x"] * 3)
        desk.put_many(other, [b"x"] * 3)
        desk.ack(*desk.claim(group, 2))
        assert stranded(alive=True) == [5, 0]
    assert stranded(alive=False) == [5, 0]
    with open_engine(path, upkeep=False) as desk:
        queue = desk.queue("q")
        everything = desk.group(queue, "everything", start="beginning")
        assert stranded(alive=True) == [0, 0]
        desk.ack(*desk.claim(everything, 5))
    assert stranded(alive=False) == [0, 0]


def test_stranded_messages_are_counted_up_to_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(census, "STRANDED_MAX", 3)
    with open_engine(tmp_path / "q.db", upkeep=False) as desk:
        queue = desk.queue("q")
        desk.put_many(queue, [b"lost"] * 5)
        desk.group(queue, "late", start="end")
        assert take(Onlooker(tmp_path / "q.db"), alive=True).queues[0].stranded == 3
