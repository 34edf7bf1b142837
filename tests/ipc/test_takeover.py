"""The next host: what clients of the last one hold is kept, and settled if they stay away."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from embedq import QueuePolicy
from embedq.broker.desk import Desk
from embedq.broker.endings import DONE
from embedq.broker.host import open_engine
from embedq.broker.state import GroupState
from embedq.ipc import frames
from embedq.ipc.marks import Marks, Progress, word_of
from embedq.ipc.place import folder_of, make_folder, sessions_left
from embedq.ipc.server import Server
from embedq.lifecycle import Outcome
from embedq.message import Draft
from tests.ipc.peer import Peer, done, eventually


class Hosts:
    """One host after the other on the same file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stack = ExitStack()
        self.desk: Desk | None = None
        self.server: Server

    def open(self, *, serve: bool = True, grace_s: float = 1.0) -> GroupState:
        """Become the host, after the last one has died without a word."""
        if self.desk is not None:
            self.server.stop()
            self.desk.writer.close()
            self.desk.upkeep.stop()
            self.desk.store.close(clean=False)
        left = sessions_left(self.path)
        self.desk = open_engine(self.path, survivors=left)
        self.queue = self.desk.queue("orders", QueuePolicy(max_attempts=9))
        self.group = self.desk.group(self.queue)
        self.server = Server(self.desk, self.path, grace_s=grace_s)
        if serve:
            self.server.start()
        return self.group

    def close(self) -> None:
        assert self.desk is not None
        self.stack.close()
        self.server.stop()
        self.desk.close()


