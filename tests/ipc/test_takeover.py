"""The next host: what clients of the last one hold is kept, and settled if they stay away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedq import QueuePolicy
from embedq.broker.host import open_engine
from embedq.ipc import frames
from embedq.ipc.place import sessions_left
from embedq.lifecycle import Outcome
from embedq.message import Draft
from tests.ipc.hosts import Client, Hosts, put, shown
from tests.ipc.peer import done, eventually


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    opened = Hosts(tmp_path / "q.db")
    opened.open()
    yield opened
    opened.close()


def outcomes(hosts: Hosts, seq: int) -> list[tuple[int, int | None]]:
    assert hosts.desk is not None
    return [(row.attempt, row.outcome) for row in hosts.desk.store.deliveries(seq)]


@pytest.mark.parametrize("loaded", [False, True], ids=["not yet met", "met before"])
def test_a_client_keeps_what_it_shows_to_the_next_host(hosts: Hosts, loaded: bool) -> None:  # noqa: FBT001
    seqs = put(hosts, 5)
    client = Client(hosts)
    leases = client.claim(4, 1)
    group = hosts.open()
    assert hosts.desk is not None
    if loaded:
        (last,) = hosts.desk.claim(group, 9)
        assert last.seq == seqs[4]
        assert sorted(group.leases) == seqs
        hosts.desk.release([last])
    held = [shown(group, lease, started=lease is leases[0]) for lease in leases[:3]]
    welcome = client.again([frames.Held(group.id, 4711, 1, started=True), *held])
    assert [position for position, _ in welcome.tokens] == [1, 2, 3]
    counters = dict(welcome.tokens)
    assert welcome.epoch == 2
    # Nobody else gets them; what was not shown is ready, and has cost nothing.
    other = hosts.desk.wait_claim(group, 9, 2)
    while len(other) < 2:
        other += hosts.desk.wait_claim(group, 9, 2)
    assert {lease.seq: (lease.attempt, lease.is_suspect) for lease in other} == {
        seqs[3]: (1, False),
        seqs[4]: (1, False),
    }
    endings = [
        frames.WireEnding(group.id, lease.message.seq, counters[position])
        for position, lease in enumerate(leases[:3], 1)
    ]
    assert client.peer.exchange(*endings).stale == []
    assert group.acked == 3


def test_a_settlement_that_is_repeated_to_the_next_host_counts(hosts: Hosts) -> None:
    put(hosts, 1)
    client = Client(hosts)
    (lease,) = client.claim(1, 1)
    group = hosts.open()
    assert hosts.desk is not None
    other = hosts.desk.queue("other")
    hosts.desk.put_many(other, [b"x"] * 5)
    others = hosts.desk.claim(hosts.desk.group(other), 5)
    ((_, counter),) = client.again([shown(group, lease, started=True)]).tokens
    assert counter == lease.counter
    assert counter not in {each.counter for each in others}
    assert client.peer.exchange(done(lease, group.id)).stale == []
    assert client.peer.exchange(done(lease, group.id)).stale == [0]
    assert group.acked == 1


def test_a_client_that_was_given_new_names_and_never_heard_them_keeps_what_it_holds(
    hosts: Hosts,
) -> None:
    put(hosts, 3)
    client = Client(hosts)
    leases = client.claim(3, 1)
    for _ in range(2):  # hosts that die between their commit and their welcome
        group = hosts.open()
        held = [shown(group, each, started=each is leases[0]) for each in leases]
        told, epoch = client.again(held).tokens, client.epoch
        assert len(told) == 3
        client.epoch = 1
        client.marks.renew(1, [(leases[0].mark, leases[0].counter)])
    assert epoch == 3
    group = hosts.open()
    client.again([shown(group, each, started=each is leases[0]) for each in leases])
    assert hosts.desk is not None
    assert hosts.desk.claim(group, 9) == []
    endings = [done(each, group.id) for each in leases]
    assert client.peer.exchange(*endings).stale == []
    assert group.acked == 3


def test_what_is_shown_again_and_again_is_kept_by_host_after_host(hosts: Hosts) -> None:
    put(hosts, 1)
    client = Client(hosts)
    (lease,) = client.claim(1, 1)
    counter = lease.counter
    for _ in range(3):
        group = hosts.open()
        held = frames.Held(group.id, lease.message.seq, counter, started=True, mark=lease.mark)
        ((_, counter),) = client.again([held]).tokens
    assert (
        client.peer.exchange(frames.WireEnding(group.id, lease.message.seq, counter)).stale == []
    )


def test_a_client_that_stays_away_loses_everything_by_its_marks(hosts: Hosts) -> None:
    first, second = put(hosts, 2)
    client = Client(hosts)
    client.claim(2, 1)
    opened = time.monotonic()
    group = hosts.open(grace_s=0.5)
    assert hosts.desk is not None
    found = hosts.desk.wait_claim(group, 9, 20)
    assert time.monotonic() - opened > 0.4
    while len(found) < 2:
        found += hosts.desk.wait_claim(group, 9, 20)
    assert {lease.seq: (lease.attempt, lease.is_suspect) for lease in found} == {
        first: (2, True),
        second: (1, False),
    }
    assert outcomes(hosts, first) == [(1, Outcome.CRASHED), (2, None)]


def test_a_client_that_is_dead_already_is_not_waited_for(hosts: Hosts) -> None:
    first, second = put(hosts, 2)
    client = Client(hosts)
    client.claim(2, 1)
    client.peer.close()
    client.marks.close(remove=False)
    group = hosts.open(grace_s=3_600)
    assert hosts.desk is not None
    leases: dict[int, tuple[int, bool]] = {}
    while len(leases) < 2:
        for lease in hosts.desk.wait_claim(group, 9, 20):
            leases[lease.seq] = (lease.attempt, lease.is_suspect)
    assert leases == {first: (2, True), second: (1, False)}
    eventually(lambda: not client.marks.path.exists())


def test_without_survivors_nothing_is_kept(hosts: Hosts) -> None:
    (first,) = put(hosts, 1)
    assert hosts.desk is not None
    hosts.desk.claim(hosts.group)
    group = hosts.open()
    (lease,) = hosts.desk.claim(group)
    assert (lease.seq, lease.attempt, lease.is_suspect) == (first, 2, True)


def test_a_key_stays_blocked_by_what_a_client_holds(hosts: Hosts) -> None:
    assert hosts.desk is not None
    hosts.desk.put_drafts(hosts.queue, [Draft(b"%d" % n, ordering_key="k") for n in range(2)])
    client = Client(hosts)
    (lease,) = client.claim(1, 1)
    group = hosts.open()
    assert hosts.desk.claim(group, 9) == []
    ((_, counter),) = client.again([shown(group, lease, started=True)]).tokens
    assert hosts.desk.claim(group, 9) == []
    client.peer.exchange(frames.WireEnding(group.id, lease.message.seq, counter))
    (next_one,) = hosts.desk.claim(group, 9)
    assert next_one.seq == lease.message.seq + 1


def test_a_token_that_is_not_its_own_gives_a_client_nothing(hosts: Hosts) -> None:
    put(hosts, 1)
    owner, thief = Client(hosts), Client(hosts)
    (lease,) = owner.claim(1, 1)
    group = hosts.open()
    assert thief.again([shown(group, lease)]).tokens == []
    assert [position for position, _ in owner.again([shown(group, lease)]).tokens] == [0]


def test_leases_that_are_kept_end_with_their_client(hosts: Hosts) -> None:
    (seq,) = put(hosts, 1)
    client = Client(hosts)
    (lease,) = client.claim(1, 1)
    group = hosts.open(grace_s=0.3)
    ((_, counter),) = client.again([shown(group, lease, started=True)]).tokens
    client.marks.start(lease.mark, counter)
    client.peer.close()
    assert hosts.desk is not None
    (again,) = hosts.desk.wait_claim(group, 9, 20)
    assert (again.seq, again.attempt) == (seq, 2)


def test_a_host_that_serves_nobody_takes_them_back_when_their_time_is_over(
    hosts: Hosts,
) -> None:
    put(hosts, 1)
    client = Client(hosts)
    client.claim(1, 1)
    assert hosts.desk is not None
    hosts.desk.queue("orders", QueuePolicy(max_attempts=9, lease_ms=300))
    hosts.server.stop()
    hosts.desk.writer.close()
    hosts.desk.upkeep.stop()
    hosts.desk.store.close(clean=False)
    hosts.desk = open_engine(hosts.path, survivors=sessions_left(hosts.path))
    queue = hosts.desk.existing_queue("orders")
    (lease,) = hosts.desk.wait_claim(hosts.desk.group(queue), 9, 20)
    assert lease.attempt == 2
