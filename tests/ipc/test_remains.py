"""What a client leaves behind: each delivery ends as its marks and its watcher say."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import pytest

from embedq.broker.endings import DONE, RELEASED, Failed
from embedq.broker.leases import Lease
from embedq.broker.numbered import Numbers
from embedq.broker.state import GroupState
from embedq.ipc import frames
from embedq.ipc.calls import WorkerDeath
from embedq.ipc.marks import Marks, Progress
from embedq.ipc.remains import Remains, sort_out
from embedq.ipc.session import Session
from embedq.lifecycle import Outcome
from embedq.message import ErrorInfo

EPOCH = 3
CAUSE = ErrorInfo("SIGKILL", "the worker was killed")


class Group:
    """A group as far as leases know it."""

    def __init__(self) -> None:
        self.leases: dict[int, Lease] = {}


class Client:
    """A session with five deliveries: one waits, one runs, the others have ended in some way."""

    def __init__(self, folder: Path, *, epoch: int = EPOCH, marked: bool = True) -> None:
        self.marks = Marks.create(folder, os.urandom(16))
        path = str(self.marks.path) if marked else None
        hello = frames.Hello(versions=[1], session=b"x" * 16, name="c", pid=1, marks=path)
        self.session = Session(hello, Numbers(1), 8)
        self.group = Group()
        for seq in range(1, 6):
            lease = Lease(cast("GroupState", self.group), seq, 2, 100 + seq, 0.0)
            self.group.leases[seq] = lease
            mark = self.session.add(lease)
            if seq > 1:
                self.marks.start(mark, lease.counter)
            if seq in {3, 4}:
                progress = Progress.FAILED if seq == 3 else Progress.DONE
                self.marks.end(mark, lease.counter, progress)
            if seq == 5:
                self.marks.clear(mark)
        words = self.marks.words()
        self.marks.renew(epoch, list(enumerate(words[1:])))

    def left(self, report: WorkerDeath | None = None) -> Remains:
        return sort_out(self.session, EPOCH, CAUSE, report)


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(tmp_path)


def test_only_what_ran_has_crashed(client: Client) -> None:
    left = client.left()
    assert [lease.seq for lease in left.crashed] == [2]
    endings = {lease.seq: ending for lease, ending in left.pairs}
    assert (endings[1], endings[4], endings[5]) == (RELEASED, DONE, RELEASED)
    assert isinstance(endings[3], Failed)
    assert endings[3].error is not None
    assert "nobody has heard why" in endings[3].error.message
    assert endings[3].outcome is Outcome.FAILED
    assert left.released == 2
    client.marks.close()


def test_a_worker_that_was_killed_for_a_timeout_costs_an_attempt_and_no_crash(
    client: Client,
) -> None:
    left = client.left(
        WorkerDeath(b"", -9, killed_for="timeout", timeout_s=2.0, delays_s=(1.0, 7.0))
    )
    assert left.crashed == []
    ending = {lease.seq: ending for lease, ending in left.pairs}[2]
    assert isinstance(ending, Failed)
    assert (ending.outcome, ending.delay_s) == (Outcome.TIMED_OUT, 7.0)  # its second attempt
    assert ending.error is not None
    assert ending.error.type == "Timeout"
    assert [lease.seq for lease in left.started] == [2]
    client.marks.close()


def test_a_worker_that_was_killed_to_end_a_drain_costs_nothing(client: Client) -> None:
    left = client.left(WorkerDeath(b"", -9, killed_for="drain"))
    assert left.crashed == []
    assert {lease.seq: ending for lease, ending in left.pairs}[2] is RELEASED
    assert left.released == 3
    client.marks.close()


def test_a_worker_that_crashed_by_itself_has_crashed_whatever_is_told(client: Client) -> None:
    assert [each.seq for each in client.left(WorkerDeath(b"", -11)).crashed] == [2]
    client.marks.close()


def test_without_marks_everything_has_crashed(tmp_path: Path) -> None:
    client = Client(tmp_path, marked=False)
    assert [lease.seq for lease in client.left().crashed] == [1, 2, 3, 4, 5]
    client.marks.close()


def test_marks_of_another_host_say_nothing(tmp_path: Path) -> None:
    client = Client(tmp_path, epoch=EPOCH - 1)
    assert client.left().released == 5
    client.marks.close()


def test_what_clients_of_its_listeners_had_costs_an_attempt_and_is_under_no_suspicion(
    tmp_path: Path,
) -> None:
    client = Client(tmp_path, marked=False)
    leases = client.session.leases
    leases.update({counter: held._replace(outside=True) for counter, held in leases.items()})
    left = client.left()
    assert left.crashed == []
    assert len(left.late) == 5
    assert {(end.error, end.outcome) for _, end in left.pairs if isinstance(end, Failed)} == {
        (CAUSE, Outcome.TIMED_OUT)
    }
    client.marks.close()


def test_what_they_had_before_another_host_came_is_under_no_suspicion_either(
    tmp_path: Path,
) -> None:
    client = Client(tmp_path, marked=False)
    for counter, held in list(client.session.leases.items()):
        told = frames.Held(1, held.lease.seq, counter, True, outside=True)
        client.session.give_anew(held.lease, told)
    assert client.left().crashed == []
    client.marks.close()


def test_what_the_marks_say_clients_had_is_under_no_suspicion_whoever_looks(
    tmp_path: Path,
) -> None:
    """The host that handed it out, and knew, may be dead as well."""
    client = Client(tmp_path)
    (mark, counter) = next(
        (held.mark, counter)
        for counter, held in client.session.leases.items()
        if held.lease.seq == 2
    )
    client.marks.start(mark, counter, outside=True)
    left = client.left()
    assert left.crashed == []
    assert [lease.seq for lease in left.late] == [2]
    client.marks.close()
