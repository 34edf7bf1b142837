"""The attempts that a dead host left open say how it died: in the history, letters and events."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from embedq import QueuePolicy
from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.broker.letters import Letters
from embedq.broker.state import GroupState
from embedq.errors import StoreFailed
from embedq.events import Notice
from embedq.lifecycle import Outcome, Reason
from embedq.message import DeadLetter, ErrorInfo
from tests.storage.killed import CRASH, FRAMES, leave

DAY = 86_400_000


class Hosts:
    """One host after the other on a queue of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.policy = QueuePolicy(max_attempts=9, max_crashes=2, retain_ms=DAY)
        self.told: list[Notice] = []
        self.open()

    def open(self) -> None:
        self.desk: Desk = open_engine(self.path, upkeep=False)
        self.desk.events.on("*", self.told.append)
        self.desk.announce()
        self.group: GroupState = self.desk.group(self.desk.queue("q", self.policy))

    def die(self, **left: str) -> None:
        """Let the host die, and the next one open."""
        self.desk.events.close()
        self.desk.writer.close()
        self.desk.store.close(clean=False)
        leave(self.path, **left)
        self.open()

    def put(self, count: int) -> None:
        self.desk.put_many(self.group.queue, [b"%d" % n for n in range(count)])

    def claim(self, most: int = 10) -> list[int]:
        return [lease.seq for lease in self.desk.claim(self.group, most)]

    def errors(self, seq: int) -> list[ErrorInfo | None]:
        rows = self.desk.store.deliveries(seq)
        return [None if row.error is None else ErrorInfo.decode(row.error) for row in rows]

    def types(self, seq: int) -> list[str | None]:
        return [None if error is None else error.type for error in self.errors(seq)]

    def letter(self, seq: int) -> DeadLetter:
        letters = Letters(self.group.queue, self.desk.store, self.desk.ids, self.desk.now_ms)
        return letters.show(self.desk.ids.encode(seq))

    def events(self, name: str) -> list[Notice]:
        self.desk.events.flush()
        return [notice for notice in self.told if notice.name == name]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    one = Hosts(tmp_path / "q.db")
    yield one
    one.desk.close()


def test_the_history_says_which_signal_ended_an_attempt_and_where(hosts: Hosts) -> None:
    hosts.put(1)
    hosts.claim()
    hosts.die(crash=CRASH)
    hosts.claim()
    first, second = hosts.errors(1)
    assert first is not None
    assert (first.type, first.traceback, second) == ("SIGSEGV", FRAMES, None)
    assert "crashed: Segmentation fault" in first.message
    (row, _) = hosts.desk.store.deliveries(1)
    assert row.outcome == Outcome.CRASHED


def test_a_letter_has_the_cause_of_every_crash_and_the_last_one_in_its_detail(
    hosts: Hosts,
) -> None:
    hosts.put(1)
    hosts.claim()
    hosts.die()
    hosts.claim()
    hosts.die(crash=CRASH)
    assert hosts.claim() == []
    letter = hosts.letter(1)
    assert letter.reason == Reason.CRASHED
    assert letter.detail.startswith("2 attempts started, 2 crashes; the last: SIGSEGV: the host ")
    assert [attempt.error and attempt.error.type for attempt in letter.attempts] == [
        "HostDied",
        "SIGSEGV",
    ]
    assert [attempt.outcome for attempt in letter.attempts] == [Outcome.CRASHED] * 2


def test_each_attempt_tells_of_its_own_host_however_late_it_is_met(hosts: Hosts) -> None:
    hosts.put(3)
    hosts.claim()
    hosts.die(crash=CRASH)
    assert hosts.claim() == [1]  # suspects come one at a time: 2 and 3 are still open
    hosts.die()
    hosts.die(boot="of another day")  # nothing was claimed
    while leases := hosts.desk.claim(hosts.group, 1):
        hosts.desk.ack(*leases)
    died = [attempt.error and attempt.error.type for attempt in hosts.letter(1).attempts]
    assert died == ["SIGSEGV", "HostDied"]
    assert hosts.types(2) == ["SIGSEGV", None]
    assert hosts.types(3) == ["SIGSEGV", None]


def test_neighbours_are_told_that_the_fault_may_be_anothers(hosts: Hosts) -> None:
    hosts.put(2)
    hosts.claim()
    hosts.die(crash=CRASH)
    hosts.claim()
    for seq in (1, 2):
        hosts.desk.settle_by_id(hosts.group, seq)
        error = hosts.errors(seq)[0]
        assert error is not None
        assert "nobody can tell whose fault it was" in error.message


def test_an_attempt_that_ended_by_itself_keeps_its_own_error(hosts: Hosts) -> None:
    hosts.put(1)
    (lease,) = hosts.desk.claim(hosts.group)
    hosts.desk.fail(lease, ErrorInfo("ValueError", "its own"))
    hosts.die(crash=CRASH)
    hosts.claim()
    assert hosts.types(1) == ["ValueError", None]


def test_a_suspect_that_is_given_back_keeps_the_cause_of_the_crash(hosts: Hosts) -> None:
    hosts.put(1)
    hosts.claim()
    hosts.die(crash=CRASH)
    for _ in range(2):
        (lease,) = hosts.desk.claim(hosts.group)
        hosts.desk.release([lease])
    hosts.claim()
    assert hosts.types(1) == ["SIGSEGV", None]


def test_secrets_are_hidden_before_the_cause_is_stored(hosts: Hosts) -> None:
    hosts.put(1)
    hosts.claim()
    hosts.die(crash=CRASH)
    hosts.desk.redact = lambda text: text.replace("token_4711", "***")
    hosts.claim()
    (error, _) = hosts.errors(1)
    assert error is not None
    assert "token_4711" not in error.traceback
    assert "in ***" in error.traceback


def test_events_name_the_cause(hosts: Hosts) -> None:
    hosts.put(1)
    hosts.claim()
    hosts.die(crash=CRASH)
    hosts.claim()
    start, crash = hosts.events("unclean_start")[-1], hosts.events("crashed_delivery")[-1]
    for notice in (start, crash):
        assert str(notice.fields["cause"]).startswith("SIGSEGV: the host (process ")
        assert "crashed: Segmentation fault" in notice.text
        assert "nobody can tell" not in notice.text  # short: the attempt has the rest


def test_a_host_that_lost_its_store_is_told_apart_from_one_that_died(hosts: Hosts) -> None:
    hosts.put(1)
    hosts.claim()
    hosts.desk.store.stop(StoreFailed("the disk is gone"))
    hosts.desk.close()
    hosts.open()
    hosts.claim()
    (error, _) = hosts.errors(1)
    assert error is not None
    assert error.type == "Stopped"
    assert "stopped serving (store_failed)" in error.message
