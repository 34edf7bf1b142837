"""What a client has noted before its death counts for the host that reads it, even a later one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from embedq.broker.endings import DONE
from embedq.broker.state import GroupState
from embedq.ipc import frames
from embedq.ipc.marks import Marks, Progress, word_of
from tests.ipc.hosts import Client, Hosts, put, shown
from tests.ipc.peer import Peer


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    opened = Hosts(tmp_path / "q.db")
    opened.open()
    yield opened
    opened.close()


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


def test_what_a_client_noted_counts_after_a_host_that_died_before_the_client_heard_of_it(
    hosts: Hosts,
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
    assert len(welcome.tokens) == 4  # committed; what it noted is still of the first host
    hosts.open(serve=False)
    client.peer.close()
    client.marks.close(remove=False)
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