class Client:
    """A client of one host after the other, with marks."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.numbers = itertools.count(1)
        self.peer = Peer(hosts.server.endpoint, numbers=self.numbers)
        self.marks = Marks.create(make_folder(folder_of(hosts.path)), self.peer.token)
        hosts.stack.callback(self.close)
        self.epoch = 0
        self.hello()

    def hello(self, held: list[frames.Held] | None = None) -> frames.Welcome:
        welcome = self.peer.hello(epoch=self.epoch, marks=str(self.marks.path), held=held or [])
        self.epoch = welcome.epoch
        self.marks.renew(welcome.epoch)
        return welcome

    def claim(self, count: int, started: int) -> list[frames.WireLease]:
        found: list[frames.WireLease] = []
        while len(found) < count:
            found += self.peer.exchange(
                group=self.hosts.group.id, most=count - len(found), wait_ms=2_000, keep=True
            ).leases
        for lease in found[:started]:
            self.marks.start(lease.mark, lease.counter)
        return found

    def again(self, held: list[frames.Held]) -> frames.Welcome:
        token = self.peer.token
        self.peer.close()
        self.peer = Peer(self.hosts.server.endpoint, session=token, numbers=self.numbers)
        return self.hello(held)

    def close(self) -> None:
        self.peer.close()
        self.marks.close()


class DyingMarks:
    """The words of a file of marks, whose client dies after it has written some of them."""

    def __init__(self, words: memoryview, left: int) -> None:
        self.words = words
        self.left = left

    def __getitem__(self, place: int) -> int:
        return self.words[place]

    def __setitem__(self, place: int, word: int) -> None:
        self.left -= 1
        if self.left >= 0:
            self.words[place] = word

    @classmethod
    def writes(cls, marks: Marks, most: int, epoch: int, started: list[tuple[int, int]]) -> None:
        """Renew marks up to the death: no more than `most` words are written."""
        whole = marks._words
        marks._words = cls(whole, most)  # type: ignore[assignment]
        marks.renew(epoch, started)
        marks._words = whole


def shown(group: GroupState, lease: frames.WireLease, *, started: bool = False) -> frames.Held:
    seq = lease.message.seq
    return frames.Held(group.id, seq, lease.counter, started=started, mark=lease.mark, keep=True)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    opened = Hosts(tmp_path / "q.db")
    opened.open()
    yield opened
    opened.close()


def put(hosts: Hosts, count: int) -> list[int]:
    assert hosts.desk is not None
    return list(hosts.desk.put_many(hosts.queue, [b"%d" % n for n in range(count)]))


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
    hosts.desk.claim(hosts.desk.group(other), 5)  # so that counters differ from the last host's
    ((_, counter),) = client.again([shown(group, lease, started=True)]).tokens
    assert counter != lease.counter
    assert client.peer.exchange(done(lease, group.id)).stale == []
    assert client.peer.exchange(done(lease, group.id)).stale == [0]
    assert group.acked == 1


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
    found = hosts.desk.wait_claim(group, 9, 5)
    assert time.monotonic() - opened > 0.4
    while len(found) < 2:
        found += hosts.desk.wait_claim(group, 9, 5)
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
    opened = time.monotonic()
    group = hosts.open(grace_s=60)
    assert hosts.desk is not None
    leases: dict[int, tuple[int, bool]] = {}
    while len(leases) < 2:
        for lease in hosts.desk.wait_claim(group, 9, 5):
            leases[lease.seq] = (lease.attempt, lease.is_suspect)
    assert time.monotonic() - opened < 5
    assert leases == {first: (2, True), second: (1, False)}
    eventually(lambda: not client.marks.path.exists())


def noted(client: Client) -> dict[str, frames.WireLease]:
    """Claim four messages: one is done, one has failed, one runs, one waits."""
    done_, failed, runs, waits = client.claim(4, 3)
    client.marks.end(done_.mark, done_.counter, Progress.DONE)
    client.marks.end(failed.mark, failed.counter, Progress.FAILED)
    return {"done": done_, "failed": failed, "runs": runs, "waits": waits}


def come_again(hosts: Hosts, group: GroupState, count: int) -> dict[int, tuple[int, bool]]:
    """Return what is delivered again: seq, then its attempt and whether it is a suspect."""
    assert hosts.desk is not None
    found: dict[int, tuple[int, bool]] = {}
    while len(found) < count:
        leases = hosts.desk.wait_claim(group, 9, 5)
        assert leases, found
        found |= {lease.seq: (lease.attempt, lease.is_suspect) for lease in leases}
        hosts.desk.settle([(lease, DONE) for lease in leases])  # suspects come one at a time
    return found


def expected(leases: dict[str, frames.WireLease]) -> dict[int, tuple[int, bool]]:
    as_noted = {"failed": (2, False), "runs": (2, True), "waits": (1, False)}
    return {leases[what].message.seq: how for what, how in as_noted.items()}


def left(hosts: Hosts, leases: dict[str, frames.WireLease]) -> list[int]:
    """Return which of these messages are still there."""
    assert hosts.desk is not None
    found = hosts.desk.store.messages([lease.message.seq for lease in leases.values()])
    return [message.seq for message in found]


@pytest.mark.parametrize("between", [0, 2])
def test_what_a_client_noted_before_it_died_counts_for_the_host_that_reads_it(
    hosts: Hosts, between: int
) -> None:
    put(hosts, 4)
    client = Client(hosts)
    leases = noted(client)
    client.peer.close()
    client.marks.close(remove=False)  # as the kernel does, together with the host
    for _ in range(between):
        hosts.open(serve=False)  # dies before it has looked at anything
    group = hosts.open(grace_s=60)
    assert come_again(hosts, group, 3) == expected(leases)
    assert not left(hosts, leases)


def test_a_host_that_does_not_read_what_was_noted_would_be_noticed(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(hosts, 4)
    client = Client(hosts)
    leases = noted(client)
    client.peer.close()
    client.marks.close(remove=False)
    monkeypatch.setattr("embedq.ipc.session.read_all", lambda _: [])
    group = hosts.open(grace_s=60)
    assert come_again(hosts, group, 4) != expected(leases)


@pytest.mark.parametrize("renamed", [0, 1, 2, 3, 4, 5])
def test_a_client_that_dies_while_it_renames_what_it_noted_has_noted_it(
    hosts: Hosts, renamed: int
) -> None:
    put(hosts, 4)
    client = Client(hosts)
    leases = noted(client)
    group = hosts.open()
    held = [shown(group, lease, started=lease is not leases["waits"]) for lease in leases.values()]
    token = client.peer.token
    client.peer.close()
    client.peer = Peer(hosts.server.endpoint, session=token, numbers=client.numbers)
    welcome = client.peer.hello(epoch=client.epoch, marks=str(client.marks.path), held=held)
    counters = dict(welcome.tokens)
    how = [Progress.DONE, Progress.FAILED, Progress.STARTED]
    words = [(held[at].mark, word_of(counters[at], how[at])) for at in range(3)]
    DyingMarks.writes(client.marks, renamed, welcome.epoch, words)
    client.peer.close()
    client.marks.close(remove=False)
    assert come_again(hosts, group, 3) == expected(leases)
    assert not left(hosts, leases)


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
    (again,) = hosts.desk.wait_claim(group, 9, 5)
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
    (lease,) = hosts.desk.wait_claim(hosts.desk.group(queue), 9, 5)
    assert lease.attempt == 2
