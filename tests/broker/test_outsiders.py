"""What clients of listeners held when their host died: an attempt, never a suspicion."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from embedq import QueuePolicy
from embedq.broker.desk import Desk
from embedq.broker.endings import Rejected
from embedq.broker.host import open_engine
from embedq.broker.state import GroupState
from embedq.events import Notice
from embedq.lifecycle import Outcome
from embedq.storage.ops import SESSION_KEPT_MS

POLICY = QueuePolicy(max_attempts=4, max_crashes=2, retain_ms=86_400_000)


class Hosts:
    """One host after the other on a queue of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.told: list[Notice] = []
        self.open()

    def open(self) -> None:
        self.desk: Desk = open_engine(self.path, upkeep=False)
        self.desk.events.on("*", self.told.append)
        self.group: GroupState = self.desk.group(self.desk.queue("q", POLICY))

    def die(self) -> None:
        self.desk.events.close()
        self.desk.writer.close()
        self.desk.store.close(clean=False)
        self.open()

    def lend(self, most: int = 10) -> list[tuple[int, int]]:
        """Give messages to a client of a listener; return their seqs and attempts."""
        session = self.desk.listeners
        leases = self.desk.claim(self.group, most, session=session)
        return [(lease.seq, lease.attempt) for lease in leases]

    def claim(self, most: int = 10) -> list[tuple[int, int]]:
        """Give messages to a consumer of the application."""
        return [(lease.seq, lease.attempt) for lease in self.desk.claim(self.group, most)]

    def history(self, seq: int) -> list[tuple[int | None, int]]:
        return [(row.outcome, row.crashes) for row in self.desk.store.deliveries(seq)]

    def names(self) -> list[str]:
        self.desk.events.flush()
        return [notice.name for notice in self.told]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    one = Hosts(tmp_path / "q.db")
    one.desk.put_many(one.group.queue, [b"1", b"2", b"3"])
    yield one
    one.desk.close()


def test_what_clients_held_comes_again_together_and_in_order(hosts: Hosts) -> None:
    assert hosts.lend() == [(1, 1), (2, 1), (3, 1)]
    hosts.die()
    assert hosts.lend() == [(1, 2), (2, 2), (3, 2)]
    assert hosts.history(1) == [(Outcome.TIMED_OUT, 0), (None, 0)]
    assert hosts.names().count("lease_expired") == 3
    assert not {"suspect", "crashed_delivery"} & set(hosts.names())


def test_what_a_handler_and_what_a_client_held_are_told_apart(hosts: Hosts) -> None:
    assert hosts.claim(1) == [(1, 1)]
    assert hosts.lend(1) == [(2, 1)]
    hosts.die()
    assert hosts.lend() == [(1, 2)]  # the suspect, which comes alone at its last chance
    assert hosts.history(1) == [(Outcome.CRASHED, 1), (None, 1)]
    hosts.desk.settle_by_id(hosts.group, 1)
    assert hosts.lend() == [(2, 2), (3, 1)]
    assert hosts.history(2) == [(Outcome.TIMED_OUT, 0), (None, 0)]


def test_attempts_under_dying_hosts_are_bounded(hosts: Hosts) -> None:
    for _ in range(4):
        assert len(hosts.lend()) == 3
        hosts.die()
    assert hosts.lend() == []
    hosts.desk.events.flush()
    (reason,) = {notice.fields["reason"] for notice in hosts.told if notice.name == "dead"}
    assert reason == "max_attempts"


def test_what_is_given_back_after_the_death_of_a_host_is_no_suspect_of_the_next(
    hosts: Hosts,
) -> None:
    hosts.lend()
    hosts.die()
    hosts.desk.release(hosts.desk.claim(hosts.group, 10, session=hosts.desk.listeners))
    assert hosts.history(1) == [(Outcome.TIMED_OUT, 0)]
    hosts.die()
    assert hosts.lend() == [(1, 2), (2, 2), (3, 2)]
    assert "suspect" not in hosts.names()


def test_a_suspect_that_a_client_held_stays_one_with_no_more_crashes(hosts: Hosts) -> None:
    assert hosts.claim(1) == [(1, 1)]
    for attempt in (2, 3):
        hosts.die()
        assert hosts.lend() == [(1, attempt)]
    assert hosts.history(1)[1:] == [(Outcome.TIMED_OUT, 1), (None, 1)]
    assert hosts.names().count("crashed_delivery") == 1


@pytest.mark.parametrize("rejected", [True, False])
def test_what_a_client_of_a_dead_host_held_can_be_settled_by_its_id(
    hosts: Hosts, *, rejected: bool
) -> None:
    hosts.lend()
    hosts.die()
    if rejected:
        hosts.desk.settle_by_id(hosts.group, 2, Rejected())
    else:
        hosts.desk.settle_by_id(hosts.group, 2)
        assert hosts.history(2) == [(Outcome.TIMED_OUT, 0), (Outcome.ACKED, 0)]
    assert hosts.lend() == [(1, 2), (3, 2)]


def test_clients_are_known_however_late_their_messages_are_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = Hosts(tmp_path / "q.db")
    hosts.desk.put_many(hosts.group.queue, [b"1"])
    hosts.lend()
    for _ in range(3):
        hosts.die()
        late = hosts.desk.now_ms() + 2 * SESSION_KEPT_MS
        monkeypatch.setattr(Desk, "now_ms", lambda _, late=late: late)
    assert hosts.lend() == [(1, 2)]
    assert "suspect" not in hosts.names()
    hosts.desk.close()


def test_the_session_of_clients_is_one_for_all_hosts(hosts: Hosts) -> None:
    before = hosts.desk.listeners, hosts.desk.session
    hosts.die()
    assert hosts.desk.listeners == before[0]
    assert hosts.desk.session not in before
    assert hosts.desk.store.session_names([hosts.desk.listeners]) == {before[0]: "listeners"}
