"""Clients that die, stop or vanish: what they held comes back at once, and costs what it must."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from embedq import QueuePolicy
from embedq.broker.host import open_engine
from embedq.events import Notice
from embedq.ipc import frames
from embedq.ipc.calls import WORKER_DIED, WorkerDeath
from embedq.ipc.marks import read_marks
from embedq.ipc.place import folder_of
from embedq.lifecycle import Outcome, Reason
from embedq.message import ErrorInfo
from tests.ipc.conftest import Served
from tests.ipc.peer import done, eventually
from tests.processes import line_of

ROOT = Path(__file__).resolve().parents[2]


class Holder:
    """A process that holds deliveries."""

    def __init__(self, served: Served, most: int, started: int, boss: bytes | None = None) -> None:
        self.folder = folder_of(served.path)
        arguments = [served.server.endpoint, str(self.folder), str(served.g), str(most)]
        arguments += [str(started), *([] if boss is None else [boss.hex()])]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.ipc.holder", *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.token = bytes.fromhex(line_of(self.process).strip())
        self.marks = self.folder / f"{self.token.hex()}.marks"
        assert line_of(self.process) == f"holding {most}\n"

    def say(self, word: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return line_of(self.process)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


Hold = Callable[..., Holder]


@pytest.fixture
def hold(served: Served) -> Iterator[Hold]:
    holders: list[Holder] = []

    def start(most: int, started: int, boss: bytes | None = None) -> Holder:
        holder = Holder(served, most, started, boss)
        holders.append(holder)
        return holder

    yield start
    for holder in holders:
        holder.end()


def put(served: Served, count: int) -> list[int]:
    return list(served.desk.put_many(served.queue, [b"%d" % n for n in range(count)]))


def wait_for_ever(served: Served) -> None:
    """Let clients be away as long as they like: whoever is known as dead was seen to die."""
    served.server._sessions._grace_s = 3_600.0


def test_marks_can_be_read_after_a_kill(served: Served, hold: Hold) -> None:
    put(served, 3)
    holder = hold(3, 2)
    served.server.stop()  # so that nobody tidies up
    holder.end()
    counters = sorted(word for word in read_marks(holder.marks) if word)
    assert counters == sorted(lease.counter for lease in served.group.leases.values())[:2]


def test_a_killed_client_costs_an_attempt_of_what_it_had_started(
    served: Served, hold: Hold
) -> None:
    told: list[Notice] = []
    served.desk.events.on("worker_died", told.append)
    seqs = put(served, 4)
    wait_for_ever(served)
    holder = hold(4, 1)
    peer = served.peer()
    holder.end()
    leases = peer.exchange(group=served.g, most=4, wait_ms=20_000).leases
    eventually(lambda: not served.server.stats.sessions > 1)
    while len(leases) < 4:
        leases += peer.exchange(group=served.g, most=4, wait_ms=20_000).leases
    attempts = {lease.message.seq: (lease.attempt, lease.suspect) for lease in leases}
    assert attempts == {
        seqs[0]: (2, True),
        **dict.fromkeys(seqs[1:], (1, False)),
    }
    rows = served.desk.store.deliveries(seqs[0])
    assert [row.outcome for row in rows] == [Outcome.CRASHED, None]
    assert [row.crashes for row in rows] == [1, 1]
    assert rows[0].error is not None
    assert ErrorInfo.decode(rows[0].error).type == "WorkerDied"
    eventually(lambda: told)
    fields = told[0].fields
    assert (fields["worker"], fields["pid"]) == ("holder", holder.process.pid)
    assert (fields["started"], fields["released"], fields["rss"]) == (1, 3, 0)
    eventually(lambda: not holder.marks.exists())


def test_of_twenty_messages_fetched_ahead_a_death_costs_the_one_in_work_an_attempt(
    served: Served, hold: Hold
) -> None:
    seqs = put(served, 20)
    holder = hold(20, 2)
    assert holder.say("done") == "noted\n"
    holder.end()
    peer = served.peer()
    found: dict[int, tuple[int, bool]] = {}
    while len(found) < 19:
        leases = peer.exchange(group=served.g, most=20, wait_ms=20_000).leases
        assert leases, found
        found |= {lease.message.seq: (lease.attempt, lease.suspect) for lease in leases}
    assert found == dict.fromkeys(seqs[2:], (1, False)) | {seqs[1]: (2, True)}
    assert not served.desk.store.messages(seqs[:1])


def test_what_the_boss_says_about_a_death_is_kept_with_the_attempt(
    served: Served, hold: Hold
) -> None:
    (seq,) = put(served, 1)
    boss = served.peer()
    holder = hold(1, 1, boss.token)
    holder.end()
    frame = '  File "x.py", line 1\n'
    death = WorkerDeath(holder.token, -11, 1 << 20, "Segmentation fault", frame)
    args = msgspec.Raw(msgspec.msgpack.encode(death))
    assert isinstance(boss.ask(lambda n: frames.Call(n, WORKER_DIED, args)), frames.Result)
    (lease,) = boss.exchange(group=served.g, most=1, wait_ms=20_000).leases
    assert (lease.attempt, lease.suspect) == (2, True)
    error = served.desk.store.deliveries(seq)[0].error
    assert error is not None
    assert ErrorInfo.decode(error).type == "SIGSEGV"
    assert "x.py" in ErrorInfo.decode(error).traceback


def test_the_host_itself_may_be_the_boss(served: Served, hold: Hold) -> None:
    (seq,) = put(served, 1)
    holder = hold(1, 1, os.urandom(16))
    holder.end()
    served.server.report(WorkerDeath(holder.token, -9))
    (lease,) = served.peer().exchange(group=served.g, most=1, wait_ms=20_000).leases
    assert lease.attempt == 2
    error = served.desk.store.deliveries(seq)[0].error
    assert error is not None
    assert ErrorInfo.decode(error).type == "SIGKILL"


def test_who_went_as_it_was_told_has_not_died(served: Served, hold: Hold) -> None:
    told: list[Notice] = []
    served.desk.events.on("worker_died", told.append)
    put(served, 2)
    idle, busy = hold(1, 0, os.urandom(16)), hold(1, 1, os.urandom(16))
    for holder in (idle, busy):  # neither has said goodbye
        holder.end()
        served.server.report(WorkerDeath(holder.token, 0, in_order=True))
    eventually(lambda: told and not served.server.stats.sessions)
    assert [notice.fields["pid"] for notice in told] == [busy.process.pid]
    assert not idle.marks.exists()


def test_a_boss_that_says_nothing_is_not_waited_for_for_ever(served: Served, hold: Hold) -> None:
    wait_for_ever(served)
    put(served, 1)
    holder = hold(1, 1, os.urandom(16))
    holder.end()
    (lease,) = served.peer().exchange(group=served.g, most=1, wait_ms=20_000).leases
    assert lease.attempt == 2


def test_a_message_that_kills_its_worker_again_and_again_is_dead(
    served: Served, hold: Hold
) -> None:
    served.desk.queue("orders", QueuePolicy(max_attempts=9, max_crashes=2))
    (seq,) = put(served, 1)
    for _ in range(2):
        hold(1, 1).end()
    eventually(lambda: served.queue.dead == 1)
    letter = served.desk.store.dead_letter(seq, served.g)
    assert letter is not None
    assert letter.reason == Reason.CRASHED
    assert "2 attempts started, 2 crashes" in letter.detail
    assert served.group.leases == {}


def test_a_crash_of_a_worker_is_remembered_by_the_next_host(served: Served, hold: Hold) -> None:
    put(served, 1)
    hold(1, 1).end()
    eventually(lambda: served.group.index.suspects)
    served.server.stop()
    served.desk.close()
    with open_engine(served.path) as desk:
        group = desk.group(desk.queue("orders"))
        (lease,) = desk.claim(group)
        assert (lease.attempt, lease.is_suspect) == (2, True)
        assert lease.entry is not None
        assert lease.entry.crashes == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux is a heartbeat this quick")
def test_a_stopped_client_loses_what_it_holds_and_may_come_back(
    served: Served, hold: Hold
) -> None:
    told: list[Notice] = []
    served.desk.events.on("client_lost", told.append)
    first, second = put(served, 2)
    holder = hold(2, 1)
    os.kill(holder.process.pid, signal.SIGSTOP)
    peer = served.peer()
    leases: list[frames.WireLease] = []
    while len(leases) < 2:
        n = peer.n()
        peer.send(frames.Exchange(n, [], served.g, 2, None))
        answer = peer.answer_to(n, 30)  # a heartbeat that is missed, then the grace
        assert isinstance(answer, frames.Exchanged)
        leases += answer.leases
    assert {lease.message.seq: lease.attempt for lease in leases} == {first: 2, second: 1}
    eventually(lambda: told)
    os.kill(holder.process.pid, signal.SIGCONT)
    assert peer.exchange(*[done(lease, served.g) for lease in leases]).stale == []


def test_a_vanished_connection_has_a_second_to_come_back(served: Served) -> None:
    put(served, 1)
    peer = served.peer()
    (lease,) = peer.exchange(group=served.g, most=1, keep=True).leases
    gone = time.monotonic()
    peer.close()  # the process lives: it is this one
    other = served.peer()
    (again,) = other.exchange(group=served.g, most=1, wait_ms=20_000).leases
    assert time.monotonic() - gone > 0.9
    assert (again.message.seq, again.attempt) == (lease.message.seq, 2)  # it had no marks


def test_acks_that_were_sent_before_a_kill_count(served: Served, hold: Hold) -> None:
    put(served, 3)
    holder = hold(3, 3)
    assert holder.say("answer") == "answered\n"
    holder.end()
    eventually(lambda: served.server.stats.sessions == 0)
    assert served.group.acked == 3
    assert served.queue.stored == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux the kernel tells of the end")
def test_a_dead_client_is_noticed_though_a_child_of_it_holds_the_connection(
    served: Served, hold: Hold
) -> None:
    wait_for_ever(served)
    put(served, 1)
    holder = hold(1, 1)
    assert holder.say("fork") == "forked\n"
    holder.process.kill()
    (lease,) = served.peer().exchange(group=served.g, most=1, wait_ms=20_000).leases
    assert lease.attempt == 2


def test_a_worker_that_is_not_watched_by_its_process_is_noticed_by_its_lock(
    served: Served, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("embedq.ipc.sessions.watch_process", lambda _: None)
    wait_for_ever(served)
    put(served, 1)
    holder = hold(1, 1)
    holder.end()
    (lease,) = served.peer().exchange(group=served.g, most=1, wait_ms=20_000).leases
    assert lease.attempt == 2
